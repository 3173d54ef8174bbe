"""How well trained Abs networks recover the principal axes and eigenvalues, beside randomly rotated whitenings.

Whitening is unique only up to a rotation. The null distribution is that of means over as many rotations as there are
trials. Trials that lost a direction are left out, since no rotated whitening loses one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch

from metriscope.functional import whitening_factor
from metriscope.probes import eigen_recovery
from metriscope.rng import derive, stream
from metriscope.runs import Record, Result, Run
from metriscope.studies.mahalanobis.plan import NAME
from metriscope.studies.mahalanobis.recovery.plan import Chance
from metriscope.studies.mahalanobis.train import draw_problem
from metriscope.studies.published import matching

__all__ = ["axes", "chance", "kept_all"]

# What is recovered, and its column among the trials.
QUANTITIES = {"cosine": "eigenvector_cosine", "error": "eigenvalue_error"}
SUFFIXES = ("", "_chance", "_low", "_high", "_share")


def kept_all(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials of Abs from random starts that kept all directions."""
    return matching(trials, activation="abs", start="random", lost=0)


def chance(spec: Chance) -> Result:
    """Return mean |cosine| and eigenvalue error of each randomly rotated whitening."""
    task = spec.task
    cov = draw_problem(task).gaussian.cov
    factor = whitening_factor(cov)
    generator = stream(task.seed, NAME, task.dim, "rotations", task.gaussian)
    rows = []
    for _ in range(spec.draws):
        rotation, _ = torch.linalg.qr(torch.randn(task.dim, task.dim, generator=generator, dtype=torch.float64))
        found = eigen_recovery(rotation @ factor, cov)
        rows.append({"cosine": found.mean_cosine, "error": found.log_error})
    return Result({"chance": pd.DataFrame(rows)})


def axes(trials: pd.DataFrame, found: Mapping[Chance, Run | Record]) -> pd.DataFrame:
    """Return one row per Gaussian on which a trial of Abs from a random start kept all directions."""
    every, rows = kept_all(trials), []
    for spec, run in found.items():
        where = {"dim": spec.task.dim, "gaussian": spec.task.gaussian}
        kept = matching(every, **where)
        if len(kept):
            compared = _beside_chance(kept, spec, run.table("chance"))
            ours = {name: kept[name].iloc[0] for name in ("length", "protocol")}
            rows.append({**where, "trials": len(kept), **compared, **ours})
    columns = ["dim", "gaussian", "trials", *(f"{q}{s}" for q in QUANTITIES for s in SUFFIXES), "length", "protocol"]
    return pd.DataFrame(rows, columns=columns)


def _beside_chance(kept: pd.DataFrame, spec: Chance, rotations: pd.DataFrame) -> dict[str, float]:
    """Return the mean over trials, the mean and range of the null, and the share of the way to perfect recovery."""
    task = spec.task
    generator = np.random.default_rng(derive(task.seed, NAME, task.dim, "means", task.gaussian))
    rows = generator.integers(len(rotations), size=(spec.means, len(kept)))
    found: dict[str, float] = {}
    for quantity, perfect in (("cosine", 1.0), ("error", 0.0)):
        ours, means = float(kept[QUANTITIES[quantity]].mean()), rotations[quantity].to_numpy()[rows].mean(1)
        expected = float(rotations[quantity].mean())
        low, high = np.quantile(means, [1 - spec.high, spec.high])
        # In one dimension there is nothing to rotate, and chance is perfect.
        share = (ours - expected) / (perfect - expected) if perfect != expected else float("nan")
        found |= dict(zip((f"{quantity}{s}" for s in SUFFIXES), (ours, expected, low, high, share), strict=True))
    return found
