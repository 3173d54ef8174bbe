"""Statistics of repeated runs: a mean never goes without its interval and its number of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from metriscope.validation import listed, number, real_array

__all__ = ["Summary", "summarize"]


@dataclass(frozen=True)
class Summary:
    """What a set of runs says about one number; ``low`` and ``high`` bound its mean."""

    count: int
    mean: float
    sd: float
    variance: float
    minimum: float
    maximum: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        """Return the fields by name."""
        return asdict(self)


def summarize(values: Iterable[float], confidence: float = 0.95) -> Summary:
    """Return mean, spread (``ddof=1``) and the t interval of the mean.

    One value has no spread: its deviation and interval are NaN. A NaN among the values makes every
    number but the count NaN.

    >>> summarize([1.0, 2.0, 3.0]).mean, summarize([1.0, 2.0, 3.0]).sd
    (2.0, 1.0)
    """
    # A run that diverged brings NaN or infinity, and the summary says so.
    sample = real_array(listed(values), "values", "runs", finite=False)
    confidence = number(confidence, "confidence", "(0, 1)")
    # The spread of infinities is NaN, which needs no warning.
    with np.errstate(invalid="ignore", over="ignore"):
        mean = float(sample.mean())
        variance = float(sample.var(ddof=1)) if sample.size > 1 else math.nan
    margin = _t_margin(variance, sample.size, confidence)
    return Summary(
        count=sample.size,
        mean=mean,
        sd=math.sqrt(variance),
        variance=variance,
        minimum=float(sample.min()),
        maximum=float(sample.max()),
        low=mean - margin,
        high=mean + margin,
    )


def _t_margin(variance: float, count: int, confidence: float) -> float:
    if math.isnan(variance):
        return math.nan
    # scipy.stats takes longer to import than everything else here together.
    from scipy import stats

    quantile = float(stats.t.ppf((1 + confidence) / 2, count - 1))
    return quantile * math.sqrt(variance / count)
