"""What lies inside a trained network: class distributions along hidden units, and classes along output hyperplanes.

Axes: N images, K hidden units, C classes (outputs); measured in float64 on training images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from torch import nn

from metriscope.nn import OffsetL2
from metriscope.studies.representation.results import Results, Trained

__all__ = ["DIGITS", "Unit", "chosen_units", "crossed", "crossings", "hyperplanes", "unit_statistics", "units_shown"]

# Digits whose strongest hidden unit is looked at.
DIGITS = (0, 3, 8)
SHOWN = ("relu", "abs", "abs2-neg")
# A class is crossed where its images lie within this share of the output's own standard deviation around zero.
BAND = 0.25

Values = Float[np.ndarray, "n k"]


@dataclass(frozen=True)
class Unit:
    """One hidden unit of one network: its pre-activations on sampled training images, and their digits."""

    run: Trained
    digit: int
    unit: int
    z: Float[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]


def _head_weights(model: nn.Sequential) -> Float[np.ndarray, "c k"]:
    head = model[2]
    weight = head.alpha if isinstance(head, OffsetL2) else head.get_parameter("weight")
    return weight.detach().double().numpy()


def chosen_units(weights: Float[np.ndarray, "c k"], digits: tuple[int, ...] = DIGITS) -> tuple[int, ...]:
    """Return, for each digit, the hidden unit with the largest absolute weight to that digit's output.

    >>> chosen_units(np.array([[1.0, -3.0], [0.5, 0.2]]), (0, 1))
    (1, 0)
    """
    return tuple(int(np.abs(weights[digit]).argmax()) for digit in digits if digit < len(weights))


def units_shown(results: Results) -> tuple[Unit, ...]:
    """Return the chosen units of the first seed of each network shown."""
    found = []
    for name in SHOWN:
        for run in results.nearest(name)[:1]:
            assert run.model is not None
            x, y = results.images[run.pixels].sample()
            z = run.model[0](x).detach().double().numpy()
            units = chosen_units(_head_weights(run.model))
            found += [Unit(run, d, u, z[:, u], y.numpy()) for d, u in zip(DIGITS, units, strict=False)]
    return tuple(found)


def unit_statistics(units: tuple[Unit, ...]) -> pd.DataFrame:
    """Return mean, variance, skewness and the share below zero of each class along each unit."""
    from scipy.stats import skew

    rows = []
    for unit in units:
        for digit in np.unique(unit.labels):
            z = unit.z[unit.labels == digit]
            # A unit that gives one value to all has no skewness.
            lean = float(skew(z)) if np.ptp(z) > 1e-9 * max(np.abs(z).max(), 1.0) else np.nan
            rows.append({
                "network": unit.run.network, "seed": unit.run.seed, "unit": unit.unit, "chosen for": unit.digit,
                "class": int(digit), "images": len(z), "mean": z.mean(), "skewness": lean,
                "variance": z.var(ddof=1) if len(z) > 1 else np.nan, "below zero": float((z < 0).mean()),
            })  # fmt: skip
    return pd.DataFrame(rows)


def crossings(z: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"]) -> pd.DataFrame:
    """Return how each output's hyperplane z = 0 lies to each class, one row an output and class.

    ``distance`` is that of the class's mean from the hyperplane, in standard deviations of the class along it: 0
    goes through the middle. ``inside`` is the share of the class in the band around the hyperplane.
    """
    rows = []
    width = BAND * z.std(axis=0)
    for digit in np.unique(labels):
        part = z[labels == digit]
        mean, sd = part.mean(0), part.std(0)
        distance = np.divide(np.abs(mean), sd, out=np.full_like(mean, np.nan), where=sd > 0)
        inside = (np.abs(part) <= width).mean(0)
        columns = {"output": np.arange(z.shape[1]), "class": int(digit), "mean": mean, "sd": sd}
        rows.append(pd.DataFrame({**columns, "distance": distance, "inside": inside}))
    return pd.concat(rows, ignore_index=True)


def hyperplanes(results: Results) -> pd.DataFrame:
    """Return the crossings of every network with a linear head, at the setting nearest to S2's that has it."""
    parts = []
    for name in results.networks:
        for run in results.nearest(name):
            assert run.model is not None
            if isinstance(run.model[2], nn.Linear):
                x, y = results.images[run.pixels].sample()
                z = run.model[:3](x).detach().double().numpy()
                found = crossings(z, y.numpy())
                parts.append(found.assign(network=run.network, seed=run.seed, setting=str(run.setting)))
    columns = ["setting", "network", "seed", "output", "class", "mean", "sd", "distance", "inside"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def crossed(planes: pd.DataFrame) -> pd.DataFrame:
    """Return one row a network and seed: how its output hyperplanes lie to their own class and to the others.

    ``nearest own``: the share of outputs whose least distant class is their own, z_c in S2's words; chance is one
    in the number of classes. Distances of the other classes are those of the nearest one.
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
