"""The share of heads of each coin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from metriscope.runs import Driver, Finished
from studies.sketch.plan import SketchPlan


@dataclass(frozen=True)
class SketchResults:
    """One table: a row per coin."""

    tables: Mapping[str, pd.DataFrame]


def measure(plan: SketchPlan, runs: Finished, driver: Driver) -> SketchResults:
    """Return the share of heads of every coin."""
    rows = [{"coin": job.number, "heads": runs[job].table("tosses")["heads"].mean()} for job in plan.jobs()]
    return SketchResults({"coins": pd.DataFrame(rows).assign(protocol=plan.options.profile == "paper")})
