"""The statistical tests of criteria: each gives an estimate, its interval, and one-sided p-values against thresholds.

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
from scipy import stats

from metriscope.report.numbers import as_printed, number
from metriscope.rng import derive

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TESTS", "Above", "Below", "EvidenceSample", "Region", "Test", "Within"]

Array = Float[np.ndarray, " n"]
# Which side of a threshold is tested: 1 for above, -1 for below.
Sign = Literal[1, -1]
DRAWS = 9_999


@dataclass(frozen=True)
class Region:
    """Where a quantity must lie: ``above`` or ``below`` a margin, or ``within`` plus or minus a margin."""

    kind: Literal["above", "below", "within"]
    margin: float

    def scaled(self, factor: float) -> Region:
        """Return the region with its margin multiplied."""
        return replace(self, margin=factor * self.margin)

    @property
    def bounds(self) -> tuple[float, float]:
        """The lower and the upper end."""
        low = {"above": self.margin, "below": -math.inf, "within": -self.margin}[self.kind]
        return low, math.inf if self.kind == "above" else self.margin

    def __str__(self) -> str:
        sign = {"above": "> ", "below": "< ", "within": "within ±"}[self.kind]
        # A margin that was computed, such as log 3, has more digits than anybody needs.
        chosen, rounded = as_printed(self.margin), number(self.margin)
        return f"{sign}{chosen if len(chosen) <= len(rounded) else rounded}"


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
class EvidenceSample:
    """One value per unit, of one group or of two."""

    one: Array
    other: Array | None = None

    @property
    def groups(self) -> list[Array]:
        """The one or two groups."""
        return [self.one] if self.other is None else [self.one, self.other]

    @property
    def units(self) -> int:
        """The number of units; with two groups, of the smaller one."""
        return min(map(len, self.groups))

    @classmethod
    def of(cls, groups: Sequence[pd.Series], paired: bool) -> EvidenceSample:
        """Return the sample of one or two groups; of the differences unit by unit if two groups are ``paired``."""
        if paired and len(groups) > 1:
            one, other = groups
            shared = one.index.intersection(other.index)
            groups = [one[shared] - other[shared]]
        return cls(*(group.to_numpy(dtype=float) for group in groups))


@dataclass(frozen=True)
class Test:
    """A statistical test.

    ``interval`` gives an estimate with its confidence interval, ``p_value`` the p-value for lying above (sign 1) or
    below (sign -1) a threshold, and ``fewest`` the smallest number of units with which a region can be shown at a
    level.
    """

    interval: Callable[[EvidenceSample, float], tuple[float, float, float]]
    p_value: Callable[[EvidenceSample, float, Sign], float]
    fewest: Callable[[Region, float], int]

    def p_above(self, sample: EvidenceSample, edge: float) -> float:
        """Return the p-value for lying above a threshold."""
        return self.p_value(sample, edge, 1)

    def p_below(self, sample: EvidenceSample, edge: float) -> float:
        """Return the p-value for lying below a threshold."""
        return self.p_value(sample, edge, -1)

    def p_region(self, sample: EvidenceSample, region: Region) -> tuple[float, float]:
        """Return the p-values for lying inside and for lying wholly outside a region."""
        m = region.margin
        if region.kind == "within":
            inside = max(self.p_above(sample, -m), self.p_below(sample, m))
            return inside, min(1.0, 2 * min(self.p_above(sample, m), self.p_below(sample, -m)))
        above, below = self.p_above(sample, m), self.p_below(sample, m)
        return (above, below) if region.kind == "above" else (below, above)


def _difference(parts: Sequence[Array]) -> Array:
    """Return the only part, or the first minus the second."""
    return parts[0] - parts[1] if len(parts) > 1 else parts[0]


class _Student(NamedTuple):
    mean: float
    error: float
    df: float


def _student(sample: EvidenceSample) -> _Student:
    """Return the mean (of a difference), its standard error and Welch's degrees of freedom."""
    parts = [group.var(ddof=1) / len(group) for group in sample.groups]
    weights = sum(part**2 / (len(group) - 1) for part, group in zip(parts, sample.groups, strict=True))
    df = sum(parts) ** 2 / weights if weights > 0 else sum(len(group) - 1 for group in sample.groups)
    mean = _difference([group.mean() for group in sample.groups])
    return _Student(float(mean), math.sqrt(sum(parts)), float(df))


def _t_test(reduce: Callable[[EvidenceSample], _Student], fewest: int) -> Test:
    def interval(sample: EvidenceSample, confidence: float) -> tuple[float, float, float]:
        found = reduce(sample)
        margin = float(stats.t.ppf((1 + confidence) / 2, found.df)) * found.error
        return found.mean, found.mean - margin, found.mean + margin

    def p_value(sample: EvidenceSample, edge: float, sign: Sign) -> float:
        found = reduce(sample)
        beyond = sign * (found.mean - edge)
        if found.error == 0:
            return 0.0 if beyond > 0 else 1.0
        return float(stats.t.sf(beyond / found.error, found.df))

    return Test(interval, p_value, lambda region, alpha: fewest)


def _pseudo(values: Array) -> Array:
    """Return Miller's (1968) jackknife pseudo-values of the logarithm of the standard deviation."""
    n = len(values)
    left_out = np.array([np.delete(values, i).var(ddof=1) for i in range(n)])
    # Without any spread the logarithm is undefined, and so is everything computed from it.
    if not (left_out > 0).all():
        return np.full(n, math.nan)
    return n * math.log(values.var(ddof=1)) / 2 - (n - 1) * np.log(left_out) / 2


