"""Novelty by Mahalanobis distance, and sign patterns as features: estimators that need no labels.

Axes: ``n`` points, ``d`` features, ``k`` hyperplanes. Distances are computed in float64, from moments that can be
merged, so that points can be added in several calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64, Int8, Int64
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OutlierMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from metriscope.common.validation import instance, integer, number, one_of, real_array
from metriscope.functional import mahalanobis, whitening_factor
from metriscope.runs.estimators import SavedEstimator, points
from metriscope.sklearn.prototypes import RandomState, center_and_scale
from metriscope.vq.capture import Patterns, capture
from metriscope.vq.measures.embedding import sign_patterns

__all__ = ["MahalanobisNovelty", "PatternTransformer", "ledoit_wolf_shrinkage", "merge", "moments", "priorities"]

# How many points are kept to set the threshold: enough to estimate a share of 10 % to within 0.3 percentage points.
_KEPT = 8192


@dataclass(frozen=True)
class StreamMoments:
    """Sums over a set of points, which can be merged with those of another set; ``c`` is point - mean."""

    count: int
    mean: Float64[np.ndarray, " d"]
    scatter: Float64[np.ndarray, "d d"]
    cubic: Float64[np.ndarray, " d"]
    quartic: float


def moments(x: Float64[np.ndarray, "n d"]) -> StreamMoments:
    """Return the number, the mean, ``Σ c cᵀ``, ``Σ |c|² c`` and ``Σ |c|⁴`` of some points.

    >>> moments(np.array([[1.0], [3.0]]))
    StreamMoments(count=2, mean=array([2.]), scatter=array([[2.]]), cubic=array([0.]), quartic=2.0)
    """
    x = real_array(x, "x", "points features")
    with np.errstate(over="ignore", invalid="ignore"):
        mean = x.mean(0)
        centered = x - mean
        squares = np.square(centered).sum(1)
        fourth = squares @ squares
    if not np.isfinite(fourth):
        raise ValueError(f"x must have fourth powers that are finite, got entries up to {np.abs(x).max():.3g}")
    return StreamMoments(len(x), mean, centered.T @ centered, squares @ centered, float(fourth))


def merge(first: StreamMoments, second: StreamMoments) -> StreamMoments:
    """Return the moments of the union of two sets of points.

    This is the pairwise update of Chan, Golub & LeVeque (1983), extended to the fourth order.

    >>> merge(moments(np.array([[1.0]])), moments(np.array([[3.0]])))
    StreamMoments(count=2, mean=array([2.]), scatter=array([[2.]]), cubic=array([0.]), quartic=2.0)
    """
    count = first.count + second.count
    mean = first.mean + (second.mean - first.mean) * (second.count / count)
    parts = [_about(part, mean) for part in (first, second)]
    (scatter, cubic, quartic), (scatter2, cubic2, quartic2) = parts
    return StreamMoments(count, mean, scatter + scatter2, cubic + cubic2, quartic + quartic2)


def _about(part: StreamMoments, center: Float64[np.ndarray, " d"]) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the sums of a set about another center: each deviation ``c`` becomes ``c - shift``."""
    shift = center - part.mean
    square, spread = float(shift @ shift), float(np.trace(part.scatter))
    moved = part.scatter @ shift
    scatter = part.scatter + part.count * np.outer(shift, shift)
    cubic = part.cubic - 2 * moved - (spread + part.count * square) * shift
    quartic = part.quartic + 4 * shift @ (moved - part.cubic) + square * (2 * spread + part.count * square)
    return scatter, cubic, float(quartic)


def ledoit_wolf_shrinkage(found: StreamMoments) -> float:
    """Return the shrinkage toward a multiple of the identity that has the smallest expected error.

    Ledoit & Wolf, "A well-conditioned estimator for large-dimensional covariance matrices" (2004), computed from
    moments, so that points need not be kept. It is 0 for one feature, whose variance equals the target.

    >>> round(ledoit_wolf_shrinkage(moments(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]]))), 4)
    0.9444
    """
    d = len(found.mean)
    if d == 1:
        return 0.0
    cov = found.scatter / found.count
    square = float(np.square(cov).sum())
    noise = (found.quartic / found.count - square) / found.count
    spread = square - np.trace(cov) ** 2 / d
    # A covariance that equals the target is not changed by any shrinkage: choose none.
    return float(min(noise, spread) / spread) if spread > 0 and noise > 0 else 0.0


