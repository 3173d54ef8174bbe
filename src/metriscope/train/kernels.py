"""Settings, activations and innermost sums of the compiled code: hand-written vector kernels, or plain loops instead.

Axes: G = 8 rows of a group, K units. Both kinds of kernels compute the same sums, for each unit in a fixed order, and
differ only by rounding. Plain loops are used if vector code cannot be built, or with ``METRISCOPE_PLAIN_KERNELS=1``.
Activations and their slopes are functions of one number, inlined into compiled passes. They are branch-free, so that
loops over them are vectorized, and use no function of a mathematical library.
"""

from __future__ import annotations

import math
import os
import warnings
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from metriscope.train.sparse_points import GROUP, PADDING

__all__ = [
    "ABS_HIDDEN", "HIDDEN", "Kernels", "chosen", "compiled", "exponential", "inlined", "plain", "smooth",
    "smooth_slope", "vectors",
]  # fmt: skip

_SWITCH = "METRISCOPE_PLAIN_KERNELS"
# More columns than any row has.
_ALL = 1 << 30

F, I = np.float32, np.int32  # noqa: E741
ZERO, HALF, ONE = F(0), F(0.5), F(1)

# Sums may be reordered into vector lanes and products fused; NaN and infinity keep their meaning.
_FAST = {"contract", "reassoc", "nsz", "arcp"}
compiled = njit(nogil=True, fastmath=_FAST, error_model="numpy", boundscheck=False)

# exp on [-ln2/2, ln2/2] as 1 + r + r^2 P(r): Cephes' single-precision coefficients, relative error 2e-7.
EXP = tuple(
    np.array([1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1], F)
)
# log2(e), and ln(2) as a sum of two numbers.
EXP_RANGE = F(1.44269504), F(0.693359375), F(-2.12194440e-4)


class Kernels(NamedTuple):
    """Two functions for use inside compiled code, and how many columns a call of each processes.

    ``accumulate(out, dense, side, span)`` adds ``Σ_n values[n, g] dense[index[n]]`` to row ``rows[8 group + g]`` of
    ``out``, in ``width`` columns from ``column`` on. ``side`` is ``(rows, index, values)``; ``span`` is
    ``(group, start, stop, column)``, and ``n`` runs from ``start`` to ``stop``. ``out`` and ``dense`` share no memory.
    Padding rows of a group may share one row of ``out``, whose values are then meaningless.

    ``attract(points, prototypes, results, span)`` is the backward pass of eight points through weighted distances to
    prototypes, in ``lanes`` columns from ``column`` on. ``prototypes`` is ``(mu, weight, share)``, ``results`` is
    ``(pull, of_mu, of_alpha)`` and ``span`` is ``(number of prototypes, column)``. With
    ``t = share[c, g] (points[g] - mu[c])``: ``pull[g]`` becomes ``Σ_c weight[c] t``; ``of_mu[c]`` gains ``Σ_g t`` and
    ``of_alpha[c]`` gains ``Σ_g t (points[g] - mu[c])``. Differences are formed first, which avoids cancellation.
    """

    name: str
    lanes: int
    width: int
    accumulate: Any
    attract: Any


# Plain loops process whole rows from column 0, so that the compiler knows the number of columns to be non-negative;
# with any other first column it would check for negative numbers, and not vectorize the loop.


@compiled
def _accumulate(out: Any, dense: Any, side: Any, span: Any) -> None:
    rows, index, values = side
    group, start, stop, _ = span
    for g in range(GROUP):
        own = out[rows[GROUP * group + g]]
        for n in range(start, stop):
            weight, other = values[n, g], dense[index[n]]
            for k in range(own.shape[0]):
                own[k] += weight * other[k]


@compiled
def _attract(points: Any, prototypes: Any, results: Any, span: Any) -> None:
    mu, weight, share = prototypes
    pull, of_mu, of_alpha = results
    pull[:] = np.float32(0)
    for c in range(span[0]):
        for g in range(GROUP):
            for k in range(points.shape[1]):
                difference = points[g, k] - mu[c, k]
                t = share[c, g] * difference
                of_mu[c, k] += t
                of_alpha[c, k] += t * difference
                pull[g, k] += weight[c, k] * t


def plain() -> Kernels:
    """Return plain loops, which numba compiles on any processor."""
    return Kernels("plain", _ALL, _ALL, _accumulate, _attract)


def vectors(lanes: int | None = None, count: int | None = None, rows: int | None = None) -> Kernels:
    """Return kernels that sum ``count`` vectors of ``lanes`` floats in each of ``rows`` rows at once.

    The defaults are those that suit the processor for which numba compiles.
    """
    from metriscope.train import simd

    shape = simd.shape_for(simd.target_features())
    shape = simd.VectorShape(lanes or shape.lanes, count or shape.vectors, rows or shape.rows)
    return Kernels("x".join(map(str, shape)), shape.lanes, shape.width, *simd.intrinsics(shape))


