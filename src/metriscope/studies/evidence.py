"""The tests that criteria name: for each, an estimate with its interval and one-sided p-values against any threshold.

Axes: N units of replication. A sample is one group of units, or two that are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from metriscope.report import number
from metriscope.rng import derive

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TESTS", "Above", "Below", "Region", "Sample", "Test", "Within"]

Array = Float[np.ndarray, " n"]
Side = Literal["greater", "less"]
DRAWS = 9_999


@dataclass(frozen=True)
class Region:
    """Where a quantity must lie: ``above`` or ``below`` a margin, or ``within`` plus or minus a margin."""

    kind: Literal["above", "below", "within"]
    margin: float

    def scaled(self, factor: float) -> Region:
        """Return the region with its margin multiplied."""
        return replace(self, margin=factor * self.margin)

    def __str__(self) -> str:
        sign = {"above": "> ", "below": "< ", "within": "within ±"}[self.kind]
        return f"{sign}{number(self.margin)}"


def Above(margin: float) -> Region:
    """Return the region above a margin."""
    return Region("above", margin)


def Below(margin: float) -> Region:
    """Return the region below a margin."""
    return Region("below", margin)


def Within(margin: float) -> Region:
    """Return the region within plus or minus a margin: equivalence, shown by two one-sided tests."""
    return Region("within", margin)


@dataclass(frozen=True, eq=False)
class Sample:
    """One value per unit, of one group or of two."""

    one: Array
    other: Array | None = None

    @property
    def units(self) -> int:
        """The number of units, that of the smaller group where there are two."""
        return len(self.one) if self.other is None else min(len(self.one), len(self.other))

    @classmethod
    def of(cls, groups: Sequence[pd.Series], paired: bool) -> Sample:
        """Return the sample of one group; of two, or of their differences unit by unit if they are ``paired``."""
        if len(groups) == 1:
            return cls(groups[0].to_numpy(dtype=float))
        one, other = groups
        if not paired:
            return cls(one.to_numpy(dtype=float), other.to_numpy(dtype=float))
        shared = one.index.intersection(other.index)
        return cls((one[shared] - other[shared]).to_numpy(dtype=float))


@dataclass(frozen=True)
class Test:
    """An estimate with its interval, p-values for lying above or below a threshold, and the fewest units it needs."""

    interval: Callable[[Sample, float], tuple[float, float, float]]
    p_above: Callable[[Sample, float], float]
    p_below: Callable[[Sample, float], float]
    fewest: Callable[[Region, float], int]


class _Student(NamedTuple):
    mean: float
    error: float
    df: float


def _student(sample: Sample) -> _Student:
    """Return the mean (of a difference), its standard error and Welch's degrees of freedom."""
    groups = [sample.one] if sample.other is None else [sample.one, sample.other]
    mean = groups[0].mean() - (groups[1].mean() if len(groups) > 1 else 0.0)
    parts = [group.var(ddof=1) / len(group) for group in groups]
    weights = sum(part**2 / (len(group) - 1) for part, group in zip(parts, groups, strict=True))
    df = sum(parts) ** 2 / weights if weights > 0 else sum(len(group) - 1 for group in groups)
    return _Student(float(mean), math.sqrt(sum(parts)), float(df))


def _t_interval(found: _Student, confidence: float) -> tuple[float, float, float]:
    from scipy import stats

    margin = float(stats.t.ppf((1 + confidence) / 2, found.df)) * found.error
    return found.mean, found.mean - margin, found.mean + margin


def _t_above(found: _Student, threshold: float) -> float:
    from scipy import stats

    if found.error == 0:
        return 0.0 if found.mean > threshold else 1.0
    return float(stats.t.sf((found.mean - threshold) / found.error, found.df))


def _mirrored(found: _Student) -> _Student:
    return found._replace(mean=-found.mean)


def _t_test(reduce: Callable[[Sample], _Student]) -> Test:
    return Test(
        interval=lambda sample, confidence: _t_interval(reduce(sample), confidence),
        p_above=lambda sample, edge: _t_above(reduce(sample), edge),
        p_below=lambda sample, edge: _t_above(_mirrored(reduce(sample)), -edge),
        # One unit has no deviation; two have one, and a t-test of them can reach any level.
        fewest=lambda region, alpha: 2,
    )


def _pseudo(values: Array) -> Array:
    """Return Miller's (1968) jackknife pseudo-values of the logarithm of the standard deviation."""
    n = len(values)
    left_out = np.array([np.delete(values, i).var(ddof=1) for i in range(n)])
    # Without any spread the logarithm is undefined, and so is everything that rests on it.
    if not (left_out > 0).all():
        return np.full(n, math.nan)
    return n * math.log(values.var(ddof=1)) / 2 - (n - 1) * np.log(left_out) / 2


def _spread(sample: Sample) -> _Student:
    """Return the log ratio of two standard deviations, by the jackknife: robust to the shape of distributions."""
    assert sample.other is not None
    return _student(Sample(_pseudo(sample.one), _pseudo(sample.other)))


# Two values with one left out have no deviation.
_SPREAD = replace(_t_test(_spread), fewest=lambda region, alpha: 3)


