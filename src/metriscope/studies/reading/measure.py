"""The table of the study: how well each way of reading predicts, for every network, layer and start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from metriscope.runs import Driver, Finished
from metriscope.studies.reading.plan import MEASURES, ReadingPlan

__all__ = ["ReadingResults", "measure"]


@dataclass(frozen=True, eq=False)
class ReadingResults:
    """Tidy tables by name; a table without rows was not measured."""

    tables: Mapping[str, pd.DataFrame]


def measure(plan: ReadingPlan, runs: Finished, driver: Driver) -> ReadingResults:
    """Return what the finished runs show, or what was recorded of them."""
    found = runs if plan.computed else driver.recorded(plan.networks)
    origin = "run" if plan.computed else "record"
    rows = [
        run.table("readings").assign(
            data=job.data, activation=job.activation, depth=job.depth, protocol=False, origin=origin
        )
        for job, run in found.items()
    ]
    columns = ["data", "activation", "depth", "reading", *MEASURES]
    return ReadingResults({"readings": pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=columns)})
