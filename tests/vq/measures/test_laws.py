"""What each measure does not change under, and what it does: every law with its opposite."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.vq import VQMDS, Patterns, heat_cosine, vq_kernel
from metriscope.vq.measures import alignment
from vq.measures.cases import clouds, patient
from vq.units.cases import patterns

WIDTHS = (9, 14, 3)
POINTS = 24
SEED = 5


def split(p):
    return np.split(p.signs() > 0, np.cumsum(WIDTHS)[:-1], axis=1)


def rebuilt(parts):
    return patterns(np.hstack(parts), tuple(part.shape[1] for part in parts))


def units_shuffled(p, rng):
    return rebuilt([part[:, rng.permutation(part.shape[1])] for part in split(p)])


def units_flipped(p, rng):
    return rebuilt([part ^ rng.integers(0, 2, part.shape[1], dtype=bool) for part in split(p)])


def layers_shuffled(p, rng):
    parts = split(p)
    return rebuilt([parts[i] for i in rng.permutation(len(parts))])


def unit_moved(p, rng):
    """Hand a unit from the first layer to the second."""
    first, second, third = split(p)
    return rebuilt([first[:, 1:], np.hstack([second, first[:, :1]]), third])


def unit_doubled(p, rng):
    first, *others = split(p)
    return rebuilt([np.hstack([first, first[:, :1]]), *others])


def unit_dropped(p, rng):
    first, *others = split(p)
    return rebuilt([first[:, 1:], *others])


def bit_flipped(p, rng):
    """Move one point to the other side of one unit."""
    first, *others = split(p)
    first = first.copy()
    first[rng.integers(len(first)), 0] ^= True
    return rebuilt([first, *others])


def all_units_doubled(p, rng):
    return rebuilt([np.hstack([part, part]) for part in split(p)])


OTHER_SEED = 11
OTHER = clouds(POINTS, (20, 6), seed=OTHER_SEED)
MEASURES = {
    "kernel": vq_kernel,
    "mean kernel": lambda p: vq_kernel(p, weights="mean"),
    "embedding": lambda p: VQMDS(3).fit(p).embedding_,
    "eigenvalues": lambda p: VQMDS(3).fit(p).eigenvalues_,
    "heat cosine": lambda p: heat_cosine(p, OTHER, [3.0, 20.0]),
    "squared heat cosine": lambda p: heat_cosine(p, OTHER, [30.0], "squared"),
    "alignment": lambda p: np.array(alignment(p, OTHER).value),
    "biased alignment": lambda p: np.array(alignment(p, OTHER, "biased").value),
    "alignment's interval": lambda p: alignment(p, OTHER, interval=0.9).interval,
}
KEEP = {name: {"units_shuffled", "units_flipped", "layers_shuffled", "unit_moved"} for name in MEASURES}
KEEP["mean kernel"] = {"units_shuffled", "units_flipped", "layers_shuffled", "all_units_doubled"}
for name in ("alignment", "biased alignment", "alignment's interval"):
    KEEP[name] |= {"all_units_doubled"}
CHANGES = {
    change.__name__: change
    for change in (
        units_shuffled,
        units_flipped,
        layers_shuffled,
        unit_moved,
        unit_doubled,
        unit_dropped,
        bit_flipped,
        all_units_doubled,
    )
}
KEPT = [(measure, change) for measure in MEASURES for change in CHANGES if change in KEEP[measure]]
CHANGED = [(measure, change) for measure in MEASURES for change in CHANGES if change not in KEEP[measure]]


@pytest.mark.parametrize(("measure", "change"), KEPT)
@patient
@given(seed=st.integers(0, 999))
def test_a_measure_keeps_to_its_laws(measure, change, seed):
    p = clouds(POINTS, WIDTHS, seed)
    same = MEASURES[measure](CHANGES[change](p, np.random.default_rng(seed)))
    np.testing.assert_allclose(same, MEASURES[measure](p), atol=1e-8)


@pytest.mark.parametrize(("measure", "change"), CHANGED)
def test_a_measure_notices_what_is_no_law(measure, change):
    # A cloud whose first unit, the one that is doubled, dropped or moved, parts the points evenly.
    p = clouds(POINTS, WIDTHS, SEED)
    other = MEASURES[measure](CHANGES[change](p, np.random.default_rng(0)))
    assert np.abs(other - MEASURES[measure](p)).max() > 1e-6


def reordered(p, order):
    return Patterns(p.layers, p.packed[order], p.ids[order])


@patient
@given(order=st.permutations(range(POINTS)), seed=st.integers(0, 99))
def test_points_in_another_order_are_measured_in_that_order(order, seed):
    p = clouds(POINTS, WIDTHS, seed)
    q = reordered(p, order)
    np.testing.assert_array_equal(vq_kernel(q), vq_kernel(p)[order][:, order])
    np.testing.assert_allclose(VQMDS(3).fit(q).embedding_, VQMDS(3).fit(p).embedding_[order], atol=1e-8)


@patient
@given(order=st.permutations(range(POINTS)))
def test_comparisons_do_not_depend_on_the_order_of_points(order):
    p = clouds(POINTS, WIDTHS)
    q, other = reordered(p, order), reordered(OTHER, order)
    np.testing.assert_allclose(heat_cosine(q, other, [3.0]), heat_cosine(p, OTHER, [3.0]), rtol=1e-12)
    for estimator in ("debiased", "biased"):
        moved, still = (alignment(*pair, estimator, interval=0.9) for pair in ((q, other), (p, OTHER)))
        assert moved.value == pytest.approx(still.value, rel=1e-12)
        np.testing.assert_allclose(moved.interval, still.interval, rtol=1e-9)


def test_a_unit_that_singles_out_one_point_changes_the_biased_alignment_alone():
    # It lengthens the distances of that point to all others alike, which the debiased centering takes away.
    p = clouds(POINTS, WIDTHS)
    more = rebuilt([*split(p), np.arange(POINTS)[:, None] == 7])
    assert alignment(more, OTHER).value == pytest.approx(alignment(p, OTHER).value, rel=1e-12)
    assert abs(alignment(more, OTHER, "biased").value - alignment(p, OTHER, "biased").value) > 1e-6


@patient
@given(seed=st.integers(0, 99).filter(lambda seed: seed != OTHER_SEED))
def test_every_point_twice_changes_the_debiased_alignment_alone(seed):
    # The biased one is a function of the distribution of the points; the debiased one takes them for distinct draws.
    # Equal patterns are left out: they align at 1 however often they come.
    p = clouds(POINTS, WIDTHS, seed)
    twice = [Patterns(side.layers, np.tile(side.packed, (2, 1))) for side in (p, OTHER)]
    assert alignment(*twice, "biased").value == pytest.approx(alignment(p, OTHER, "biased").value, rel=1e-12)
    assert abs(alignment(*twice).value - alignment(p, OTHER).value) > 1e-6


@pytest.mark.parametrize("estimator", ["debiased", "biased"])
def test_a_unit_that_never_changes_changes_no_alignment(estimator):
    p = clouds(POINTS, WIDTHS)
    dead = rebuilt([*split(p), np.ones((POINTS, 3), bool)])
    assert alignment(dead, OTHER, estimator).value == pytest.approx(alignment(p, OTHER, estimator).value, rel=1e-12)


def test_comparisons_depend_on_which_point_is_which():
    p = clouds(POINTS, WIDTHS)
    shuffled = Patterns(p.layers, p.packed[::-1].copy(), p.ids)
    assert abs(alignment(shuffled, OTHER).value - alignment(p, OTHER).value) > 1e-6
    assert np.abs(heat_cosine(shuffled, OTHER, [3.0]) - heat_cosine(p, OTHER, [3.0])).max() > 1e-6


def test_weights_change_the_kernel_and_a_common_factor_scales_it():
    p = clouds(POINTS, WIDTHS)
    even, odd, double = (vq_kernel(p, weights=w) for w in ([1, 1, 1], [1, 2, 1], [2, 2, 2]))
    np.testing.assert_array_equal(even, vq_kernel(p))
    np.testing.assert_allclose(double, 2 * even)
    assert np.abs(odd - even).max() > 0
    first, second = VQMDS(3, [1, 1, 1]).fit(p), VQMDS(3, [1, 2, 1]).fit(p)
    np.testing.assert_allclose(first.eigenvalues_, VQMDS(3).fit(p).eigenvalues_, rtol=1e-12)
    assert np.abs(first.eigenvalues_ - second.eigenvalues_).max() > 1e-6


@patient
@given(seed=st.integers(0, 99))
def test_the_kernel_is_a_pseudodistance(seed):
    kernel = vq_kernel(clouds(POINTS, WIDTHS, seed))
    assert (np.diag(kernel) == 0).all()
    np.testing.assert_array_equal(kernel, kernel.T)
    assert (kernel[:, :, None] <= kernel[:, None, :] + kernel.T[None, :, :]).all()


@patient
@given(seed=st.integers(0, 99))
def test_comparing_is_symmetric(seed):
    p = clouds(POINTS, WIDTHS, seed)
    for estimator in ("debiased", "biased"):
        one, other = alignment(p, OTHER, estimator).value, alignment(OTHER, p, estimator).value
        assert one == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(heat_cosine(p, OTHER, [3.0, 9.0]), heat_cosine(OTHER, p, [3.0, 9.0]), rtol=1e-12)
