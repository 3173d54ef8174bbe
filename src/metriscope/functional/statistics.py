"""Statistics of repeated runs: a mean never goes without its interval and its number of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from metriscope.common.validation import instance, listed, number, real_array

__all__ = [
    "Moments",
    "Summary",
    "TTest",
    "cohens_d",
    "holm",
    "moments",
    "paired_test",
    "student_test",
    "summarize",
    "welch_test",
]


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


class Moments(NamedTuple):
    """What a t-test needs to know of a group: its mean, its standard deviation (``ddof=1``), its size."""

    mean: float
    sd: float
    runs: int


class TTest(NamedTuple):
    """A two-sided t-test of a mean difference, and the interval of the difference it belongs to.

    NaN where there are too few runs, or none differ and neither do the means.
    """

    difference: float
    low: float
    high: float
    t: float
    df: float
    p: float


def moments(values: Iterable[float]) -> Moments:
    """Return mean, standard deviation and count.

    >>> moments([1.0, 2.0, 3.0])
    Moments(mean=2.0, sd=1.0, runs=3)
    """
    found = summarize(values)
    return Moments(found.mean, found.sd, found.count)


def student_test(a: Moments, b: Moments, confidence: float = 0.95) -> TTest:
    """Return Student's unpaired test of ``a - b``, which takes both groups to have one variance.

    >>> round(student_test(Moments(96.62, 0.17, 20), Moments(95.87, 0.22, 20)).t, 2)
    12.06
    """
    _check_groups(a, b)
    df = a.runs + b.runs - 2
    error = _pooled(a, b) * math.sqrt(1 / a.runs + 1 / b.runs)
    return _test(a.mean - b.mean, error, df, confidence)


def welch_test(a: Moments, b: Moments, confidence: float = 0.95) -> TTest:
    """Return Welch's unpaired test of ``a - b``, which lets each group have its own variance.

    >>> round(welch_test(Moments(96.62, 0.17, 20), Moments(56.31, 19.31, 20)).df, 1)
    19.0
    """
    _check_groups(a, b)
    parts = [group.sd**2 / group.runs for group in (a, b)]
    scale = sum(parts)
    weights = sum(part**2 / max(group.runs - 1, 1) for part, group in zip(parts, (a, b), strict=True))
    # Without any spread the formula is 0 / 0; every number of degrees then gives the same answer.
    df = scale**2 / weights if weights > 0 else float(a.runs + b.runs - 2)
    return _test(a.mean - b.mean, math.sqrt(scale), df, confidence)


def paired_test(a: Iterable[float], b: Iterable[float], confidence: float = 0.95) -> TTest:
    """Return the paired test of ``a - b``: run by run, so that what both share drops out.

    >>> paired_test([1.0, 2.0, 4.0], [0.0, 1.0, 2.0]).df
    2
    """
    one, other = _runs(a, "a"), _runs(b, "b")
    if one.shape != other.shape:
        raise ValueError(f"a and b must be pairs of runs, got {len(one)} and {len(other)} runs")
    with np.errstate(invalid="ignore"):
        found = moments(one - other)
    return _test(found.mean, found.sd / math.sqrt(found.runs), found.runs - 1, confidence)


def cohens_d(a: Moments, b: Moments) -> float:
    """Return the difference of the means in pooled standard deviations; NaN where there is no spread.

    >>> cohens_d(Moments(3.0, 2.0, 5), Moments(2.0, 2.0, 5))
    0.5
    """
    _check_groups(a, b)
    spread = _pooled(a, b)
    return (a.mean - b.mean) / spread if spread > 0 else math.nan


def holm(p_values: Iterable[float]) -> Float[np.ndarray, " tests"]:
    """Return Holm's adjusted p-values: compare each with the level that all tests together shall keep.

    The smallest of ``m`` is multiplied by ``m``, the next by ``m - 1`` and so on; none may fall below one before
    it, nor exceed 1. NaN stands for a test that could not be made; it counts for nothing and stays NaN.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = real_array(listed(p_values), "p_values", "tests", finite=False, empty=True)
    if ((p < 0) | (p > 1)).any():
        raise ValueError(f"p_values must lie between 0 and 1, got {p[(p < 0) | (p > 1)][0]}")
    order = np.argsort(p)[: int((~np.isnan(p)).sum())]
    factors = np.arange(len(order), 0, -1)
    adjusted = np.full_like(p, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted


def _check_groups(a: Moments, b: Moments) -> None:
    instance(a, "a", Moments)
    instance(b, "b", Moments)


def _runs(values: Iterable[float], name: str) -> Float[np.ndarray, " runs"]:
    return real_array(listed(values), name, "runs", finite=False)


def _pooled(a: Moments, b: Moments) -> float:
    df = a.runs + b.runs - 2
    if df < 1:
        return math.nan
    # A group of one run has no deviation of its own and adds nothing to the pool.
    squares = sum((g.runs - 1) * g.sd**2 for g in (a, b) if g.runs > 1)
    return math.sqrt(squares / df)


def _test(difference: float, error: float, df: float, confidence: float) -> TTest:
    confidence = number(confidence, "confidence", "(0, 1)")
    if df <= 0 or math.isnan(error):
        return TTest(difference, math.nan, math.nan, math.nan, df, math.nan)
    # scipy.stats takes longer to import than everything else here together.
    from scipy import stats

    margin = float(stats.t.ppf((1 + confidence) / 2, df)) * error
    infinite = math.copysign(math.inf, difference) if difference else math.nan
    t = difference / error if error > 0 else infinite
    return TTest(difference, difference - margin, difference + margin, t, df, 2 * float(stats.t.sf(abs(t), df)))
