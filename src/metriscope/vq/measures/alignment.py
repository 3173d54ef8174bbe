"""Centered alignment of two networks' kernels on the same points, with what chance would give and how sure it is.

Axes: N points, L, M layers, P permutations. The alignment is the cosine of the two centered kernels: 1 where both
networks see the same geometry up to scale, about 0 where they have nothing to do with each other. It is found from
products of units, linear in points, or from those of points where these are cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float64

from metriscope.vq.capture.patterns import Patterns, check_same_points
from metriscope.vq.measures.centered_kernels import ESTIMATORS, LEAST_POINTS, Signs, Totals, ratio, side_of, totals
from metriscope.vq.measures.kernel import Weights
from metriscope.vq.measures.resampling import LeaveOneOut, interval_around, leave_one_out, shuffled_products

__all__ = ["Alignment", "alignment"]

# Two values closer than this are one value that was added up in another order.
_ROUNDING = 1e-10

Matrix = Float64[np.ndarray, "l m"]


@dataclass(frozen=True)
class Alignment:
    """Alignment of two networks, or of each layer of one with each layer of the other.

    ``value`` and ``p_value`` are numbers, or matrices of ``first`` by ``second`` layers; ``null`` has the values of the
    permutations in front, ``interval`` low and high. What was not asked for is empty (``null``) or NaN.
    ``reason`` says why a value is undefined, ``interval_reason`` why an interval that was asked for is, although its
    value is defined; each is empty where there is nothing to say.
    """

    value: float | Matrix
    null: np.ndarray
    p_value: float | Matrix
    interval: np.ndarray
    first: tuple[str, ...]
    second: tuple[str, ...]
    points: int
    reason: str = ""
    interval_reason: str = ""
    estimator: str = "debiased"

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each pair: first, second, value, low, high, p_value."""
        shape = len(self.first), len(self.second)
        low, high = self.interval.reshape(2, -1)
        return pd.DataFrame(
            {
                "first": np.repeat(self.first, shape[1]),
                "second": np.tile(self.second, shape[0]),
                "value": np.reshape(self.value, -1),
                "low": low,
                "high": high,
                "p_value": np.reshape(self.p_value, -1),
            }
        )


def alignment(
    p: Patterns,
    q: Patterns,
    estimator: str = "debiased",
    permutations: int = 0,
    interval: float | None = None,
    *,
    seed: int = 0,
    by_layer: bool = False,
    weights: tuple[Weights, Weights] | None = None,
) -> Alignment:
    """Return the centered alignment of two networks on the same points, whole or ``by_layer``.

    The ``"debiased"`` estimator leaves out the kernels' diagonals (Song et al. 2007; debiased CKA). It estimates the
    value of the population of points, lies between -1 and 1, and needs 4 points. The ``"biased"`` one keeps them, lies
    between 0 and 1, and is too large where points are few: unrelated networks of 300 units reach 0.5 on 300 points.

    ``permutations`` draws that many values with the points of ``q`` shuffled; the p-value is the share of them, and of
    the value itself, that reach the value. ``interval`` is a confidence level such as 0.95, for a jackknife interval
    over points. Around the debiased value it covers the population value about as often as it says where that is at
    least 0.1. Near 0 the statistic is degenerate and the jackknife does not apply: judge by the permutations there.
    Around the biased value it does not account for the bias.

    ``weights`` gives the layers of ``p`` and of ``q`` their weights in the kernels, each as in :func:`vq_kernel`.

    A network, or layer, that tells no points apart has no alignment: its value is NaN, and ``reason`` says why.
    """
    _check(p, q, estimator, permutations, interval, by_layer, weights)
    given = (None, None) if weights is None else weights
    sides = side_of(p, by_layer, given[0]), side_of(q, by_layer, given[1])
    cross, alone = totals(*sides), (_with_itself(sides[0]), _with_itself(sides[1]))
    norms = [np.array([each.squared_norm(estimator) for each in side]) for side in alone]
    value = ratio(cross.product(estimator), *norms)
    null = ratio(shuffled_products(sides, cross, estimator, permutations, seed), *norms)
    reached = (null >= value - _ROUNDING).sum(0)
    p_value = np.where(np.isnan(value) | (permutations == 0), np.nan, (1 + reached) / (1 + permutations))
    low_high, interval_reason = _interval(sides, cross, alone, value, estimator, interval)
    said = _reason(sides, alone, estimator), interval_reason, estimator
    names = sides[0].names, sides[1].names
    if by_layer:
        return Alignment(value, null, p_value, low_high, *names, len(p), *said)
    return Alignment(value.item(), null[:, 0, 0], p_value.item(), low_high[:, 0, 0], *names, len(p), *said)