def chosen() -> Kernels:
    """Return the vector kernels if they can be built and are not switched off, otherwise the plain loops."""
    if os.environ.get(_SWITCH, "") not in ("", "0"):
        return plain()
    # Numba's internals change without notice, so any error may be raised here.
    try:
        found = vectors()
        _try(found)
    except Exception as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        warnings.warn(
            f"vector code could not be built ({type(error).__name__}: {reason}); slower plain loops are used instead",
            RuntimeWarning,
            stacklevel=2,
        )
        return plain()
    return found


def _try(kernels: Kernels) -> None:
    """Compile both functions once and compare their results with known sums."""
    accumulate, attract = kernels.accumulate, kernels.attract

    @njit
    def run(ones: Any, natural: Any, sums: Any, prototypes: Any, results: Any) -> None:
        accumulate(sums, sums.copy(), (natural, natural, ones), (0, 0, GROUP, 0))
        attract(sums, prototypes, results, (1, 0))

    ones, natural = np.ones((GROUP, GROUP), np.float32), np.arange(GROUP, dtype=np.int32)
    sums, mu, weight = (np.full((GROUP, PADDING), value, np.float32) for value in (1, 2, 3))
    results = tuple(np.zeros_like(mu) for _ in range(3))
    run(ones, natural, sums, (mu, weight, ones), results)
    # Eight rows of ones added to ones give 9. The difference from 2 is 7, for each of eight points.
    known = [(sums, 9), *zip(results, (3 * 7, 8 * 7, 8 * 7 * 7), strict=True)]
    if any(found[0, column] != value for found, value in known for column in (0, kernels.lanes - 1)):
        raise RuntimeError(f"kernels for the vector shape {kernels.name} give wrong sums")


HIDDEN = {"relu": 0, "abs": 1, "gelu": 2, "silu": 3, "tanh": 4, "elu": 5}
ABS_HIDDEN, GELU, SILU, TANH = (HIDDEN[name] for name in ("abs", "gelu", "silu", "tanh"))

inlined = njit(inline="always")

(P0, P1, P2, P3, P4, P5), (LOG2E, LN2_HIGH, LN2_LOW) = EXP, EXP_RANGE
# Below it exp is taken as zero: 1e-26 changes no weight, and products of smaller numbers would be subnormal, with which
# processors are many times slower.
LEAST = F(-60.0)


@inlined
def exponential(x: Any) -> Any:
    """Return the exponential of a number that is not positive; NaN stays NaN."""
    bounded = max(x, LEAST)
    power = np.floor(bounded * LOG2E + HALF)
    r = (bounded - power * LN2_HIGH) - power * LN2_LOW
    poly = ((((P0 * r + P1) * r + P2) * r + P3) * r + P4) * r + P5
    scale = I((I(power) + I(127)) << I(23)).view(np.float32)
    value = (poly * r * r + r + ONE) * scale if x >= LEAST else ZERO
    return x if x != x else value


# erfc(u) = P(t) exp(-u²) with t = 1 / (1 + 0.3275911 u), u >= 0: Abramowitz & Stegun 7.1.26, error 1.5e-7.
(E1, E2, E3, E4, E5), E0 = map(F, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)), F(0.3275911)
ROOT_HALF, ROOT_TWO_PI = F(math.sqrt(0.5)), F(math.sqrt(0.5 / math.pi))


@inlined
def _share_below(x: Any) -> Any:
    # The share of a standard normal distribution below x.
    u = abs(x) * ROOT_HALF
    t = ONE / (ONE + E0 * u)
    tail = HALF * ((((E5 * t + E4) * t + E3) * t + E2) * t + E1) * t * exponential(-u * u)
    return ONE - tail if x >= ZERO else tail


@inlined
def _logistic(x: Any) -> Any:
    e = exponential(-abs(x))
    return ONE / (ONE + e) if x >= ZERO else e / (ONE + e)


@inlined
def _tangent(x: Any) -> Any:
    e = exponential(F(-2) * abs(x))
    value = (ONE - e) / (ONE + e)
    return value if x >= ZERO else -value


@inlined
def smooth(x: Any, kind: int) -> Any:
    """Return a smooth activation of a number; ``kind`` is a code of :data:`HIDDEN` above that of Abs."""
    if kind == GELU:
        return x * _share_below(x)
    if kind == SILU:
        return x * _logistic(x)
    if kind == TANH:
        return _tangent(x)
    return x if x > ZERO else exponential(min(x, ZERO)) - ONE


@inlined
def smooth_slope(x: Any, kind: int) -> Any:
    """Return the derivative of a smooth activation."""
    if kind == GELU:
        return _share_below(x) + x * ROOT_TWO_PI * exponential(-HALF * x * x)
    if kind == SILU:
        share = _logistic(x)
        return share * (ONE + x * (ONE - share))
    if kind == TANH:
        value = _tangent(x)
        return ONE - value * value
    return ONE if x > ZERO else exponential(min(x, ZERO))
