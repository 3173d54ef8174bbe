from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import LedoitWolf
from torch import nn

import metriscope
from metriscope.nn import init_from_clusters_, init_through_points_
from metriscope.nn.clusters import cluster_count
from metriscope.nn.layers import fresh_linear
from metriscope.rng import stream

few = settings(max_examples=15)
seeds = st.integers(0, 2**32)


def draw(seed, *shape):
    return torch.randn(*shape, generator=stream(seed, *shape), dtype=torch.float64)


def linear(d, k):
    return nn.Linear(d, k, dtype=torch.float64)


def blobs(seed, sizes, d=3, apart=1000.0):
    """Clusters far apart along the first axis, in a random order of points."""
    parts = [draw(seed + i, n, d) + apart * i * torch.eye(d, dtype=torch.float64)[0] for i, n in enumerate(sizes)]
    points = torch.cat(parts)
    return parts, points[torch.randperm(len(points), generator=stream(seed, "order"))]


def whitening(cluster):
    """Return the eigenvectors of the sample covariance over their deviations, by numpy."""
    variances, vectors = np.linalg.eigh(np.atleast_2d(np.cov(cluster.numpy().T)))
    return (vectors / np.sqrt(variances)).T[::-1]


@few
@given(seed=seeds, d=st.integers(1, 5), k=st.integers(1, 6))
def test_each_hyperplane_passes_through_a_point_and_the_weights_stay(seed, d, k):
    layer, x = linear(d, k), draw(seed, 7, d)
    weight = layer.weight.detach().clone()
    assert init_through_points_(layer, x, stream(seed)) is layer
    assert layer(x).abs().min(0).values.max() < 1e-12
    assert torch.equal(layer.weight, weight)


def test_points_are_drawn_from_the_generator_and_reach_all_of_the_data():
    x = draw(0, 5, 2)
    one, other = (linear(2, 400).requires_grad_(False) for _ in range(2))
    other.load_state_dict(one.state_dict())
    assert torch.equal(init_through_points_(one, x, stream(1)).bias, init_through_points_(other, x, stream(1)).bias)
    assert set(one(x).abs().argmin(0).tolist()) == {0, 1, 2, 3, 4}


@few
@given(seed=seeds, d=st.integers(1, 6))
def test_one_cluster_and_as_many_units_as_features_whiten_the_sample(seed, d):
    x = draw(seed, 40, d) @ draw(seed, d, d) + 5
    layer = init_from_clusters_(linear(d, d), x, 1, stream(seed)).requires_grad_(False)
    sample = np.cov(x.numpy().T).reshape(d, d)
    weight = layer.weight.numpy()
    np.testing.assert_allclose(weight @ sample @ weight.T, np.eye(d), atol=1e-6)
    np.testing.assert_allclose(layer(x).mean(0), np.zeros(d), atol=1e-6)


@few
@given(seed=st.integers(0, 2**16))
def test_each_cluster_is_whitened_and_larger_ones_get_the_units_left_over(seed):
    parts, x = blobs(seed, [20, 60, 40])
    layer = init_from_clusters_(linear(3, 8), x, 3, stream(seed)).requires_grad_(False)
    start = 0
    for cluster, units in ((parts[1], 3), (parts[2], 3), (parts[0], 2)):
        weight, bias = layer.weight[start : start + units], layer.bias[start : start + units]
        expected = whitening(cluster)[:units]
        cosines = (weight.numpy() * expected).sum(1) / (expected**2).sum(1)
        np.testing.assert_allclose(np.abs(cosines), 1, rtol=1e-6)
        np.testing.assert_allclose(bias, -weight @ cluster.mean(0), rtol=1e-9, atol=1e-9)
        start += units


def test_units_beyond_the_directions_are_mirrors_in_the_same_order_and_then_come_again():
    layer = init_from_clusters_(linear(2, 7), draw(2, 30, 2), 1, stream(2)).requires_grad_(False)
    planes = torch.cat([layer.weight, layer.bias[:, None]], dim=1)
    assert torch.equal(planes[2:4], -planes[:2])
    assert torch.equal(planes[4:6], planes[:2])
    assert torch.equal(planes[6], -planes[0])