def _successes(sample: Sample) -> tuple[int, int]:
    return int((sample.one > 0.5).sum()), len(sample.one)


def _share_interval(sample: Sample, confidence: float) -> tuple[float, float, float]:
    from scipy import stats

    k, n = _successes(sample)
    ends = stats.binomtest(k, n).proportion_ci(confidence, method="exact")
    return k / n, float(ends.low), float(ends.high)


def _share_p(alternative: Side) -> Callable[[Sample, float], float]:
    def p(sample: Sample, edge: float) -> float:
        from scipy import stats

        k, n = _successes(sample)
        if not 0 <= edge <= 1:
            holds = edge < 0 if alternative == "greater" else edge > 1
            return 0.0 if holds else 1.0
        return float(stats.binomtest(k, n, edge, alternative=alternative).pvalue)

    return p


def _share_fewest(region: Region, alpha: float) -> int:
    """Return the number of units of which all, or none, would show that the share lies in the region."""
    chance = region.margin if region.kind == "above" else 1 - region.margin
    if not 0 < chance < 1:
        return 2
    return math.ceil(math.log(alpha) / math.log(chance))


def _means(sample: Sample) -> Array:
    """Return bootstrap means (or differences of means), the same draws for the same number of units."""
    generator = np.random.default_rng(derive(0, "evidence", "bootstrap"))
    groups = [sample.one] if sample.other is None else [sample.one, sample.other]
    draws = [g[generator.integers(len(g), size=(DRAWS, len(g)))].mean(1) for g in groups]
    return draws[0] - (draws[1] if len(draws) > 1 else 0.0)


def _bootstrap_interval(sample: Sample, confidence: float) -> tuple[float, float, float]:
    estimate = sample.one.mean() - (0.0 if sample.other is None else sample.other.mean())
    low, high = np.quantile(_means(sample), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(estimate), float(low), float(high)


def _bootstrap_above(sample: Sample, edge: float) -> float:
    return float((1 + (_means(sample) <= edge).sum()) / (1 + DRAWS))


def _bootstrap_below(sample: Sample, edge: float) -> float:
    return float((1 + (_means(sample) >= edge).sum()) / (1 + DRAWS))


def _walsh(sample: Sample) -> Array:
    """Return the means of all pairs of values, each value with itself included, in ascending order."""
    i, j = np.triu_indices(len(sample.one))
    return np.sort((sample.one[i] + sample.one[j]) / 2)


@cache
def _rank_null(n: int) -> Array:
    """Return the probability of each value of Wilcoxon's signed-rank statistic if signs are tossed."""
    counts = np.ones(1)
    for rank in range(1, n + 1):
        counts = np.concatenate([counts, np.zeros(rank)]) + np.concatenate([np.zeros(rank), counts])
    return counts / 2.0**n


def _rank_p(beyond: int, n: int) -> float:
    # The statistic is the number of Walsh averages beyond the threshold (Tukey 1949).
    return float(min(1.0, _rank_null(n)[beyond:].sum()))


def _rank_interval(sample: Sample, confidence: float) -> tuple[float, float, float]:
    """Return the Hodges-Lehmann estimate and its exact interval, two Walsh averages."""
    walsh, n = _walsh(sample), len(sample.one)
    outside = int((np.cumsum(_rank_null(n)) <= (1 - confidence) / 2).sum())
    ends = (walsh[outside - 1], walsh[-outside]) if outside else (-math.inf, math.inf)
    return float(np.median(walsh)), float(ends[0]), float(ends[1])


def _rank_fewest(region: Region, alpha: float) -> int:
    """Return the number of pairs of which all, with one sign, reach the level: 2^-n at the least."""
    return math.ceil(-math.log2(alpha / 2 if region.kind == "within" else alpha))


def _worst(sample: Sample) -> float:
    return float(np.max(sample.one)) if len(sample.one) else math.nan


def _exact_p(sign: int) -> Callable[[Sample, float], float]:
    return lambda sample, edge: 0.0 if sign * (_worst(sample) - edge) > 0 else 1.0


TESTS = {
    # Student's t: of a mean, of paired differences, or Welch's of two groups.
    "mean": _t_test(_student),
    # The logarithm of the ratio of two standard deviations.
    "spread": _SPREAD,
    # A share of units: exact binomial tests and Clopper-Pearson intervals.
    "share": Test(_share_interval, _share_p("greater"), _share_p("less"), _share_fewest),
    # Bounded or skewed quantities: percentile bootstrap of the mean, from enough units that it can be trusted.
    "bootstrap": Test(_bootstrap_interval, _bootstrap_above, _bootstrap_below, lambda region, alpha: 10),
    # Paired differences of any distribution: Wilcoxon's signed ranks.
    "rank": Test(
        _rank_interval,
        lambda sample, edge: _rank_p(int((_walsh(sample) > edge).sum()), len(sample.one)),
        lambda sample, edge: _rank_p(int((_walsh(sample) < edge).sum()), len(sample.one)),
        _rank_fewest,
    ),
    # The largest of values that are computed and not sampled; NaN never passes.
    "exact": Test(lambda sample, confidence: (_worst(sample),) * 3, _exact_p(1), _exact_p(-1), lambda region, alpha: 1),
}
