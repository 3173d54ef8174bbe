"""Verdicts on C12 to C17 on made-up numbers: each can go either way, and says where it was reached."""

import math

import pandas as pd
import pytest

from metriscope.studies.contract import claims
from metriscope.studies.representation.analysis import analyse
from metriscope.studies.representation.claims import JUDGES, verdicts
from metriscope.studies.representation.results import Results
from metriscope.studies.representation.rules import (
    bias_parts,
    collapse_parts,
    distance_parts,
    fold_parts,
    harm_parts,
    recovery_parts,
    verdict_of,
)
from studies.representation.made_runs import results

HIGH = (0.955, 0.956, 0.957)
PAPER = {"paper": True, "model": False}


def judged(claim, accuracies, **options):
    return JUDGES[claim](analyse(results(accuracies, **options)))


def values(parts):
    return list(parts.values())


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((True, True), "supported"),
        ((True, False), "depends"),
        ((False, False), "contradicted"),
        ((True, None), "depends"),
        ((False, None), "contradicted"),
        ((None, None), "not run"),
    ],
)
def test_a_verdict_follows_from_its_parts(parts, expected):
    assert verdict_of(dict(enumerate(parts))) == expected


def test_short_runs_contradict_nothing():
    assert verdict_of({"a": False}, protocol=False) == "depends"
    assert verdict_of({"a": True}, protocol=False) == "supported"


def test_a_collapse_needs_ten_points_and_dead_outputs_one_in_ten():
    assert values(collapse_parts([96, 96], [50, 60], [20, 0])) == [True, True]
    assert values(collapse_parts([96, 96], [87, 88], [0, 10])) == [False, False]
    assert values(collapse_parts([96], [50], [])) == [True, None]


def test_a_recovery_reaches_the_baseline_and_nine_tenths_of_what_was_lost():
    assert values(recovery_parts([96.0], [95.5], [50.0])) == [True, True]
    assert values(recovery_parts([96.0], [94.0], [50.0])) == [False, True]
    assert values(recovery_parts([96.0], [80.0], [50.0])) == [False, False]
    assert values(recovery_parts([96.0], [95.5], [])) == [True, None]
    assert values(recovery_parts([96.0], [95.5], [97.0])) == [True, None]


def test_abs2_may_be_better_than_abs_and_its_counterpart_must_be_worse_and_wider():
    assert values(fold_parts([95, 95.2], [96.9, 97.1], [88, 92])) == [True, True, True]
    assert values(fold_parts([95, 95.2], [93, 93.2], [93, 93.1])) == [False, False, False]
    assert values(fold_parts([95], [95], [90])) == [True, True, None]


def test_a_bias_changes_little_within_a_point_or_within_the_seeds():
    pairs = {"relu": ([95.0, 95.2], [95.9, 96.0]), "relu2": ([40, 20], [50, 60]), "abs": ([93, 93.1], [95, 95.1])}
    found = bias_parts(pairs)
    # ReLU2's means are 25 points apart and its deviation with bias is 14; Abs moves 2 points without any spread.
    assert list(found.values()) == [True, False, False]
    assert bias_parts({"relu2": ([40, 20], [50, 36])})["ReLU2 changes little"]


def test_offset_l2_must_lead_be_steady_and_agree_with_its_negation():
    heads = {"relu-l2": [97, 97.1], "relu-l2-neg": [97.2, 97.3], "abs-l2": [97.5, 97.6]}
    others = {"relu": [96, 96.5], "abs": [95, 95.6]}
    assert values(distance_parts(heads, others)) == [True, True, True]
    assert values(distance_parts({"abs-l2": [97.5, 95.0]}, others)) == [False, False, None]
    assert values(distance_parts({"abs-l2": [97.5]}, others)) == [True, None, None]
    assert values(distance_parts({"abs-l2": [97.5], "abs-l2-neg": [92.0]}, {"relu": [90]})) == [True, None, False]


def ranges(scale=(0.05, math.inf), clip=0.3, offset=(-0.02, 0.02)):
    ends = {"scale": scale, "clip": (clip, math.inf), "offset": offset}
    rows = [
        {"network": "relu", "kind": kind, "seed": 0, "low": low, "high": high} for kind, (low, high) in ends.items()
    ]
    return pd.DataFrame(rows)


def test_harm_is_judged_by_the_levels_that_accuracy_holds_between():
    assert values(harm_parts(ranges())) == [True, True, True]
    assert values(harm_parts(ranges(scale=(0.2, 3.0)))) == [False, True, True]
    assert values(harm_parts(ranges(clip=0.8))) == [True, False, True]
    assert values(harm_parts(ranges(offset=(-0.3, 0.01)))) == [True, True, False]
    assert values(harm_parts(ranges(offset=(-math.inf, math.inf)))) == [True, True, False]


