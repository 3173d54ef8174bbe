"""Reading curves of heat-kernel cosines: where they take a printed value, come nearest to all, and change order.

Axes: S seeds, T scales sigma2, P pairs of networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from metriscope.functional import summarize

__all__ = ["FORMS", "SCALES", "Nearest", "crossings", "nearest", "order", "ranges"]

FORMS = {"distance": "exp(−d / σ²)", "squared": "exp(−d² / σ²)"}
# Wide enough for both limits: at the left only points of one and the same pattern count, at the right all alike.
SCALES = {"distance": np.geomspace(0.1, 1e4, 51), "squared": np.geomspace(0.1, 1e6, 71)}


def crossings(scales: Float[np.ndarray, " t"], curve: Float[np.ndarray, " t"], value: float) -> Float[np.ndarray, " k"]:
    """Return every scale at which the curve takes a value, between samples along the logarithm of the scale.

    >>> crossings(np.array([1.0, 100.0]), np.array([0.0, 1.0]), 0.5).round(6).tolist()
    [10.0]
    """
    over = curve - value
    at = np.flatnonzero((over[:-1] <= 0) != (over[1:] <= 0))
    share = over[at] / (over[at] - over[at + 1])
    logs = np.log(scales)
    return np.exp(logs[at] + share * (logs[at + 1] - logs[at]))


@dataclass(frozen=True)
class Nearest:
    """The form and scale at which curves come nearest to printed numbers, and how near that is."""

    form: str
    index: int
    scale: float
    error: float


def nearest(
    curves: Mapping[str, Float[np.ndarray, "p t"]],
    scales: Mapping[str, Float[np.ndarray, " t"]],
    printed: Float[np.ndarray, " p"],
) -> Nearest:
    """Return where the root mean square difference to the printed numbers is least, over forms and scales.

    >>> curves, scales = {"distance": np.array([[0.2, 0.6]])}, {"distance": np.array([1.0, 2.0])}
    >>> nearest(curves, scales, np.array([0.5])).scale
    2.0
    """
    found = []
    for form, values in curves.items():
        errors = np.sqrt(np.square(values - printed[:, None]).mean(0))
        best = int(errors.argmin())
        found.append(Nearest(form, best, float(scales[form][best]), float(errors[best])))
    return min(found, key=lambda each: each.error)


def order(differences: Float[np.ndarray, "s t"]) -> Int[np.ndarray, " t"]:
    """Return +1 where the 95 % t interval of the mean difference lies above zero, -1 below, 0 where it holds it.

    >>> order(np.array([[1.0, -1.0, -1.0], [1.05, -1.05, 2.0]])).tolist()
    [1, -1, 0]
    """
    found = [summarize(column) for column in differences.T]
    return np.array([int(each.low > 0) - int(each.high < 0) for each in found])


def ranges(scales: Float[np.ndarray, " t"], signs: Int[np.ndarray, " t"], wanted: int) -> list[tuple[float, float]]:
    """Return the stretches of scales that have the wanted sign, as first and last scale.

    >>> ranges(np.array([1.0, 2.0, 4.0, 8.0]), np.array([1, 1, -1, 1]), 1)
    [(1.0, 2.0), (8.0, 8.0)]
    """
    inside = np.concatenate([[False], signs == wanted, [False]])
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    return [(float(scales[a]), float(scales[b - 1])) for a, b in zip(edges[::2], edges[1::2], strict=True)]
