from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from metriscope.nn.layers import empty_linear
from metriscope.rng import stream
from metriscope.vq.units.novelty import local_complexity, naswot_score, pattern_multiplicities, region_count
from vq.units.cases import hamming, layered, mlp, patient, patterns, plain_bits


@patient
@given(case=layered(units=(1, 12)))
def test_regions_are_the_distinct_rows_and_multiplicities_count_them(case):
    bits, widths = case
    expected = sorted(Counter(map(tuple, bits.tolist())).values(), reverse=True)
    found = pattern_multiplicities(patterns(bits, widths))
    assert (found.tolist(), found.dtype) == (expected, np.int64)
    assert region_count(patterns(bits, widths)) == len(expected)


def test_no_points_visit_no_region_and_no_units_cut_none():
    assert region_count(patterns(np.zeros((0, 3)))) == 0
    assert pattern_multiplicities(patterns(np.zeros((4, 0)), (0,))).tolist() == [4]


@patient
@given(units=st.integers(1, 6), dim=st.integers(1, 3), seed=st.integers(0, 1000))
def test_one_layer_cuts_no_more_regions_than_zaslavsky_allows(units, dim, seed):
    x = torch.randn(300, dim, generator=stream(seed, "points"), dtype=torch.float64)
    count = region_count(patterns(*plain_bits(mlp((dim, units), seed), x)))
    assert 1 <= count <= sum(math.comb(units, i) for i in range(dim + 1))


@patient
@given(cuts=st.sets(st.integers(-50, 50), min_size=1, max_size=12))
def test_cuts_of_a_line_make_one_region_more_than_there_are_cuts(cuts):
    x = np.arange(-60, 60) + 0.5
    assert region_count(patterns(x[:, None] >= np.array(sorted(cuts)))) == len(cuts) + 1


@pytest.mark.parametrize("depth", range(1, 8))
def test_a_tent_map_of_depth_l_makes_2_to_the_l_regions_with_l_units(depth):
    z, bits = np.linspace(0, 1, 2**10, endpoint=False) + 2.0**-11, []
    for _ in range(depth):
        before = 4 * z - 2
        bits.append(before >= 0)
        z = 2 * z - np.maximum(before, 0)
    assert region_count(patterns(np.stack(bits, axis=1))) == 2**depth


def exact_determinant(matrix):
    """Return the determinant of a matrix of integers, by elimination in fractions."""
    rows, determinant = [[Fraction(int(v)) for v in row] for row in matrix], Fraction(1)
    for column in range(len(rows)):
        pivot = next((r for r in range(column, len(rows)) if rows[r][column]), None)
        if pivot is None:
            return 0
        rows[column], rows[pivot] = rows[pivot], rows[column]
        determinant *= rows[column][column] * (1 if pivot == column else -1)
        for row in rows[column + 1 :]:
            factor = row[column] / rows[column][column]
            row[column:] = [a - factor * b for a, b in zip(row[column:], rows[column][column:], strict=True)]
    return int(determinant)


@patient
@given(case=layered(points=(1, 8), units=(1, 16)))
def test_naswot_is_the_logarithm_of_the_exact_determinant(case):
    bits, widths = case
    determinant = exact_determinant(bits.shape[1] - hamming(bits, bits))
    expected = math.log(determinant) if determinant else -math.inf
    assert naswot_score(patterns(bits, widths)) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_naswot_is_what_the_authors_compute():
    bits = np.random.default_rng(0).integers(0, 2, (60, 200)).astype(float)
    kernel = bits @ bits.T + (1 - bits) @ (1 - bits).T
    assert naswot_score(patterns(bits)) == pytest.approx(np.linalg.slogdet(kernel)[1], rel=1e-10)


def test_a_singular_kernel_scores_minus_infinity_and_no_kernel_nan():
    bits = np.random.default_rng(0).integers(0, 2, (60, 200))
    assert naswot_score(patterns(np.concatenate([bits, bits[:1]]))) == -math.inf
    assert naswot_score(patterns(bits.T)) == -math.inf  # 200 points, 60 units: rank 61 at most
    assert math.isnan(naswot_score(patterns(bits[:0])))
    assert math.isnan(naswot_score(patterns(bits[:, :0], (0,))))


