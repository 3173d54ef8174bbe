"""Criteria of C21 to C25: each holds, fails and is open on tables made for it, and sentences state their numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from metriscope.studies.tidy_tables import published
from metriscope.studies.verdicts import judge
from metriscope.studies.vq.experiments import PAIRS
from metriscope.studies.vq.judge import STATEMENTS
from studies.synthetic import check_statement, synthetic, verdict_on

BY_ID = {statement.id: statement for statement in STATEMENTS}


@pytest.mark.parametrize("name", BY_ID)
def test_verdict_and_sentence_follow_the_tables(name):
    check_statement(BY_ID[name])


def test_the_study_judges_its_claims():
    assert list(BY_ID) == ["C21", "C22", "C23", "C24", "C25", "C30", "C31"]


def test_what_was_not_run_is_undecided():
    assert {(claim.verdict, claim.strength) for claim in judge(STATEMENTS, {})} == {("undecided", "not run")}


def test_the_printed_numbers_are_those_of_figure_3():
    table = published("vq").set_index("pair")["value"]
    assert [table["-".join(pair)] for pair in PAIRS] == [0.55, 0.28, 0.38, 0.28, 0.40, 0.87]


def test_separation_of_training_points_alone_depends_on_the_points():
    tables = synthetic(BY_ID["C22"])
    rows = tables["separation"]
    new = (rows["points"] == "new") & (rows["distance"] == "first")
    rows.loc[new, "silhouette"] -= rows.loc[new, "silhouette"].mean()
    claim = verdict_on(BY_ID["C22"], tables)
    assert claim.verdict == "depends"
    assert "supported for training points, contradicted for new points" in claim.reason


@pytest.mark.parametrize(("column", "margin"), [("of euclid", 0.5), ("of largest", 0.25)])
def test_a_kernel_of_high_rank_contradicts_the_claim_of_low_rank(column, margin):
    tables = synthetic(BY_ID["C22"])
    tables["ranks"][column] += margin - tables["ranks"][column].mean() + 0.2
    assert verdict_on(BY_ID["C22"], tables).verdict == "contradicted"


def test_an_alignment_that_grows_and_a_cosine_that_falls_depend_on_the_measure():
    tables = synthetic(BY_ID["C23"])
    tables["heat worst"]["change"] -= tables["heat worst"]["change"].mean() + 0.3
    claim = verdict_on(BY_ID["C23"], tables)
    assert claim.verdict == "depends"
    assert "Depends on the measure: supported for centered alignment" in claim.reason


def test_three_seeds_are_a_hint_and_five_that_converged_are_the_papers_protocol():
    for seeds, strength in ((3, "hint"), (5, "protocol")):
        tables = {
            name: table.groupby(list(_keys(table))).head(seeds) for name, table in synthetic(BY_ID["C21"]).items()
        }
        assert verdict_on(BY_ID["C21"], tables).strength == strength
    assert verdict_on(BY_ID["C21"], {k: t.assign(protocol=False) for k, t in tables.items()}).strength == "hint"


def _keys(table):
    return [name for name in ("comparison", "measure") if name in table]


def lemmas(kind, **changed):
    """Return two networks of a kind, in none of which a lemma is broken."""
    rows = {"kind": kind, "network": [f"{kind} 0.0", f"{kind} 0.1"], "regions": 5, "pairs": 10, "violations": 0}
    rows |= {"strict": 0.2 * (kind == "deep"), "differ": 2 * (kind == "deep"), "stretch": 1.1, "protocol": True}
    rows |= {"wider": 4.0, "shortened": 0.1, "excess": 0.2, "wider strict": 0.1}
    return pd.DataFrame({**rows, "wider violations": 0, **changed})


def tents(**changed):
    layers = np.array([1, 2, 3])
    rows = {"layers": layers, "pieces": 2**layers, "pieces as printed": layers + 1, "twin units": 2**layers - 1}
    rows |= {"violations": 0, "never strict": 0, "pieces off": 0, "protocol": True}
    return pd.DataFrame({**rows, **changed})


def test_both_lemmas_are_supported_where_no_pair_is_against_them():
    found = {"lemmas": pd.concat([lemmas("shallow"), lemmas("deep")]), "tents": tents()}
    for name in ("C24", "C25"):
        (claim,) = judge([BY_ID[name]], found)
        assert (claim.verdict, claim.strength) == ("supported", "exact")
    assert "VQ is larger for 0 of 20 pairs" in claim.reason
    assert "The window lengthens the graph distance of 10 % of a network's pairs" in claim.reason


def test_one_pair_in_one_network_contradicts_a_lemma_and_the_sentence_counts_it():
    first = {"lemmas": lemmas("shallow", differ=[0, 1])}
    (claim,) = judge([BY_ID["C24"]], first)
    assert claim.verdict == "contradicted"
    assert "the distances differ for 1 of 20 pairs" in claim.reason
    second = {"lemmas": lemmas("deep", violations=[1, 0]), "tents": tents()}
    (claim,) = judge([BY_ID["C25"]], second)
    assert claim.verdict == "contradicted"
    assert "VQ is larger for 1 of 20 pairs" in claim.reason


@pytest.mark.parametrize("changed", [{"never strict": [0, 0, 1]}, {"pieces off": [0, 0, 1]}, {"violations": [0, 0, 2]}])
def test_a_tent_map_that_is_not_what_it_should_be_contradicts_the_second_lemma(changed):
    (claim,) = judge([BY_ID["C25"]], {"lemmas": lemmas("deep"), "tents": tents(**changed)})
    assert claim.verdict == "contradicted"
