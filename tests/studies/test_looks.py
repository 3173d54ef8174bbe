"""Verdicts on runs that become more with time: looks at 5, 10 and 20 of them, each at a level of its own."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from metriscope.studies.evidence import Above, Within
from metriscope.studies.verdicts import ALPHA, Look, Statement, Values, judge
from studies.claims import criterion, just_above, statement, table

LOOKS = (Look(5, 0.005), Look(10, 0.015), Look(20, 0.03))


def looked(numbers, *criteria, **more):
    claim = Statement("X01", "It holds.", "a source", criteria or (criterion(),), looks=LOOKS)
    return judge([claim], {"runs": table(numbers, **more)})[0]


@pytest.mark.parametrize("region", [Above(0.0), Within(1.0)])
def test_looking_three_times_makes_no_more_errors_than_one_test(region, monkeypatch):
    monkeypatch.setattr("metriscope.studies.verdicts.SCALES", {})
    # The truth lies on the edge of the region, where a wrong decision either way is likeliest.
    numbers = np.random.default_rng(12).normal(region.margin, 0.3, size=(250, 20))
    wrong = [looked(row, criterion(region)).verdict for row in numbers].count("supported")
    # Two standard deviations of a share above the level; three tests at the full level err in about 11 %.
    assert wrong / 250 <= ALPHA + 2 * math.sqrt(ALPHA * (1 - ALPHA) / 250)


@settings(max_examples=10)
@given(st.lists(st.floats(-100, 100), max_size=20))
def test_what_was_decided_at_a_look_stays_whatever_comes_later(later):
    for numbers, verdict in (([2.0, 2.1, 1.9, 2.0, 2.05], "supported"), ([0.2, 0.1, 0.15, 0.2, 0.1], "contradicted")):
        claim = looked([*numbers, *later])
        assert claim.verdict == verdict
        assert "Decided at look 1 of 3 (the first 5 runs, level 0.005)." in claim.reason
        assert "5 runs (required > 1)" in claim.reason


def test_both_sides_of_an_equivalence_are_tested_at_the_level_of_the_look():
    numbers = np.random.default_rng(2).normal(size=5)
    numbers -= numbers.mean()
    for p, look in ((0.0049, 1), (0.0051, None)):
        # The mean is 0 and each side of the region lies just this p-value away.
        margin = float(stats.t.isf(p, 4)) * numbers.std(ddof=1) / math.sqrt(5)
        claim = looked(numbers, criterion(Within(margin)))
        assert ("Decided at look 1" in claim.reason) is (look == 1)


def test_a_look_waits_until_every_criterion_has_all_its_runs():
    two = [criterion(values=Values.of("runs", "accuracy", network=name)) for name in ("a", "b")]
    claim = Statement("X01", "It holds.", "a source", tuple(two), looks=LOOKS)
    whole, late = table([0.1, 0.2, 0.1, 0.15, 0.1, 0.1]), table([0.1, 0.2, 0.1, 0.15, 0.1], network="b")
    # A run that is missing in the middle is not made up for by a later one.
    for gap in (late[:4], late.assign(seed=[0, 1, 3, 4, 5])):
        found = judge([claim], {"runs": pd.concat([whole, gap])})[0]
        assert found.verdict == "undecided"
        assert "Waits for look 1 of 3" in found.reason
        assert "4 runs, 5 are needed" in found.reason
    assert judge([claim], {"runs": pd.concat([whole, late])})[0].verdict == "contradicted"


def test_an_open_look_names_the_next_one():
    assert "Not decided at look 1 of 3 (the first 5 runs, level 0.005); the next look is at 10 runs." in (
        looked([0.2, 4.0, 1.0, 3.0, 2.0, 1.0, 1.5]).reason
    )


def test_criteria_that_need_more_runs_than_a_look_has_decide_at_a_later_one():
    claim = looked([2.0, 2.1, 1.9, 2.0, 2.05] * 2, criterion(fewest=10))
    assert "Decided at look 2 of 3 (the first 10 runs, level 0.015)." in claim.reason
    assert "(97% interval" in claim.reason


def test_runs_by_another_protocol_are_tested_once_by_all_of_them():
    claim = looked([2.0, 2.1, 1.9], protocol=False)
    assert (claim.verdict, claim.strength) == ("supported", "hint")
    assert "look" not in claim.reason
    assert "3 runs" in claim.reason


def test_a_later_look_can_pass_the_correction_over_claims_that_an_earlier_one_did_not():
    five = just_above(1.0, p=0.004)
    absent = [statement(criterion(values=Values.of("nowhere", "accuracy")), name=f"X{i}") for i in range(5)]
    claim = Statement("X09", "It holds.", "a source", (criterion(),), looks=LOOKS)
    early = judge([claim, *absent], {"runs": table(five)})[0]
    assert (early.verdict, "Holm's correction over the claims" in early.reason) == ("undecided", True)
    late = judge([claim, *absent], {"runs": table([*five, *five])})[0]
    assert late.verdict == "supported"
    assert "Decided at look 1 of 3" in late.reason


@pytest.mark.parametrize("looks", [(Look(5, 0.03), Look(10, 0.03)), (Look(10, 0.01), Look(5, 0.01))])
def test_looks_share_one_level_and_grow(looks):
    with pytest.raises(ValueError, match=r"rising numbers of units and levels that add up to at most 0\.05"):
        Statement("X01", "It holds.", "a source", (criterion(),), looks=looks)
