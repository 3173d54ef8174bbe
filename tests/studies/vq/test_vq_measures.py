"""What the VQ study measures, held against spectra, spaces and distances whose answer is known."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from metriscope.data import rotate
from metriscope.rng import stream
from metriscope.studies.vq.digits import crossings, nearest, simultaneous
from metriscope.studies.vq.experiments import Band, Rotation
from metriscope.studies.vq.moons import (
    comparisons,
    disc,
    eigenspace_overlap,
    entropy_rank,
    euclidean_scaling,
    gaps,
    matched_cosines,
    neighbor_accuracy,
    participation_ratio,
    point_separation,
)
from metriscope.studies.vq.networks import Group, MLPShape, VQRecipe
from metriscope.studies.vq.train import mlp

few = settings(max_examples=25)


def basis(points: int, size: int, *name: str | int) -> np.ndarray:
    drawn = torch.randn(points, size, generator=stream(0, *name), dtype=torch.float64)
    return torch.linalg.qr(drawn).Q.numpy()


def rotated_first_layer(model: torch.nn.Sequential, angle: float) -> torch.nn.Sequential:
    other = mlp(MLPShape(2, 2, 24), stream(1, "any"))
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        other[0].weight.copy_(rotate(model[0].weight.double(), angle).float())
    return other


def test_a_network_rotated_with_its_data_rotates_its_kernel_exactly():
    group = Group("moons", MLPShape(2, 2, 24), VQRecipe(epochs=9, loss="bce"), ("first", "second", "turned"), (0,))
    models = {("first", e): mlp(group.shape, stream(0, "start", e)) for e in (0, 9)}
    models |= {("turned", e): rotated_first_layer(models["first", e], group.angle) for e in (0, 9)}
    models["second", 9] = mlp(group.shape, stream(0, "second"))
    networks = SimpleNamespace(
        group=group, network=lambda number, role, epoch: models[role, epoch].requires_grad_(False)
    )
    found = {row["comparison"]: row for row in comparisons(networks, 0, Rotation(group, 32))}
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
    space, mixing = basis(20, size, "space", seed), basis(size, size, "turn", seed)
    assert eigenspace_overlap(space, space @ mixing) == pytest.approx(1)
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
    mixed = point_separation(x, labels, 2)
    apart = point_separation(x + 50 * labels[:, None], labels, 2)
    assert apart["neighbor"] == 1
    assert apart["silhouette"] > 0.9
    assert abs(mixed["silhouette"]) < 0.1
    assert 0.2 < mixed["neighbor"] < 0.8


def test_the_silhouette_is_that_of_scikit_learn_on_the_leading_components():
    from sklearn.metrics import silhouette_score

    x = torch.randn(30, 4, generator=stream(0, "x"), dtype=torch.float64).numpy()
    labels = np.arange(30) % 3
    plane = euclidean_scaling(x)[0][:, :2]
    assert point_separation(x, labels, 2)["silhouette"] == pytest.approx(silhouette_score(plane, labels))


def test_ties_between_nearest_points_are_shared():
    distances = np.ones((4, 4)) - np.eye(4)
    assert neighbor_accuracy(distances, np.array([0, 0, 1, 1])) == pytest.approx(1 / 3)


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


def test_a_band_over_one_scale_is_the_t_interval():
    curves = np.random.default_rng(0).normal(size=(12, 1))
    found = simultaneous(curves, Band(), 0)
    assert found.wider == pytest.approx(1, abs=0.03)
    assert found.critical == pytest.approx(stats.t.ppf(0.95, 11), rel=0.03)


def test_a_band_over_unrelated_scales_is_as_wide_as_the_largest_of_independent_statistics():
    curves = np.random.default_rng(1).normal(size=(200, 10))
    found = simultaneous(curves, Band(draws=1_999), 0)
    assert found.critical == pytest.approx(stats.t.ppf(0.95 ** (1 / 10), 199), rel=0.05)


def test_a_band_holds_the_true_curve_at_all_scales_about_as_often_as_it_says():
    generator, inside = np.random.default_rng(2), []
    shapes = np.stack([np.sin(k * np.linspace(0, 3, 40)) for k in range(1, 5)])
    for draw in range(200):
        found = simultaneous(generator.normal(size=(6, 4)) @ shapes, Band(draws=99), draw)
        inside.append((found.low <= 0).all())
    assert np.mean(inside) == pytest.approx(0.95, abs=0.04)


def test_scales_at_which_all_seeds_agree_have_a_band_without_width():
    curves = np.stack([np.zeros(5), np.arange(5.0), np.ones(5)], axis=1)
    found = simultaneous(curves, Band(draws=99), 0)
    assert (found.low[[0, 2]] == found.high[[0, 2]]).all()
    assert found.low[1] < found.mean[1] < found.high[1]


def rotations(back, still, ceiling):
    """Return the same comparisons in every measure."""
    values = {"back": back, "still": still, "ceiling": ceiling}
    parts = [
        pd.DataFrame({"seed": range(len(v)), "comparison": name, "overlap": v, "cosine": v, "alignment": v})
        for name, v in values.items()
    ]
    return pd.concat(parts, ignore_index=True)


def test_a_gap_is_a_share_of_the_gain_from_rotating_back():
    generator = np.random.default_rng(0)
    back, still, ceiling = (m + 0.02 * generator.normal(size=200) for m in (0.9, 0.5, 0.95))
    found = gaps(rotations(back, still, ceiling)).query("measure == 'overlap'")
    ratio = (back - ceiling).mean() / (back - still).mean()
    assert found["share"].mean() == pytest.approx(ratio)
    draws = generator.integers(200, size=(2_000, 200))
    resampled = (back - ceiling)[draws].mean(1) / (back - still)[draws].mean(1)
    assert found["share"].std(ddof=1) / math.sqrt(200) == pytest.approx(resampled.std(), rel=0.1)


def test_a_gap_is_undefined_without_a_gain_from_rotating_back():
    found = gaps(rotations(np.array([0.5, 0.4, 0.6]), np.full(3, 0.7), np.full(3, 0.9)))
    assert found["share"].isna().all()
    assert (found["worth"] < 0.21).all()
