"""Compare the axes and eigenvalues that Abs recovers with those of randomly rotated whitenings.

Whitening is unique up to a rotation, so this is what exact networks have to be compared with. The null is averaged as
the estimate is: over as many rotations as there are trials. Trials that lost a direction are left out, since no
rotation of a whitening does that.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch

from metriscope.functional import whitening_factor
from metriscope.probes import eigen_recovery
from metriscope.rng import derive, stream
from metriscope.runs import Result, Run
from metriscope.studies.mahalanobis.axes.plan import Chance
from metriscope.studies.mahalanobis.plan import NAME
from metriscope.studies.mahalanobis.train import problem

__all__ = ["axes", "chance", "kept_all"]

# What is recovered, and its column among the trials.
QUANTITIES = {"cosine": "eigenvector_cosine", "error": "eigenvalue_error"}


def chance(spec: Chance) -> Result:
    """Return mean |cosine| and eigenvalue error of each randomly rotated whitening."""
    task = spec.task
    cov = problem(task).gaussian.cov
    factor = whitening_factor(cov)
    generator = stream(task.seed, NAME, task.dim, "rotations", task.gaussian)
    rows = []
    for _ in range(spec.draws):
        rotation, _ = torch.linalg.qr(torch.randn(task.dim, task.dim, generator=generator, dtype=torch.float64))
        found = eigen_recovery(rotation @ factor, cov)
        rows.append({"cosine": found.mean_cosine, "error": found.log_error})
    return Result({"chance": pd.DataFrame(rows)})


def kept_all(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials of Abs from random starts that kept all directions."""
    return trials[(trials["activation"] == "abs") & (trials["start"] == "random") & (trials["lost"] == 0)]


def axes(trials: pd.DataFrame, found: Mapping[Chance, Run]) -> pd.DataFrame:
    """Return one row per Gaussian on which a trial of Abs from a random start kept all directions."""
    every, rows = kept_all(trials), []
    for spec, run in found.items():
        kept = every[(every["dim"] == spec.task.dim) & (every["gaussian"] == spec.task.gaussian)]
        if len(kept):
            where = {"dim": spec.task.dim, "gaussian": spec.task.gaussian, "trials": len(kept)}
            rows.append({**where, **_beside_chance(kept, spec, run.table("chance"))})
            rows[-1] |= {name: kept[name].iloc[0] for name in ("length", "protocol")}
    columns = ["dim", "gaussian", "trials", *(f"{q}{s}" for q in QUANTITIES for s in SUFFIXES), "length", "protocol"]
    return pd.DataFrame(rows, columns=columns)


SUFFIXES = ("", "_chance", "_low", "_high", "_share")


def _beside_chance(kept: pd.DataFrame, spec: Chance, rotations: pd.DataFrame) -> dict[str, float]:
    """Return both means, the range of the null, and the share of the way from chance to perfect recovery."""
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
