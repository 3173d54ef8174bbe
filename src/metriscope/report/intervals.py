"""The mean of a few runs with its interval, for plots.

Axes: ``values`` is S, one number a seed; NaN marks a seed without a value and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from metriscope.report.numbers import MISSING

__all__ = ["mean_interval", "mean_text"]

# A spread below this share of the mean is rounding: the values are one and the same.
SAME = 1e-9


def mean_interval(values: npt.ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    """Return the mean of ``values`` and both ends of its interval; NaN where there are too few.

    >>> mean_interval([1.0])
    (1.0, nan, nan)
    """
    # functional brings torch along, which a page without plots does not need.
    from metriscope.functional import summarize

    array = np.asarray(values, dtype=np.float64).ravel()
    present = array[~np.isnan(array)]
    if len(present) == 0:
        return math.nan, math.nan, math.nan
    found = summarize(present, level)
    return found.mean, found.low, found.high


def mean_text(values: Iterable[float], digits: int = 2) -> str:
    """Return a mean with its 95 % interval, with the decimals that show two digits of the interval's width.

    NaN is left out. A single value, or values that agree, have no interval and are rounded to ``digits`` decimals.

    >>> mean_text([1.0, 2.0, 3.0]), mean_text([2.0]), mean_text([])
    ('2.0 [−0.5, 4.5]', '2', '–')
    """
    kept = [float(v) for v in values if not math.isnan(v)]
    mean, low, high = mean_interval(kept)
    if math.isnan(mean):
        return MISSING
    width = high - low
    if not width > SAME * max(abs(mean), SAME):
        return f"{round(mean, digits) + 0.0:g}".replace("-", "−")
    decimals = max(0, 1 - math.floor(math.log10(width)))
    texts = [f"{round(v, decimals) + 0.0:.{decimals}f}" for v in (mean, low, high)]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]".replace("-", "−")
