from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import manifold

from metriscope.vq import VQMDS, vq_kernel
from vq.measures.cases import centered, clouds, cloudy, columns, distances, module, patient, scaled, signs
from vq.units.cases import patterns

embedding = module("embedding")
WEIGHTS = {"none": None, "mean": "mean", "by layer": [2.0, 0.25]}
# Points x widths for which the exact way goes through units, and through points.
SHAPES = {"units": (70, (13, 21)), "points": (25, (13, 50))}


def case(shape):
    points, widths = SHAPES[shape]
    return clouds(points, widths)


def dense(kernel):
    """Return the eigenvalues of -B / 2, descending, and the classical embedding, by double centering."""
    values, vectors = np.linalg.eigh(scaled(kernel))
    return values[::-1], vectors[:, ::-1] * np.sqrt(np.abs(values[::-1]))


def facing(found, expected):
    """Return the columns of ``expected``, turned to the side of those of ``found``."""
    return expected * np.sign((found * expected).sum(0))


def randomly(monkeypatch):
    monkeypatch.setattr(embedding, "LARGE", 0)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_embedding_is_that_of_dense_classical_scaling(shape, weights):
    p, weights = case(shape), WEIGHTS[weights]
    values, expected = dense(vq_kernel(p, weights=weights))
    found = VQMDS(5, weights).fit(p)
    assert found.method_ == shape
    np.testing.assert_allclose(found.eigenvalues_, values[:5], rtol=1e-10)
    np.testing.assert_allclose(found.embedding_, facing(found.embedding_, expected[:, :5]), atol=1e-9)


