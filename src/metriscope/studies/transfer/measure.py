"""The tables of the study: accuracies of every network and start, and the contests of heads that it shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from metriscope.runs import Driver, Finished
from metriscope.studies.heads.measure import measure_contests
from metriscope.studies.transfer.plan import TransferPlan

__all__ = ["TransferResults", "measure"]

COLUMNS = ("network", "data", "body", "seed", "test_accuracy")


@dataclass(frozen=True, eq=False)
class TransferResults:
    """Tidy tables by name; a table without rows was not measured."""

    tables: Mapping[str, pd.DataFrame]


def measure(plan: TransferPlan, runs: Finished, driver: Driver) -> TransferResults:
    """Return what the finished runs show, or what was recorded of them."""
    # Which files of CIFAR-10 are here determines its digest, and the record stands for any of them.
    found = runs if plan.computed else driver.recorded(plan.trainings, ignored=("sha256",))
    origin = "run" if plan.computed else "record"
    rows = [
        run.table("ends").assign(network=job.model, data=job.data, body=job.body, protocol=False, origin=origin)
        for job, run in found.items()
    ]
    constrained = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=list(COLUMNS))
    contests = measure_contests(plan.contests, plan.computed, driver)
    return TransferResults({"constrained": constrained, **contests})
