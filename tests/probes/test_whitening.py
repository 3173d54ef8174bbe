from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from metriscope import probes
from metriscope.data import random_gaussian
from metriscope.rng import stream

few = settings(max_examples=15)
seeds = st.integers(0, 2**32)
dims = st.integers(1, 6)


def normal(seed, *shape):
    return torch.randn(*shape, generator=stream(seed, "normal"), dtype=torch.float64)


def orthogonal(seed, size):
    return torch.linalg.qr(normal(seed, size, size))[0]


def covariance(seed, dim):
    """Return a covariance with eigenvalues far enough apart to identify its axes."""
    rotation = torch.linalg.qr(torch.randn(dim, dim, generator=stream(seed, "axes"), dtype=torch.float64))[0]
    values = 0.4 ** torch.arange(dim, dtype=torch.float64)
    cov = rotation * values @ rotation.mT
    return (cov + cov.mT) / 2, values, rotation.mT


def whitener(seed, dim):
    """Return a covariance and its whitening by principal axes, largest variance first."""
    cov, values, axes = covariance(seed, dim)
    return cov, axes / values.sqrt()[:, None]


def layer(weight, bias):
    linear = nn.Linear(weight.shape[1], len(weight), dtype=torch.float64)
    linear.load_state_dict({"weight": weight, "bias": bias})
    return linear


@few
@given(seed=seeds, dim=dims, factor=st.floats(0.01, 100))
def test_sphericity_is_zero_for_every_whitening_rotated_and_scaled(seed, dim, factor):
    cov, whiten = whitener(seed, dim)
    assert probes.sphericity(factor * orthogonal(seed, dim) @ whiten, cov) < 1e-9


@few
@given(seed=seeds, units=dims, dim=dims, factor=st.floats(0.01, 100))
def test_sphericity_does_not_change_when_units_are_rotated_or_scaled_alike(seed, units, dim, factor):
    cov, weight = covariance(seed, dim)[0], normal(seed, units, dim)
    rotated = probes.sphericity(factor * orthogonal(seed, units) @ weight, cov)
    assert rotated == pytest.approx(probes.sphericity(weight, cov), rel=1e-8, abs=1e-10)


@few
@given(seed=seeds, dim=st.integers(2, 6), factor=st.floats(1.1, 100))
def test_sphericity_changes_when_one_unit_is_scaled(seed, dim, factor):
    cov, whiten = whitener(seed, dim)
    whiten[0] *= factor
    # M = diag(f², 1, ..., 1), divided by its mean m, less the identity.
    mean = (factor**2 + dim - 1) / dim
    expected = np.sqrt((factor**2 / mean - 1) ** 2 + (dim - 1) * (1 / mean - 1) ** 2)
    assert probes.sphericity(whiten, cov) == pytest.approx(expected, rel=1e-8)


@few
@given(seed=seeds, dim=st.integers(2, 8), lost=st.integers(1, 7))
def test_sphericity_of_lost_directions_is_its_closed_form(seed, dim, lost):
    assume(lost < dim)
    cov, whiten = whitener(seed, dim)
    whiten[:lost] = 0
    found = probes.sphericity(orthogonal(seed, dim) @ whiten, cov)
    assert found == pytest.approx(np.sqrt(lost * dim / (dim - lost)), rel=1e-8)


@few
@given(seed=seeds, dim=dims, more=st.integers(1, 6))
def test_more_units_than_directions_have_a_least_sphericity(seed, dim, more):
    cov, whiten = whitener(seed, dim)
    units = dim + more
    least = np.sqrt(units * (units - dim) / dim)
    assert probes.sphericity(orthogonal(seed, units)[:, :dim] @ whiten, cov) == pytest.approx(least, rel=1e-8)
    assert probes.sphericity(normal(seed, units, dim), cov) >= least * (1 - 1e-9)


def test_a_layer_that_is_constant_on_the_data_has_no_sphericity():
    assert np.isnan(probes.sphericity(torch.zeros(2, 2), torch.eye(2)))


@few
@given(seed=seeds, dim=dims, mirrored=st.booleans())
def test_the_metric_is_right_for_every_rotation_of_the_whitening(seed, dim, mirrored):
    cov, whiten = whitener(seed, dim)
    weight = orthogonal(seed, dim) @ whiten
    weight = torch.cat([weight, -weight]) / 2**0.5 if mirrored else weight
    assert probes.metric_error(weight, cov, relative=True) < 1e-9
    assert probes.metric_error(weight, cov) < 1e-6


@few
@given(seed=seeds, dim=dims, factor=st.floats(0, 10))
def test_a_scaled_metric_is_wrong_by_its_closed_form(seed, dim, factor):
    cov, whiten = whitener(seed, dim)
    wrong = abs(factor**2 - 1)
    assert probes.metric_error(factor * whiten, cov, relative=True) == pytest.approx(wrong, rel=1e-8, abs=1e-9)
    size = np.linalg.norm(np.linalg.inv(cov.numpy()))
    assert probes.metric_error(factor * whiten, cov) == pytest.approx(wrong * size, rel=1e-8, abs=1e-6)


