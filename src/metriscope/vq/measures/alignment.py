"""Centered alignment of two networks' kernels on the same points, with permutations and jackknife intervals.

Axes: N points, L, M layers, P permutations. The alignment is the cosine of the two centered kernels: 1 for
the same geometry up to scale, about 0 for unrelated networks. It is computed from products of units, in time linear in
the number of points, or from distances between points where these are cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64

from metriscope.common.validation import instance
from metriscope.rng import derive
from metriscope.vq.capture.patterns import Patterns, check_same_points
from metriscope.vq.measures.centered_kernels import ESTIMATORS, LEAST_POINTS, KernelPair, side_of
from metriscope.vq.measures.kernel import Weights
from metriscope.vq.measures.resampling import interval_around, leave_one_out, shuffled_products

__all__ = ["Alignment", "aligned", "alignment", "check_estimator", "whole"]

# Two values closer than this count as equal: they may differ only because they were summed in different orders.
_ROUNDING = 1e-10

Matrix = Float64[np.ndarray, "l m"]


@dataclass(frozen=True)
class Alignment:
    """Alignment of two networks, or of each layer of one with each layer of the other.

    Parameters
    ----------
    value : float or array, shape (l, m)
        The alignment; by layer, one row per layer of the first network and one column per layer of the second. NaN
        where it is undefined.
    null : array, shape (permutations,) or (permutations, l, m)
        The values with shuffled points; empty if no permutations were asked for.
    p_value : float or array, shape (l, m)
        Share of the permuted values that reach the value, where the value itself is counted as one of them; NaN
        without permutations.
    interval : array, shape (2,) or (2, l, m)
        Lower and upper end of the jackknife interval; NaN if none was asked for.
    first, second : tuple of str
        Names of the layers of either network, or ``("all layers",)``.
    points : int
        Number of points.
    reason : str
        Why values are undefined; empty if all are defined.
    interval_reason : str
        Why an interval is undefined although its value is defined; empty if there is no such interval.
    estimator : str
        ``"debiased"`` or ``"biased"``.

    Examples
    --------
    >>> from metriscope.vq.capture.patterns import Layer
    >>> p = Patterns((Layer("act", 8, "relu"),), np.array([[0], [1], [3], [7], [15]], np.uint8))
    >>> alignment(p, p).to_pandas()[["first", "second", "value"]]
            first      second  value
    0  all layers  all layers    1.0
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
        """Return one row per pair of layers: first, second, value, low, high, p_value."""
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
    generator: torch.Generator | None = None,
) -> Alignment:
    """Return the centered alignment of two networks on the same points, for whole networks or ``by_layer``.

    The alignment is the cosine of the two centered VQ kernels: 1 for the same geometry up to scale, about 0 for
    unrelated networks. A network or layer that has the same pattern at all points has no alignment: its value is NaN.

    Parameters
    ----------
    p, q : Patterns
        The patterns of two networks on the same points.
    estimator : {"debiased", "biased"}
        ``"debiased"`` leaves out the kernels' diagonals (Song et al. 2007; debiased CKA): it estimates the value for
        the population of points, lies between -1 and 1, and needs 4 points. ``"biased"`` keeps the diagonals, lies
        between 0 and 1, and is too large for few points: unrelated networks of 300 units reach 0.5 on 300 points.
    permutations : int
        How many values to compute with the points of ``q`` shuffled, for the p-value.
    interval : float, optional
        Confidence level, such as 0.95, of a jackknife interval over points. The interval of the debiased value has
        about that coverage where the population value is at least 0.1. Near 0 the statistic is degenerate and the
        jackknife does not apply: use the permutations there. The interval of the biased value ignores the bias.
    seed : int
        Seed of the permutations.
    by_layer : bool
        Compare each layer of ``p`` with each layer of ``q``.
    weights : pair of weights, optional
        Weights of the layers of ``p`` and of ``q``, each as in :func:`vq_kernel`.
    generator : torch.Generator, optional
        Draw the permutations from this generator instead of ``seed``.

    Returns
    -------
    Alignment
        Values, permutations, p-values and intervals, and why some of them are undefined.

    Raises
    ------
    ValueError
        If the points differ or are fewer than two, a network has no units, or an argument is not a listed choice.

    Examples
    --------
    >>> from metriscope.vq.capture.patterns import Layer
    >>> p = Patterns((Layer("act", 8, "relu"),), np.array([[0], [1], [3], [7], [15]], np.uint8))
    >>> alignment(p, p, permutations=9).null.shape
    (9,)
    """
    _check(p, q)
    _check_options(estimator, permutations, interval)
    given = _pair_of(weights, by_layer)
    pair = KernelPair.of(side_of(p, by_layer, given[0]), side_of(q, by_layer, given[1]), estimator)
    value = pair.cosines(pair.cross.product(estimator))
    null = pair.cosines(shuffled_products(pair, _seeds(permutations, seed, generator)))
    reached = (null >= value - _ROUNDING).sum(0)
    p_value = np.where(np.isnan(value) | (permutations == 0), np.nan, (1 + reached) / (1 + permutations))
    low_high, why = _interval(pair, value, interval)
    found = replace(aligned(pair, value, null, p_value, low_high), interval_reason=why)
    return found if by_layer else whole(found)


