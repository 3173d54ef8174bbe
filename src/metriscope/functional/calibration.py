"""How far a classifier's probabilities can be trusted: calibration, temperature, out-of-distribution false positives.

Axes: ``n`` points, ``c`` classes, ``b`` bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.nn import functional as F

from metriscope.common.validation import float64_tensor, integer, number, real_array, whole_array

__all__ = ["Reliability", "best_temperature", "expected_calibration_error", "false_positive_rate", "reliability"]


@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy in bins of confidence: the numbers behind a reliability diagram.

    Parameters
    ----------
    count : array of shape (b,)
        The number of points in each bin.
    confidence : array of shape (b,)
        Their mean confidence, the largest probability; NaN in an empty bin.
    accuracy : array of shape (b,)
        The share of them that is classified correctly; NaN in an empty bin.

    Examples
    --------
    >>> reliability([[0.9, 0.1], [0.8, 0.2]], [0, 1], bins=2).accuracy
    array([nan, 0.5])
    """

    count: Int[np.ndarray, " b"]
    confidence: Float[np.ndarray, " b"]
    accuracy: Float[np.ndarray, " b"]


def reliability(probabilities: Any, labels: Any, bins: int = 15) -> Reliability:
    """Sort points into bins of confidence, and return the mean confidence and the accuracy of each bin.

    Parameters
    ----------
    probabilities : array of shape (n, c)
        One row per point.
    labels : array of shape (n,)
        True classes.
    bins : int
        The number of bins of equal width between 0 and 1.

    Returns
    -------
    Reliability
        The number of points, mean confidence and accuracy of each bin.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a probability is negative or above 1.

    Examples
    --------
    >>> reliability([[0.9, 0.1], [0.8, 0.2]], [0, 1], bins=2).count
    array([0, 2])
    """
    table, bins = real_array(probabilities, "probabilities", "points classes"), integer(bins, "bins")
    truth = whole_array(labels, "labels", f"{len(table)}", high=table.shape[1])
    if table.min() < 0 or table.max() > 1 + 1e-6:
        raise ValueError(f"probabilities must lie between 0 and 1, got {table.min():.3g} to {table.max():.3g}")
    confidence, right = table.max(1), table.argmax(1) == truth
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        sums = (np.bincount(place, values, bins) / count for values in (confidence, right))
        return Reliability(count, *sums)


def expected_calibration_error(probabilities: Any, labels: Any, bins: int = 15) -> float:
    """Return the mean gap between confidence and accuracy over bins of confidence (Guo et al. 2017).

    Parameters
    ----------
    probabilities : array of shape (n, c)
        One row per point.
    labels : array of shape (n,)
        True classes.
    bins : int
        The number of bins of equal width between 0 and 1.

    Returns
    -------
    float
        From 0, for probabilities that are right on average in every bin, to 1.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a probability is negative or above 1.

    Examples
    --------
    >>> expected_calibration_error([[0.75, 0.25]] * 4, [0, 0, 0, 1])
    0.0
    """
    found = reliability(probabilities, labels, bins)
    gaps = np.abs(found.accuracy - found.confidence)[found.count > 0]
    return float(gaps @ found.count[found.count > 0] / found.count.sum())


def best_temperature(logits: Any, labels: Any) -> float:
    """Return the temperature, from 0.1 to 10, that gives the smallest log-loss when logits are divided by it.

    Use points that the classifier was not trained on (Guo et al., "On calibration of modern neural networks", 2017).

    Parameters
    ----------
    logits : array of shape (n, c)
        One row per point.
    labels : array of shape (n,)
        True classes.

    Returns
    -------
    float
        The temperature; above 1 for an overconfident classifier.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a logit is not finite.

    Examples
    --------
    >>> round(best_temperature([[4.0, 0.0]] * 4, [0, 0, 0, 1]), 2)
    3.64
    """
    from scipy.optimize import minimize_scalar

    table = float64_tensor(logits, "logits", "points classes")
    truth = torch.from_numpy(whole_array(labels, "labels", f"{len(table)}", high=table.shape[1]))
    found = minimize_scalar(
        lambda power: float(F.cross_entropy(table / 10**power, truth)), bounds=(-1.0, 1.0), method="bounded"
    )
    return float(10**found.x)


def false_positive_rate(known: Any, strange: Any, kept: float = 0.95) -> float:
    """Return the share of out-of-distribution points that pass the threshold which ``kept`` of the known points pass.

    Parameters
    ----------
    known : array of shape (n,)
        Scores of points from the training distribution, larger for more typical points.
    strange : array of shape (m,)
        Scores of out-of-distribution points.
    kept : float
        The share of known points that must pass.

    Returns
    -------
    float
        From 0, where no out-of-distribution point passes, to 1.

    Raises
    ------
    ValueError
        If there are no scores, a score is not finite, or ``kept`` is not a share.

    Examples
    --------
    >>> false_positive_rate(np.arange(100.0), [-1.0, 50.0])
    0.5
    """
    own, other = (real_array(scores, name, "points") for scores, name in ((known, "known"), (strange, "strange")))
    dropped = int(np.floor((1 - number(kept, "kept", "(0, 1]")) * len(own) + 1e-9))
    return float((other >= np.sort(own)[dropped]).mean())
