"""The tables of the study: scores of the contests, and the experiment on OffsetL2; computed, or from records."""

from __future__ import annotations

from typing import Any

import pandas as pd

from metriscope.functional import Ranking, rank_methods
from metriscope.runs import Driver, Finished, once
from metriscope.studies.heads.offsets import measure_offsets
from metriscope.studies.heads.plan import CONTESTS, SETS, HeadContest, HeadContests, HeadsPlan
from metriscope.studies.heads.train import contested
from metriscope.studies.tidy_tables import TidyTables, joined, matching

__all__ = ["means", "measure", "measure_contests", "standing"]

COLUMNS = ("contest", "data", "per_class", "entry", "start", "accuracy", "counted")
BINS = ("contest", "data", "per_class", "entry", "scaled", "bin", "count", "confidence", "right", "counted")


def measure_contests(plan: HeadContests, computed: bool, driver: Driver) -> dict[str, pd.DataFrame]:
    """Return the tables of contests that are computed here, or of their records.

    ``contests``: the scores, one row per data set, entry and start; ``counted`` is False for a second contest on the
    same data, which is not independent evidence. ``reliability``: sums over the test points in a bin of confidence, one
    row per data set, entry and bin.
    """
    jobs = plan.jobs()
    found = driver.perform(jobs, once(contested), "heads: contests") if computed else driver.recorded(jobs)
    origin = "run" if computed else "record"

    def together(key: str, columns: tuple[str, ...]) -> pd.DataFrame:
        return joined((_tagged(job, run.table(key), origin) for job, run in found.items()), columns)

    return {"contests": together("scores", COLUMNS), "reliability": together("reliability", BINS)}


def _tagged(job: HeadContest, table: pd.DataFrame, origin: str) -> pd.DataFrame:
    where: dict[str, Any] = {"contest": job.contest, "data": job.data, "per_class": job.per_class, "protocol": False}
    return table.assign(**where, counted=SETS[job.data].data == job.data, origin=origin)


def means(table: pd.DataFrame, contest: str, column: str, per_class: int = 0) -> pd.DataFrame:
    """Return the mean over starts, one row per data set and one column per entry, in the order of the plan."""
    rows = matching(table, contest=contest, per_class=per_class)
    wide = rows.pivot_table(index="data", columns="entry", values=column, sort=False)
    return wide.reindex(columns=[e.name for e in CONTESTS[contest].entries if e.name in wide.columns])


def standing(table: pd.DataFrame, contest: str, column: str, smaller: bool = False) -> tuple[Ranking, list[str]] | None:
    """Return the ranks of a contest's entries over data sets; entries and data sets with missing values are left out.

    ``smaller``: whether a smaller value is better. None without two data sets and two entries.
    """
    rows = table[table["counted"]] if len(table) else table
    wide = means(rows, contest, column) if len(rows) else pd.DataFrame()
    wide = wide.dropna(axis=1)
    return (
        (rank_methods(-wide.to_numpy() if smaller else wide.to_numpy()), list(wide.columns))
        if min(wide.shape) > 1
        else None
    )


def measure(plan: HeadsPlan, runs: Finished, driver: Driver) -> TidyTables:
    """Return what the finished runs show, or what was recorded of them."""
    offsets = measure_offsets(plan.offsets, runs if plan.computed else None, driver)
    return TidyTables({"offsets": offsets, **measure_contests(plan.contests, plan.computed, driver)})
