"""What the VQ study measures, held against spectra, spaces and distances whose answer is known."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metriscope.data import turn
from metriscope.rng import stream
from metriscope.studies.vq.heat import crossings, nearest, order, ranges
from metriscope.studies.vq.measures import (
    disc,
    eigenspace_overlap,
    entropy_rank,
    euclidean_scaling,
    matched_cosines,
    neighbour_accuracy,
    participation_ratio,
    point_separation,
    silhouette,
)
from metriscope.studies.vq.moons import comparisons
from metriscope.studies.vq.networks import mlp
from metriscope.studies.vq.spec import ANGLE, Recipe, Shape

few = settings(max_examples=25, deadline=None)


def basis(points: int, size: int, *name: str | int) -> np.ndarray:
    drawn = torch.randn(points, size, generator=stream(0, *name), dtype=torch.float64)
    return torch.linalg.qr(drawn).Q.numpy()


def turned_first_layer(model: torch.nn.Sequential, angle: float) -> torch.nn.Sequential:
    other = mlp(Shape(2, 2, 24), stream(1, "any"))
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        other[0].weight.copy_(turn(model[0].weight.double(), angle).float())
    return other


def test_a_network_turned_with_its_data_turns_its_kernel_exactly():
    models = {("first", e): mlp(Shape(2, 2, 24), stream(0, "start", e)) for e in (0, 9)}
    models |= {("turned", e): turned_first_layer(models["first", e], ANGLE) for e in (0, 9)}
    models["second", 9] = mlp(Shape(2, 2, 24), stream(0, "second"))
    networks = SimpleNamespace(
        group=SimpleNamespace(recipe=Recipe(epochs=9, loss="bce")),
        network=lambda number, role, epoch: models[role, epoch].requires_grad_(False),
    )
    found = dict(comparisons(networks, 0, 32))
    assert set(found) == {"back", "still", "ceiling", "start back", "start"}
    for name in ("back", "start back"):
        assert found[name]["overlap"] == pytest.approx(1, abs=1e-3)
        assert found[name]["cosine"] == pytest.approx(1, abs=1e-3)
        assert found[name]["alignment"] == pytest.approx(1, abs=1e-3)
    assert found["still"]["alignment"] < 0.999


def test_unrelated_spaces_overlap_as_their_size_in_all_of_space():
    values = [eigenspace_overlap(basis(300, 3, "u", i), basis(300, 3, "v", i)) for i in range(60)]
    assert np.mean(values) == pytest.approx(3 / 300, rel=0.2)


@few
@given(st.integers(1, 5), st.integers(0, 1000))
def test_a_space_overlaps_fully_with_any_basis_of_itself(size, seed):
    space, turned = basis(20, size, "space", seed), basis(size, size, "turn", seed)
    assert eigenspace_overlap(space, space @ turned) == pytest.approx(1)
    order_ = np.random.default_rng(seed).permutation(size)
    assert matched_cosines(space, -space[:, order_]) == pytest.approx(np.ones(size))


@few
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_ranks_lie_between_one_and_the_number_of_eigenvalues(values):
    spectrum = np.array(values)
    participation, entropy = participation_ratio(spectrum), entropy_rank(spectrum)
    # Rényi's entropies fall with their order, so the ratio (order 2) never passes the entropy's rank (order 1).
    assert 1 - 1e-9 <= participation <= entropy + 1e-9
    assert entropy <= len(values) + 1e-9
    assert entropy_rank(7 * spectrum) == pytest.approx(entropy)


@pytest.mark.parametrize("count", [1, 2, 17])
def test_equal_eigenvalues_have_their_number_as_rank_and_zeros_add_nothing(count):
    spectrum = np.concatenate([np.full(count, 3.0), np.zeros(4)])
    assert entropy_rank(spectrum) == pytest.approx(count)
    assert participation_ratio(spectrum) == pytest.approx(count)


def test_half_and_two_quarters_have_the_rank_of_one_and_a_half_bits():
    assert entropy_rank(np.array([2.0, 1.0, 1.0])) == pytest.approx(2**1.5)
    assert participation_ratio(np.array([2.0, 1.0, 1.0])) == pytest.approx(16 / 6)


def test_euclidean_scaling_keeps_all_distances():
    x = torch.randn(12, 5, generator=stream(0, "x"), dtype=torch.float64).numpy()
    embedding, values = euclidean_scaling(x)
    assert np.allclose(
        torch.cdist(*[torch.from_numpy(e) for e in (embedding, embedding)]), np.linalg.norm(x[:, None] - x, axis=-1)
    )
    assert values.sum() == pytest.approx(np.square(x - x.mean(0)).sum())


def test_two_far_clusters_are_separated_and_mixed_labels_are_not():
    x = torch.randn(60, 4, generator=stream(1, "x"), dtype=torch.float64).numpy()
    labels = np.arange(60) % 2
    mixed = point_separation(x, labels)
    apart = point_separation(x + 50 * labels[:, None], labels)
    assert apart["neighbour"] == 1
    assert apart["silhouette"] > 0.9
    assert abs(mixed["silhouette"]) < 0.1
    assert 0.2 < mixed["neighbour"] < 0.8


@few
@given(st.integers(0, 1000), st.integers(2, 4))
def test_the_silhouette_is_scikit_learns(seed, kinds):
    from sklearn.metrics import silhouette_score

    x = torch.randn(30, 2, generator=stream(seed, "x"), dtype=torch.float64).numpy()
    labels = np.arange(30) % kinds
    labels[0] = 9  # alone of its kind
    assert silhouette(x, labels) == pytest.approx(silhouette_score(x, labels))


def test_ties_between_nearest_points_are_shared():
    distances = np.ones((4, 4)) - np.eye(4)
    assert neighbour_accuracy(distances, np.array([0, 0, 1, 1])) == pytest.approx(1 / 3)


@pytest.mark.parametrize("grid", [8, 33, 96])
def test_the_disc_fills_pi_quarters_of_its_square(grid):
    points, inside = disc(grid)
    assert len(points) == inside.sum()
    assert (np.square(points).sum(1) <= 1).all()
    assert len(points) / grid**2 == pytest.approx(math.pi / 4, rel=0.1)


@few
@given(st.floats(0.05, 0.95))
def test_a_curve_that_rises_with_the_logarithm_takes_each_value_where_theory_says(value):
    scales = np.geomspace(1, 1e4, 30)
    assert crossings(scales, np.log10(scales) / 4, value) == pytest.approx([10 ** (4 * value)])
    assert len(crossings(scales, np.log10(scales) / 4, 1.5)) == 0


def test_a_dip_is_crossed_twice():
    scales = np.geomspace(0.01, 100, 41)
    assert len(crossings(scales, np.log10(scales) ** 2, 1.0)) == 2


def test_the_nearest_scale_is_the_one_the_numbers_were_made_at():
    scales = {"distance": np.geomspace(1, 10, 5), "squared": np.geomspace(1, 100, 7)}
    curves = {form: np.stack([1 / s, 2 / s]) for form, s in scales.items()}
    found = nearest(curves, scales, curves["squared"][:, 4])
    assert (found.form, found.index, found.error) == ("squared", 4, 0)


def test_order_follows_the_interval_and_not_the_mean():
    differences = np.array([[1.0, -3.0, 1.0], [1.1, -3.2, -0.9], [0.9, -2.9, 1.0]])
    assert order(differences).tolist() == [1, -1, 0]
    assert ranges(np.array([1.0, 2.0, 3.0]), order(differences), -1) == [(2.0, 2.0)]