def test_directions_without_variance_are_skipped():
    x = torch.cat([draw(3, 30, 2), torch.full((30, 1), 0.1, dtype=torch.float64)], dim=1)
    layer = init_from_clusters_(linear(3, 4), x, 1, stream(3)).requires_grad_(False)
    assert bool((layer.weight[:, 2].abs() < 1e-6).all())
    assert torch.equal(layer.weight[2:], -layer.weight[:2])


def test_a_cluster_smaller_than_its_space_is_shrunk_and_has_every_direction():
    """With a covariance C, whitening directions W satisfy W C W' = I: the inverse of W' W is the covariance used."""
    x = draw(4, 6, 10) * torch.arange(1, 11)
    layer = init_from_clusters_(linear(10, 10), x, 1, stream(4)).requires_grad_(False)
    used = np.linalg.inv((layer.weight.mT @ layer.weight).numpy())
    points = x.numpy()
    scaled = (points - points.mean(0)) / points.std(0)
    known = LedoitWolf(assume_centered=True).fit(scaled)
    assert 1 / 6 < known.shrinkage_ < 1
    sizes = points.std(0)
    np.testing.assert_allclose(used, known.covariance_ * 6 / 5 * sizes * sizes[:, None], rtol=1e-9, atol=1e-12)


def test_shrinkage_commutes_with_units_of_features():
    x, scales = draw(5, 6, 10), torch.logspace(-2, 2, 10, dtype=torch.float64)
    plain, scaled = (init_from_clusters_(linear(10, 10), p, 1, stream(4)).weight for p in (x, x * scales))
    expected = plain.mT @ plain / scales / scales[:, None]
    torch.testing.assert_close((scaled.mT @ scaled) / expected, torch.ones_like(expected), rtol=1e-4, atol=1e-4)


def test_two_points_in_many_dimensions_give_as_many_directions_as_features():
    x = draw(6, 2, 8)
    layer = init_from_clusters_(linear(8, 8), x, 1, stream(4)).requires_grad_(False)
    assert torch.linalg.matrix_rank(layer.weight) == 8
    torch.testing.assert_close(layer(x.mean(0)), torch.zeros(8, dtype=torch.float64))


def test_constant_features_get_no_weight_however_small_the_clusters():
    x = draw(7, 9, 12)
    x[:, [2, 5]] = 0.1
    layer = init_from_clusters_(linear(12, 40), x, 3, stream(4)).requires_grad_(False)
    assert layer.weight[:, [2, 5]].abs().max() < 1e-9
    assert bool(layer.weight.isfinite().all())
    assert layer.weight.abs().amax(1).min() > 0


def test_a_cluster_that_is_one_point_takes_the_covariance_within_all_clusters():
    parts, x = blobs(8, [40, 1], d=3)
    layer = init_from_clusters_(linear(3, 6), x, 2, stream(4)).requires_grad_(False)
    torch.testing.assert_close(layer.weight[3:], layer.weight[:3])
    assert layer(parts[1])[0, 3:].abs().max() < 1e-9


@pytest.mark.parametrize("how", ["silhouette", "bic"])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_number_of_clusters_is_found_where_they_lie_apart(how, count):
    parts, x = blobs(9, [50] * count, d=3, apart=30.0)
    assert cluster_count(x, how, stream(9)) == count
    layer = init_from_clusters_(linear(3, count), x, how, stream(9)).requires_grad_(False)
    centers = torch.stack([part.mean(0) for part in parts])
    assert sorted(layer(centers).abs().argmin(0).tolist()) == list(range(count))
    assert layer(centers).abs().amin(0).max() < 1e-9


def test_the_information_criterion_finds_one_cluster_in_one_gaussian_and_too_few_points_are_one():
    assert cluster_count(draw(10, 300, 4) @ draw(10, 4, 4), "bic", stream(10)) == 1
    for how in ("silhouette", "bic"):
        assert cluster_count(draw(10, 2, 4), how, stream(10)) == 1


