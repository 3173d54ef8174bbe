"""The mean of a few runs with its interval, for plots.

Axes: ``values`` is S, one number a seed; NaN marks a seed without a value and is left out.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["mean_interval"]


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
