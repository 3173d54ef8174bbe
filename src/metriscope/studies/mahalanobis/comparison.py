"""Comparisons that verdicts and pages share: which dimensions count, what starting from clusters changes.

Axes: S trials, T recorded epochs.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from metriscope.functional import whitening_factor
from metriscope.probes import eigen_recovery
from metriscope.rng import stream
from metriscope.studies.mahalanobis.results import Results
from metriscope.studies.mahalanobis.spec import PAPER

__all__ = ["chance_cosine", "epochs_saved", "explained", "judged", "starts_compared"]

FEWEST_TRIALS = 5


def judged(results: Results) -> tuple[int, ...]:
    """Return the dimensions run at the paper's protocol (or longer) with enough trials to judge by."""
    sizes = results.plan.sizes
    full = [d for d in sizes if d in PAPER and sizes[d].trials >= FEWEST_TRIALS]
    return tuple(d for d in full if sizes[d].epochs >= PAPER[d].epochs and sizes[d].samples >= PAPER[d].samples)


def explained(results: Results, dim: int, mse: np.ndarray | pd.Series) -> np.ndarray:
    """Return ``1 - mse / variance`` with the variance of the true distances: 1 is exact, 0 is a constant."""
    return 1 - np.asarray(mse, dtype=float) / float(results.tasks[dim].y.double().var())


def epochs_saved(results: Results, dim: int, activation: str, start: str) -> np.ndarray:
    """Return, for each trial, the epoch at which random first reached the loss that ``start`` began with.

    Infinite where it never did within the epochs that were run; epochs are those that are recorded.
    """
    epochs, losses = results.curve(dim, "random", activation)
    _, other = results.curve(dim, start, activation)
    reached = losses <= other[:, :1]
    return np.where(reached.any(1), epochs[reached.argmax(1)], np.inf)


def starts_compared(results: Results) -> pd.DataFrame:
    """Return one row for each dimension, activation and start from clusters, beside the random start."""
    rows = []
    for dim in results.plan.sizes:
        for activation in results.plan.activations:
            for start in results.plan.starts[1:]:
                rows.append({"dim": dim, "activation": activation, "start": start})
                rows[-1] |= _pair(results, dim, activation, start)
    return pd.DataFrame(rows)


def _pair(results: Results, dim: int, activation: str, start: str) -> dict[str, float]:
    from scipy.stats import wilcoxon

    parts = [results.select(dim=dim, activation=activation, start=s) for s in ("random", start)]
    before, after = (part["test_mse"].to_numpy() for part in parts)
    p_value = float(wilcoxon(before, after, alternative="greater").pvalue) if len(before) > 1 else np.nan
    saved = epochs_saved(results, dim, activation, start)
    _, losses = results.curve(dim, start, activation)
    return {
        "random_mse": before.mean(),
        "start_mse": after.mean(),
        "p_value": p_value,
        "random_lost": parts[0]["lost"].mean(),
        "start_lost": parts[1]["lost"].mean(),
        "first_loss": losses[:, 0].mean(),
        "never": float(np.isinf(saved).mean()),
        "saved": float(np.median(saved)),
    }


def chance_cosine(results: Results, dim: int, draws: int = 100) -> tuple[float, float]:
    """Return the mean and 97.5 % point of the matched |cosine| that a randomly turned whitening reaches.

    Whitening is unique up to a turn: what exact networks recover has to be held against this.
    """
    cov = results.tasks[dim].gaussian.cov
    factor = whitening_factor(cov)
    generator = stream(results.plan.seed, "chance", dim)
    found = []
    for _ in range(draws):
        turn, _ = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))
        found.append(eigen_recovery(turn @ factor, cov).mean_cosine)
    return float(np.mean(found)), float(np.quantile(found, 0.975))
