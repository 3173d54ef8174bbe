"""The criteria of C12 to C17 on made-up numbers: each can go either way, and says where it was reached."""

import re

import pandas as pd
import pytest

from metriscope.studies.representation.judge import STATEMENTS
from metriscope.studies.representation.plan import BASE
from metriscope.studies.verdicts import judge
from studies.representation.made import inspected, recorded, runs
from studies.synthetic import check_statement

SEEDS = range(12)
GOOD = {
    "relu": 0.955, "relu2": 0.5, "relu2-neg": 0.954, "abs": 0.952, "abs2": 0.953, "abs2-neg": 0.9,
    "relu-l2": 0.973, "relu-l2-neg": 0.9731, "abs-l2": 0.976, "abs-l2-neg": 0.9759,
}  # fmt: skip
BY_ID = {statement.id: statement for statement in STATEMENTS}
NOISE = (3, -1, 2, -4, 1, 0, -2, 4, -3, 1, -1, 0)


def accuracies(seeds=SEEDS, **change):
    """Return the printed pattern over seeds; Abs2-Neg and ReLU2 spread far more than the others."""
    means = {**GOOD, **{f"{name}-bias": GOOD[name] for name in BASE}, **change}
    spread = {name: 1e-3 if name in ("abs2-neg", "relu2", "abs2-neg-bias", "relu2-bias") else 1e-4 for name in means}
    spread |= {name: 2e-5 for name in means if "-l2" in name}
    for name in BASE:
        spread[f"{name}-bias"] = spread[name]
    return {name: [mean + spread[name] * NOISE[s] / 4 for s in seeds] for name, mean in means.items()}


NETWORKS = {
    "C12": ("relu", "relu2"),
    "C13": ("relu", "relu2-neg"),
    "C14": ("abs", "abs2", "abs2-neg"),
    "C15": (*BASE, *(f"{name}-bias" for name in BASE)),
    "C16": ("relu", "abs", "relu-l2", "relu-l2-neg", "abs-l2", "abs-l2-neg"),
}


def only(claim, values):
    return {name: values[name] for name in NETWORKS[claim]}


def judged(values, never=3, **options):
    found = recorded(runs(values, {"relu2": never}, model=False, **options))
    return {claim.id: claim for claim in judge(STATEMENTS, found.tables)}


@pytest.mark.parametrize("claim", BY_ID)
def test_criteria_decide_and_sentences_state_the_numbers(claim):
    check_statement(BY_ID[claim])


def test_the_claims_of_this_study_are_eight():
    assert list(BY_ID) == [*(f"C{n}" for n in range(12, 18)), "C26", "C27"]


def test_the_printed_pattern_by_the_papers_protocol_is_supported():
    found = judged(accuracies(), paper=True)
    assert [found[f"C{n}"].verdict for n in range(12, 18)] == ["supported"] * 5 + ["undecided"]
    assert [found[f"C{n}"].strength for n in range(12, 18)] == ["protocol"] * 5 + ["not run"]
    # 45.5 points by construction; the printed digits follow the interval of the drawn runs.
    assert re.search(r"ReLU − ReLU2, points 45\.[45]\d* \(97% interval 45\.4", found["C12"].reason)
    assert "makes active 0.300 (97% interval 0.300 to 0.300), 10 runs (required > 0.1)" in found["C12"].reason
    # The bootstrap and the margins of 0.3 points need ten runs; C13 is decided by five.
    looks = {"C12": 2, "C13": 1, "C15": 2, "C16": 2}
    assert all(f"Decided at look {look} of 3" in found[claim].reason for claim, look in looks.items())
    assert "Runs: 5,000 epochs, raw pixels, 60,000 images of mnist (ReLU: 12, ReLU2: 12)." in found["C12"].reason


@pytest.mark.parametrize(
    ("claim", "change", "verdict"),
    [
        ("C12", {"relu2": 0.954}, "contradicted"),
        ("C13", {"relu2-neg": 0.9}, "contradicted"),
        ("C14", {"abs2": 0.9}, "contradicted"),
        ("C14", {"abs2-neg": 0.975}, "contradicted"),
        ("C15", {"relu-bias": 0.9}, "depends"),
        ("C16", {"abs-l2": 0.9}, "contradicted"),
        ("C16", {"relu": 0.975, "abs": 0.975}, "contradicted"),
    ],
)
def test_the_opposite_by_the_papers_protocol_is_not_supported(claim, change, verdict):
    assert judged(only(claim, accuracies(**change)), paper=True)[claim].verdict == verdict


def test_c15_that_depends_names_the_networks():
    reason = judged(only("C15", accuracies(**{"relu-bias": 0.9})), paper=True)["C15"].reason
    assert reason.startswith("Depends on the network: supported for Abs, ReLU2, Abs2, ReLU2-Neg, Abs2-Neg, ")
    assert "contradicted for ReLU." in reason


