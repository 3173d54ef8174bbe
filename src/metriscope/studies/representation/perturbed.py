"""P's perturbations on the trained networks: accuracy at each level over seeds, and the levels it holds between.

Axes: S seeds, M levels; accuracies are per cent of sampled training images, as P measures training accuracy.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from jaxtyping import Float

from metriscope.probes import holding_range, perturbation
from metriscope.studies.representation.results import Results

__all__ = ["NAMES", "POINTS", "level_curve", "perturbed", "ranges"]

# P's two, and the same with a bias in the second layer: without it, scaling cannot change which output is largest.
NAMES = ("relu", "abs", "relu-bias", "abs-bias")
# Accuracy holds while it stays within so many points of the unperturbed.
POINTS = 1.0
NEUTRAL = {"scale": 1.0, "offset": 0.0, "clip": math.inf}


def perturbed(results: Results) -> pd.DataFrame:
    """Return the accuracy of every ReLU and Abs network at every level, at the setting nearest to S2's that has it."""
    parts = []
    for name in NAMES:
        for run in results.nearest(name):
            assert run.model is not None
            found = perturbation(run.model, *results.images[run.pixels].sample()).to_pandas()
            parts.append(found.assign(network=run.network, seed=run.seed, setting=str(run.setting)))
    columns = ["setting", "network", "seed", "kind", "level", "accuracy", "baseline"]
    whole = pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
    return whole.assign(**{name: 100 * whole[name].astype(float) for name in ("accuracy", "baseline")})


def level_curve(table: pd.DataFrame, network: str, kind: str) -> tuple[np.ndarray, Float[np.ndarray, "s m"]]:
    """Return the levels of one kind, and the accuracies as seeds by levels."""
    part = table[(table["network"] == network) & (table["kind"] == kind)]
    wide = part.pivot(index="seed", columns="level", values="accuracy")
    return wide.columns.to_numpy(dtype=np.float64), wide.to_numpy(dtype=np.float64)


def ranges(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a network, kind and seed: the levels between which accuracy holds, interpolated."""
    rows = []
    for key, part in table.groupby(["setting", "network", "kind", "seed"], sort=False):
        levels, values = part["level"].to_numpy(), part["accuracy"].to_numpy()
        baseline = float(part["baseline"].iloc[0])
        low, high = holding_range(levels, values, baseline - POINTS, NEUTRAL[str(key[2])])
        where = dict(zip(("setting", "network", "kind", "seed"), key, strict=True))
        rows.append({**where, "low": low, "high": high, "baseline": baseline})
    return pd.DataFrame(rows, columns=["setting", "network", "kind", "seed", "low", "high", "baseline"])
