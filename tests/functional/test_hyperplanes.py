from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metriscope.functional import (
    bias_through,
    deduplicate,
    distance_to_point,
    mirrored_pairs,
    signed_distance,
)
from metriscope.rng import stream

few = settings(max_examples=25)
seeds = st.integers(0, 2**32)
sizes = st.integers(1, 6)


def draw(seed, *shape):
    return torch.randn(*shape, generator=stream(seed, *shape), dtype=torch.float64)


@few
@given(seed=seeds, d=sizes, k=sizes)
def test_stepping_back_by_the_signed_distance_lands_on_the_hyperplane(seed, d, k):
    x, weight, bias = draw(seed, 5, d), draw(seed, k, d), draw(seed, k)
    step = signed_distance(x, weight, bias)
    normal = weight / torch.linalg.vector_norm(weight, dim=-1, keepdim=True)
    foot = x[:, None] - step[..., None] * normal
    assert ((foot * weight).sum(-1) + bias).abs().max() < 1e-9


@few
@given(seed=seeds, scale=st.floats(0.01, 100))
def test_distances_do_not_change_when_a_unit_is_scaled_or_mirrored(seed, scale):
    point, weight, bias = draw(seed, 3), draw(seed, 4, 3), draw(seed, 4)
    distances = distance_to_point(point, weight, bias)
    torch.testing.assert_close(distance_to_point(point, scale * weight, scale * bias), distances)
    torch.testing.assert_close(distance_to_point(point, -weight, -bias), distances)


def test_a_unit_without_weights_has_no_distance_whatever_its_bias():
    weight, bias = torch.zeros(2, 3), torch.tensor([0.0, 1.0])
    assert distance_to_point(torch.ones(3), weight, bias).isnan().all()
    assert signed_distance(torch.ones(4, 3), weight, bias).isnan().all()


def test_a_stack_of_layers_is_measured_as_each_is_alone():
    point, weight, bias = draw(0, 3), draw(0, 2, 4, 3), draw(0, 2, 4)
    alone = torch.stack([distance_to_point(point, *layer) for layer in zip(weight, bias, strict=True)])
    torch.testing.assert_close(distance_to_point(point, weight, bias), alone)


@few
@given(seed=seeds, d=sizes, k=sizes)
def test_the_bias_through_a_point_puts_the_hyperplane_there(seed, d, k):
    weight, points = draw(seed, 2, k, d), draw(seed + 1, 2, k, d)
    bias = bias_through(weight, points)
    assert signed_distance(points, weight, bias).diagonal(dim1=-2, dim2=-1).abs().max() < 1e-9


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"points must have the shape \(\.\.\., 2, 3\), got \(3, 3\)"):
        bias_through(torch.zeros(2, 3), torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"x must have the shape \(\.\.\., points, 3\), got \(1, 2\)"):
        signed_distance(torch.zeros(1, 2), torch.zeros(2, 3), torch.zeros(2))
    with pytest.raises(ValueError, match=r"bias must have the shape \(\.\.\., 2\), got \(3,\)"):
        distance_to_point(torch.zeros(3), torch.zeros(2, 3), torch.zeros(3))
    with pytest.raises(ValueError, match=r"bias must have the shape \(2,\), got \(3,\)"):
        deduplicate(torch.zeros(2, 3), torch.zeros(3))
    with pytest.raises(ValueError, match=r"shape \(units, features\), got \(3,\)"):
        mirrored_pairs(torch.zeros(3))
    for threshold in (0.0, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"threshold must lie in \(0, 1\]"):
            mirrored_pairs(torch.zeros(2, 3), threshold)