class MahalanobisNovelty(OutlierMixin, SavedEstimator, BaseEstimator):  # type: ignore[misc]
    """A novelty detector: the Mahalanobis distance to all points seen so far.

    ``novelty`` is the distance: larger means less like the training points. ``score_samples``,
    ``decision_function`` and ``predict`` follow scikit-learn: larger means more typical, and -1 is an outlier.

    Parameters
    ----------
    shrinkage : float in [0, 1] or "ledoit-wolf"
        The weight of ``trace / d`` times the identity in the covariance.
    contamination : float in (0, 0.5]
        The share of training points beyond the threshold. The threshold is set from at most 8,192 points, a uniform
        sample that does not depend on how the points were split into calls of ``partial_fit``.

    Examples
    --------
    >>> model = MahalanobisNovelty(shrinkage=0.0).fit([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    >>> model.novelty([[0.0, 0.0], [1.0, 0.0]]).round(4)
    array([0.    , 1.4142])
    """

    _records = (StreamMoments,)

    moments_: StreamMoments
    location_: Float64[np.ndarray, " d"]
    covariance_: Float64[np.ndarray, "d d"]
    shrinkage_: float
    sample_: Float64[np.ndarray, "m d"]
    _ranks: np.ndarray
    _offset: float | None

    def __init__(self, shrinkage: float | Literal["ledoit-wolf"] = "ledoit-wolf", contamination: float = 0.1) -> None:
        self.shrinkage = shrinkage
        self.contamination = contamination

    def fit(self, X: Any, y: None = None) -> MahalanobisNovelty:
        """Estimate the mean and covariance of ``X`` and set the threshold."""
        self._check_parameters()
        x = points(self, X, ensure_min_samples=2)
        self._learn(moments(x))
        self._keep(x, 0)
        # Points that do not vary have no distances: raise the error here, not at the first prediction.
        _ = self.offset_
        return self

    def partial_fit(self, X: Any, y: None = None) -> MahalanobisNovelty:
        """Add the points of ``X``; the result is that of fitting all points seen so far at once."""
        self._check_parameters()
        begun = hasattr(self, "moments_")
        x = points(self, X, reset=not begun)
        before = self.moments_.count if begun else 0
        self._learn(merge(self.moments_, moments(x)) if begun else moments(x))
        self._keep(x, before)
        return self

    @property
    def offset_(self) -> float:
        """Return the threshold: the score below which a point counts as an outlier.

        Raises
        ------
        AttributeError
            If no points were fitted yet.
        """
        if not hasattr(self, "sample_"):
            raise AttributeError("this MahalanobisNovelty has no threshold yet: call fit or partial_fit first")
        if self._offset is None:
            self._offset = float(np.percentile(-self._distances(self.sample_), 100 * self.contamination))
        return self._offset

    def _keep(self, x: Float64[np.ndarray, "n d"], before: int) -> None:
        """Add points to the sample and keep those with the smallest priorities."""
        points, ranks = x, priorities(np.arange(before, before + len(x)))
        if before:
            points, ranks = np.concatenate([self.sample_, points]), np.concatenate([self._ranks, ranks])
        kept = np.sort(np.argsort(ranks)[:_KEPT])
        self.sample_, self._ranks, self._offset = points[kept].copy(), ranks[kept], None

    def novelty(self, X: Any) -> Float64[np.ndarray, " n"]:
        """Return the Mahalanobis distance of each point: larger means more novel."""
        check_is_fitted(self)
        return self._distances(points(self, X, reset=False))

    def score_samples(self, X: Any) -> Float64[np.ndarray, " n"]:
        """Return the negative distance of each point: larger means more typical."""
        return -self.novelty(X)

    def decision_function(self, X: Any) -> Float64[np.ndarray, " n"]:
        """Return the score minus the threshold: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Int64[np.ndarray, " n"]:
        """Return -1 for outliers and 1 for the others."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _check_parameters(self) -> None:
        if isinstance(self.shrinkage, str):
            one_of(self.shrinkage, "shrinkage", ("ledoit-wolf",))
        else:
            number(self.shrinkage, "shrinkage", "[0, 1]")
        number(self.contamination, "contamination", "(0, 0.5]")

    def _learn(self, found: StreamMoments) -> None:
        chosen = self.shrinkage
        self.shrinkage_ = ledoit_wolf_shrinkage(found) if chosen == "ledoit-wolf" else float(chosen)
        cov = found.scatter / found.count
        target = np.trace(cov) / len(cov) * np.eye(len(cov))
        self.covariance_ = (1 - self.shrinkage_) * cov + self.shrinkage_ * target
        self.moments_, self.location_ = found, found.mean

    def _distances(self, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, " n"]:
        factor = whitening_factor(torch.tensor(self.covariance_))
        return mahalanobis(torch.tensor(x), torch.tensor(self.location_), factor).numpy()


