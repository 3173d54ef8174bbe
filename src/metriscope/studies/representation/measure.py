"""Tables of what the runs of the MNIST study reached: accuracies, curves, and where printed numbers lie on them.

Axes: S seeds, T recorded epochs. Accuracies are shares in the runs' records and per cent from here on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
from jaxtyping import Float

from metriscope.functional import summarize
from metriscope.report.numbers import MISSING
from metriscope.studies.contract import published
from metriscope.studies.representation.results import NAME, Results, Setting, Trained

__all__ = [
    "COLUMNS",
    "WHERE",
    "accuracies",
    "curve",
    "dead_units",
    "epoch_reached",
    "mean_text",
    "placements",
    "printed",
    "summary",
]

WHERE = ("setting", "network", "seed")
# A spread below this share of the mean is rounding: the values are one and the same.
SAME = 1e-9
COLUMNS = ("table 2", "table 3", "section 6", "notes", "table 5")


def _where(run: Trained) -> dict[str, str | int]:
    return {"setting": str(run.setting), "network": run.network, "seed": run.seed}


def mean_text(values: Iterable[float], digits: int = 2) -> str:
    """Return a mean with its 95 % interval; a single run has none.

    >>> mean_text([1.0, 2.0, 3.0]), mean_text([2.0]), mean_text([])
    ('2.0 [−0.5, 4.5]', '2', '–')
    """
    kept = [float(v) for v in values if not math.isnan(v)]
    if not kept:
        return MISSING
    found = summarize(kept)
    width = found.high - found.low
    if not width > SAME * abs(found.mean):
        # One run has no interval, and runs that agree have none worth writing: no width to take the digits from.
        return f"{round(found.mean, digits) + 0.0:g}".replace("-", "−")
    decimals = min(max(0, 1 - math.floor(math.log10(width))), 4)
    texts = [f"{round(v, decimals) + 0.0:.{decimals}f}" for v in (found.mean, found.low, found.high)]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]".replace("-", "−")


def printed(metric: str, **where: str) -> pd.DataFrame:
    """Return the printed numbers of one metric that match."""
    table = published(NAME)
    mask = np.logical_and.reduce([table["metric"] == metric, *(table[k] == v for k, v in where.items())])
    return table[mask].dropna(axis=1, how="all").reset_index(drop=True)


def accuracies(results: Results) -> pd.DataFrame:
    """Return one row a run: its setting, and loss and accuracy (per cent) at the last epoch recorded."""
    rows = []
    for setting in results.settings:
        for run in results.select(setting):
            last = run.history.sort_values("epoch").iloc[-1]
            scores = {f"{p}_accuracy": 100 * float(last[f"{p}_accuracy"]) for p in ("train", "test")}
            losses = {f"{p}_loss": float(last[f"{p}_loss"]) for p in ("train", "test")}
            rows.append({**_where(run), "pixels": run.pixels, **scores, **losses})
    columns = [*WHERE, "pixels", "train_accuracy", "test_accuracy", "train_loss", "test_loss"]
    return pd.DataFrame(rows, columns=columns)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row a setting and network: statistics of test accuracy, beside every printed column."""
    found = []
    theirs = printed("test_accuracy").set_index(["network", "column"])
    for key, part in rows.groupby(["setting", "network"], sort=False):
        line: dict[str, object] = dict(zip(("setting", "network"), key, strict=True))
        ours = summarize(part["test_accuracy"])
        line |= {k: getattr(ours, k) for k in ("count", "mean", "sd", "low", "high", "minimum", "maximum")}
        for column in COLUMNS:
            known = (line["network"], column) in theirs.index
            values = theirs.loc[(line["network"], column)] if known else {"mean": math.nan, "sd": math.nan}
            line |= {f"{column} {k}": float(values[k]) for k in ("mean", "sd")}
            line[f"{column} difference"] = ours.mean - float(values["mean"])
        found.append(line)
    return pd.DataFrame(found)


def curve(results: Results, setting: Setting, network: str, column: str) -> tuple[np.ndarray, Float[np.ndarray, "s t"]]:
    """Return the recorded epochs, and a column of the histories as seeds by epochs; NaN where one is missing."""
    runs = results.select(setting, (network,))
    parts = [run.history.set_index("epoch")[column].rename(str(run.seed)) for run in runs]
    table = pd.concat(parts, axis=1).sort_index()
    return table.index.to_numpy(dtype=np.float64), table.to_numpy(dtype=np.float64).T


def epoch_reached(epochs: np.ndarray, values: np.ndarray, goal: float) -> float:
    """Return the epoch at which a curve first takes the value ``goal`` or more; NaN where it never does.

    Between recorded epochs the curve is taken to be linear in the logarithm of epoch + 1.

    >>> round(epoch_reached(np.array([0.0, 9.0, 99.0]), np.array([0.0, 0.0, 1.0]), 0.5), 1)
    30.6
    """
    reached = np.flatnonzero(values >= goal)
    if not len(reached):
        return math.nan
    i = int(reached[0])
    if i == 0:
        return float(epochs[0])
    share = (goal - values[i - 1]) / (values[i] - values[i - 1])
    ends = np.log1p(epochs[i - 1 : i + 1])
    return float(np.expm1(ends[0] + share * (ends[1] - ends[0])))


def placements(results: Results) -> pd.DataFrame:
    """Return where each printed mean lies on our mean curve of test accuracy, at the setting nearest to S2's."""
    theirs = printed("test_accuracy")
    rows = []
    for row in theirs.itertuples():
        setting = next((s for s in results.settings if results.select(s, (str(row.network),))), None)
        if setting is None:
            continue
        epochs, values = curve(results, setting, str(row.network), "test_accuracy")
        mean, goal = 100 * np.nanmean(values, axis=0), float(str(row.mean))
        rows.append({
            "setting": str(setting), "network": row.network, "column": row.column, "printed": goal,
            "printed epochs": row.epochs, "our epoch": epoch_reached(epochs, mean, goal),
            "our last": float(mean[-1]), "our best": float(mean.max()), "seeds": len(values),
        })  # fmt: skip
    names = ["setting", "network", "column", "printed", "printed epochs", "our epoch", "our last", "our best", "seeds"]
    return pd.DataFrame(rows, columns=names)


def dead_units(results: Results) -> pd.DataFrame:
    """Return the records of inactive units, one row a run, epoch, layer and part, in per cent of the layer."""
    parts = []
    for run in results.runs:
        if len(run.dead):
            parts.append(run.dead.assign(**_where(run)))
            for name in ("never", "under_1", "under_5"):
                parts[-1][name] = 100 * parts[-1][name] / parts[-1]["units"]
    columns = [*WHERE, "epoch", "layer", "part", "never", "under_1", "under_5", "units"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
