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
from metriscope.studies.verdicts import ALPHA, Values, finding, judge
from studies.claims import criterion, just_above, said, statement, table
from studies.synthetic import check_statement, synthetic, verdict_on

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
    # scipy subtracts and ranks in an order of its own: rounding must not decide about ties.
    if np.diff(np.sort(np.abs(shifted)), prepend=0).min() > 1e-9:
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
    with pytest.raises(ValueError, match=r"bounds the largest value from above, got the region > 1$"):
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


@settings(max_examples=5)
@given(seed=st.integers(0, 1_000))
@pytest.mark.parametrize("name", TESTED)
def test_synthetic_tables_get_the_verdict_that_they_were_made_for(name, seed):
    check_statement(statement(TESTED[name]), seed)


@settings(max_examples=5)
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