def test_fewer_units_than_clusters_go_to_the_largest():
    parts, x = blobs(5, [1, 50, 30])
    layer = init_from_clusters_(linear(3, 2), x, 3, stream(5)).requires_grad_(False)
    centers = torch.stack([parts[1].mean(0), parts[2].mean(0)])
    assert layer(centers).diagonal().abs().max() < 1e-9


def test_the_generator_decides_and_the_global_state_stays():
    x, before = draw(6, 200, 4), torch.random.get_rng_state()
    layers = [linear(4, 12) for _ in range(2)]
    before = torch.random.get_rng_state()
    one, other = (init_from_clusters_(layer, x, 4, stream(6)).state_dict() for layer in layers)
    torch.testing.assert_close(one, other)
    init_through_points_(layers[0], x, stream(6))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_float32_layers_and_read_only_arrays_are_welcome():
    x = draw(7, 30, 2).numpy()
    x.flags.writeable = False
    layer = init_from_clusters_(nn.Linear(2, 2), x, 1, stream(7))
    exact = init_from_clusters_(linear(2, 2), x, 1, stream(7))
    assert torch.equal(layer.weight, exact.weight.float())
    assert init_through_points_(layer, x).bias.dtype is torch.float32


@pytest.mark.parametrize(
    "init",
    [init_through_points_, lambda layer, x: init_from_clusters_(layer, x, 1)],
    ids=["points", "clusters"],
)
def test_what_is_no_data_for_the_layer_is_refused(init):
    with pytest.raises(ValueError, match="linear must have a bias to move its hyperplanes, got bias=False"):
        init(nn.Linear(2, 2, bias=False), torch.ones(3, 2))
    with pytest.raises(ValueError, match=r"x must have the shape \(points, 2\), got \(3, 4\)"):
        init(nn.Linear(2, 2), torch.ones(3, 4))
    with pytest.raises(ValueError, match=r"x must have the shape \(points, 2\), got \(2,\)"):
        init(nn.Linear(2, 2), torch.ones(2))
    with pytest.raises(ValueError, match=r"x must hold at least one number, got the shape \(0, 2\)"):
        init(nn.Linear(2, 2), torch.ones(0, 2))
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="x must be finite, got 6 NaN or infinite of 6 entries"):
            init(nn.Linear(2, 2), torch.full((3, 2), value))


def test_clusters_that_cannot_be_are_refused_and_the_layer_stays():
    layer = nn.Linear(2, 4)
    before = layer.weight.detach().clone()
    with pytest.raises(ValueError, match="n_clusters must be a positive integer, got 0"):
        init_from_clusters_(layer, torch.ones(3, 2), 0)
    with pytest.raises(ValueError, match="n_clusters must be a positive integer, 'silhouette' or 'bic', got 'aic'"):
        init_from_clusters_(layer, torch.ones(3, 2), "aic")
    with pytest.raises(ValueError, match="5 clusters need at least as many points, got 3"):
        init_from_clusters_(layer, torch.ones(3, 2), 5)
    with pytest.raises(ValueError, match="x has only 1 distinct points, too few for 2 clusters"):
        init_from_clusters_(layer, torch.full((3, 2), 0.1), 2)
    with pytest.raises(ValueError, match="a cluster of 3 points varies in no direction"):
        init_from_clusters_(layer, torch.full((3, 2), 0.1), 1)
    with pytest.raises(ValueError, match="a cluster of 1 point varies in no direction"):
        init_from_clusters_(layer, torch.eye(2), 2)
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("name", ["init_from_clusters", "init_through_points"])
def test_the_old_names_still_work_and_warn(name):
    x, counts = draw(8, 30, 2), {"n_clusters": 2} if "clusters" in name else {}
    one, other = (fresh_linear(2, 4, generator=stream(8)).double() for _ in range(2))
    for module in (metriscope, metriscope.nn):
        with pytest.warns(DeprecationWarning, match=f"{name} is deprecated: call {name}_$"):
            assert getattr(module, name)(one, x, **counts, generator=stream(8)) is one
        assert name not in module.__all__
    getattr(metriscope, f"{name}_")(other, x, **counts, generator=stream(8))
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)
