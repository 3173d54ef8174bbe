"""Statistics of two groups: against scipy on the raw runs, textbook examples, and groups too small to compare."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from metriscope.functional import Moments, cohens_d, holm, moments, paired_test, student_test, welch_test

A = [96.4, 96.7, 96.6, 96.9, 96.5]
B = [95.8, 96.1, 95.6, 95.9, 96.2]

spread = st.floats(-100, 100).map(lambda x: round(x, 3))
groups = arrays.arrays(np.float64, st.integers(3, 12), elements=spread).filter(lambda x: np.ptp(x) > 0.01)


@given(a=groups, b=groups)
def test_unpaired_tests_are_scipys(a, b):
    for test, equal in ((student_test, True), (welch_test, False)):
        found = test(moments(a), moments(b))
        expected = stats.ttest_ind(a, b, equal_var=equal)
        interval = expected.confidence_interval()
        assert found.t == pytest.approx(expected.statistic, rel=1e-6, abs=1e-9)
        assert found.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
        assert found.df == pytest.approx(expected.df)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-6)


def test_a_paired_test_is_scipys():
    found, expected = paired_test(A, B), stats.ttest_rel(A, B)
    interval = expected.confidence_interval()
    assert (found.t, found.p, found.df) == pytest.approx((expected.statistic, expected.pvalue, 4))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.difference == pytest.approx(np.mean(A) - np.mean(B))


def test_pairs_that_move_together_are_told_apart_by_the_paired_test_alone():
    shared = np.array([0.0, 10.0, 20.0, 30.0])
    other = shared + np.array([1.0, 1.1, 0.9, 1.0])
    assert welch_test(moments(other), moments(shared)).p > 0.9
    assert paired_test(other, shared).p < 1e-3


def test_the_printed_means_of_relu_and_abs_differ_by_twelve_standard_errors():
    relu, abs_ = Moments(96.62, 0.17, 20), Moments(95.87, 0.22, 20)
    error = math.sqrt((0.17**2 + 0.22**2) / 20)
    assert student_test(relu, abs_).t == pytest.approx(0.75 / error)
    assert student_test(relu, abs_).df == 38
    assert student_test(relu, abs_).t == pytest.approx(cohens_d(relu, abs_) * math.sqrt(10))


def test_cohens_d_divides_by_the_pooled_deviation():
    # Squares 2 and 18 over 1 + 1 degrees of freedom pool to a deviation of sqrt(10).
    assert cohens_d(moments([1.0, 3.0]), moments([4.0, 10.0])) == pytest.approx(-5 / math.sqrt(10))
    assert math.isnan(cohens_d(moments([1.0, 1.0]), moments([2.0, 2.0])))


def test_one_run_has_no_test_and_a_run_against_many_has_one():
    alone = welch_test(moments([1.0]), moments([2.0]))
    assert alone.difference == -1
    assert all(math.isnan(v) for v in (alone.low, alone.high, alone.t, alone.p))
    assert math.isnan(paired_test([1.0], [2.0]).p)
    assert math.isnan(student_test(moments([1.0]), moments([2.0])).p)
    against = student_test(moments([1.0]), moments(B))
    assert against.t == pytest.approx(stats.ttest_ind([1.0], B).statistic)
    assert math.isnan(welch_test(moments([1.0]), moments(B)).p)


def test_groups_without_spread_differ_beyond_doubt_or_not_at_all():
    same, other = moments([1.0, 1.0, 1.0]), moments([2.0, 2.0, 2.0])
    for test in (student_test, welch_test):
        assert test(other, same).t == math.inf
        assert test(other, same).p == 0
        assert math.isnan(test(same, same).t)


def test_holm_on_a_worked_example():
    # 4 x 0.005, 3 x 0.01, 2 x 0.03, and 0.04 may not fall below the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == pytest.approx([1, 1])
    assert holm([]).shape == (0,)


def test_holm_leaves_out_tests_that_could_not_be_made():
    found = holm([0.01, math.nan, 0.03])
    assert found[[0, 2]] == pytest.approx([0.02, 0.03])
    assert math.isnan(found[1])


@given(p=arrays.arrays(np.float64, st.integers(1, 20), elements=st.floats(0, 1)))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p):
    found = holm(p)
    assert (found >= p).all()
    assert (found <= 1).all()
    order = np.argsort(p)
    assert (np.diff(found[order]) >= 0).all()
    assert found[order[0]] == pytest.approx(min(1, len(p) * p.min()))


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match="same number of runs to be paired, got 3 and 2"):
        paired_test([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        holm([0.5, 1.5])
    with pytest.raises(ValueError, match=r"confidence must lie in \(0, 1\)"):
        student_test(moments(A), moments(B), confidence=1.0)
