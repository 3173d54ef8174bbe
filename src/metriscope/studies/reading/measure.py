"""The table of the study: how well each way of reading predicts, for every network, layer and start."""

from __future__ import annotations

from metriscope.runs import Driver, Finished
from metriscope.studies.reading.plan import MEASURES, ReadingPlan
from metriscope.studies.tidy_tables import TidyTables, joined

__all__ = ["measure"]


def measure(plan: ReadingPlan, runs: Finished, driver: Driver) -> TidyTables:
    """Return what the finished runs show, or what was recorded of them."""
    found = runs if plan.computed else driver.recorded(plan.networks)
    origin = "run" if plan.computed else "record"
    rows = (
        run.table("readings").assign(
            data=job.data, activation=job.activation, depth=job.depth, protocol=False, origin=origin
        )
        for job, run in found.items()
    )
    return TidyTables({"readings": joined(rows, ["data", "activation", "depth", "reading", *MEASURES])})
