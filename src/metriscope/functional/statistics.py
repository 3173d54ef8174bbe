"""Statistics of repeated runs: a mean never goes without its interval and its number of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

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
    sample = np.asarray(values if hasattr(values, "__array__") else list(values), dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"values must be a non-empty flat list of numbers, got shape {sample.shape}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    # A run that diverged may bring infinities; their spread is NaN, which needs no warning.
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