def priorities(places: Int64[np.ndarray, " n"]) -> np.ndarray:
    """Return a pseudorandom number for each position in a stream, always the same (Steele et al. 2014, SplitMix).

    The points with the smallest numbers are a uniform sample of the stream, however it is split.

    >>> priorities(np.arange(2)).tolist()
    [16294208416658607535, 7960286522194355700]
    """
    with np.errstate(over="ignore"):
        z = (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


# Hyperplanes pass near sampled points, not through them: on a plane, rounding would decide the sign.
_NEAR = 0.1


class PatternTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SavedEstimator, BaseEstimator):  # type: ignore[misc]
    """Points as signs: +1 on the positive side of each hyperplane, otherwise -1.

    The hyperplanes are those of all activations of a given network, or random ones near the data.

    Parameters
    ----------
    network : torch.nn.Module or None
        A trained network whose activation patterns are used; it is not changed. None for random hyperplanes.
    n_hyperplanes : int
        The number of random hyperplanes, if no network is given.
    layers : str, type, list or None
        Which layers of the network to take, as in :func:`metriscope.capture`; None for all.
    batch_size : int
        How many points the network processes at once.
    random_state : int, numpy.random.RandomState or None
        The source of the random hyperplanes.

    Attributes
    ----------
    weight_, bias_ : arrays of shape (n_hyperplanes, d) and (n_hyperplanes,)
        The random hyperplanes: Gaussian directions in standardized features, each near a random point of the data.

    Notes
    -----
    ``save`` does not save the network: pass it to ``load(path, network=...)`` again.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> PatternTransformer(n_hyperplanes=8).fit(x).transform(x[:2]).shape
    (2, 8)
    """

    _not_saved = ("network",)

    weight_: Float64[np.ndarray, "k d"]
    bias_: Float64[np.ndarray, " k"]

    def __init__(
        self,
        network: nn.Module | None = None,
        *,
        n_hyperplanes: int = 256,
        layers: Any = None,
        batch_size: int = 1024,
        random_state: RandomState = 0,
    ) -> None:
        self.network, self.n_hyperplanes, self.layers = network, n_hyperplanes, layers
        self.batch_size, self.random_state = batch_size, random_state

    def fit(self, X: Any, y: None = None) -> PatternTransformer:
        """Draw the hyperplanes; with a network, only count its units."""
        x = points(self, X)
        if self.network is not None:
            instance(self.network, "network", nn.Module)
            self._n_features_out = self._captured(x[:1]).width
            return self
        count = integer(self.n_hyperplanes, "n_hyperplanes")
        draws = check_random_state(self.random_state)
        _, scale = center_and_scale(x, np.ones(len(x)))
        near = x[draws.randint(len(x), size=count)] / scale + _NEAR * draws.standard_normal((count, x.shape[1]))
        directions = draws.standard_normal(near.shape) / np.sqrt(x.shape[1])
        self.weight_, self.bias_ = directions / scale, -(directions * near).sum(1)
        self._n_features_out = count
        return self

    def patterns(self, X: Any) -> Patterns:
        """Return the packed sign patterns, for :func:`metriscope.vq_kernel` and other measures."""
        check_is_fitted(self, "_n_features_out")
        x = points(self, X, reset=False)
        return self._captured(x) if self.network is not None else sign_patterns(x @ self.weight_.T + self.bias_)

    def transform(self, X: Any) -> Int8[np.ndarray, "n k"]:
        """Return +1 or -1 per point and hyperplane."""
        return self.patterns(X).signs()

    def _captured(self, x: np.ndarray) -> Patterns:
        assert self.network is not None
        return capture(self.network, x, self.layers, self.batch_size)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
