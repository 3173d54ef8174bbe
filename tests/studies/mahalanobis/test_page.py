"""The study's part of the report, from a real, small run."""

import pytest

from metriscope.cli import main
from metriscope.report import Figure, Page, render
from metriscope.studies.judging import judge
from metriscope.studies.mahalanobis.experiments import OUTCOMES
from metriscope.studies.mahalanobis.judge import STATEMENTS
from metriscope.studies.mahalanobis.page import sections


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
