"""Activations and their slopes as functions of one number, inlined into compiled passes.

They are branch-free, so that loops over them are vectorized, and use no function of a mathematical library.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metriscope.train.kernels import EXP, EXP_RANGE, HALF, ONE, ZERO, F, I

__all__ = ["ABS_HIDDEN", "HIDDEN", "exponential", "inlined", "smooth", "smooth_slope"]

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
