"""What the Mahalanobis novelty does not change under, and what it does, for each kind of shrinkage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from laws.cases import Case
from metriscope.sklearn import MahalanobisNovelty
from vq.units.cases import patient


@st.composite
def gaussians(draw):
    dim, seed = draw(st.integers(2, 4)), draw(st.integers(0, 2**31))
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(draw(st.integers(3 * dim, 30)) + 5, dim)) * generator.uniform(0.5, 2, dim)
    return Case(points[5:], points[:5], seed)


def _rotated(case):
    dim = case.train.shape[1]
    rotation = np.linalg.qr(case.draw.normal(size=(dim, dim)))[0]
    return case.of_both(lambda x: x @ rotation)


def _stretched(case):
    scale = case.draw.uniform(0.2, 5, case.train.shape[1])
    return case.of_both(lambda x: x * scale)


CHANGES = {
    "order of points": lambda case: replace(case, train=case.draw.permutation(case.train)),
    "shift of space": lambda case: case.of_both(lambda x: x + case.draw.normal(size=x.shape[1])),
    "rotation of space": _rotated,
    "one scale of all features": lambda case: case.of_both(lambda x: 3.0 * x),
    "a scale of each feature": _stretched,
    "all points twice": lambda case: replace(case, train=np.concatenate([case.train, case.train])),
    "more points": lambda case: replace(case, train=np.concatenate([case.train, case.test])),
}
_SIMILAR = {"order of points", "shift of space", "rotation of space", "one scale of all features"}
UNCHANGED = {
    0.0: _SIMILAR | {"a scale of each feature", "all points twice"},
    0.3: _SIMILAR | {"all points twice"},
    "ledoit-wolf": _SIMILAR,
}
PAIRS = [(shrinkage, change) for shrinkage in UNCHANGED for change in CHANGES]


def same(shrinkage, change, case):
    before, after = (
        MahalanobisNovelty(shrinkage).fit(one.train).novelty(one.test) for one in (case, CHANGES[change](case))
    )
    return np.allclose(before, after, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("shrinkage", "change"), [(s, c) for s, c in PAIRS if c in UNCHANGED[s]])
def test_a_law_holds_for_all_points(shrinkage, change):
    @settings(patient, max_examples=20)
    @given(case=gaussians())
    def check(case):
        assert same(shrinkage, change, case)

    check()


@pytest.mark.parametrize(("shrinkage", "change"), [(s, c) for s, c in PAIRS if c not in UNCHANGED[s]])
def test_what_is_no_law_fails_for_some_points(shrinkage, change):
    search = settings(patient, phases=[Phase.generate], max_examples=100, database=None)
    assert find(gaussians(), lambda case: not same(shrinkage, change, case), settings=search)
