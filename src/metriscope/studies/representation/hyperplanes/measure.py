"""Class distributions along hidden units, and how classes lie to the output hyperplanes.

Axes: N images, K hidden units, C classes (outputs), G places of a grid; measured in float64 on training images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor, nn

from metriscope.nn import OffsetL2
from metriscope.studies.representation.plan import Inside
from metriscope.studies.representation.train import Trained

__all__ = ["Unit", "chosen_units", "crossed", "crossings", "hyperplanes", "units_shown"]


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


def _head_weights(model: nn.Sequential) -> Float[np.ndarray, "c k"]:
    head = model[2]
    weight = head.alpha if isinstance(head, OffsetL2) else head.get_parameter("weight")
    return weight.detach().double().numpy()


def chosen_units(weights: Float[np.ndarray, "c k"], digits: Sequence[int]) -> tuple[int, ...]:
    """Return, for each digit, the hidden unit with the largest absolute weight to that digit's output.

    >>> chosen_units(np.array([[1.0, -3.0], [0.5, 0.2]]), (0, 1))
    (1, 0)
    """
    return tuple(int(np.abs(weights[digit]).argmax()) for digit in digits if digit < len(weights))


def units_shown(run: Trained, x: Tensor, y: Tensor, asked: Inside) -> tuple[Unit, ...]:
    """Return the chosen units of one network on some images."""
    model, labels = run.model, y.numpy()
    z = model[0](x).detach().double().numpy()
    units = chosen_units(_head_weights(model), asked.digits)
    found = []
    for digit, unit in zip(asked.digits, units, strict=False):
        places, densities = _densities(z[:, unit], labels, asked.grid)
        where: dict[str, str | int] = {
            "network": run.job.model,
            "seed": run.job.number,
            "unit": unit,
            "chosen for": digit,
        }
        table = _statistics(z[:, unit], labels)
        for i, (name, value) in enumerate(where.items()):
            table.insert(i, name, value)
        found.append(Unit(run.job.model, str(run.job.setting), digit, unit, places, densities, table))
    return tuple(found)


def _densities(z: np.ndarray, labels: np.ndarray, grid: int) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Return a kernel estimate of each class's distribution; classes of one or two values have none."""
    from scipy.stats import gaussian_kde

    x, found = np.linspace(z.min(), z.max(), grid), {}
    for digit in np.unique(labels):
        values = z[labels == digit]
        if len(values) >= 3 and np.ptp(values) >= 1e-9:
            found[int(digit)] = gaussian_kde(values)(x)
    return x, found


def _statistics(z: np.ndarray, labels: np.ndarray) -> pd.DataFrame:
    """Return mean, variance, skewness and the share below zero of each class along a unit."""
    from scipy.stats import skew

    rows = []
    for digit in np.unique(labels):
        own = z[labels == digit]
        # A unit that gives one value to all has no skewness.
        lean = float(skew(own)) if np.ptp(own) > 1e-9 * max(np.abs(own).max(), 1.0) else np.nan
        rows.append({
            "class": int(digit), "images": len(own), "mean": own.mean(), "skewness": lean,
            "variance": own.var(ddof=1) if len(own) > 1 else np.nan, "below zero": float((own < 0).mean()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def crossings(z: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"], band: float) -> pd.DataFrame:
    """Return how each output's hyperplane z = 0 lies to each class, one row per output and class.

    ``distance`` is that of the class's mean from the hyperplane, in standard deviations of the class along it: 0
    goes through the middle. ``inside`` is the share of the class in the band around the hyperplane.
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


def hyperplanes(run: Trained, x: Tensor, y: Tensor, asked: Inside) -> pd.DataFrame:
    """Return the crossings of one network; no rows where its head is not linear."""
    model, setting = run.model, run.job.setting
    names = ["setting", "network", "seed", "output", "class", "mean", "sd", "distance", "inside", "protocol", "length"]
    if not isinstance(model[2], nn.Linear):
        return pd.DataFrame(columns=names)
    z = model[:3](x).detach().double().numpy()
    fields = {**run.where, "protocol": setting.protocol, "length": setting.length}
    return crossings(z, y.numpy(), asked.band).assign(**fields)[names]


def crossed(planes: pd.DataFrame) -> pd.DataFrame:
    """Return one row per network and seed: how its output hyperplanes lie to their own class and to the others.

    ``nearest own``: the share of outputs whose least distant class is their own, z_c in the paper's words; chance is
    one in the number of classes. Distances of the other classes are those of the nearest one.
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
