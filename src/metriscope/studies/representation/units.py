"""Measurements of units: inactive ones, classes along them, classes at output hyperplanes, and perturbations.

Axes: N images, K hidden units, C classes (outputs), G points of a grid. Distributions and distances are measured in
float64 on training images; accuracies under perturbation are per cent of training images.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor, nn

from metriscope.nn import OffsetL2
from metriscope.probes import holding_range, perturbation
from metriscope.probes.perturbation_levels import LEVELS
from metriscope.runs import Result
from metriscope.studies.representation.accuracy import density
from metriscope.studies.representation.experiments import Perturbing
from metriscope.studies.representation.plan import Inside, RepresentationComparing, RepresentationTraining
from metriscope.studies.representation.train import TrainedNetwork, tagged

__all__ = [
    "INACTIVE", "Unit", "asking", "crossed", "crossings", "dead_units", "gather", "half_dead", "hyperplanes",
    "perturbed", "ranges", "units_shown",
]  # fmt: skip

INACTIVE = {"never": "never", "under_1": "under 1 %", "under_5": "under 5 %"}


def dead_units(runs: Iterable[TrainedNetwork]) -> pd.DataFrame:
    """Return the records of inactive units, one row per run, epoch, layer and part, in per cent of the layer."""
    counts = tagged(((run.job, run.dead) for run in runs), ("epoch", "layer", "part", *INACTIVE, "units"))
    return counts.assign(**{k: 100 * (counts[k] / counts["units"]) for k in INACTIVE})


def half_dead(held: pd.DataFrame) -> float:
    """Return the median over seeds of the epoch at which half of the finally dead units are dead; NaN if none die."""
    epochs = []
    for _, run in held.sort_values("epoch").groupby("seed"):
        final = run["never"].iloc[-1]
        if final > 0:
            epochs.append(float(run[run["never"] >= final / 2]["epoch"].iloc[0]))
    return float(np.median(epochs)) if epochs else math.nan


@dataclass(frozen=True, eq=False)
class Unit:
    """One hidden unit of one network: the density of each class along its pre-activation, and their statistics."""

    network: str
    setting: str
    digit: int
    unit: int
    x: Float[np.ndarray, " g"]
    densities: Mapping[int, Float[np.ndarray, " g"]]
    statistics: pd.DataFrame = field(repr=False)


def chosen_units(weights: Float[np.ndarray, "c k"], digits: Sequence[int]) -> tuple[int, ...]:
    """Return, for each digit, the hidden unit with the largest absolute weight to that digit's output.

    >>> chosen_units(np.array([[1.0, -3.0], [0.5, 0.2]]), (0, 1))
    (1, 0)
    """
    return tuple(int(np.abs(weights[digit]).argmax()) for digit in digits if digit < len(weights))


def units_shown(run: TrainedNetwork, x: Tensor, y: Tensor, asked: Inside) -> tuple[Unit, ...]:
    """Return the chosen units of one network on some images."""
    model, labels, job = run.model, y.numpy(), run.job
    head = model[2]
    weight = head.alpha if isinstance(head, OffsetL2) else head.get_parameter("weight")
    units = chosen_units(weight.detach().double().numpy(), asked.digits)
    z = model[0](x).detach().double().numpy()
    found = []
    for digit, unit in zip(asked.digits, units, strict=False):
        where = {"network": job.model, "seed": job.number, "unit": unit, "chosen for": digit}
        described = (*_densities(z[:, unit], labels, asked.grid), _statistics(z[:, unit], labels, where))
        found.append(Unit(job.model, str(job.setting), digit, unit, *described))
    return tuple(found)


def _densities(z: np.ndarray, labels: np.ndarray, grid: int) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Return a kernel estimate of the distribution of each class for which it is defined."""
    x = np.linspace(z.min(), z.max(), grid)
    found = {int(digit): density(z[labels == digit], x) for digit in np.unique(labels)}
    return x, {digit: heights for digit, heights in found.items() if heights is not None}


