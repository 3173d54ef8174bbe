"""The tables of the study: the results of every start, mean curves, and ranks over data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from metriscope.functional import Ranking, rank_methods
from metriscope.runs import Driver, Finished
from metriscope.studies.initialization.plan import ENTRIES, KINDS, NAME, InitializationPlan
from metriscope.studies.tidy_tables import TidyTables, joined, matching

if TYPE_CHECKING:
    from metriscope.runs.records import Record

__all__ = ["gains", "measure", "recorded", "references", "standing"]

COLUMNS = ("data", "kind", "activation", "entry", "start", "unit", "log_loss", "share", "dead", "aside", "kept")


def measure(plan: InitializationPlan, runs: Finished, driver: Driver) -> TidyTables:
    """Return what the finished runs show, or what was recorded of them."""
    found = runs if plan.computed else driver.recorded(plan.contests)
    origin = "run" if plan.computed else "record"
    return _gathered(((vars(job), run) for job, run in found.items()), origin)


def recorded(records: Sequence[Record]) -> TidyTables:
    """Return what records of finished runs show."""
    own = [record for record in records if record.spec.get("study") == NAME]
    return _gathered(((record.spec, record) for record in own), "record")


def _gathered(found: Iterable[tuple[Mapping[str, Any], Any]], origin: str) -> TidyTables:
    """Return the tables of all contests; the unit of a Gaussian is its number, elsewhere it is the data set."""
    parts: dict[str, list[pd.DataFrame]] = {"starts": [], "curves": []}
    for job, run in found:
        where = {"kind": job["family"]} | {name: job[name] for name in ("data", "activation", "reference")}
        starts = run.table("starts").assign(**where, protocol=False, origin=origin)
        starts["unit"] = starts["gaussian"].astype(str) if job["gaussians"] else job["data"]
        starts["log_loss"] = np.log10(starts["loss"].astype(float))
        parts["starts"].append(starts)
        parts["curves"].append(run.table("curves").assign(**where, checks=job["checks"]))
    empty = {"starts": list(COLUMNS), "curves": ["data", "kind", "activation", "entry", "check", "log_loss"]}
    whole = {name: joined(some, empty[name]) for name, some in parts.items()}
    order = pd.CategoricalDtype(list(KINDS), ordered=True)
    tables = {
        name: table.sort_values("kind", key=lambda k: k.astype(order), kind="stable") for name, table in whole.items()
    }
    return TidyTables({name: table.reset_index(drop=True) for name, table in tables.items()})


def references(table: pd.DataFrame) -> dict[str, str]:
    """Return the reference start of each kind of data."""
    return {str(kind): str(part["reference"].iloc[0]) for kind, part in table.groupby("kind", sort=False)}


def gains(table: pd.DataFrame, kind: str, column: str = "log_loss") -> pd.DataFrame:
    """Return the mean of a column minus that of the reference: one row per unit, one column per start."""
    rows = matching(table, kind=kind)
    wide = rows.pivot_table(index="unit", columns="entry", values=column, sort=False)
    wide = wide.reindex(columns=[name for name in ENTRIES if name in wide.columns])
    return wide.sub(wide[references(rows)[kind]], axis=0)


def standing(table: pd.DataFrame, kind: str) -> tuple[Ranking, list[str]] | None:
    """Return the ranks of the starts by their loss over data sets; None without two data sets and two starts."""
    wide = gains(table, kind).dropna(axis=1) if len(matching(table, kind=kind)) else pd.DataFrame()
    return (rank_methods(-wide.to_numpy()), list(wide.columns)) if min(wide.shape) > 1 else None
