"""Methods compared by their ranks over many data sets (Demšar, "Statistical comparisons of classifiers", 2006).

Axes: ``n`` data sets, ``k`` methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from metriscope.common.validation import number, real_array

__all__ = ["Ranking", "rank_methods"]


@dataclass(frozen=True)
class Ranking:
    """Average ranks of methods over data sets, 1 for the best.

    Parameters
    ----------
    ranks : array of shape (k,)
        The average rank of each method; ties share their ranks.
    p_value : float
        Friedman's test that all methods have the same rank.
    critical_difference : float
        Two methods whose ranks differ by more differ significantly at level ``alpha`` (Nemenyi's test).
    alpha : float
        The level of Nemenyi's test.

    Examples
    --------
    >>> rank_methods([[3.0, 1.0], [3.0, 2.0], [1.0, 2.0]]).ranks
    array([1.33333333, 1.66666667])
    """

    ranks: Float[np.ndarray, " k"]
    p_value: float
    critical_difference: float
    alpha: float


def rank_methods(scores: Any, alpha: float = 0.05) -> Ranking:
    """Rank methods on each data set, larger scores first, and average the ranks over the data sets.

    Parameters
    ----------
    scores : array of shape (n, k)
        One row per data set and one column per method, at least two of each.
    alpha : float
        The level of Nemenyi's test.

    Returns
    -------
    Ranking
        Average ranks, Friedman's p-value and Nemenyi's critical difference.

    Raises
    ------
    ValueError
        If there are fewer than two data sets or methods, or a score is missing.

    Examples
    --------
    >>> rank_methods(np.arange(12.0).reshape(4, 3)).ranks
    array([3., 2., 1.])
    """
    from scipy import stats

    table = real_array(scores, "scores", "data_sets methods")
    count, methods = table.shape
    if min(count, methods) < 2:
        raise ValueError(f"ranks need at least two data sets and two methods, got {count} and {methods}")
    alpha = number(alpha, "alpha", "(0, 1)")
    ranks = stats.rankdata(-table, axis=1)
    # Friedman's statistic with the correction for ties; scipy's own needs at least three methods.
    between = count * np.square(ranks.mean(0) - (methods + 1) / 2).sum()
    within = np.square(ranks - (methods + 1) / 2).sum() / (count * (methods - 1))
    p_value = float(stats.chi2.sf(between / within, methods - 1)) if within > 0 else 1.0
    quantile = float(stats.studentized_range.ppf(1 - alpha, methods, np.inf)) / np.sqrt(2)
    apart = quantile * np.sqrt(methods * (methods + 1) / (6 * count))
    return Ranking(ranks.mean(0), p_value, float(apart), alpha)