@few
@given(seed=seeds, units=st.integers(1, 5), dim=st.integers(1, 5))
def test_the_recovered_axes_are_the_best_of_all_matchings(seed, units, dim):
    cov, _, axes = covariance(seed, dim)
    weight = normal(seed, units, dim)
    found = probes.eigen_recovery(weight, cov)
    cosines = np.abs((axes @ weight.mT / torch.linalg.vector_norm(weight, dim=1)).numpy())
    if units >= dim:
        best = max(sum(cosines[a, u] for a, u in enumerate(order)) for order in permutations(range(units), dim))
    else:
        best = max(sum(cosines[a, u] for u, a in enumerate(order)) for order in permutations(range(dim), units))
    assert np.nansum(found.cosines) == pytest.approx(best, rel=1e-9)
    matched = np.flatnonzero(~np.isnan(found.cosines))
    assert len(matched) == min(units, dim)
    chosen = found.units[matched].astype(int)
    assert len(set(chosen)) == len(chosen)
    np.testing.assert_allclose(found.cosines[matched], cosines[matched, chosen], rtol=1e-8)
    np.testing.assert_allclose(found.estimates[matched], 1 / weight.square().sum(1).numpy()[chosen], rtol=1e-9)
    assert found.mean_cosine == pytest.approx(best / len(matched), rel=1e-9)


@few
@given(seed=seeds, dim=dims, order=st.randoms(use_true_random=False))
def test_a_whitening_by_principal_axes_gives_back_eigenvalues_and_axes(seed, dim, order):
    cov, whiten = whitener(seed, dim)
    rows = list(range(dim))
    order.shuffle(rows)
    found = probes.eigen_recovery(whiten[rows], cov)
    assert [rows[unit] for unit in found.units] == list(range(dim))
    np.testing.assert_allclose(found.cosines, 1, rtol=1e-9)
    np.testing.assert_allclose(found.eigenvalues, 0.4 ** np.arange(dim), rtol=1e-8)
    np.testing.assert_allclose(found.estimates, found.eigenvalues, rtol=1e-8)
    assert found.log_error < 1e-8
    assert probes.eigen_recovery(10**0.5 * whiten, cov).log_error == pytest.approx(1)


def test_axes_without_a_unit_are_nan_and_the_means_leave_them_out():
    cov = torch.diag(torch.tensor([4.0, 1.0, 0.25]))
    found = probes.eigen_recovery(torch.tensor([[0.0, 0.0, 2.0]]), cov)
    for values in (found.estimates, found.cosines, found.units):
        assert np.isnan(values).tolist() == [True, True, False]
    assert (found.mean_cosine, found.log_error, found.units[2]) == (1.0, 0.0, 0)
    table = found.to_pandas()
    assert list(table) == ["eigenvalue", "estimate", "cosine", "unit"]
    assert table["eigenvalue"].tolist() == [4.0, 1.0, 0.25]


def test_units_beyond_the_axes_are_left_out_and_counted_as_whole_numbers():
    cov = torch.diag(torch.tensor([4.0, 1.0]))
    found = probes.eigen_recovery(torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.5, 0.0]]), cov)
    assert found.units.tolist() == [2, 1]
    assert found.units.dtype == np.int64
    assert found.estimates.tolist() == [4.0, 1.0]


def lossy_layer(seed, dim, lost, constant, extra=0):
    """Return a layer that is white but for some principal axes, with a constant in their place."""
    gaussian_mean = 5 * normal(seed + 1, dim)
    cov, whiten = whitener(seed, dim)
    kept = [axis for axis in range(dim) if axis not in lost]
    rotation = orthogonal(seed, dim + extra)
    weight = rotation[:, : len(kept)] @ whiten[kept]
    outside = rotation[:, len(kept)] * constant if len(kept) < dim + extra else torch.zeros(dim)
    return layer(weight, outside - weight @ gaussian_mean), gaussian_mean, cov


@few
@given(seed=seeds, dim=st.integers(1, 6), lost=st.sets(st.integers(0, 5)), constant=st.floats(0, 5), extra=dims)
def test_lost_directions_are_counted_named_and_their_constant_found(seed, dim, lost, constant, extra):
    lost = {axis for axis in lost if axis < dim}
    linear, mean, cov = lossy_layer(seed, dim, lost, constant, extra)
    found = probes.metric_rank(linear, mean, cov)
    assert found.rank == dim - len(lost)
    np.testing.assert_allclose(found.eigenvalues, [1.0] * found.rank + [0.0] * len(lost), atol=1e-9)
    assert found.lost.shape == (len(lost), dim)
    np.testing.assert_allclose(found.lost.sum(0), [float(axis in lost) for axis in range(dim)], atol=1e-9)
    np.testing.assert_allclose(found.lost.sum(1), 1, rtol=1e-9)
    assert found.constant == pytest.approx(constant, rel=1e-8, abs=1e-8)
    assert found.lost_axis in lost if lost else np.isnan(found.lost_axis)


