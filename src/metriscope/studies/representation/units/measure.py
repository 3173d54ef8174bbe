"""Shares of inactive units, and when they fell silent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from metriscope.studies.representation.train import Trained

__all__ = ["dead_units", "half_dead", "last_epochs"]


def dead_units(runs: Sequence[Trained]) -> pd.DataFrame:
    """Return the records of inactive units, one row per run, epoch, layer and part, in per cent of the layer."""
    parts, names = [], ["never", "under_1", "under_5"]
    for run in runs:
        if len(run.dead):
            shares = 100 * run.dead[names].div(run.dead["units"], axis=0)
            setting = run.job.setting
            fields = {"protocol": setting.protocol, "length": setting.length}
            parts.append(run.dead.assign(**run.where, **fields, **{name: shares[name] for name in names}))
    columns = ["setting", "network", "seed", "epoch", "layer", "part", *names, "units", "protocol", "length"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def last_epochs(dead: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each run's last epoch."""
    return dead[dead["epoch"] == dead.groupby(["setting", "network", "seed"])["epoch"].transform("max")]


def half_dead(held: pd.DataFrame) -> float:
    """Return the median over seeds of the epoch at which half of the finally dead units are dead; NaN if none die."""
    epochs = []
    for _, run in held.sort_values("epoch").groupby("seed"):
        final = run["never"].iloc[-1]
        if final > 0:
            epochs.append(float(run[run["never"] >= final / 2]["epoch"].iloc[0]))
    return float(np.median(epochs)) if epochs else math.nan
