"""The mean of a few runs with its 95 % interval, from Student's t in closed form.

Axes: ``values`` is S, one number a seed; NaN marks a seed without a value and is left out.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["mean_interval", "t_cover", "t_quantile"]


def t_cover(angle: float, df: int) -> float:
    """Return P(|T| <= sqrt(df) tan(angle)) for Student's T (Abramowitz and Stegun 26.7.3, 26.7.4).

    >>> round(t_cover(math.pi / 4, 1), 12)  # half of a Cauchy variable lies in [-1, 1]
    0.5
    """
    if df < 1:
        raise ValueError(f"Student's t needs at least 1 degree of freedom, got {df}")
    sine, cosine = math.sin(angle), math.cos(angle)
    steps = np.arange(1, (df - 1) // 2 + 1) if df % 2 == 0 else np.arange(1, (df - 1) // 2)
    ratios = (2 * steps - 1) / (2 * steps) if df % 2 == 0 else 2 * steps / (2 * steps + 1)
    series = 1.0 + float(np.cumprod(ratios * cosine**2).sum())
    if df % 2 == 0:
        return sine * series
    return 2 / math.pi * (angle + (sine * cosine * series if df > 1 else 0.0))


def t_quantile(df: int, level: float = 0.95) -> float:
    """Return the t with P(|T| <= t) = ``level``, by bisection on the angle.

    >>> round(t_quantile(19), 4)
    2.093
    """
    if not 0 < level < 1:
        raise ValueError(f"a level lies strictly between 0 and 1, got {level}")
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cover(middle, df) < level else (low, middle)
    return math.sqrt(df) * math.tan((low + high) / 2)


def mean_interval(values: npt.ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    """Return the mean of ``values`` and both ends of its interval; NaN where there are too few.

    >>> mean_interval([1.0])
    (1.0, nan, nan)
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    present = array[~np.isnan(array)]
    if len(present) == 0:
        return math.nan, math.nan, math.nan
    mean = float(present.mean())
    if len(present) == 1:
        return mean, math.nan, math.nan
    half = t_quantile(len(present) - 1, level) * float(present.std(ddof=1)) / math.sqrt(len(present))
    return mean, mean - half, mean + half
