"""Scores that predict, and scores that only count parameters: planted answers for C30."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from metriscope.report import Section
from metriscope.runs import Driver, Store
from metriscope.studies.verdicts import judge
from metriscope.studies.vq.experiments import REFERENCE, SCORES
from metriscope.studies.vq.prediction import (
    STATEMENT,
    PredictionResults,
    held_out_gains,
    label_patterns,
    measure_prediction,
    partial_rank_correlation,
    permutation_p,
    pseudo_values,
    section,
)
from metriscope.vq import vq_kernel
from studies.synthetic import check_statement
from studies.vq.tiny import tiny

COUNT = 60


@pytest.fixture
def world():
    """Sizes of architectures, and accuracies that grow with size and with something else."""
    generator = np.random.default_rng(0)
    sizes = np.column_stack([generator.uniform(3, 6, COUNT), generator.integers(1, 7, COUNT)]).astype(float)
    extra = generator.normal(size=COUNT)
    return sizes, extra, sizes[:, 0] + extra


def test_a_score_equal_to_final_accuracy_has_partial_correlation_one(world):
    sizes, _, accuracy = world
    assert partial_rank_correlation(accuracy, accuracy, sizes) == pytest.approx(1)
    assert pseudo_values(np.exp(accuracy), accuracy, sizes) == pytest.approx(1)


def test_a_score_equal_to_the_parameter_count_has_partial_correlation_zero(world):
    sizes, _, accuracy = world
    assert partial_rank_correlation(np.exp(sizes[:, 0]), accuracy, sizes) == 0
    assert held_out_gains(np.exp(sizes[:, 0]), accuracy, sizes) == pytest.approx(0, abs=1e-9)


def test_the_partial_correlation_is_that_of_the_textbook_for_one_control(world):
    sizes, extra, accuracy = world
    control = sizes[:, :1]
    ab, ac, bc = (
        stats.spearmanr(a, b).statistic
        for a, b in ((extra, accuracy), (extra, control[:, 0]), (accuracy, control[:, 0]))
    )
    expected = (ab - ac * bc) / np.sqrt((1 - ac**2) * (1 - bc**2))
    assert partial_rank_correlation(extra, accuracy, control) == pytest.approx(expected)


def test_what_size_does_not_tell_removes_error_on_held_out_architectures(world):
    sizes, extra, accuracy = world
    gains = held_out_gains(extra, accuracy, sizes)
    assert gains.mean() > 0.3
    noise = np.random.default_rng(1).normal(size=COUNT)
    assert held_out_gains(noise, accuracy, sizes).mean() < 0.05


def test_errors_on_held_out_rows_are_those_of_regressions_without_the_row(world):
    sizes, extra, accuracy = world
    ranks = [stats.rankdata(v) for v in (*sizes.T, extra, accuracy)]
    rest, errors = np.arange(1, COUNT), []
    for columns in (ranks[:2], ranks[:3]):
        design = np.column_stack([np.ones(COUNT), *columns])
        weights = np.linalg.lstsq(design[rest], ranks[3][rest], rcond=None)[0]
        errors.append((ranks[3][0] - design[0] @ weights) ** 2)
    gains = held_out_gains(extra, accuracy, sizes)
    # The scale is the mean error without the score, the same for all: it cancels in a ratio of two architectures.
    scale = (errors[0] - errors[1]) / gains[0]
    assert 0 < scale < np.var(ranks[3])


def test_permutations_tell_a_score_from_noise(world):
    sizes, extra, accuracy = world
    assert permutation_p(extra, accuracy, sizes, 99, 0) == pytest.approx(0.01)
    ps = [permutation_p(np.random.default_rng(s).normal(size=COUNT), accuracy, sizes, 99, s) for s in range(20)]
    assert 0.25 < np.mean(ps) < 0.75


def test_the_kernel_of_label_patterns_is_that_of_labels():
    labels = np.array([0, 2, 1, 2])
    assert (vq_kernel(label_patterns(labels)) == 2 * (labels[:, None] != labels)).all()


def results_of(scores):
    """Return results of made-up architectures in which each score is a function of size, luck and accuracy."""
    part = tiny().prediction
    generator, rows = np.random.default_rng(2), []
    for depth in range(1, 7):
        for width in (8, 16, 32, 64, 128):
            for activation in ("relu", "abs"):
                test = np.log(width) + generator.normal()
                rows.append({"depth": depth, "activation": activation, "width": width, "test": test})
    frame = pd.DataFrame(rows).assign(seed=0, origin="run")
    frame["parameters"] = frame["width"] * 785
    values = {name: scores(name, frame, generator) for name in (*SCORES, *REFERENCE)}
    return PredictionResults(part, frame.assign(**values))


def test_scores_that_know_the_accuracy_support_the_claim_and_sizes_contradict_it():
    (claim,) = judge([STATEMENT], results_of(lambda name, frame, _: frame["test"]).tables)
    assert claim.verdict == "supported"
    (claim,) = judge([STATEMENT], results_of(lambda name, frame, _: frame["parameters"]).tables)
    assert claim.verdict == "contradicted"


def test_one_good_score_among_sizes_makes_the_claim_depend_on_the_score():
    good = results_of(lambda name, frame, _: frame["test" if name == "rank" else "parameters"])
    (claim,) = judge([STATEMENT], good.tables)
    assert claim.verdict == "depends"
    assert f"supported for {SCORES['rank']}" in claim.reason


def test_the_statement_follows_its_tables():
    check_statement(STATEMENT)


def test_without_records_nothing_is_computed_and_the_page_says_so(tmp_path, monkeypatch):
    from dataclasses import replace

    monkeypatch.setattr("metriscope.runs.records.find", lambda study, address: None)
    results = measure_prediction(replace(tiny().prediction, computed=False), Driver(Store(tmp_path)))
    assert results.tables == {}
    found = section(results)
    assert isinstance(found, Section)
    assert "no record" in found.blocks[0].text
    (claim,) = judge([STATEMENT], results.tables)
    assert (claim.verdict, claim.strength) == ("undecided", "not run")