def _check(
    p: Patterns,
    q: Patterns,
    estimator: str,
    permutations: int,
    interval: float | None,
    by_layer: bool,
    weights: tuple[Weights, Weights] | None,
) -> None:
    if estimator not in ESTIMATORS:
        raise ValueError(f"the estimator must be {' or '.join(map(repr, ESTIMATORS))}, got {estimator!r}")
    check_same_points(p, q)
    if len(p) < 2:
        raise ValueError(f"an alignment needs at least two points, got {len(p)}")
    if not (p.width and q.width):
        raise ValueError(f"an alignment needs units on both sides, got {p.width} and {q.width}")
    if permutations < 0:
        raise ValueError(f"permutations must not be negative, got {permutations}")
    if interval is not None and not 0 < interval < 1:
        raise ValueError(f"interval must be a confidence level between 0 and 1, such as 0.95, or None, got {interval}")
    if weights is not None and (isinstance(weights, str) or len(weights) != 2):
        raise ValueError(f"weights must be a pair, those of the first and of the second network, got {weights!r}")
    if weights is not None and by_layer:
        raise ValueError("weights mix the layers of a network, but by_layer=True compares them one by one")


def _with_itself(side: Signs) -> list[Totals]:
    return [totals(group, group) for group in side.groups()]


def _reason(sides: tuple[Signs, Signs], alone: tuple[list[Totals], list[Totals]], estimator: str) -> str:
    """Return why values are undefined, or nothing."""
    points = len(sides[0].packed)
    if points < LEAST_POINTS[estimator]:
        return f"the {estimator} alignment needs at least {LEAST_POINTS[estimator]} points, got {points}"
    constant: list[str] = []
    flat: list[str] = []
    for side, found, which in zip(sides, alone, ("first", "second"), strict=True):
        for name, own in zip(side.names, found, strict=True):
            if np.isnan(own.squared_norm(estimator)):
                (constant if own.energy.item() == 0 else flat).append(f"{name} of the {which} network")
    reasons = [
        (constant, f"the pattern is the same at all {points} points in"),
        (flat, "no two points are nearer to each other than their distances to all others tell in"),
    ]
    return "; ".join(f"{text} {', '.join(names)}" for names, text in reasons if names)


def _interval(
    sides: tuple[Signs, Signs],
    cross: Totals,
    alone: tuple[list[Totals], list[Totals]],
    value: Matrix,
    estimator: str,
    level: float | None,
) -> tuple[Float64[np.ndarray, "2 l m"], str]:
    """Return the intervals, NaN where there are none, and why some are undefined although their values are not."""
    nothing, least = np.full((2, *value.shape), np.nan), LEAST_POINTS[estimator] + 1
    if level is None or np.isnan(value).all():
        return nothing, ""
    if cross.points < least:
        return nothing, f"the jackknife needs at least {least} points, got {cross.points}"
    left = leave_one_out(sides, cross, alone, value, estimator)
    return interval_around(value, left, cross.points, estimator, level), _interval_reason(value, left, cross.points)


def _interval_reason(value: Matrix, left: LeaveOneOut, points: int) -> str:
    """Return why intervals are undefined where values are not, or nothing."""
    most = int(np.where(np.isfinite(value), left.undefined, 0).max())
    if not most:
        return ""
    return f"{most} of {points} points cannot be left out by the jackknife: without one of them no value is defined"
