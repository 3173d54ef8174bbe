"""The study's part of the report, from a real, small run."""

import numpy as np
import pytest

from metriscope.cli import main
from metriscope.report import Figure, Page, number, render
from metriscope.report.document import Panel
from metriscope.studies.mahalanobis.experiments import OUTCOMES
from metriscope.studies.mahalanobis.judge import STATEMENTS
from metriscope.studies.mahalanobis.page import sections
from metriscope.studies.mahalanobis.train import draw_problem, network
from metriscope.studies.verdicts import judge


@pytest.fixture(scope="module")
def page(done):
    claims = judge(STATEMENTS, done.results.tables)
    return Page("Metriscope", "test", sections(done.plan, done.results, claims))


def test_the_page_has_every_part_and_every_verdict(page):
    assert [claim.id for claim in page.claims] == [*(f"C0{i}" for i in range(1, 8)), "C29"]
    names = {table.name for table in page.tables}
    shown = {"protocol", "placement", "beside-2d", "metrics-2d", "lost-directions", "failures", "starts"}
    shown |= {"replay", "replay-largest", "replay-early-ranks", "second-layer"}
    assert shown | {"trials", "diagnoses", "gaussians", "axes", "identities"} == names
    figures = {block.name for block in page.blocks if isinstance(block, Figure)}
    drawn = {"hyperplanes-2d", "loss-curves", "distributions", "eigenvalues", "metric-spectra", "gaussians"}
    assert figures == drawn | {"second-layer"}
    assert "http" not in render(page).replace("http-equiv", "")


def test_the_page_can_repeat_the_trials_that_it_names(page, done, results):
    (panel,) = (block for block in page.blocks if isinstance(block, Panel))
    rows = results.select(dim=2, start="random", activation="abs").set_index("trial")
    job = done.plan.group(2, "random")[0]
    for trial, (weight, bias) in results.tried.starts.items():
        linear = network(job, "abs", trial, draw_problem(job.task).x).linear
        np.testing.assert_array_equal(weight, linear.weight.detach().double().numpy())
        np.testing.assert_array_equal(bias, linear.bias.detach().double().numpy())
        assert number(rows.loc[trial, "train_mse"]) in panel.html
    assert rows["train_mse"].idxmin() in results.tried.starts
    names = [start["name"] for start in panel.data["starts"]]
    assert any("loses a direction" in name for name in names) == bool((rows["lost"] > 0).any())
    assert panel.data["recipe"]["epochs"] == job.recipe.epochs


def test_the_table_of_ends_counts_every_diagnosed_trial(page, results):
    table = next(table for table in page.tables if table.name == "failures")
    counted = table.frame[list(OUTCOMES)].to_numpy().sum()
    assert counted == len(results.tables["diagnoses"])


def test_tidy_tables_say_what_is_of_the_protocol(results):
    for name in ("trials", "axes", "identities"):
        assert results.tables[name]["protocol"].dtype == bool


@pytest.mark.parametrize("activation", ["sigmoid", "abs"])
def test_one_activation_alone_makes_a_page_too(tmp_path, activation):
    small = ["--dims", "1", "3", "--trials", "1", "--epochs", "5", "--samples", "40", "--activations", activation]
    assert main(["reproduce", "mahalanobis", *small, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "tables" / "trials.csv").exists()