def test_on_a_line_local_complexity_counts_the_thresholds_within_the_radius():
    cuts = np.array([-3.0, -1.0, 0.25, 0.5, 2.0])
    model = nn.Sequential(empty_linear(1, 5, dtype=torch.float64), nn.ReLU())
    model[0].weight.data[:], model[0].bias.data[:] = 1.0, torch.tensor(-cuts)
    for point in (-2.0, 0.0, 0.3, 7.0):
        for radius in (0.1, 0.6, 2.4):
            expected = int((np.abs(cuts - point) < radius).sum())
            assert local_complexity(model, [point], radius) == expected


@patient
@given(seed=st.integers(0, 1000), dim=st.integers(2, 40))
def test_a_hyperplane_counts_when_near_and_not_when_out_of_reach(seed, dim):
    # Of d orthonormal directions one has a cosine of at least 1/sqrt(d) with the normal, and none over 1.
    model = nn.Sequential(empty_linear(dim, 2, dtype=torch.float64), nn.ReLU())
    model[0].weight.data[:] = nn.functional.normalize(torch.ones(dim, dtype=torch.float64), dim=0)
    model[0].bias.data[:] = torch.tensor([-0.99 / math.sqrt(dim), -1.01], dtype=torch.float64)
    assert local_complexity(model, np.zeros(dim), 1.0, samples=dim, seed=seed) == 1


@patient
@given(seed=st.integers(0, 1000), samples=st.integers(1, 4), radius=st.floats(0.01, 3))
def test_local_complexity_counts_the_bits_that_differ_among_the_corners(seed, samples, radius):
    model, point = mlp((4, 6, 5), seed), torch.randn(4, generator=stream(seed, "x"), dtype=torch.float64)
    streams = [stream(seed, "local-complexity", i) for i in range(samples)]
    drawn = [torch.randn(4, generator=generator, dtype=torch.float64).numpy() for generator in streams]
    axes = np.empty((0, 4))
    for column in drawn:
        # Gram and Schmidt: what is left of a direction without those before it.
        rest = column - axes.T @ (axes @ column)
        axes = np.concatenate([axes, rest[None] / np.linalg.norm(rest)])
    corners = np.concatenate([point.numpy() + radius * axes, point.numpy() - radius * axes])
    bits, _ = plain_bits(model, corners)
    expected = int((bits.any(0) & ~bits.all(0)).sum())
    assert local_complexity(model, point, radius, samples, seed) == expected


def test_directions_can_be_drawn_from_a_generator():
    model = mlp((8, 30, 30))
    first, again = (
        local_complexity(model, np.zeros(8), 1.0, 2, generator=torch.Generator().manual_seed(5)) for _ in range(2)
    )
    assert 0 < first == again
    with pytest.raises(ValueError, match=r"generator must be a torch\.Generator"):
        local_complexity(model, np.zeros(8), 1.0, generator=5)


def test_more_directions_of_the_same_seed_never_find_fewer():
    model = mlp((8, 30, 30))
    counts = [local_complexity(model, np.zeros(8), 1.0, samples) for samples in range(1, 9)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_a_point_may_have_any_shape_and_options_go_to_capture():
    model = nn.Sequential(nn.Flatten(), *mlp((12, 9)).float())
    count = local_complexity(model, torch.zeros(3, 2, 2), 1.0)
    assert count == local_complexity(model, torch.zeros(12), 1.0, batch_size=4) > 0
    assert count == local_complexity(model, [0.0] * 12, 1.0)  # numbers take the precision of the model
    with pytest.raises(ValueError, match="absent"):
        local_complexity(model, torch.zeros(12), 1.0, layers="absent")


@pytest.mark.usefixtures("undrawn")
def test_local_complexity_draws_from_its_own_stream_alone():
    model = mlp((8, 30))
    assert local_complexity(model, np.zeros(8), 1.0, 3) == local_complexity(model, np.zeros(8), 1.0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"radius": 0.0}, r"radius must lie in \(0, inf\), got 0.0"),
        ({"radius": math.inf}, r"radius must lie in \(0, inf\), got inf"),
        ({"samples": 5}, "samples must be an integer from 1 to 4, got 5"),
        ({"samples": 0}, "samples must be an integer from 1 to 4, got 0"),
        ({"point": np.zeros(4, int)}, "point must hold floating-point numbers to be moved"),
        ({"point": np.full(4, np.nan)}, "point must be finite, got 4 NaN or infinite of 4 entries"),
        ({"point": np.zeros(0)}, "at least one number"),
    ],
)
def test_bad_input_of_local_complexity_is_refused_in_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        local_complexity(mlp((4, 3)), **{"point": np.zeros(4), "radius": 1.0} | arguments)
