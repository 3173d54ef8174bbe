"""Statistics of repeated runs: no mean without its interval and its number of runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from metriscope.common.validation import instance, listed, number, real_array

__all__ = [
    "Moments", "Summary", "TTest", "cohens_d", "holm", "moments", "paired_test", "student_test", "summarize",
    "welch_test",
]  # fmt: skip


@dataclass(frozen=True)
class Summary:
    """Descriptive statistics of one number over several runs.

    Parameters
    ----------
    count : int
        The number of runs.
    mean : float
        Their mean.
    sd : float
        Their standard deviation, with ``count - 1`` in the denominator.
    variance : float
        The square of ``sd``.
    minimum, maximum : float
        The smallest and the largest value.
    low, high : float
        The ends of the t interval of the mean.

    Examples
    --------
    >>> Summary(count=2, mean=1.0, sd=0.0, variance=0.0, minimum=1.0, maximum=1.0, low=1.0, high=1.0).to_dict()["mean"]
    1.0
    """

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
    """Return the mean of some runs, their spread, and the t interval of the mean.

    Parameters
    ----------
    values : iterable of float
        One number per run. NaN makes every number but the count NaN.
    confidence : float in (0, 1)
        The confidence level of the interval.

    Returns
    -------
    Summary
        The statistics; the spread and the interval of a single value are NaN.

    Raises
    ------
    ValueError
        If there are no values, they are not one list of numbers, or ``confidence`` is outside its interval.

    Examples
    --------
    >>> summarize([1.0, 2.0, 3.0]).mean, summarize([1.0, 2.0, 3.0]).sd
    (2.0, 1.0)
    """
    # A run that diverged brings NaN or infinity, and the summary shows it.
    sample = real_array(listed(values), "values", "runs", finite=False)
    confidence = number(confidence, "confidence", "(0, 1)")
    # The spread of infinities is NaN, which needs no warning.
    with np.errstate(invalid="ignore", over="ignore"):
        mean = float(sample.mean())
        variance = float(sample.var(ddof=1)) if sample.size > 1 else math.nan
    margin = _margin(math.sqrt(variance / sample.size), sample.size - 1, confidence)
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


def _margin(error: float, df: float, confidence: float) -> float:
    """Return half the width of a t interval; NaN if the standard error is."""
    if math.isnan(error):
        return math.nan
    # scipy.stats takes longer to import than everything else here together.
    from scipy import stats

    return float(stats.t.ppf((1 + confidence) / 2, df)) * error


class Moments(NamedTuple):
    """Mean, standard deviation and size of a group of runs, for an unpaired t-test.

    Attributes
    ----------
    mean : float
        The mean of the runs.
    sd : float
        Their standard deviation, with ``runs - 1`` in the denominator.
    runs : int
        Their number.

    Examples
    --------
    >>> Moments(mean=2.0, sd=1.0, runs=3).sd
    1.0
    """

    mean: float
    sd: float
    runs: int


class TTest(NamedTuple):
    """The result of a two-sided t-test of a difference of means.

    Numbers are NaN if there are too few runs, or if neither the runs nor the means differ.

    Attributes
    ----------
    difference : float
        The difference of the means.
    low, high : float
        The ends of its confidence interval.
    t : float
        The test statistic.
    df : float
        Its degrees of freedom.
    p : float
        The p-value.

    Examples
    --------
    >>> TTest(difference=1.0, low=0.5, high=1.5, t=4.0, df=38, p=0.0003).p < 0.05
    True
    """

    difference: float
    low: float
    high: float
    t: float
    df: float
    p: float


def moments(values: Iterable[float]) -> Moments:
    """Return the mean and the standard deviation over runs, and the number of runs.

    Parameters
    ----------
    values : iterable of float
        One number per run.

    Returns
    -------
    Moments
        The form in which :func:`student_test`, :func:`welch_test` and :func:`cohens_d` take a sample.

    Raises
    ------
    ValueError
        If there are no values, or they are not one list of numbers.

    Examples
    --------
    >>> moments([1.0, 2.0, 3.0])
    Moments(mean=2.0, sd=1.0, runs=3)
    """
    found = summarize(values)
    return Moments(found.mean, found.sd, found.count)


def student_test(a: Moments, b: Moments, confidence: float = 0.95) -> TTest:
    """Return Student's unpaired t-test of ``a - b``, which assumes that both groups have the same variance.

    Parameters
    ----------
    a, b : Moments
        The two groups.
    confidence : float in (0, 1)
        The confidence level of the interval of the difference.

    Returns
    -------
    TTest
        The difference ``a.mean - b.mean``, its interval and its p-value.

    Raises
    ------
    ValueError
        If a group is not a :class:`Moments`, or ``confidence`` is outside its interval.

    Examples
    --------
    >>> round(student_test(Moments(96.62, 0.17, 20), Moments(95.87, 0.22, 20)).t, 2)
    12.06
    """
    _check_groups(a, b)
    error = _pooled(a, b) * math.sqrt(1 / a.runs + 1 / b.runs)
    return _unpaired_test(a, b, error, a.runs + b.runs - 2, confidence, equal_var=True)


def welch_test(a: Moments, b: Moments, confidence: float = 0.95) -> TTest:
    """Return Welch's unpaired t-test of ``a - b``, which allows each group its own variance.

    Parameters
    ----------
    a, b : Moments
        The two groups.
    confidence : float in (0, 1)
        The confidence level of the interval of the difference.

    Returns
    -------
    TTest
        The difference ``a.mean - b.mean``, its interval and its p-value.

    Raises
    ------
    ValueError
        If a group is not a :class:`Moments`, or ``confidence`` is outside its interval.

    Examples
    --------
    >>> round(welch_test(Moments(96.62, 0.17, 20), Moments(56.31, 19.31, 20)).df, 1)
    19.0
    """
    _check_groups(a, b)
    parts = [group.sd**2 / group.runs for group in (a, b)]
    weights = sum(part**2 / max(group.runs - 1, 1) for part, group in zip(parts, (a, b), strict=True))
    # Without any spread the formula is 0 / 0; every number of degrees then gives the same answer.
    df = sum(parts) ** 2 / weights if weights > 0 else float(a.runs + b.runs - 2)
    return _unpaired_test(a, b, math.sqrt(sum(parts)), df, confidence, equal_var=False)


def _unpaired_test(a: Moments, b: Moments, error: float, df: float, confidence: float, *, equal_var: bool) -> TTest:
    from scipy import stats

    difference = a.mean - b.mean
    margin = _margin(error, df, number(confidence, "confidence", "(0, 1)"))
    # Groups of one run divide by zero degrees of freedom; the answer is NaN and needs no warning.
    with np.errstate(divide="ignore", invalid="ignore"):
        t, p = stats.ttest_ind_from_stats(*a, *b, equal_var=equal_var)
    return TTest(difference, difference - margin, difference + margin, float(t), df, float(p))


def paired_test(a: Iterable[float], b: Iterable[float], confidence: float = 0.95) -> TTest:
    """Return the paired t-test of ``a - b``; effects common to both runs of a pair cancel.

    Parameters
    ----------
    a, b : iterable of float
        One number per run; the same position means the same pair.
    confidence : float in (0, 1)
        The confidence level of the interval of the difference.

    Returns
    -------
    TTest
        The mean difference, its interval and its p-value.

    Raises
    ------
    ValueError
        If the numbers of runs differ, or ``confidence`` is outside its interval.

    Examples
    --------
    >>> paired_test([1.0, 2.0, 4.0], [0.0, 1.0, 2.0]).df
    2.0
    """
    from scipy import stats

    one, other = (real_array(listed(v), name, "runs", finite=False) for v, name in ((a, "a"), (b, "b")))
    if one.shape != other.shape:
        raise ValueError(f"a and b must have the same number of runs to be paired, got {len(one)} and {len(other)}")
    confidence = number(confidence, "confidence", "(0, 1)")
    with warnings.catch_warnings():
        # One pair, equal differences and runs that diverged have an answer, NaN or infinite, and need no warning.
        warnings.simplefilter("ignore", RuntimeWarning)
        found = stats.ttest_rel(one, other)
        low, high = found.confidence_interval(confidence)
        numbers = (np.mean(one - other), low, high, found.statistic, len(one) - 1, found.pvalue)
    return TTest(*map(float, numbers))


def cohens_d(a: Moments, b: Moments) -> float:
    """Return Cohen's d, the difference of the means in pooled standard deviations.

    Parameters
    ----------
    a, b : Moments
        The two groups.

    Returns
    -------
    float
        The effect size of ``a - b``; NaN if there is no spread.

    Raises
    ------
    ValueError
        If a group is not a :class:`Moments`.

    Examples
    --------
    >>> cohens_d(Moments(3.0, 2.0, 5), Moments(2.0, 2.0, 5))
    0.5
    """
    _check_groups(a, b)
    spread = _pooled(a, b)
    return (a.mean - b.mean) / spread if spread > 0 else math.nan


def holm(p_values: Iterable[float]) -> Float[np.ndarray, " tests"]:
    """Return p-values adjusted by Holm's method, to be compared with the family-wise error rate.

    The smallest of ``m`` p-values is multiplied by ``m``, the next by ``m - 1`` and so on; an adjusted value is at
    least the one before it and at most 1.

    Parameters
    ----------
    p_values : iterable of float
        One p-value per test. NaN marks a test that could not be made: it is not counted and stays NaN.

    Returns
    -------
    array of shape (tests,)
        The adjusted p-values, in the order given.

    Raises
    ------
    ValueError
        If a p-value is below 0 or above 1.

    Examples
    --------
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
    for name, group in (("a", a), ("b", b)):
        instance(group, name, Moments)
        for value in (group.mean, group.sd, group.runs):
            # NaN, as of a group without runs, is carried on.
            if not (isinstance(value, float) and math.isnan(value)):
                number(value, f"the entries of {name}", "[-inf, inf]")


def _pooled(a: Moments, b: Moments) -> float:
    df = a.runs + b.runs - 2
    if df < 1:
        return math.nan
    # A group of one run has no deviation of its own and adds nothing to the pool.
    squares = sum((g.runs - 1) * g.sd**2 for g in (a, b) if g.runs > 1)
    return math.sqrt(squares / df)
