"""Measure every experiment of the study, or look its record up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from metriscope.runs import Driver, Finished
from metriscope.studies.heads.contests.measure import measure_contests
from metriscope.studies.heads.offsets.measure import measure_offsets
from metriscope.studies.heads.plan import HeadsPlan

__all__ = ["HeadsResults", "measure"]


@dataclass(frozen=True, eq=False)
class HeadsResults:
    """Tidy tables by name; a table without rows was not measured."""

    tables: Mapping[str, pd.DataFrame]


def measure(plan: HeadsPlan, runs: Finished, driver: Driver) -> HeadsResults:
    """Return what the finished runs show, or what was recorded of them."""
    return HeadsResults(
        {
            "offsets": measure_offsets(plan.offsets, runs if plan.computed else None, driver),
            **measure_contests(plan.contests, plan.computed, driver),
        }
    )
