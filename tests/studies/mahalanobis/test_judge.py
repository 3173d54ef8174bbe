"""Verdicts follow the numbers: on synthetic tables for each criterion in turn, and on a real, small run."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from metriscope.report import number
from metriscope.studies.mahalanobis.judge import STATEMENTS
from metriscope.studies.verdicts import finding, judge
from studies.synthetic import check_statement, synthetic, verdict_on

BY_ID = {statement.id: statement for statement in STATEMENTS}


def test_the_study_judges_c01_to_c07_and_c29():
    assert list(BY_ID) == [*(f"C0{i}" for i in range(1, 8)), "C29"]


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: s.id)
def test_verdict_and_sentence_follow_each_criterion(statement):
    # 100-D has the criteria of 2-D and 10-D, as the next test shows; without them this takes half the time.
    kept = tuple(c for c in statement.criteria if c.level != "100-D")
    check_statement(replace(statement, criteria=kept))


@pytest.mark.parametrize("claim", ["C03", "C04", "C05", "C06", "C07"])
def test_every_dimension_has_the_same_criteria(claim):
    def without_dimension(criterion):
        values = replace(criterion.values, where=tuple(pair for pair in criterion.values.where if pair[0] != "dim"))
        return replace(criterion, values=values, level="")

    by_level = {}
    for criterion in BY_ID[claim].criteria:
        assert f"{dict(criterion.values.where)['dim']}-D" == criterion.level
        by_level.setdefault(criterion.level, []).append(without_dimension(criterion))
    assert list(by_level) == ["2-D", "10-D", "100-D"]
    assert by_level["2-D"] == by_level["10-D"] == by_level["100-D"]


@pytest.mark.parametrize("claim", ["C01", "C02"])
def test_one_nan_among_many_exact_values_is_undecided_with_its_reason(claim):
    tables = synthetic(BY_ID[claim])
    tables["identities"].loc[3, "error"] = np.nan
    found = verdict_on(BY_ID[claim], tables)
    assert found.verdict == "undecided"
    assert "1 of 12 values are undefined" in found.reason


def test_identities_hold_on_trained_networks(results):
    claims = {c.id: c for c in judge(STATEMENTS, results.tables)}
    for name in ("C01", "C02"):
        assert (claims[name].verdict, claims[name].strength) == ("supported", "exact")
        worst = (
            results.tables["identities"].query("identity == @which", local_dict={"which": WHICH[name]})["error"].max()
        )
        assert number(float(worst)) in claims[name].reason


WHICH = {"C01": "analytic", "C02": "mirrored"}


@pytest.mark.parametrize("claim", ["C03", "C04", "C05", "C06", "C07"])
def test_shorter_runs_neither_support_nor_contradict(claim):
    for outside in (None, 0):
        tables = synthetic(BY_ID[claim], outside=outside)
        short = {name: table.assign(length=0.2) for name, table in tables.items()}
        found = verdict_on(BY_ID[claim], short)
        assert found.verdict == "undecided"
        assert "run for 20.00% of the source's epochs, 100% are needed" in found.reason


@pytest.mark.parametrize("claim", ["C03", "C04", "C05", "C06", "C07"])
def test_many_trials_on_one_gaussian_are_one_unit(claim):
    tables = {name: table.assign(gaussian=0) for name, table in synthetic(BY_ID[claim]).items()}
    found = verdict_on(BY_ID[claim], tables)
    assert found.verdict == "undecided"
    assert "1 Gaussians, 3 are needed" in found.reason


def test_lost_directions_in_most_trials_are_not_learning():
    # 17 of 20 trials that lost one of two directions: the mean ratio is 0.85.
    statement = BY_ID["C03"]
    tables = synthetic(statement)
    trials = tables["population"]
    abs_2d = (trials["activation"] == "abs") & (trials["dim"] == 2)
    trials.loc[abs_2d, "loss_ratio"] = 0.85 + 1e-3 * np.arange(abs_2d.sum())
    found = finding(statement.criteria[0], tables)
    assert (found.criterion.level, found.state) == ("2-D", "fails")
    assert verdict_on(statement, tables).verdict == "depends"


def test_pairs_in_two_dimensions_alone_depend_on_the_dimension():
    statement = BY_ID["C05"]
    tables = synthetic(statement)
    trials = tables["population"]
    trials["pair_share"] = np.where(trials["dim"] == 2, 0.4 + 1e-3 * trials["gaussian"], 0.0)
    found = verdict_on(statement, tables)
    assert found.verdict == "depends"
    assert "supported for 2-D, contradicted for 10-D, 100-D" in found.reason


def test_every_margin_has_a_reason_and_every_test_its_least_number_of_units():
    for statement in STATEMENTS:
        for criterion in statement.criteria:
            assert criterion.why.endswith(".")
            assert criterion.test == "exact" or criterion.fewest >= 3


def test_notes_count_what_the_tables_hold(results):
    claims = {c.id: c for c in judge(STATEMENTS, results.tables)}
    relu = results.tables["population"].query("activation == 'relu' and start == 'random'")
    exact = relu[relu["exact"]]
    some, whole = int((relu["mirrored"] > 0).sum()), int((exact["mirrored"] == 2).sum())
    expected = (
        f"pairs in {some} of {len(relu)} trials, all 2 pairs in {whole} of the {len(exact)} trials that are exact"
    )
    assert expected in claims["C05"].reason
    axes = results.tables["population axes"]
    assert number(float(axes["cosine"].mean())) in claims["C07"].reason
    assert f"({int(axes['trials'].sum())} trials that kept all directions)" in claims["C07"].reason


def test_notes_change_with_the_tables(results):
    trials = results.tables["population"]
    none = {**results.tables, "population": trials.assign(mirrored=trials["mirrored"] * 0, exact=False)}
    reason = next(c.reason for c in judge(STATEMENTS, none) if c.id == "C05")
    assert "pairs in 0 of 12 trials, all 2 pairs in 0 of the 0 trials that are exact" in reason
    empty = {**results.tables, "population axes": results.tables["axes"].iloc[:0]}
    assert "not run" in next(c.reason for c in judge(STATEMENTS, empty) if c.id == "C07")


def test_no_sentence_about_outcomes_is_fixed(results):
    reasons = " ".join(claim.reason for claim in judge(STATEMENTS, results.tables))
    for sentence in ("never gets there", "come with success", "stands: the matched"):
        assert sentence not in reasons
    assert all(re.search(r"\d", claim.reason) for claim in judge(STATEMENTS, results.tables))


def test_evidence_stands_beside_what_the_record_prints(results):
    claims = {c.id: c for c in judge(STATEMENTS, results.tables)}
    row = next(e for e in claims["C03"].evidence if e.label.startswith("2-D Abs"))
    assert row.ours == pytest.approx(results.select(activation="abs", start="random")["train_mse"].mean())
    assert (row.published, row.source) == (0.122, "Oursland 2024, exp_md")


def test_holm_over_the_claims_of_the_study_is_applied_once():
    tables: dict[str, list[pd.DataFrame]] = {}
    for statement in STATEMENTS:
        for name, table in synthetic(statement).items():
            tables.setdefault(f"{statement.id}-{name}", []).append(table)
    # Each claim on tables of its own names: all are supported together.
    own = [
        replace(
            s,
            notes=None,
            evidence=None,
            criteria=tuple(
                replace(
                    c,
                    values=replace(c.values, table=f"{s.id}-{c.values.table}"),
                    minus=c.minus and replace(c.minus, table=f"{s.id}-{c.minus.table}"),
                )
                for c in s.criteria
            ),
        )
        for s in STATEMENTS
    ]
    found = judge(own, {name: frames[0] for name, frames in tables.items()})
    assert [claim.verdict for claim in found] == ["supported"] * len(STATEMENTS)