def test_every_claim_of_the_ledger_has_a_judge_and_every_judge_a_claim():
    assert [entry.id for entry in claims("representation")] == list(JUDGES)


def test_the_printed_pattern_at_the_papers_protocol_is_supported():
    accuracies = {
        "relu": HIGH, "relu2": (0.5, 0.7, 0.3), "relu2-neg": HIGH, "abs": (0.951, 0.953, 0.952),
        "abs2": (0.953, 0.954, 0.955), "abs2-neg": (0.93, 0.88, 0.9),
        **{f"{name}-l2": (0.973, 0.9735, 0.9732) for name in ("relu", "abs")},
        **{f"{name}-l2-neg": (0.9731, 0.9733, 0.9735) for name in ("relu", "abs")},
    }  # fmt: skip
    accuracies |= {f"{n}-bias": accuracies[n] for n in ("relu", "abs", "relu2", "abs2", "relu2-neg", "abs2-neg")}
    analysis = analyse(results(accuracies, never={"relu2": 3}, **PAPER))
    found = {claim.id: claim for claim in verdicts(analysis)}
    assert [found[f"C{n}"].verdict for n in range(12, 18)] == ["supported"] * 5 + ["not run"]
    assert "30 % are never active" in found["C12"].reason
    assert all(
        "Reached at 5,000 epochs, raw pixels, 60,000 images of mnist, 3 seeds." in found[f"C{n}"].reason
        for n in range(12, 17)
    )
    assert not any("hint" in claim.reason for claim in found.values())


def test_the_opposite_pattern_at_the_papers_protocol_is_contradicted():
    same = {"relu": HIGH, "relu2": HIGH, "abs": HIGH, "abs2": (0.90, 0.901), "abs2-neg": (0.90, 0.901)}
    assert judged("C12", same, **PAPER).verdict == "contradicted"
    assert judged("C13", {"relu": HIGH, "relu2": (0.5,), "relu2-neg": (0.6,)}, **PAPER).verdict == "contradicted"
    assert judged("C14", same, **PAPER).verdict == "contradicted"
    others = {"relu": HIGH, "relu-l2": (0.9, 0.95), "relu-l2-neg": (0.8, 0.9)}
    assert judged("C16", others, **PAPER).verdict == "contradicted"
    bias = {name: HIGH for name in ("relu", "abs", "relu2", "abs2", "relu2-neg", "abs2-neg")}
    bias |= {f"{name}-bias": (0.8, 0.801) for name in bias}
    assert judged("C15", bias, **PAPER).verdict == "contradicted"


def test_short_runs_say_that_they_are_a_hint():
    found = judged("C13", {"relu": HIGH, "relu2-neg": (0.6,)})
    assert found.verdict == "depends"
    assert "1,000 epochs, raw pixels, 200 images of mnist-5k, 1 to 3 seeds" in found.reason
    assert "So this is a hint" in found.reason


def test_a_claim_is_judged_in_the_setting_that_has_its_networks():
    short, paper = results({"abs": HIGH, "abs2": HIGH, "abs2-neg": (0.5, 0.6)}), results({"abs": HIGH}, paper=True)
    found = JUDGES["C14"](analyse(Results(short.runs + paper.runs)))
    assert found.verdict == "supported"
    assert "mnist-5k" in found.reason


def test_evidence_stands_beside_what_was_printed():
    row = judged("C13", {"relu": HIGH, "relu2-neg": HIGH}).evidence[0]
    assert row.label == "ReLU: test accuracy, %, mean of 3"
    assert row.published == "96.62 ± 0.17, 95.64 ± 0.19"


def test_prototypes_that_have_not_moved_are_told_of():
    found = judged("C16", {"relu": HIGH, "abs-l2": HIGH, "abs-l2-neg": HIGH})
    assert "after training ‖μ‖ is" in found.reason


def test_perturbations_are_judged_from_the_networks_themselves():
    found = judged("C17", {"relu": HIGH, "abs": HIGH, "relu-bias": HIGH})
    assert found.verdict in ("supported", "depends")
    assert "ReLU holds under scaling by 10 % to 200 %" in found.reason.split("Does not hold")[0]
    assert {row.source for row in found.evidence} == {"P", ""}


@pytest.mark.parametrize("claim", JUDGES)
def test_a_claim_without_its_networks_is_not_run(claim):
    found = JUDGES[claim](analyse(results({"abs2": (0.9,)})))
    assert found.verdict == "not run"
    assert found.reason.endswith(".")
