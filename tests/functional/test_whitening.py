from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metriscope.functional import (
    expected_sphericity,
    learned_covariance,
    principal_axes,
    sphericity,
    whitening_factor,
)
from metriscope.rng import stream

few = settings(max_examples=25)
seeds = st.integers(0, 2**32)
sizes = st.integers(1, 8)


def draw(seed, *shape):
    return torch.randn(*shape, generator=stream(seed, *shape), dtype=torch.float64)


def covariance(seed, d, *stack):
    root = draw(seed, *stack, d, d)
    return root @ root.mT + 0.1 * torch.eye(d, dtype=torch.float64)


@few
@given(seed=seeds, d=sizes)
def test_the_factor_whitens_and_its_gram_matrix_is_the_inverse_covariance(seed, d):
    cov = covariance(seed, d)
    factor = whitening_factor(cov)
    np.testing.assert_allclose(factor @ cov @ factor.mT, np.eye(d), atol=1e-9)
    np.testing.assert_allclose(factor.mT @ factor, np.linalg.inv(cov), rtol=1e-7, atol=1e-9)


@few
@given(seed=seeds, d=st.integers(2, 8))
def test_directions_come_by_descending_variance_with_their_largest_entry_positive(seed, d):
    factor = whitening_factor(covariance(seed, d))
    lengths = torch.linalg.vector_norm(factor, dim=-1)
    assert bool((lengths.diff() >= 0).all())
    assert bool((factor.gather(-1, factor.abs().argmax(-1, keepdim=True)) > 0).all())


@few
@given(seed=seeds, d=sizes)
def test_the_axes_rebuild_the_covariance(seed, d):
    cov = covariance(seed, d)
    variances, axes = principal_axes(cov)
    torch.testing.assert_close(axes.mT @ torch.diag(variances) @ axes, cov)


def test_a_stack_of_covariances_is_whitened_as_each_is_alone():
    cov = covariance(0, 4, 3)
    torch.testing.assert_close(whitening_factor(cov), torch.stack([whitening_factor(one) for one in cov]))


def test_a_float32_covariance_is_measured_in_float64():
    assert whitening_factor(torch.eye(2)).dtype == torch.float64


def test_the_papers_worst_covariance_is_accepted_in_float32():
    root = torch.rand(100, 100, generator=stream(3)) * 2 - 1
    cov = root @ root.mT + 1e-3 * torch.eye(100)
    assert whitening_factor(cov / torch.linalg.matrix_norm(cov, 2)).isfinite().all()


def test_what_is_no_covariance_is_refused():
    with pytest.raises(ValueError, match=r"cov must have the shape \(\.\.\., features, features\), got \(2, 3\)"):
        whitening_factor(torch.ones(2, 3))
    with pytest.raises(ValueError, match="must be finite"):
        whitening_factor(torch.tensor([[math.nan]]))
    with pytest.raises(ValueError, match="must be symmetric, got entries that differ from their mirror by up to 1"):
        whitening_factor(torch.tensor([[2.0, 1.0], [0.0, 2.0]]))
    for singular in (torch.ones(2, 2), torch.zeros(2, 2), torch.diag(torch.tensor([1.0, -1.0]))):
        with pytest.raises(ValueError, match="positive definite, got a smallest eigenvalue of"):
            whitening_factor(singular)


@few
@given(seed=seeds, d=sizes, k=sizes)
def test_the_learned_covariance_is_that_of_the_pre_activations(seed, d, k):
    points, weight = draw(seed, 50, d), draw(seed, k, d)
    learned = learned_covariance(weight, torch.from_numpy(np.cov(points.T).reshape(d, d)))
    np.testing.assert_allclose(learned, np.cov((points @ weight.mT).T).reshape(k, k), atol=1e-9)


def test_the_learned_covariance_refuses_features_that_do_not_agree():
    with pytest.raises(ValueError, match=r"cov must have the shape \(\.\.\., 3, 3\), got \(2, 2\)"):
        learned_covariance(torch.ones(1, 3), torch.eye(2))


@few
@given(seed=seeds, d=sizes, scale=st.floats(0.01, 100))
def test_a_whitening_layer_is_spherical_at_any_scale_and_under_any_rotation(seed, d, scale):
    cov = covariance(seed, d)
    rotation = torch.linalg.qr(draw(seed + 1, d, d)).Q
    assert sphericity(scale * rotation @ whitening_factor(cov), cov) < 1e-8


@few
@given(seed=seeds, d=st.integers(2, 8), data=st.data())
def test_losing_directions_has_the_expected_sphericity(seed, d, data):
    lost = data.draw(st.integers(0, d - 1))
    cov = covariance(seed, d)
    weight = whitening_factor(cov)
    weight[:lost] = 0
    assert sphericity(weight, cov).item() == pytest.approx(expected_sphericity(lost, d), abs=1e-8)


def test_sphericity_keeps_the_seeds_apart_and_is_nan_for_a_layer_without_weights():
    cov = covariance(2, 3)
    stack = torch.stack([whitening_factor(cov), torch.zeros(3, 3, dtype=torch.float64), draw(2, 3, 3)])
    measured = sphericity(stack, cov)
    assert measured.isnan().tolist() == [False, True, False]
    assert measured[2] == sphericity(stack[2], cov)


def test_the_expected_sphericity_has_the_known_values():
    assert expected_sphericity(1, 2) == pytest.approx(math.sqrt(2))
    assert expected_sphericity(1, 10) == pytest.approx(1.0541, abs=1e-4)
    assert expected_sphericity(0, 5) == 0
    assert math.isnan(expected_sphericity(5, 5))
    with pytest.raises(ValueError, match=r"lost must lie in \[0, 2\], got 3"):
        expected_sphericity(3, 2)