def aligned(pair: KernelPair, value: Matrix, null: np.ndarray, p_value: Matrix, interval: np.ndarray) -> Alignment:
    """Return the alignment of each group of one side with each group of the other, and why values are undefined."""
    first, second = pair.sides
    names, points = (first.names, second.names), pair.cross.points
    return Alignment(value, null, p_value, interval, *names, points, _reason(pair), estimator=pair.estimator)


def whole(found: Alignment) -> Alignment:
    """Return the alignment of two networks of one group each as single numbers."""
    value, p_value = np.asarray(found.value).item(), np.asarray(found.p_value).item()
    return replace(found, value=value, p_value=p_value, null=found.null[:, 0, 0], interval=found.interval[:, 0, 0])


def _check(p: Patterns, q: Patterns) -> None:
    check_same_points(p, q)
    if len(p) < 2:
        raise ValueError(f"an alignment needs at least two points, got {len(p)}")
    if not (p.width and q.width):
        raise ValueError(f"an alignment needs units on both sides, got {p.width} and {q.width}")


def _check_options(estimator: str, permutations: int, interval: float | None) -> None:
    check_estimator(estimator)
    if permutations < 0:
        raise ValueError(f"permutations must not be negative, got {permutations}")
    if interval is not None and not 0 < interval < 1:
        raise ValueError(f"interval must be a confidence level between 0 and 1, such as 0.95, or None, got {interval}")


def check_estimator(estimator: str) -> None:
    """Check that an estimator is one of the two."""
    if estimator not in ESTIMATORS:
        raise ValueError(f"the estimator must be {' or '.join(map(repr, ESTIMATORS))}, got {estimator!r}")


def _pair_of(weights: tuple[Weights, Weights] | None, by_layer: bool) -> tuple[Weights, Weights]:
    if weights is None:
        return None, None
    if isinstance(weights, str) or len(weights) != 2:
        raise ValueError(f"weights must be a pair, those of the first and of the second network, got {weights!r}")
    if by_layer:
        raise ValueError("weights mix the layers of a network, but by_layer=True compares them one by one")
    return weights


def _seeds(count: int, seed: int, generator: torch.Generator | None) -> list[int]:
    """Return one seed per permutation: derived from ``seed``, or drawn from the generator."""
    if generator is None:
        return [derive(seed, "permutation", i) for i in range(count)]
    return torch.randint(1 << 62, (count,), generator=instance(generator, "generator", torch.Generator)).tolist()


def _reason(pair: KernelPair) -> str:
    """Return why values are undefined, or nothing."""
    points, least = pair.cross.points, LEAST_POINTS[pair.estimator]
    if points < least:
        return f"the {pair.estimator} alignment needs at least {least} points, got {points}"
    constant = f"the pattern is the same at all {points} points in"
    flat = "no two points are nearer to each other than their distances to all others tell in"
    undefined: dict[str, list[str]] = {constant: [], flat: []}
    for side, found, which in zip(pair.sides, pair.alone, ("first", "second"), strict=True):
        for name, own in zip(side.names, found, strict=True):
            if np.isnan(own.squared_norm(pair.estimator)):
                undefined[constant if own.energy.item() == 0 else flat].append(f"{name} of the {which} network")
    return "; ".join(f"{text} {', '.join(names)}" for text, names in undefined.items() if names)


def _interval(pair: KernelPair, value: Matrix, level: float | None) -> tuple[Float64[np.ndarray, "2 l m"], str]:
    """Return the intervals, NaN where there are none, and why some intervals of defined values are undefined."""
    nothing, points, least = np.full((2, *value.shape), np.nan), pair.cross.points, LEAST_POINTS[pair.estimator] + 1
    if level is None or np.isnan(value).all():
        return nothing, ""
    if points < least:
        return nothing, f"the jackknife needs at least {least} points, got {points}"
    left = leave_one_out(pair, value)
    most = int(np.where(np.isfinite(value), left.undefined, 0).max())
    why = f"{most} of {points} points cannot be left out by the jackknife: without one of them no value is defined"
    return interval_around(value, left, points, pair.estimator, level), why if most else ""
