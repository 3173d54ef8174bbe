"""Numbers that settle the contradictions: pixels at equal epochs, and where printed means lie on our curves.

Axes: S seeds, T observed epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from metriscope.report import mean_text
from metriscope.studies.representation.accuracy.measure import curve, printed
from metriscope.studies.representation.plan import Comparing, Setting

__all__ = ["columns_compared", "epoch_reached", "follow", "pixels_compared", "placements"]

NETWORK = ("setting", "network")


def epoch_reached(epochs: np.ndarray, values: np.ndarray, goal: float) -> float:
    """Return the epoch at which a curve first takes the value ``goal`` or more; NaN where it never does.

    Between observed epochs the curve is taken to be linear in the logarithm of epoch + 1.

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


def _networks(histories: pd.DataFrame, setting: Setting) -> list[str]:
    return list(dict.fromkeys(histories[histories["setting"] == str(setting)]["network"]))


def placements(histories: pd.DataFrame, settings: Sequence[Setting]) -> pd.DataFrame:
    """Return where each printed mean lies on our mean curve of test accuracy, at the setting nearest to the paper's."""
    there = {setting: set(_networks(histories, setting)) for setting in settings}
    rows = []
    for row in printed("test_accuracy").itertuples():
        setting = next((s for s, names in there.items() if str(row.network) in names), None)
        if setting is None:
            continue
        epochs, values = curve(histories, setting, str(row.network), "test_accuracy")
        mean, goal = 100 * np.nanmean(values, axis=0), float(str(row.mean))
        rows.append({
            "setting": str(setting), "network": row.network, "column": row.column, "printed": goal,
            "printed epochs": row.epochs, "our epoch": epoch_reached(epochs, mean, goal),
            "our last": float(mean[-1]), "our best": float(mean.max()), "seeds": len(values),
        })  # fmt: skip
    names = ["setting", "network", "column", "printed", "printed epochs", "our epoch", "our last", "our best", "seeds"]
    return pd.DataFrame(rows, columns=names)


def pixels_compared(histories: pd.DataFrame, settings: Sequence[Setting]) -> pd.DataFrame:
    """Return raw pixels beside each other form at equal epochs and data: accuracies in per cent, paired by seed."""
    rows = []
    for raw in (s for s in settings if s.pixels == "raw"):
        for other in settings:
            if other.pixels != "raw" and (other.data, other.train_size) == (raw.data, raw.train_size):
                shared = set(_networks(histories, other))
                names = [n for n in _networks(histories, raw) if n in shared]
                rows += [line for n in names if (line := _at_equal_epochs(histories, raw, other, n)) is not None]
    names = ["network", "data", "train_size", "epochs", "raw", "other", "form", "difference", "seeds"]
    return pd.DataFrame(rows, columns=names)


def _at_equal_epochs(histories: pd.DataFrame, raw: Setting, other: Setting, network: str) -> dict[str, object] | None:
    parts = [histories[(histories[list(NETWORK)] == [str(s), network]).all(axis=1)] for s in (raw, other)]
    shared = set(parts[0]["epoch"]) & set(parts[1]["epoch"])
    if not shared or max(shared) == 0:
        return None
    at = [100 * part[part["epoch"] == max(shared)].set_index("seed")["test_accuracy"] for part in parts]
    gaps = (at[0] - at[1]).dropna()
    return {
        "network": network, "data": raw.data, "train_size": raw.train_size, "epochs": int(max(shared)),
        "raw": float(at[0].mean()), "other": float(at[1].mean()), "form": other.pixels,
        "difference": mean_text(gaps), "seeds": len(gaps),
    }  # fmt: skip


def columns_compared(rows: pd.DataFrame, settings: Sequence[Setting], asked: Comparing) -> pd.DataFrame:
    """Return how far our means by the protocol lie from table 2 and from §6 with the notes, over steady networks."""
    theirs = printed("test_accuracy").set_index(["column", "network"])["mean"]
    groups = {"table 2": ("table 2",), "section 6 and notes": ("section 6", "notes")}
    found = []
    for setting in (s for s in settings if s.protocol):
        ours = rows[rows["setting"] == str(setting)].groupby("network")["test_accuracy"].mean()
        for name, columns in groups.items():
            pairs = [(c, n) for n in asked.steady for c in columns if (c, n) in theirs.index and n in ours.index]
            gaps = [abs(float(ours[n]) - float(theirs[c, n])) for c, n in pairs]
            if gaps:
                found.append({"epochs": setting.epochs, "column": name, "distance": float(np.mean(gaps))})
    return pd.DataFrame(found, columns=["epochs", "column", "distance"])


def follow(tests: pd.DataFrame, asked: Comparing) -> pd.DataFrame:
    """Return how many printed t follow from the printed means of each column."""
    rows = []
    for column in ("table 2", "section 6", "section 6, sd of n"):
        # A t of the opposite order has the opposite sign; d ties a test to its t where the printed t was copied amiss.
        ours = np.abs(tests[f"{column} t"])
        miss = np.minimum(np.abs(ours / np.abs(tests["printed t"]) - 1), np.abs(ours / tests["t of printed d"] - 1))
        rows.append({"column": column, "tests": len(tests), "follow": int((miss < asked.same_t).sum())})
    return pd.DataFrame(rows)