@few
@given(seed=seeds, k=st.integers(1, 20), d=st.integers(2, 9), threshold=st.sampled_from([0.999, 1.0]))
def test_every_unit_finds_its_scaled_mirror_image(seed, k, d, threshold):
    weight = draw(seed, k, d)
    scale = 0.1 + torch.rand(k, 1, generator=stream(seed, "scale"), dtype=torch.float64)
    order = torch.randperm(2 * k, generator=stream(seed, "order"))
    pairs = mirrored_pairs(torch.cat([weight, -scale * weight])[order], threshold)
    found = {frozenset(order[pair].tolist()) for pair in pairs[:, :2].long()}
    assert found == {frozenset((unit, unit + k)) for unit in range(k)}


def greedy(weight, threshold):
    """Take the most mirrored free pair, again and again."""
    direction = weight / weight.norm(dim=1, keepdim=True)
    cosine = direction @ direction.T
    units = range(len(weight))
    candidates = sorted((float(cosine[i, j]), i, j) for i in units for j in units if i < j)
    used, rows = set(), []
    for value, i, j in candidates:
        if value <= -threshold and not used & {i, j}:
            used |= {i, j}
            rows.append([i, j, value])
    return rows


@few
@given(seed=seeds, k=st.integers(1, 25), threshold=st.floats(0.05, 0.9))
def test_rounds_of_mutual_choice_are_the_greedy_choice(seed, k, threshold):
    weight = draw(seed, k, 2)
    expected = torch.tensor(greedy(weight, threshold), dtype=torch.float64).reshape(-1, 3)
    torch.testing.assert_close(mirrored_pairs(weight, threshold), expected)


def test_equal_candidates_are_taken_in_the_order_of_their_units():
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-2.0, 0.0], [3.0, 0.0], [1.0, 0.0]])
    assert mirrored_pairs(weight).tolist() == [[0, 1, -1], [2, 3, -1]]


def test_units_without_weights_and_parallel_units_pair_with_none():
    assert mirrored_pairs(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).shape == (0, 3)
    assert mirrored_pairs(torch.zeros(0, 3)).shape == (0, 3)


@few
@given(seed=seeds, k=st.integers(1, 8))
def test_deduplication_undoes_mirroring_and_keeps_what_has_no_mirror(seed, k):
    weight, bias = draw(seed, k, 9), draw(seed, k)
    kept = deduplicate(torch.cat([weight, -weight[:-1]]), torch.cat([bias, -bias[:-1]]))
    torch.testing.assert_close(kept, (weight, bias), rtol=0, atol=0)


@pytest.mark.parametrize("scale", [1e20, 1e38, 1e-20, 1e-30, 1e-38, 1e-42])
def test_distances_do_not_overflow_or_vanish_with_the_size_of_the_weights(scale):
    x, weight, bias = (draw(1, 5, 3).float(), draw(1, 4, 3).float(), draw(1, 4).float())
    weight, bias = weight / weight.abs().max(), bias / bias.abs().max()
    scaled, shift = weight * scale, bias * scale
    # What float32 holds of the scaled weights, measured where nothing can overflow.
    expected = signed_distance(x.double(), scaled.double(), shift.double())
    torch.testing.assert_close(signed_distance(x, scaled, shift).double(), expected, rtol=1e-4, atol=1e-5)


@few
@given(seed=seeds)
def test_ordinary_weights_give_the_bits_of_the_plain_formula(seed):
    x, weight, bias = (draw(seed, 5, 3).float(), draw(seed, 4, 3).float(), draw(seed, 4).float())
    plain = (x @ weight.mT + bias) / torch.linalg.vector_norm(weight, dim=-1)
    torch.testing.assert_close(signed_distance(x, weight, bias), plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_mirrored_pairs_do_not_depend_on_the_size_of_the_weights(scale):
    weight = draw(0, 3, 4)
    pairs = mirrored_pairs(torch.cat([weight, -weight]) * scale)
    assert sorted(pairs[:, :2].tolist()) == [[0, 3], [1, 4], [2, 5]]


def test_gradients_pass_through_a_signed_distance():
    weight = draw(0, 4, 3).requires_grad_()
    x, bias = draw(0, 5, 3), draw(0, 4)
    assert torch.autograd.gradcheck(lambda w: signed_distance(x, w, bias), weight)