@pytest.mark.skipif(not hasattr(manifold, "ClassicalMDS"), reason="this scikit-learn has no classical scaling")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_embedding_is_that_of_scikit_learn(shape):
    p = case(shape)
    theirs = manifold.ClassicalMDS(n_components=4, metric="precomputed").fit(np.sqrt(vq_kernel(p)))
    found = VQMDS(4).fit(p)
    np.testing.assert_allclose(found.eigenvalues_, theirs.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(found.embedding_, facing(found.embedding_, theirs.embedding_), atol=1e-6)


@patient
@given(p=cloudy(), weights=st.sampled_from([None, "mean"]))
def test_squared_distances_of_the_full_embedding_are_the_vq_distances(p, weights):
    kernel = vq_kernel(p, weights=weights)
    if not kernel.any():
        return
    found = VQMDS(None, weights).fit(p)
    np.testing.assert_allclose(4 * distances(found.embedding_), kernel, atol=1e-9)
    values = np.linalg.eigvalsh(scaled(kernel))[::-1]
    rank = len(found.eigenvalues_)
    np.testing.assert_allclose(found.eigenvalues_, values[:rank], atol=1e-9 * values[0])
    assert np.abs(values[rank:]).max(initial=0) <= 1e-9 * values[0]


@patient
@given(p=cloudy())
def test_the_doubly_centered_kernel_is_minus_half_the_products_of_centered_signs(p):
    expected = -centered(p) @ centered(p).T / 2
    np.testing.assert_allclose(-2 * scaled(vq_kernel(p)), expected, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_eigenvectors_are_unit_columns_of_positive_descending_eigenvalues(shape):
    found = VQMDS(6).fit(case(shape))
    np.testing.assert_allclose(found.eigenvectors_.T @ found.eigenvectors_, np.eye(6), atol=1e-10)
    np.testing.assert_allclose(found.embedding_, found.eigenvectors_ * np.sqrt(found.eigenvalues_), atol=1e-9)
    assert (found.eigenvalues_ > 0).all()
    assert (np.diff(found.eigenvalues_) <= 0).all()
    assert found.residual_ == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_the_entry_of_largest_magnitude_is_positive(shape):
    vectors = VQMDS(6).fit(case(shape)).eigenvectors_
    assert (vectors[np.abs(vectors).argmax(0), np.arange(6)] > 0).all()


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_fitted_points_transform_to_their_own_places(shape, weights):
    p = case(shape)
    fitted = VQMDS(3, WEIGHTS[weights]).fit(p)
    np.testing.assert_array_equal(fitted.transform(p), fitted.embedding_)
    np.testing.assert_array_equal(VQMDS(3, WEIGHTS[weights]).fit_transform(p), fitted.embedding_)
    np.testing.assert_array_equal(fitted.transform(p[3:5]), fitted.embedding_[3:5])


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_new_points_lie_where_gower_adds_them(shape, weights):
    # Gower 1968: x = (1/2) Λ⁻¹ Xᵀ (diag(X Xᵀ) - d²), with the products of the full embedding on the diagonal.
    p, weights = case(shape), WEIGHTS[weights]
    q = clouds(9, SHAPES[shape][1], seed=3)
    fitted = VQMDS(4, weights).fit(p)
    diagonal = np.diag(scaled(vq_kernel(p, weights=weights)))
    expected = (diagonal - vq_kernel(q, p, weights)) @ fitted.embedding_ / (2 * fitted.eigenvalues_)
    np.testing.assert_allclose(fitted.transform(q), expected, atol=1e-9)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_randomized_way_finds_the_same_components(monkeypatch, shape, weights):
    p, weights = case(shape), WEIGHTS[weights]
    exact = VQMDS(3, weights).fit(p)
    randomly(monkeypatch)
    monkeypatch.setattr(embedding, "_BLOCK", 64)
    monkeypatch.setattr(embedding, "_SPARE", 4)
    found = VQMDS(3, weights, random_state=5).fit(p)
    assert found.method_ == "randomized"
    assert found.residual_ <= 1e-9
    np.testing.assert_allclose(found.eigenvalues_, exact.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(found.embedding_, exact.embedding_, atol=1e-6)
    np.testing.assert_array_equal(found.transform(p), found.embedding_)


def test_a_seed_makes_the_randomized_way_repeat_itself(monkeypatch, undrawn):
    randomly(monkeypatch)
    p = case("units")
    first, again = (VQMDS(2, random_state=7).fit(p).embedding_ for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_the_randomized_way_can_start_from_a_generator(monkeypatch, undrawn):
    randomly(monkeypatch)
    p = case("units")
    found, again = (VQMDS(2, generator=torch.Generator().manual_seed(7)).fit(p).embedding_ for _ in range(2))
    np.testing.assert_array_equal(found, again)
    np.testing.assert_allclose(found, VQMDS(2).fit(p).embedding_, atol=1e-6)


def test_passes_that_end_too_early_are_told_by_the_residual(monkeypatch):
    randomly(monkeypatch)
    monkeypatch.setattr(embedding, "_PASSES", 1)
    monkeypatch.setattr(embedding, "_SPARE", 0)
    assert VQMDS(2).fit(case("units")).residual_ > 1e-6


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_a_space_that_is_begun_again_finds_the_same_components(monkeypatch, blocks):
    p = clouds(70, (13, 90))
    exact = VQMDS(3).fit(p)
    randomly(monkeypatch)
    monkeypatch.setattr(embedding, "_SPARE", 6)
    monkeypatch.setattr(embedding, "_BLOCKS", blocks)
    monkeypatch.setattr(embedding, "_PASSES", 500)
    np.testing.assert_allclose(VQMDS(3).fit(p).embedding_, exact.embedding_, atol=1e-6)


@pytest.mark.parametrize("shape", ["units", "points", "randomized"])
def test_one_component_of_two_patterns_is_their_distance(monkeypatch, shape):
    if shape == "randomized":
        randomly(monkeypatch)
    bits = np.zeros((40 if shape == "units" else 4, 6), np.uint8)
    bits[::2, 1:4] = 1
    found = VQMDS(1).fit(patterns(bits))
    np.testing.assert_allclose(np.abs(found.embedding_), np.sqrt(3) / 2, atol=1e-12)
    np.testing.assert_allclose(found.eigenvalues_, [len(bits) * 3 / 4], rtol=1e-12)


def test_the_full_embedding_of_many_equal_points_has_the_rank_of_their_patterns():
    p = patterns(np.repeat(np.eye(4, 9, dtype=np.uint8), 50, axis=0))
    assert VQMDS(None).fit(p).embedding_.shape == (200, 3)


@pytest.mark.parametrize("shape", ["units", "points", "randomized"])
@pytest.mark.parametrize("wanted", [4, 60, 400])
def test_more_components_than_rank_are_refused_with_the_rank(monkeypatch, shape, wanted):
    if shape == "randomized":
        randomly(monkeypatch)
    points = np.repeat(np.eye(4, 60, dtype=np.uint8), 2 if shape == "points" else 30, axis=0)
    rank = r"only rank 3$"
    if shape == "randomized" and wanted > 4:
        rank = r"only rank \d+$"
    with pytest.raises(
        ValueError, match=rf"n_components={wanted}, but the patterns of the {len(points)} points.*{rank}"
    ):
        VQMDS(wanted).fit(patterns(points))


@pytest.mark.parametrize("shape", ["units", "points", "randomized"])
@pytest.mark.parametrize("wanted", [1, 3, None])
def test_points_of_one_pattern_are_refused(monkeypatch, shape, wanted):
    if shape == "randomized":
        randomly(monkeypatch)
        wanted = wanted or 1
    points = np.ones((3 if shape == "points" else 40, 9), np.uint8)
    with pytest.raises(
        ValueError, match=f"all {len(points)} points have the same pattern: an embedding needs two that"
    ):
        VQMDS(wanted).fit(patterns(points))


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_points_are_refused(count):
    with pytest.raises(ValueError, match=f"an embedding needs at least two points, got {count}"):
        VQMDS(1).fit(clouds(5, (9,))[:count])


def test_no_components_are_refused():
    with pytest.raises(ValueError, match="n_components must be a positive integer, got 0"):
        VQMDS(0).fit(clouds(5, (9,)))


def test_all_components_of_very_many_units_and_points_are_refused(monkeypatch):
    randomly(monkeypatch)
    with pytest.raises(ValueError, match="30 points x 16 units are too many for all components: give n_components"):
        VQMDS(None).fit(clouds(30, (16,)))


def test_transforming_before_fitting_is_refused():
    with pytest.raises(ValueError, match="This VQMDS instance is not fitted yet"):
        VQMDS(2).transform(clouds(5, (9,)))


def test_new_points_of_other_layers_are_refused():
    with pytest.raises(ValueError, match="distances need the same layers on both sides"):
        VQMDS(2).fit(clouds(20, (9,))).transform(clouds(5, (10,)))


def test_a_layer_without_weight_has_no_part_in_the_embedding():
    p = clouds(40, (9, 12))
    alone, weightless = VQMDS(3).fit(p.layer("layer0")), VQMDS(3, weights=[1, 0]).fit(p)
    np.testing.assert_allclose(weightless.embedding_, alone.embedding_, atol=1e-9)


def test_weighted_axes_are_principal_axes_of_scaled_signs():
    p = clouds(60, (9, 12))
    scaled_signs = columns(p, [3.0, 0.5]) / 2
    expected = np.linalg.svd(scaled_signs - scaled_signs.mean(0))[1][:3] ** 2
    np.testing.assert_allclose(VQMDS(3, weights=[3.0, 0.5]).fit(p).eigenvalues_, expected, rtol=1e-10)
    assert signs(p).shape == (60, 21)
