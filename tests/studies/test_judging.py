"""The one standard of evidence: what each test says of known numbers, and how verdicts follow from criteria."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from metriscope.studies.evidence import TESTS, Above, Below, EvidenceSample, Within
from metriscope.studies.judging import ALPHA, Criterion, Look, Statement, Values, finding, judge
from studies.synthetic import check_statement, synthetic, verdict_on


def criterion(region=None, **fields):
    values = fields.pop("values", Values.of("runs", "accuracy", network="a"))
    return Criterion("accuracy of a", values, region or Above(1.0), "It was said before.", **fields)


def statement(*criteria, factor="", name="X01"):
    return Statement(name, "It holds.", "a source", criteria, factor)


def table(values, network="a", protocol=True, **more):
    return pd.DataFrame(
        {"network": network, "seed": np.arange(len(values)), "accuracy": values, "protocol": protocol} | more
    )


def said(claim_criteria, tables, factor=""):
    return judge([statement(*claim_criteria, factor=factor)], tables)[0]


values = st.lists(st.floats(-5, 5), min_size=3, max_size=12).filter(lambda v: np.std(v) > 1e-3)


@given(values, st.floats(-3, 3))
def test_the_mean_test_is_students_t(numbers, edge):
    sample, test = EvidenceSample(np.array(numbers)), TESTS["mean"]
    greater = stats.ttest_1samp(numbers, edge, alternative="greater")
    assert test.p_above(sample, edge) == pytest.approx(greater.pvalue, abs=1e-9)
    assert test.p_below(sample, edge) == pytest.approx(1 - greater.pvalue, abs=1e-9)
    wanted = stats.ttest_1samp(numbers, 0).confidence_interval(0.9)
    assert test.interval(sample, 0.9)[1:] == pytest.approx((wanted.low, wanted.high))


@given(values, values)
def test_two_groups_are_compared_by_welch(one, other):
    sample = EvidenceSample(np.array(one), np.array(other))
    wanted = stats.ttest_ind(one, other, equal_var=False, alternative="greater").pvalue
    assert TESTS["mean"].p_above(sample, 0.0) == pytest.approx(wanted, abs=1e-9)


@given(st.integers(0, 20), st.floats(0.05, 0.95))
def test_shares_are_tested_exactly(heads, edge):
    sample = EvidenceSample((np.arange(20) < heads).astype(float))
    assert TESTS["share"].p_above(sample, edge) == pytest.approx(stats.binom.sf(heads - 1, 20, edge))
    assert TESTS["share"].p_below(sample, edge) == pytest.approx(stats.binom.cdf(heads, 20, edge))
    assert TESTS["share"].interval(sample, 0.95)[0] == heads / 20


@pytest.mark.parametrize("edge", [-0.5, 1.5])
def test_a_share_lies_between_0_and_1_for_certain(edge):
    sample = EvidenceSample(np.ones(5))
    assert (TESTS["share"].p_above(sample, edge), TESTS["share"].p_below(sample, edge)) == (
        (0, 1) if edge < 0 else (1, 0)
    )


@pytest.mark.parametrize(
    ("alpha", "region", "fewest"), [(0.01, Above(0), 7), (0.05, Above(0), 5), (0.05, Within(1), 6)]
)
def test_the_fewest_pairs_of_a_signed_rank_test_follow_from_its_level(alpha, region, fewest):
    assert TESTS["rank"].fewest(region, alpha) == fewest
    # With one pair fewer, not even pairs that all have one sign reach the level.
    level = alpha / 2 if region.kind == "within" else alpha
    least = [stats.wilcoxon(np.arange(1.0, n + 1), alternative="greater").pvalue for n in (fewest, fewest - 1)]
    assert least[0] <= level < least[1]


@given(st.lists(st.floats(-5, 5), min_size=5, max_size=9, unique=True), st.floats(-3, 3))
def test_the_rank_test_is_wilcoxons(numbers, edge):
    shifted = np.array(numbers) - edge
    if len(set(np.abs(shifted))) == len(numbers) and shifted.all():
        for side, p in (("greater", TESTS["rank"].p_above), ("less", TESTS["rank"].p_below)):
            wanted = stats.wilcoxon(shifted, alternative=side, method="exact").pvalue
            assert p(EvidenceSample(np.array(numbers)), edge) == pytest.approx(wanted)


@given(st.lists(st.floats(-5, 5), min_size=6, max_size=12, unique=True))
def test_the_rank_interval_ends_where_the_rank_test_does(numbers):
    sample, test = EvidenceSample(np.array(numbers)), TESTS["rank"]
    _, low, high = test.interval(sample, 0.9)
    tiny = 1e-9
    assert test.p_above(sample, low - tiny) <= 0.05 < test.p_above(sample, low + tiny)
    assert test.p_below(sample, high + tiny) <= 0.05 < test.p_below(sample, high - tiny)


@pytest.mark.parametrize(("region", "fewest"), [(Above(0.9), 29), (Below(0.1), 29), (Above(0.5), 5)])
def test_the_fewest_units_of_a_share_are_those_of_which_all_would_show_it(region, fewest):
    assert TESTS["share"].fewest(region, 0.05) == fewest
    test, every = TESTS["share"], float(region.kind == "above")
    p = test.p_above if region.kind == "above" else test.p_below
    assert (
        p(EvidenceSample(np.full(fewest, every)), region.margin)
        <= 0.05
        < p(EvidenceSample(np.full(fewest - 1, every)), region.margin)
    )


def test_the_spread_test_keeps_its_level_where_the_f_test_does_not():
    generator = np.random.default_rng(3)
    wrong = {"spread": 0, "F": 0}
    for _ in range(400):
        one, other = (generator.standard_t(4, size=20) for _ in range(2))
        wrong["spread"] += TESTS["spread"].p_above(EvidenceSample(one, other), 0.0) <= 0.05
        wrong["F"] += stats.f.sf(one.var(ddof=1) / other.var(ddof=1), 19, 19) <= 0.05
    assert wrong["spread"] <= 40
    assert wrong["F"] > wrong["spread"]


@pytest.mark.parametrize("scale", [2.0, 5.0])
def test_the_spread_test_estimates_the_log_ratio_of_deviations(scale):
    generator = np.random.default_rng(5)
    sample = EvidenceSample(scale * generator.normal(size=4_000), generator.normal(size=4_000))
    estimate, low, high = TESTS["spread"].interval(sample, 0.99)
    assert low < math.log(scale) < high
    assert estimate == pytest.approx(math.log(scale), abs=0.1)


def test_the_bootstrap_agrees_with_the_t_interval_on_many_normal_values():
    sample = EvidenceSample(np.random.default_rng(1).normal(size=200))
    assert TESTS["bootstrap"].interval(sample, 0.9) == pytest.approx(TESTS["mean"].interval(sample, 0.9), abs=0.02)


@given(values, st.integers(0, 2))
def test_an_exact_criterion_judges_the_largest_value_and_nothing_passes_with_nan(numbers, where):
    tables = {"runs": table([abs(v) for v in numbers])}
    found = finding(criterion(Below(max(map(abs, numbers)) + 0.1), test="exact"), tables)
    assert (found.state, found.strength) == ("holds", "exact")
    tables["runs"].loc[where, "accuracy"] = math.nan
    broken = finding(criterion(Below(1e9), test="exact"), tables)
    assert broken.state == "open"
    assert "undefined" in broken.sentence


def test_supported_means_that_the_whole_interval_lies_inside():
    inside = said([criterion()], {"runs": table([2.0, 2.1, 1.9, 2.0, 2.05])})
    assert (inside.verdict, inside.strength) == ("supported", "protocol")
    wide = said([criterion()], {"runs": table([0.2, 4.0, 1.0, 3.0, 2.0])})
    assert wide.verdict == "undecided"
    outside = said([criterion()], {"runs": table([0.2, 0.1, 0.15, 0.2, 0.1])})
    assert outside.verdict == "contradicted"


def test_a_wide_interval_never_shows_that_two_are_the_same():
    wide, narrow = table([3.0, -3.0, 2.0, -2.0]), table([0.3, -0.3, 0.2, -0.2])
    assert said([criterion(Within(1.0))], {"runs": wide}).verdict == "undecided"
    assert said([criterion(Within(1.0))], {"runs": narrow}).verdict == "supported"


def test_too_few_runs_are_undecided_however_clear():
    claim = said([criterion(fewest=10)], {"runs": table([-5.0, -5.1, -5.2])})
    assert claim.verdict == "undecided"
    assert "3 runs, 10 are needed" in claim.reason


def test_what_was_not_run_is_undecided_and_says_so():
    claim = said([criterion()], {})
    assert (claim.verdict, claim.strength) == ("undecided", "not run")


@pytest.mark.parametrize(("rows", "strength"), [({"protocol": False}, "hint"), ({"protocol": True}, "protocol")])
def test_runs_off_the_protocol_are_a_hint_in_either_direction(rows, strength):
    for numbers, verdict in (([2.0, 2.1, 1.9, 2.0, 2.1], "supported"), ([0.1, 0.2, 0.1, 0.15, 0.1], "contradicted")):
        claim = said([criterion()], {"runs": table(numbers, **rows)})
        assert (claim.verdict, claim.strength) == (verdict, strength)


def test_four_runs_of_the_protocol_are_a_hint():
    assert said([criterion()], {"runs": table([2.0, 2.1, 1.9, 2.0])}).strength == "hint"


def test_runs_much_shorter_than_the_source_say_nothing():
    claim = said([criterion(length=0.2)], {"runs": table([-5.0, -5.1, -5.2], length=0.0004)})
    assert claim.verdict == "undecided"
    assert "run for 0.04% of the source's epochs, 20% are needed" in claim.reason


def test_a_factor_makes_a_claim_depend():
    two = [
        criterion(level="2-D", values=Values.of("runs", "accuracy", network="a")),
        criterion(level="10-D", values=Values.of("runs", "accuracy", network="b")),
    ]
    tables = {"runs": pd.concat([table([2.0, 2.1, 1.9]), table([0.1, 0.2, 0.1], network="b")])}
    claim = said(two, tables, factor="dimension")
    assert claim.verdict == "depends"
    assert "Depends on the dimension: supported for 2-D, contradicted for 10-D." in claim.reason
    assert said(two, tables).verdict == "contradicted"


def test_units_are_averaged_before_they_are_counted():
    rows = pd.DataFrame({"gaussian": np.repeat([0, 1, 2, 3], 5), "accuracy": np.repeat([2.0, 2.1, 1.9, 2.0], 5)})
    found = finding(criterion(values=Values.of("runs", "accuracy"), unit="gaussian"), {"runs": rows})
    assert found.units == 4
    assert found.low == pytest.approx(TESTS["mean"].interval(EvidenceSample(np.array([2.0, 2.1, 1.9, 2.0])), 0.9)[1])


def test_pairs_are_those_of_one_unit():
    one, other = table([1.0, 5.0, 9.0, 13.0]), table([4.0, 0.0], network="b").assign(seed=[1, 0])
    paired = criterion(Above(0.5), minus=Values.of("runs", "accuracy", network="b"), paired=True, fewest=2)
    found = finding(paired, {"runs": pd.concat([one, other])})
    assert (found.estimate, found.units) == (1.0, 2)


def just_above(edge, p=0.04):
    """Return values whose mean is above an edge with just this one-sided p-value."""
    numbers = np.random.default_rng(0).normal(size=5)
    return numbers + edge - TESTS["mean"].interval(EvidenceSample(numbers), 1 - 2 * p)[1]


def test_many_claims_of_a_study_are_corrected_together():
    tables = {"runs": table(just_above(1.0))}
    assert judge([statement(criterion(Above(1.0)))], tables)[0].verdict == "supported"
    many = judge([statement(criterion(Above(1.0)), name=f"X{i:02}") for i in range(3)], tables)
    assert {claim.verdict for claim in many} == {"undecided"}
    assert "Holm's correction over the claims" in many[0].reason


def test_a_claim_that_was_not_run_counts_as_one_that_was():
    absent = statement(criterion(values=Values.of("nowhere", "accuracy")), name="X02")
    for tables in ({"runs": table(just_above(1.0))}, {"runs": table(just_above(1.0)), "nowhere": table([2.0])}):
        assert judge([statement(criterion(Above(1.0))), absent], tables)[0].verdict == "undecided"


def test_what_is_exact_is_no_sample_and_corrects_nothing_even_if_it_is_broken():
    identity = statement(criterion(Below(1.0), test="exact", values=Values.of("identity", "accuracy")), name="X02")
    tables = {"runs": table(just_above(1.0)), "identity": table([math.nan])}
    found = judge([statement(criterion(Above(1.0))), identity], tables)
    assert [claim.verdict for claim in found] == ["supported", "undecided"]


def test_a_claim_depends_only_if_the_level_that_holds_does_so_after_correction():
    levels = [
        criterion(level=name, values=Values.of("runs", "accuracy", network=name)) for name in ("a", "b", "c", "d")
    ]
    frames = [table(just_above(1.0), network=name) for name in ("a", "b", "c")]
    tables = {"runs": pd.concat([*frames, table([0.1, 0.2, 0.1, 0.15], network="d")])}
    assert said(levels, tables, factor="network").verdict == "contradicted"


def test_what_fails_only_before_the_correction_within_a_claim_says_so():
    several = [criterion(Below(1.0), values=Values.of("runs", "accuracy", network=name)) for name in ("a", "b", "c")]
    frames = [table(just_above(1.0)), *(table([0.5, 1.6, 0.7, 1.3], network=name) for name in ("b", "c"))]
    claim = said(several, {"runs": pd.concat(frames)})
    assert claim.verdict == "undecided"
    assert "only before Holm's correction over the criteria of this claim" in claim.reason


def test_an_exact_criterion_bounds_from_above_only():
    with pytest.raises(ValueError, match=r"bounds the largest value from above, got the region > 1\.00"):
        criterion(Above(1.0), test="exact")


def test_values_without_any_spread_have_no_ratio_of_deviations():
    flat = criterion(Above(0.0), test="spread", minus=Values.of("runs", "accuracy", network="b"))
    tables = {"runs": pd.concat([table([2.0] * 5), table([1.0] * 5, network="b")])}
    assert "the value is undefined" in finding(flat, tables).sentence


def test_a_verdict_that_hangs_on_its_margin_says_so():
    claim = said([criterion(Above(1.0))], {"runs": table([1.5, 1.51, 1.49, 1.5, 1.5])})
    assert claim.verdict == "supported"
    assert "With margins doubled the verdict is contradicted." in claim.reason
    assert "halved" not in claim.reason
    firm = said([criterion(Above(1.0))], {"runs": table([9.5, 9.51, 9.49, 9.5, 9.5])})
    assert "With margins" not in firm.reason


TESTED = {
    "mean": criterion(),
    "equivalence": criterion(Within(0.5), minus=Values.of("runs", "accuracy", network="b"), paired=True),
    "share": criterion(Above(0.9), test="share", values=Values.of("trials", "learned", dim="2")),
    "spread": criterion(Above(math.log(3)), test="spread", minus=Values.of("runs", "accuracy", network="b"), fewest=5),
    "exact": criterion(Below(1e-9), test="exact", values=Values.of("identity", "error")),
    "rank": criterion(Above(0.2), test="rank", fewest=6, values=Values.of("starts", "gain", start="clusters")),
    "bootstrap": criterion(Below(0.3), test="bootstrap", fewest=10, values=Values.of("bounded", "share")),
}


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1_000))
@pytest.mark.parametrize("name", TESTED)
def test_synthetic_tables_get_the_verdict_that_they_were_made_for(name, seed):
    check_statement(statement(TESTED[name]), seed)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_synthetic_tables_of_several_levels_get_theirs(seed):
    levels = [
        criterion(level=level, values=Values.of("runs", "accuracy", network="a", dim=level)) for level in ("2", "10")
    ]
    check_statement(statement(*levels, factor="dimension"), seed)


def test_the_p_value_of_a_true_margin_is_rarely_small():
    generator = np.random.default_rng(7)
    runs = [{"runs": table(1.0 + generator.normal(size=6))} for _ in range(400)]
    states = [finding(criterion(Above(1.0)), one).state for one in runs]
    assert states.count("holds") <= 400 * (ALPHA + 0.04)
    assert states.count("fails") <= 400 * (ALPHA + 0.04)


def test_synthetic_tables_that_satisfy_a_claim_do():
    assert verdict_on(statement(TESTED["mean"]), synthetic(statement(TESTED["mean"]))).verdict == "supported"


LOOKS = (Look(5, 0.005), Look(10, 0.015), Look(20, 0.03))


def looked(numbers, *criteria, **more):
    claim = Statement("X01", "It holds.", "a source", criteria or (criterion(),), looks=LOOKS)
    return judge([claim], {"runs": table(numbers, **more)})[0]


@pytest.mark.parametrize("region", [Above(0.0), Within(1.0)])
def test_looking_three_times_makes_no_more_errors_than_one_test(region, monkeypatch):
    monkeypatch.setattr("metriscope.studies.judging.SCALES", {})
    # The truth lies on the edge of the region, where a wrong decision either way is likeliest.
    numbers = np.random.default_rng(12).normal(region.margin, 0.3, size=(250, 20))
    wrong = [looked(row, criterion(region)).verdict for row in numbers].count("supported")
    # Two standard deviations of a share above the level; three tests at the full level err in about 11 %.
    assert wrong / 250 <= ALPHA + 2 * math.sqrt(ALPHA * (1 - ALPHA) / 250)


@settings(deadline=None, max_examples=10)
@given(st.lists(st.floats(-100, 100), max_size=20))
def test_what_was_decided_at_a_look_stays_whatever_comes_later(later):
    for numbers, verdict in (([2.0, 2.1, 1.9, 2.0, 2.05], "supported"), ([0.2, 0.1, 0.15, 0.2, 0.1], "contradicted")):
        claim = looked([*numbers, *later])
        assert claim.verdict == verdict
        assert "Decided at look 1 of 3 (the first 5 runs, level 0.005)." in claim.reason
        assert "5 runs (required > 1.00)" in claim.reason


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
