"""Perturbations on the trained networks: accuracy at each level over seeds, and the levels it holds between.

Axes: S seeds, M levels; accuracies are per cent of training images.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor, nn

from metriscope.probes import holding_range, perturbation
from metriscope.probes.perturbation import LEVELS
from metriscope.runs import Result
from metriscope.studies.representation.plan import Comparing, Perturbing, Training

__all__ = ["asking", "gather", "level_curve", "perturbed", "ranges"]


def asking(training: Training) -> Perturbing:
    """Return the measurement of one network, at the levels of the probe."""
    return Perturbing(training, tuple((kind, tuple(levels)) for kind, levels in LEVELS.items()))


def perturbed(asked: Perturbing, model: nn.Sequential, x: Tensor, y: Tensor) -> Result:
    """Return the accuracy of one network at every level."""
    found = perturbation(model, x, y, levels=dict(asked.levels)).to_pandas()
    return Result({"levels": found[["kind", "level", "accuracy", "baseline"]]})


def gather(found: Sequence[tuple[Training, pd.DataFrame]]) -> pd.DataFrame:
    """Return the accuracies of all networks in per cent; ``change`` is what a perturbation does to them, in points."""
    parts = [
        table.assign(
            setting=str(job.setting), network=job.model, seed=job.number,
            protocol=job.setting.protocol, length=job.setting.length,
        )
        for job, table in found
    ]  # fmt: skip
    columns = ["setting", "network", "seed", "kind", "level", "accuracy", "baseline", "change", "protocol", "length"]
    if not parts:
        return pd.DataFrame(columns=columns)
    whole = pd.concat(parts, ignore_index=True)
    whole = whole.assign(**{name: 100 * whole[name].astype(float) for name in ("accuracy", "baseline")})
    return whole.assign(change=whole["accuracy"] - whole["baseline"])[columns]


def level_curve(table: pd.DataFrame, network: str, kind: str) -> tuple[np.ndarray, Float[np.ndarray, "s m"]]:
    """Return the levels of one kind, and the accuracies as seeds by levels."""
    part = table[(table["network"] == network) & (table["kind"] == kind)]
    wide = part.pivot(index="seed", columns="level", values="accuracy")
    return wide.columns.to_numpy(dtype=np.float64), wide.to_numpy(dtype=np.float64)


def ranges(table: pd.DataFrame, asked: Comparing) -> pd.DataFrame:
    """Return one row per network, kind and seed: the levels between which accuracy holds, interpolated.

    It holds while it stays within the points that are ``asked`` of the unperturbed.
    """
    rows, neutral = [], dict(asked.neutral)
    for key, part in table.groupby(["setting", "network", "kind", "seed"], sort=False):
        levels, values = part["level"].to_numpy(), part["accuracy"].to_numpy()
        baseline = float(part["baseline"].iloc[0])
        low, high = holding_range(levels, values, baseline - asked.points, neutral[str(key[2])])
        where = dict(zip(("setting", "network", "kind", "seed"), key, strict=True))
        rows.append({**where, "low": low, "high": high, "baseline": baseline})
    return pd.DataFrame(rows, columns=["setting", "network", "kind", "seed", "low", "high", "baseline"])