def _spread(sample: EvidenceSample) -> _Student:
    """Return the log ratio of two standard deviations by the jackknife, which does not assume normality."""
    assert sample.other is not None
    return _student(EvidenceSample(_pseudo(sample.one), _pseudo(sample.other)))


def _successes(sample: EvidenceSample) -> tuple[int, int]:
    return int((sample.one > 0.5).sum()), len(sample.one)


def _share_interval(sample: EvidenceSample, confidence: float) -> tuple[float, float, float]:
    k, n = _successes(sample)
    ends = stats.binomtest(k, n).proportion_ci(confidence, method="exact")
    return k / n, float(ends.low), float(ends.high)


def _share_p(sample: EvidenceSample, edge: float, sign: Sign) -> float:
    if not 0 <= edge <= 1:
        return 0.0 if sign * (0.5 - edge) > 0 else 1.0
    return float(stats.binomtest(*_successes(sample), edge, alternative="greater" if sign > 0 else "less").pvalue)


def _share_fewest(region: Region, alpha: float) -> int:
    """Return the smallest number of units that, if all or none succeed, shows the share to lie in the region."""
    chance = region.margin if region.kind == "above" else 1 - region.margin
    if not 0 < chance < 1:
        return 2
    return math.ceil(math.log(alpha) / math.log(chance))


def _means(sample: EvidenceSample) -> Array:
    """Return bootstrap means (or differences of means), the same draws for the same number of units."""
    generator = np.random.default_rng(derive(0, "evidence", "bootstrap"))
    return _difference([g[generator.integers(len(g), size=(DRAWS, len(g)))].mean(1) for g in sample.groups])


def _bootstrap_interval(sample: EvidenceSample, confidence: float) -> tuple[float, float, float]:
    low, high = np.quantile(_means(sample), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(_difference([group.mean() for group in sample.groups])), float(low), float(high)


def _bootstrap_p(sample: EvidenceSample, edge: float, sign: Sign) -> float:
    return float((1 + (sign * _means(sample) <= sign * edge).sum()) / (1 + DRAWS))


def _walsh(sample: EvidenceSample) -> Array:
    """Return the means of all pairs of values, including each value with itself, in ascending order."""
    i, j = np.triu_indices(len(sample.one))
    return np.sort((sample.one[i] + sample.one[j]) / 2)


@cache
def _rank_null(n: int) -> Array:
    """Return the probability of each value of Wilcoxon's signed-rank statistic under random signs."""
    counts = np.ones(1)
    for rank in range(1, n + 1):
        counts = np.concatenate([counts, np.zeros(rank)]) + np.concatenate([np.zeros(rank), counts])
    return counts / 2.0**n


def _rank_p(sample: EvidenceSample, edge: float, sign: Sign) -> float:
    # The statistic is the number of Walsh averages beyond the threshold (Tukey 1949).
    beyond = int((sign * _walsh(sample) > sign * edge).sum())
    return float(min(1.0, _rank_null(len(sample.one))[beyond:].sum()))


def _rank_interval(sample: EvidenceSample, confidence: float) -> tuple[float, float, float]:
    """Return the Hodges-Lehmann estimate and its exact interval, whose ends are two Walsh averages."""
    walsh = _walsh(sample)
    outside = int((np.cumsum(_rank_null(len(sample.one))) <= (1 - confidence) / 2).sum())
    ends = (walsh[outside - 1], walsh[-outside]) if outside else (-math.inf, math.inf)
    return float(np.median(walsh)), float(ends[0]), float(ends[1])


def _rank_fewest(region: Region, alpha: float) -> int:
    """Return the smallest number of pairs that can reach the level: if all have one sign, the p-value is 2^-n."""
    return math.ceil(-math.log2(alpha / 2 if region.kind == "within" else alpha))


def _worst(sample: EvidenceSample) -> float:
    return float(np.max(sample.one)) if len(sample.one) else math.nan


def _exact_p(sample: EvidenceSample, edge: float, sign: Sign) -> float:
    return 0.0 if sign * (_worst(sample) - edge) > 0 else 1.0


TESTS = {
    # Student's t: of a mean, of paired differences, or Welch's of two groups. One unit has no deviation; two have one,
    # and a t-test of them can reach any level.
    "mean": _t_test(_student, fewest=2),
    # The logarithm of the ratio of two standard deviations. Of two values, with one left out, there is no deviation.
    "spread": _t_test(_spread, fewest=3),
    # A share of units: exact binomial tests and Clopper-Pearson intervals.
    "share": Test(_share_interval, _share_p, _share_fewest),
    # Bounded or skewed quantities: percentile bootstrap of the mean, with enough units for it to be reliable.
    "bootstrap": Test(_bootstrap_interval, _bootstrap_p, lambda region, alpha: 10),
    # Paired differences of any distribution: Wilcoxon's signed ranks.
    "rank": Test(_rank_interval, _rank_p, _rank_fewest),
    # The largest of values that are computed and not sampled; NaN never passes.
    "exact": Test(lambda sample, confidence: (_worst(sample),) * 3, _exact_p, lambda region, alpha: 1),
}
