"""Compare replayed trials with the author's record, number by number, in the digits that it prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from metriscope.runs import Driver, Result, once
from metriscope.studies.mahalanobis.plan import PAPER, MahalanobisPlan
from metriscope.studies.mahalanobis.replay.plan import CHAOTIC, CLOSE, LOOSE, replay_of
from metriscope.studies.published import matching, published

__all__ = ["agreement", "compared", "half_digit", "replayed", "spread"]

RECORD = "mahalanobis-record"
COLUMNS = ("activation", "trial", "train_mse", "test_mse", "mirrored", "centering", "sphericity")
# How the record computes its statistics over trials: pandas divides by one less than their number, numpy by it.
STATISTICS: Mapping[str, Callable[[pd.Series], float]] = {
    "mean": pd.Series.mean,
    "sd": pd.Series.std,
    "variance": np.var,
    "minimum": pd.Series.min,
    "maximum": pd.Series.max,
}
BEST_TRIAL, BEST_RUN = "best trial", "best run"


def replayed(plan: MahalanobisPlan, trials: pd.DataFrame, driver: Driver) -> pd.DataFrame:
    """Return the replayed trials of all dimensions: of this run where it replays, otherwise those recorded."""
    whole = {replay_of(dim): matching(trials, dim=dim, start="random") for dim in plan.sizes if plan.complete(dim)}
    done = driver.perform(whole, once(lambda spec: Result({"trials": _kept(whole[spec])})), "mahalanobis: replay")
    found = [run.table("trials").assign(dim=spec.task.dim, origin="run") for spec, run in done.items()]
    some = [dim for dim in plan.sizes if plan.replayed(dim) and not plan.complete(dim)]
    found += [_kept(matching(trials, dim=dim, start="random")).assign(dim=dim, origin="run") for dim in some]
    others = [replay_of(dim) for dim in PAPER if not plan.replayed(dim) or dim not in plan.sizes]
    recorded = driver.recorded(others)
    found += [record.table("trials").assign(dim=spec.task.dim, origin="record") for spec, record in recorded.items()]
    columns = ["dim", *COLUMNS, "origin"]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


def _kept(trials: pd.DataFrame) -> pd.DataFrame:
    return trials[list(COLUMNS)].sort_values(["activation", "trial"], ignore_index=True)


def compared(trials: pd.DataFrame) -> pd.DataFrame:
    """Return one row per printed number: published and ours, their difference, and whether they agree."""
    rows = []
    for row in published(RECORD).to_dict("records"):
        part = matching(trials, dim=row["dim"], activation=row["activation"])
        if len(part):
            rows.append(_compared(row, part))
    columns = ["dim", "activation", "metric", "statistic", "published", "ours", "difference", "allowed", "agrees"]
    return pd.DataFrame(rows, columns=[*columns, "trials", "origin"])


def _compared(row: Mapping[Any, Any], part: pd.DataFrame) -> dict[str, object]:
    metric, statistic, printed = (str(row[name]) for name in ("metric", "statistic", "printed"))
    best = part.iloc[int(part["train_mse"].to_numpy().argmin())]
    if statistic == BEST_TRIAL:
        ours = float(best["trial"])
    else:
        ours = float(best[metric] if statistic == BEST_RUN else STATISTICS[statistic](part[metric]))
    allowed = agreement(row["dim"], row["activation"], metric, statistic)
    theirs = float(printed)
    close = max(allowed * abs(theirs), half_digit(printed)) if statistic != BEST_TRIAL else 0.0
    return {
        **{name: row[name] for name in ("dim", "activation", "metric", "statistic")},
        "published": theirs, "ours": ours, "difference": spread(ours, theirs, printed), "allowed": allowed,
        "agrees": None if np.isnan(allowed) else bool(abs(ours - theirs) <= close),
        "trials": part["trial"].nunique(), "origin": part["origin"].iloc[0],
    }  # fmt: skip


def agreement(dim: int, activation: str, metric: str, statistic: str) -> float:
    """Return the relative difference that is allowed; NaN where a number is shown and not judged.

    New points are drawn afresh, so their losses cannot agree. Where training is chaotic, the mean and the extremes of
    the training loss are compared, and which trial is best.

    >>> agreement(2, "relu", "centering", "mean"), agreement(10, "relu", "train_mse", "mean")
    (0.001, 0.02)
    """
    if metric == "test_mse":
        return np.nan
    if (dim, activation) not in CHAOTIC:
        return CLOSE
    return LOOSE if metric == "train_mse" and statistic != "variance" else np.nan


def half_digit(printed: str) -> float:
    """Return half of the last digit of a printed number.

    >>> half_digit("0.4571"), half_digit("2e-6")
    (5e-05, 5e-07)
    """
    return 0.5 * 10.0 ** int(Decimal(printed).as_tuple().exponent)


def spread(ours: float, theirs: float, printed: str) -> float:
    """Return the relative difference; zero where ours rounds to what is printed.

    >>> spread(0.45708, 0.4571, "0.4571"), spread(1.001, 1.0, "1.0000")
    (0.0, 0.001)
    """
    apart = abs(ours - theirs)
    if apart <= half_digit(printed):
        return 0.0
    return round(apart / abs(theirs), 12) if theirs else np.inf