def _statistics(z: np.ndarray, labels: np.ndarray, where: Mapping[str, object]) -> pd.DataFrame:
    """Return mean, variance, skewness and the share below zero of each class along a unit."""
    from scipy.stats import skew

    rows = []
    for digit in np.unique(labels):
        own = z[labels == digit]
        # A unit with the same value for all images of the class has no skewness.
        lean = float(skew(own)) if np.ptp(own) > 1e-9 * max(np.abs(own).max(), 1.0) else np.nan
        rows.append({
            **where, "class": int(digit), "images": len(own), "mean": own.mean(), "skewness": lean,
            "variance": own.var(ddof=1) if len(own) > 1 else np.nan, "below zero": float((own < 0).mean()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def crossings(z: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"], band: float) -> pd.DataFrame:
    """Return the position of each class relative to each output's hyperplane z = 0, one row per output and class.

    ``distance`` is that of the class's mean from the hyperplane, in standard deviations of the class along it: at 0
    the hyperplane goes through the middle of the class. ``inside`` is the share of the class in the band around the
    hyperplane.
    """
    rows = []
    width = band * z.std(axis=0)
    for digit in np.unique(labels):
        part = z[labels == digit]
        mean, sd = part.mean(0), part.std(0)
        distance = np.divide(np.abs(mean), sd, out=np.full_like(mean, np.nan), where=sd > 0)
        inside = (np.abs(part) <= width).mean(0)
        columns = {"output": np.arange(z.shape[1]), "class": int(digit), "mean": mean, "sd": sd}
        rows.append(pd.DataFrame({**columns, "distance": distance, "inside": inside}))
    return pd.concat(rows, ignore_index=True)


def hyperplanes(run: TrainedNetwork, x: Tensor, y: Tensor, asked: Inside) -> pd.DataFrame | None:
    """Return the crossings of one network; None if its head is not linear."""
    model = run.model
    if not isinstance(model[2], nn.Linear):
        return None
    return crossings(model[:3](x).detach().double().numpy(), y.numpy(), asked.band)


def crossed(planes: pd.DataFrame) -> pd.DataFrame:
    """Return one row per network and seed: distances of its output hyperplanes from their own and the other classes.

    ``nearest own`` is the share of outputs whose nearest class is their own, z_c in the paper's words; by chance it is
    one divided by the number of classes. ``nearest other`` is the distance of the nearest of the other classes.
    """
    rows = []
    for key, part in planes.groupby(["network", "seed"], sort=False):
        own = part[part["output"] == part["class"]].set_index("output")
        rest = part[part["output"] != part["class"]]
        nearest = rest.groupby("output")["distance"].min()
        rows.append({
            "network": key[0], "seed": key[1], "own distance": own["distance"].mean(),
            "nearest other": nearest.mean(), "other distance": rest["distance"].mean(),
            "own inside": own["inside"].mean(), "others inside": rest["inside"].mean(),
            "nearest own": float((own["distance"] < nearest.reindex(own.index)).mean()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def asking(training: RepresentationTraining) -> Perturbing:
    """Return the measurement of one network, at the levels of the probe."""
    return Perturbing(training, tuple((kind, tuple(levels)) for kind, levels in LEVELS.items()))


def perturbed(asked: Perturbing, model: nn.Sequential, x: Tensor, y: Tensor) -> Result:
    """Return the accuracy of one network at every level."""
    found = perturbation(model, x, y, levels=dict(asked.levels)).to_pandas()
    return Result({"levels": found[["kind", "level", "accuracy", "baseline"]]})


def gather(found: Iterable[tuple[RepresentationTraining, pd.DataFrame]]) -> pd.DataFrame:
    """Return the accuracies of all networks in per cent; ``change`` is the effect of a perturbation, in points."""
    parts = []
    for job, table in found:
        accuracy, baseline = (100 * table[name].astype(float) for name in ("accuracy", "baseline"))
        parts.append((job, table.assign(accuracy=accuracy, baseline=baseline, change=accuracy - baseline)))
    return tagged(parts, ("kind", "level", "accuracy", "baseline", "change"))


def ranges(table: pd.DataFrame, asked: RepresentationComparing) -> pd.DataFrame:
    """Return one row per network, kind and seed: the levels between which accuracy holds, interpolated.

    It holds while it stays within ``asked.points`` of the unperturbed accuracy.
    """
    rows, neutral = [], dict(asked.neutral)
    names = ["setting", "network", "kind", "seed"]
    for key, part in table.groupby(names, sort=False):
        levels, values = part["level"].to_numpy(), part["accuracy"].to_numpy()
        baseline = float(part["baseline"].iloc[0])
        low, high = holding_range(levels, values, baseline - asked.points, neutral[str(key[2])])
        rows.append((*key, low, high, baseline))
    return pd.DataFrame(rows, columns=[*names, "low", "high", "baseline"])
