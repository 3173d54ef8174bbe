"""Compare starts from clusters with random starts, trial by trial.

Axes: S trials, T recorded epochs.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

__all__ = ["curve", "epochs_saved", "starts_compared"]


def curve(history: pd.DataFrame, dim: int, start: str, activation: str) -> tuple[np.ndarray, np.ndarray]:
    """Return recorded epochs, and losses as trials by epochs."""
    part = history.query("dim == @dim and start == @start and activation == @activation")
    table = part.pivot(index="trial", columns="epoch", values="loss")
    return table.columns.to_numpy(), table.to_numpy()


def epochs_saved(history: pd.DataFrame, dim: int, activation: str, start: str) -> np.ndarray:
    """Return, for each trial, the epoch at which random first reached the loss that ``start`` began with.

    Infinite where it never did within the epochs that were run; epochs are those that are recorded.
    """
    epochs, losses = curve(history, dim, "random", activation)
    _, other = curve(history, dim, start, activation)
    reached = losses <= other[:, :1]
    return np.where(reached.any(1), epochs[reached.argmax(1)], np.inf)


def starts_compared(trials: pd.DataFrame, history: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each dimension, activation and start from clusters, beside the random start."""
    rows = []
    trained = trials[~trials["start"].isin(["none", "random"])]
    for (dim, activation, start), part in trained.groupby(["dim", "activation", "start"], sort=False):
        where = (trials["dim"] == dim) & (trials["activation"] == activation) & (trials["start"] == "random")
        rows.append({"dim": dim, "activation": activation, "start": start})
        rows[-1] |= _pair(trials[where], part)
        saved = epochs_saved(history, dim, activation, start)
        _, losses = curve(history, dim, start, activation)
        infinite = np.isinf(saved)
        rows[-1] |= {"first_loss": losses[:, 0].mean(), "never": infinite.mean(), "saved": np.median(saved)}
    return pd.DataFrame(rows)


def _pair(random: pd.DataFrame, start: pd.DataFrame) -> dict[str, float]:
    from scipy.stats import wilcoxon

    before, after = (part["test_mse"].to_numpy() for part in (random, start))
    return {
        "random_mse": before.mean(),
        "start_mse": after.mean(),
        "p_value": float(wilcoxon(before, after, alternative="greater").pvalue) if len(before) > 1 else np.nan,
        "random_lost": random["lost"].mean(),
        "start_lost": start["lost"].mean(),
    }
