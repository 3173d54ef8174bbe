"""From the cells of the factorial experiment to tidy tables: ends, dead outputs, effects of the factors.

Axes: S starts. The unit of replication is the start; every contrast is taken within a start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy import stats

from metriscope.data import digest
from metriscope.functional import holm, summarize
from metriscope.runs import Driver, Record
from metriscope.studies.representation.accuracy.measure import select
from metriscope.studies.representation.collapse.plan import (
    FACTORS,
    CollapseCell,
    baselines,
    cells,
    controls,
    tuning,
)
from metriscope.studies.representation.plan import MODELS, NAME, RepresentationPlan

__all__ = ["asked", "cells_of", "effects", "find", "gather", "half_dead_epoch"]

OUTCOMES = ("test_accuracy", "dead")
EMPTY = {
    "collapse": ("network", "pixels", "factors", "seed", "test_accuracy", "dead", "early", "diverged"),
    "collapse effects": ("cells", "outcome", "factor", "with", "mean", "low", "high", "starts", "p", "holm"),
    "collapse deaths": ("pixels", "factors", "seed", "epoch", "dead"),
    "collapse pushes": ("pixels", "factors", "seed", "epoch", "up", "down"),
    "collapse controls": ("network", "pixels", "factors", "rate", "seed", "test_accuracy", "train_loss", "dead"),
}


class Tabled(Protocol):
    """A run or a record of one."""

    def table(self, name: str) -> pd.DataFrame:
        """Return a table by its name."""


def asked(seed: int) -> tuple[CollapseCell, ...]:
    """Return every cell, in the order in which they should be trained."""
    base = CollapseCell("relu2", "raw", 1e-3, seed=seed, sha256=digest("mnist-5k"))
    return (*tuning(base), *baselines(base), *cells(base), *controls(base))


def find(plan: RepresentationPlan, driver: Driver) -> tuple[dict[CollapseCell, Tabled], str]:
    """Return the cells that there are and where they are from: runs, or records that come with the package.

    Training takes half an hour, so cells are trained only where all networks of the paper's protocol are asked for.
    """
    wanted = asked(plan.seed)
    if plan.profile == "paper" and {m for part in plan.parts for m in part.models} == set(MODELS):
        from metriscope.studies.representation.collapse.train import WORK

        return dict(driver.perform(wanted, WORK, f"{NAME}: collapse")), "run"
    return dict(driver.recorded(wanted)), "record"


def cells_of(records: Iterable[Record]) -> dict[CollapseCell, Tabled]:
    """Return records by the cell that each describes."""
    found: dict[CollapseCell, Tabled] = {}
    for record in records:
        spec = {name: value for name, value in record.spec.items() if name != "kind"}
        found[CollapseCell(**{**spec, "starts": tuple(spec["starts"])})] = record
    return found


def half_dead_epoch(epochs: np.ndarray, never: np.ndarray) -> float:
    """Return the first epoch at which half of the outputs that are dead at the end are dead; NaN if none are.

    >>> half_dead_epoch(np.array([0, 5, 10]), np.array([1, 2, 4]))
    5.0
    """
    return float(epochs[np.argmax(never >= never[-1] / 2)]) if never[-1] else math.nan


def gather(found: Mapping[CollapseCell, Tabled], origin: str) -> dict[str, pd.DataFrame]:
    """Return the tables of all cells: ends, effects, deaths and pushes over epochs, and controls.

    ``dead`` is the share of outputs that no training image makes active at the end, ``early`` the share of training
    after which half of them are dead. Accuracies are per cent.
    """
    wide = {cell: _ends(cell, run).assign(origin=origin) for cell, run in found.items()}
    main = {cell for cell in found if not cell.control}
    factorial = [cell for cell in found if cell in main and cell.model == "relu2"]
    series = {name: _series(((c, found[c]) for c in factorial), name) for name in ("dead", "pushes")}
    tables = {
        "collapse": _joined(wide[cell] for cell in found if cell in main),
        "collapse deaths": series["dead"].rename(columns={"never": "dead"}),
        "collapse pushes": series["pushes"],
        "collapse controls": _joined(wide[cell] for cell in found if cell not in main),
    }
    whole = len(factorial) == 2 ** len(FACTORS)
    tables["collapse effects"] = _both(select(tables["collapse"], network="relu2")) if whole else pd.DataFrame()
    return {k: tables[k] if len(tables[k]) else pd.DataFrame(columns=list(EMPTY[k])) for k in EMPTY}


def _joined(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    kept = list(parts)
    return pd.concat(kept, ignore_index=True) if kept else pd.DataFrame()


def _where(cell: CollapseCell) -> dict[str, Any]:
    return {"network": cell.model, "pixels": cell.pixels, "factors": cell.factors, "rate": cell.lr, **cell.on}


def _ends(cell: CollapseCell, run: Tabled) -> pd.DataFrame:
    """Return one row per start; outputs of a network that diverged are counted while its loss was still finite."""
    rows, outputs = [], 10
    seen = run.table("dead")
    for _, end in run.table("ends").iterrows():
        own = seen[seen["seed"] == end["seed"]]
        sound = own[np.isfinite(own["train_loss"])]
        epochs, never = sound["epoch"].to_numpy(), sound["never"].to_numpy()
        early = half_dead_epoch(epochs, never) / cell.epochs
        line = {"seed": int(end["seed"]), "dead": never[-1] / outputs, "early": early}
        line |= {"train_loss": own["train_loss"].iloc[-1], "diverged": len(sound) < len(own)}
        rows.append({**_where(cell), **line, "test_accuracy": 100 * end["test_accuracy"]})
    return pd.DataFrame(rows)


def _series(found: Iterable[tuple[CollapseCell, Tabled]], name: str) -> pd.DataFrame:
    return _joined(run.table(name).assign(**_where(cell)) for cell, run in found)


def _contrasts(rows: pd.DataFrame, factors: Mapping[str, str]) -> Iterator[tuple[str, str, pd.Series]]:
    """Yield each factor, the factor it interacts with (or none), and a column of weights, one per row of one start.

    The weights of a main effect give the mean over cells with the factor on, less that with it off; those of an
    interaction give how much larger that difference is where the other factor is on.
    """
    signs = {name: rows[name].map({True: 1.0, False: -1.0}) for name in factors}
    count = 2 ** len(factors)
    for name, text in factors.items():
        yield text, "", signs[name] * 2 / count
    for one, other in combinations(factors, 2):
        yield factors[one], factors[other], signs[one] * signs[other] * 4 / count


def effects(rows: pd.DataFrame, factors: Mapping[str, str] = FACTORS) -> pd.DataFrame:
    """Return main effects and two-factor interactions on each outcome, with 95 % t intervals over starts.

    ``rows`` has one row per cell and start, and a column of truth values for each factor. Holm's correction is over the
    effects on one outcome.
    """
    found = []
    for outcome in OUTCOMES:
        lines = []
        for factor, other, weights in _contrasts(rows, factors):
            # Rounded, because sums of equal shares differ in their last digits.
            values = (weights * rows[outcome]).groupby(rows["seed"]).sum().round(9)
            mean = summarize(values)
            # Where no start differs from another there is no spread, and no test.
            t = math.sqrt(mean.count) * abs(mean.mean) / mean.sd if mean.sd > 0 else math.nan
            p = 2 * float(stats.t.sf(t, mean.count - 1))
            line = {"outcome": outcome, "factor": factor, "with": other, "starts": mean.count, "p": p}
            lines.append({**line, "mean": mean.mean, "low": mean.low, "high": mean.high})
        found.append(pd.DataFrame(lines).assign(holm=lambda part: holm(part["p"])))
    return pd.concat(found, ignore_index=True)


def _both(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the effects over all cells, and over those with the plain gradient, which do not diverge."""
    rest = {name: text for name, text in FACTORS.items() if name != "balanced"}
    parts = (
        effects(rows).assign(cells="all"),
        effects(rows[~rows["balanced"].astype(bool)], rest).assign(cells="plain gradient"),
    )
    return pd.concat(parts, ignore_index=True)[list(EMPTY["collapse effects"])]