def test_a_short_run_may_contradict_as_well_as_support_and_both_are_hints():
    found = judged(only("C13", accuracies(**{"relu2-neg": 0.9})))
    assert (found["C13"].verdict, found["C13"].strength) == ("contradicted", "hint")
    found = judged(only("C13", accuracies()))
    assert (found["C13"].verdict, found["C13"].strength) == ("supported", "hint")


@pytest.mark.parametrize("pixels", ["normalized", "unit"])
def test_other_pixels_are_hints_whatever_their_length(pixels):
    found = judged(only("C13", accuracies()), paper=True, pixels=(pixels,))
    assert (found["C13"].verdict, found["C13"].strength) == ("supported", "hint")


def test_few_runs_of_the_papers_protocol_are_hints_and_fewer_than_stated_decide_nothing():
    found = judged(accuracies(range(4)), paper=True)
    assert {claim.strength for claim in found.values()} == {"hint", "not run"}
    assert {found[id].verdict for id in ("C12", "C14", "C15", "C16")} == {"undecided"}
    assert "4 runs, 10 are needed" in found["C15"].reason
    one = judged(accuracies(range(1)), paper=True)
    assert {claim.verdict for claim in one.values()} == {"undecided"}
    assert "1 runs, 5 are needed" in one["C13"].reason


def test_a_claim_is_judged_in_the_setting_nearest_to_the_papers_that_has_enough_runs_of_its_networks():
    values = only("C14", accuracies(range(3)))
    short, paper = runs(values, model=False), runs({"abs": [0.95] * 3}, model=False, paper=True)
    tables = recorded((*paper, *short)).tables["judged"]
    assert set(tables[tables["claim"] == "C14"]["setting"]) == {"1,000 epochs, raw pixels, 200 images of mnist-5k"}
    for count, protocol in ((5, True), (4, False)):
        both = (*runs(only("C14", accuracies(range(count))), model=False, paper=True), *short)
        assert set(recorded(both).tables["judged"]["protocol"]) == {protocol}


def test_dead_outputs_are_shares_of_outputs_at_the_end():
    tables = recorded(runs({"relu": [0.9] * 3, "relu2": [0.5] * 3}, {"relu2": 4}, model=False)).tables["judged"]
    assert tables[tables["network"] == "relu2"]["never"].tolist() == pytest.approx([0.4] * 3)


def test_evidence_stands_beside_what_was_printed():
    row = judged({"relu": [0.95] * 3, "relu2-neg": [0.95] * 3})["C13"].evidence[0]
    assert row.label == "ReLU: test accuracy, %, mean of 3"
    assert row.published == "96.62 ± 0.17, 95.64 ± 0.19"


@pytest.mark.parametrize("claim", BY_ID)
def test_a_claim_without_its_networks_is_not_run(claim):
    found = judged({"abs2": [0.9]})[claim]
    assert (found.verdict, found.strength) == ("undecided", "not run")


def test_every_claim_without_any_table_is_not_run():
    assert {claim.strength for claim in judge(STATEMENTS, {})} == {"not run"}


def test_perturbations_and_prototypes_are_judged_from_the_networks_themselves(tmp_path):
    some = runs({name: [0.95] * 3 for name in ("relu", "abs", "relu-bias", "abs-l2", "abs-l2-neg")})
    found = {claim.id: claim for claim in judge(STATEMENTS, inspected(some, tmp_path).tables)}
    # Of the paper's two networks one was run; those without a bias in the second layer are not judged.
    assert {requirement.text.split(":")[0] for requirement in found["C17"].requirements} == {
        "ReLU + bias",
        "Abs + bias",
    }
    assert (
        "Abs + bias: points of training accuracy, pre-activations scaled to 10 % (required within ±0.5): not run"
        in (found["C17"].reason)
    )
    assert {row.source for row in found["C17"].evidence} == {"Oursland 2024b", ""}
    assert "After training ‖μ‖ is" in found["C16"].reason


def test_undefined_accuracies_decide_nothing():
    tables = {"judged": recorded(runs(only("C13", accuracies()), model=False, paper=True)).tables["judged"].copy()}
    mask = (tables["judged"]["claim"] == "C13") & (tables["judged"]["seed"] == 0)
    tables["judged"].loc[mask, "test_accuracy"] = float("nan")
    tables["dead"] = tables["places"] = pd.DataFrame(
        {"setting": [], "network": [], "layer": [], "part": [], "epoch": []}
    )
    claim = judge([BY_ID["C13"]], tables)[0]
    assert claim.verdict == "undecided"
    assert "1 of 12 values are undefined" in claim.reason