@few
@given(seed=seeds, dim=st.integers(2, 6), axis=st.integers(0, 5), constant=st.floats(0, 5))
def test_mirrored_relu_units_have_the_metric_of_the_abs_units_they_stand_for(seed, dim, axis, constant):
    linear, mean, cov = lossy_layer(seed, dim, {axis % dim}, constant)
    mirrored = layer(torch.cat([linear.weight, -linear.weight]), torch.cat([linear.bias, -linear.bias]))
    one, two = probes.metric_rank(linear, mean, cov), probes.metric_rank(mirrored, mean, cov, share=0.5)
    assert (one.rank, one.lost_axis) == (two.rank, two.lost_axis) == (dim - 1, axis % dim)
    np.testing.assert_allclose(one.eigenvalues, two.eigenvalues, atol=1e-9)
    assert two.constant == pytest.approx(one.constant, rel=1e-8, abs=1e-8)


@few
@given(seed=seeds, dim=st.integers(2, 6), axis=st.integers(0, 5), constant=st.floats(0, 5))
def test_a_share_per_unit_weighs_each_units_square(seed, dim, axis, constant):
    linear, mean, cov = lossy_layer(seed, dim, {axis % dim}, constant)
    sizes = 0.5 + normal(seed + 2, dim).abs()
    longer = layer(linear.weight * sizes[:, None], linear.bias * sizes)
    one, two = probes.metric_rank(linear, mean, cov), probes.metric_rank(longer, mean, cov, sizes**-2)
    np.testing.assert_allclose(two.eigenvalues, one.eigenvalues, atol=1e-9)
    assert two.constant == pytest.approx(one.constant, rel=1e-8, abs=1e-8)


def test_a_unit_that_is_never_on_measures_nothing():
    doubled = layer(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 9.0]]), torch.zeros(3))
    found = probes.metric_rank(doubled, np.zeros(2), np.eye(2), share=np.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(found.eigenvalues, [1.0, 1.0])


def test_shares_that_do_not_fit_the_units_are_refused():
    linear = nn.Linear(2, 3)
    with pytest.raises(ValueError, match=r"share must have the shape \(3,\), got \(2,\)"):
        probes.metric_rank(linear, np.zeros(2), np.eye(2), share=np.ones(2))
    with pytest.raises(ValueError, match=r"share must be 0 or more for every unit, got -0\.1"):
        probes.metric_rank(linear, np.zeros(2), np.eye(2), share=np.array([1.0, 1.0, -0.1]))


@few
@given(seed=seeds, units=dims, dim=dims)
def test_the_eigenvalues_of_a_metric_are_those_of_the_learned_covariance(seed, units, dim):
    cov, weight = covariance(seed, dim)[0], normal(seed, units, dim)
    found = probes.metric_rank(layer(weight, torch.zeros(units)), torch.zeros(dim), cov, threshold=0.3)
    learned = np.linalg.eigvalsh((weight @ cov @ weight.mT).numpy())[::-1]
    shared = min(units, dim)
    np.testing.assert_allclose(found.eigenvalues[:shared], learned[:shared], rtol=1e-7, atol=1e-10)
    assert not found.eigenvalues[shared:].any()
    assert found.rank == (found.eigenvalues > 0.3).sum()


def test_a_layer_without_bias_keeps_no_constant_when_the_mean_is_at_the_origin():
    linear = nn.Linear(2, 3, bias=False, dtype=torch.float64)
    assert probes.metric_rank(linear, np.zeros(2), np.eye(2)).constant == 0.0


def test_a_metric_with_a_constant_is_what_the_network_computes():
    # The distance of an Abs network is the norm of what is measured and the constant that stands in.
    linear, mean, cov = lossy_layer(3, 4, {1}, 0.7)
    x = random_gaussian(4, stream(3)).sample(50, stream(4)) + mean
    found = probes.metric_rank(linear, mean, cov)
    whitened = (x - mean) @ whitener(3, 4)[1].mT
    measured = whitened[:, [0, 2, 3]].square().sum(1)
    distance = torch.linalg.vector_norm(linear(x), dim=1)
    torch.testing.assert_close(distance.detach(), (measured + found.constant**2).sqrt(), rtol=1e-8, atol=1e-8)


def test_what_does_not_fit_the_covariance_is_refused():
    shapes = r"cov must have the shape \(\.\.\., 3, 3\), got \(2, 2\)"
    for probe in (probes.sphericity, probes.metric_error, probes.eigen_recovery):
        with pytest.raises(ValueError, match=shapes):
            probe(torch.ones(2, 3), torch.eye(2))
    with pytest.raises(ValueError, match=r"weight must have the shape \(units, features\), got \(2,\)"):
        probes.sphericity(torch.ones(2), torch.eye(2))
    linear = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"mean must have the shape \(2,\), got \(3,\)"):
        probes.metric_rank(linear, torch.zeros(3), torch.eye(2))
    with pytest.raises(ValueError, match="cov must be a covariance that is positive definite"):
        probes.metric_rank(linear, torch.zeros(2), torch.zeros(2, 2))
