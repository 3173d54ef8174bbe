"""The whole study at a tiny size, computed once for all tests."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from metriscope.runs import Driver, Store
from metriscope.studies.vq.measure import measure
from metriscope.studies.vq.train import WORK
from studies.vq.tiny import tiny


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """A tiny plan, the store it was computed into, its runs and its results."""
    plan, store = tiny(), Store(tmp_path_factory.mktemp("vq") / "runs")
    driver = Driver(store)
    runs = driver.perform(plan.jobs(), WORK, "training")
    return SimpleNamespace(plan=plan, store=store, runs=runs, results=measure(plan, runs, driver))
