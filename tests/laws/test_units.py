"""What each measure of sign patterns does not change under, and what it does: a table, checked both ways."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from laws.cases import Case
from metriscope.vq.units.novelty import naswot_score, novelty, pattern_multiplicities, region_count
from metriscope.vq.units.utilization import utilization
from vq.units.cases import mlp, patient, patterns, plain_bits


@st.composite
def networks(draw):
    sizes = st.integers(1, 10), st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)
    train, test, dim, first, second = (draw(size) for size in sizes)
    seed = draw(st.integers(0, 2**31))
    generator = np.random.default_rng(seed)
    w1, w2 = generator.normal(size=(dim, first)), generator.normal(size=(first, second))
    b1, b2 = generator.normal(size=first), generator.normal(size=second)
    hidden = generator.normal(size=(train + test, dim)) @ w1 + b1
    before = np.concatenate([hidden, np.maximum(hidden, 0) @ w2 + b2], axis=1)
    return Case(before[:train], before[train:], seed)


def _permuted(case):
    order = case.draw.permutation(case.train.shape[1])
    return case.of_both(lambda z: z[:, order])


def _scaled(case):
    scale = case.draw.uniform(0.01, 100, case.train.shape[1])
    return case.of_both(lambda z: z * scale)


def _flipped(case):
    sign = np.where(np.arange(case.train.shape[1]) == case.draw.integers(case.train.shape[1]), -1, 1)
    return case.of_both(lambda z: z * sign)


def _doubled_unit(case):
    unit = case.draw.integers(case.train.shape[1])
    return case.of_both(lambda z: np.concatenate([z, z[:, [unit]]], axis=1))


def _more_points(case):
    return replace(case, train=np.concatenate([case.train, case.test]))


CHANGES = {
    "order of units": _permuted,
    "positive scale of units": _scaled,
    "sign of a unit": _flipped,
    "a unit twice": _doubled_unit,
    "a unit that never changes": lambda case: case.of_both(lambda z: np.concatenate([z, z[:, :1] ** 2], axis=1)),
    "thresholds": lambda case: case.of_both(lambda z: z + case.draw.normal(size=z.shape[1])),
    "order of points": lambda case: replace(case, train=case.draw.permutation(case.train)),
    "all points twice": lambda case: replace(case, train=np.concatenate([case.train, case.train])),
    "more points": _more_points,
}


def of_train(measure):
    return lambda case: measure(patterns(case.train >= 0))


def _utilization_rows(p):
    """Return what the table says without the numbers of the units, which follow their order."""
    table = utilization(p, rare=0.2).to_pandas()
    duplicates = int(table["duplicate_of"].notna().sum())
    return duplicates, sorted(zip(table["active"], table["status"], table["opposite_of"].notna(), strict=True))


def neighbor(k):
    def measure(case):
        # A single training point has no second neighbor; the nearest stands in.
        known = patterns(case.train >= 0)
        return novelty(known, patterns(case.test >= 0), min(k, len(known))).tolist()

    return measure


MEASURES = {
    "utilization": of_train(_utilization_rows),
    "novelty": neighbor(1),
    "novelty, second neighbor": neighbor(2),
    "region_count": of_train(region_count),
    "pattern_multiplicities": of_train(lambda p: pattern_multiplicities(p).tolist()),
    "naswot_score": of_train(lambda p: round(naswot_score(p), 6)),
}

_ORDER = {"order of units", "positive scale of units", "order of points"}
UNCHANGED = {
    "utilization": _ORDER | {"all points twice"},
    "novelty": _ORDER | {"sign of a unit", "a unit that never changes", "all points twice"},
    "novelty, second neighbor": _ORDER | {"sign of a unit", "a unit that never changes"},
    "region_count": _ORDER | {"sign of a unit", "a unit twice", "a unit that never changes", "all points twice"},
    "pattern_multiplicities": _ORDER | {"sign of a unit", "a unit twice", "a unit that never changes"},
    "naswot_score": _ORDER | {"sign of a unit"},
}
PAIRS = [(measure, change) for measure in MEASURES for change in CHANGES]


def test_every_measure_declares_its_laws():
    assert UNCHANGED.keys() == MEASURES.keys()
    assert all(laws < CHANGES.keys() for laws in UNCHANGED.values())


@pytest.mark.parametrize(("measure", "change"), [(m, c) for m, c in PAIRS if c in UNCHANGED[m]])
def test_a_law_holds_in_every_network(measure, change):
    @settings(patient, max_examples=20)
    @given(case=networks())
    def check(case):
        assert MEASURES[measure](CHANGES[change](case)) == MEASURES[measure](case)

    check()


@pytest.mark.parametrize(("measure", "change"), [(m, c) for m, c in PAIRS if c not in UNCHANGED[m]])
def test_what_is_no_law_fails_in_some_network(measure, change):
    def broken(case):
        return MEASURES[measure](CHANGES[change](case)) != MEASURES[measure](case)

    # The first counterexample will do; it need not be the smallest.
    assert find(
        networks(), broken, settings=settings(patient, phases=[Phase.generate], max_examples=200, database=None)
    )


@patient
@given(case=networks())
def test_more_training_points_never_make_a_point_more_novel(case):
    assert (np.array(MEASURES["novelty"](_more_points(case))) <= MEASURES["novelty"](case)).all()


@patient
@given(case=networks())
def test_more_points_or_units_never_visit_fewer_regions(case):
    fewer = replace(case, train=case.train[:, 1:])
    count = MEASURES["region_count"]
    assert count(_more_points(case)) >= count(case)
    assert case.train.shape[1] == 1 or count(case) >= count(fewer)


@patient
@given(case=networks())
def test_flipping_a_unit_mirrors_its_share_and_swaps_dead_and_always_on(case):
    before, after = (utilization(patterns(z >= 0), rare=0) for z in (case.train, -case.train))
    np.testing.assert_allclose(after.active, 1 - before.active, atol=1e-15)
    swapped = {"dead": "always on", "always on": "dead", "active": "active"}
    assert after.status.tolist() == [swapped[status] for status in before.status]
    np.testing.assert_array_equal(after.duplicate_of, before.duplicate_of)
    np.testing.assert_array_equal(after.opposite_of, before.opposite_of)


@patient
@given(case=networks())
def test_distances_add_up_over_layers_but_novelties_only_bound_each_other(case):
    train, test = case.train >= 0, case.test >= 0
    parts = [novelty(patterns(train[:, [i]]), patterns(test[:, [i]])) for i in range(train.shape[1])]
    assert (novelty(patterns(train), patterns(test)) >= sum(parts)).all()


@patient
@given(seed=st.integers(0, 1000), powers=st.lists(st.integers(-8, 8), min_size=6, max_size=6))
def test_a_scale_that_the_next_layer_takes_back_changes_no_measure(seed, powers):
    # Powers of two are exact in floating point, so that the patterns are bit-identical.
    model, scale = mlp((3, 6, 5), seed), 2.0 ** torch.tensor(powers, dtype=torch.float64)
    x = torch.linspace(-2, 2, 36, dtype=torch.float64).reshape(12, 3)
    before = patterns(*plain_bits(model, x))
    with torch.no_grad():
        model[0].weight.mul_(scale[:, None])
        model[0].bias.mul_(scale)
        model[2].weight.div_(scale)
    after = patterns(*plain_bits(model, x))
    assert (before.packed == after.packed).all()
    assert utilization(before).to_pandas().equals(utilization(after).to_pandas())
    assert naswot_score(before) == naswot_score(after)
