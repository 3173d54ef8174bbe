"""One real, small run of the study, which several files of tests look at."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from metriscope.runs import Driver, Store
from metriscope.studies.mahalanobis.measure import measure
from metriscope.studies.mahalanobis.plan import PAPER, Further, MahalanobisOptions, plan
from metriscope.studies.mahalanobis.train import WORK

SIX = replace(PAPER[2], trials=6)
# The profile only says that the experiment on second layers is looked up, not run.
SHORT = replace(plan(MahalanobisOptions("paper", dims=(2,), trials=6)), others={2: Further(1, SIX)}, profile="quick")


@pytest.fixture(scope="session")
def done(tmp_path_factory):
    """Return a plan at the paper's full length in 2-D, its runs, and what was measured on them."""
    driver = Driver(Store(tmp_path_factory.mktemp("store")))
    runs = driver.perform(SHORT.jobs(), WORK, "training")
    return SimpleNamespace(plan=SHORT, runs=runs, results=measure(SHORT, runs, driver))


@pytest.fixture(scope="session")
def results(done):
    return done.results
