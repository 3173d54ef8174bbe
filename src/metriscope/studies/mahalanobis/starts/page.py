"""The table of what starting from clusters changes."""

from __future__ import annotations

import numpy as np

from metriscope.report import Table
from metriscope.studies.mahalanobis.measure import Results
from metriscope.studies.mahalanobis.trials.measure import TITLES

__all__ = ["starts"]


def starts(results: Results) -> Table:
    """Return what starting from clusters changes."""
    frame = results.tables["starts"].copy()
    frame["activation"] = frame["activation"].map(TITLES)
    frame["saved"] = frame["saved"].replace(np.inf, np.nan)
    labels = {
        "dim": "dimension", "activation": "network", "random_mse": "MSE new points, random",
        "start_mse": "MSE new points, this start", "p_value": "p (Wilcoxon, paired)",
        "random_lost": "directions lost, random", "start_lost": "directions lost, this start",
        "first_loss": "training loss at epoch 0", "never": "random trials that never reach it",
        "saved": "median epochs random takes to reach it",
    }  # fmt: skip
    note = (
        "Each trial's clusters come from its own resample of the training points. “Never” is within the epochs run; "
        "a dash under epochs: most random trials never reach the loss that this start begins with."
    )
    return Table("starts", "Starting from clusters", frame, note, {"never": ".0%"}, labels=labels)
