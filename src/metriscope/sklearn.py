"""Estimators for scikit-learn: novelty as a Mahalanobis distance, classes by distance to prototypes.

Axes: ``n`` points, ``d`` features, ``k`` classes. Everything is computed in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from metriscope.functional import mahalanobis, whitening_factor
from metriscope.nn import Neg, OffsetL2, build, stack_state, unstack
from metriscope.rng import stream
from metriscope.train import Cohort, Protocol, StackedEngine

__all__ = ["DistanceClassifier", "MahalanobisNovelty", "Moments", "ledoit_wolf_shrinkage", "merge", "moments"]

_BATCH = 256


@dataclass(frozen=True)
class Moments:
    """What two sets of points must remember to be joined: sums over the deviations ``c`` from their mean."""

    count: int
    mean: Float64[np.ndarray, " d"]
    scatter: Float64[np.ndarray, "d d"]
    cubic: Float64[np.ndarray, " d"]
    quartic: float


def moments(x: Float64[np.ndarray, "n d"]) -> Moments:
    """Return the number, the mean, ``Σ c cᵀ``, ``Σ |c|² c`` and ``Σ |c|⁴`` of some points.

    >>> moments(np.array([[1.0], [3.0]]))
    Moments(count=2, mean=array([2.]), scatter=array([[2.]]), cubic=array([0.]), quartic=2.0)
    """
    mean = x.mean(0)
    centred = x - mean
    squares = np.square(centred).sum(1)
    return Moments(len(x), mean, centred.T @ centred, squares @ centred, float(squares @ squares))


def merge(first: Moments, second: Moments) -> Moments:
    """Return the moments of both sets together, as if they had come at once.

    The pairwise update of Chan, Golub & LeVeque (1983), carried on to the fourth order.

    >>> merge(moments(np.array([[1.0]])), moments(np.array([[3.0]])))
    Moments(count=2, mean=array([2.]), scatter=array([[2.]]), cubic=array([0.]), quartic=2.0)
    """
    count = first.count + second.count
    mean = first.mean + (second.mean - first.mean) * (second.count / count)
    parts = [_about(part, mean) for part in (first, second)]
    (scatter, cubic, quartic), (scatter2, cubic2, quartic2) = parts
    return Moments(count, mean, scatter + scatter2, cubic + cubic2, quartic + quartic2)


def _about(part: Moments, centre: Float64[np.ndarray, " d"]) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the sums of a set about another centre: each deviation ``c`` becomes ``c - shift``."""
    shift = centre - part.mean
    square, spread = float(shift @ shift), float(np.trace(part.scatter))
    turned = part.scatter @ shift
    scatter = part.scatter + part.count * np.outer(shift, shift)
    cubic = part.cubic - 2 * turned - (spread + part.count * square) * shift
    quartic = part.quartic + 4 * shift @ (turned - part.cubic) + square * (2 * spread + part.count * square)
    return scatter, cubic, float(quartic)


def ledoit_wolf_shrinkage(found: Moments) -> float:
    """Return the shrinkage towards a multiple of the identity that is best in expectation.

    Ledoit & Wolf, "A well-conditioned estimator for large-dimensional covariance matrices" (2004), written
    in moments, so that points need not be kept. It is 0 for one feature, whose variance is its own target.

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
    # Points whose covariance is its own target already can be shrunk by any amount: none is the least.
    return float(min(noise, spread) / spread) if spread > 0 and noise > 0 else 0.0


class MahalanobisNovelty(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """The Mahalanobis distance to all points seen so far, as a novelty detector.

    ``novelty`` is the distance: larger means less like training. ``score_samples``, ``decision_function`` and
    ``predict`` follow scikit-learn, where larger means more normal and -1 is an outlier.

    Parameters
    ----------
    shrinkage : float in [0, 1] or "ledoit-wolf"
        How far the covariance is drawn towards ``trace / d`` times the identity.
    contamination : float in (0, 0.5]
        The share of training points beyond the threshold. ``fit`` places it among the distances of its points;
        after ``partial_fit``, whose points are gone, it is the quantile of a Gaussian's distances.

    >>> model = MahalanobisNovelty(shrinkage=0.0).fit([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    >>> model.novelty([[0.0, 0.0], [1.0, 0.0]]).round(4)
    array([0.    , 1.4142])
    """

    moments_: Moments
    location_: Float64[np.ndarray, " d"]
    covariance_: Float64[np.ndarray, "d d"]
    shrinkage_: float
    offset_: float

    def __init__(self, shrinkage: float | Literal["ledoit-wolf"] = "ledoit-wolf", contamination: float = 0.1) -> None:
        self.shrinkage = shrinkage
        self.contamination = contamination

    def fit(self, X: Any, y: None = None) -> MahalanobisNovelty:
        """Measure the mean and covariance of ``X``, and place the threshold among its distances."""
        self._check_parameters()
        x = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        self._learn(moments(x))
        self.offset_ = float(np.percentile(-self._distances(x), 100 * self.contamination))
        return self

    def partial_fit(self, X: Any, y: None = None) -> MahalanobisNovelty:
        """Add the points of ``X`` to those seen before: the same mean and covariance as in one piece."""
        self._check_parameters()
        begun = hasattr(self, "moments_")
        x = validate_data(self, X, dtype=np.float64, reset=not begun)
        self._learn(merge(self.moments_, moments(x)) if begun else moments(x))
        self.offset_ = -math.sqrt(stats.chi2.isf(self.contamination, x.shape[1]))
        return self

    def novelty(self, X: Any) -> Float64[np.ndarray, " n"]:
        """Return the Mahalanobis distance of each point: larger means more novel."""
        check_is_fitted(self)
        return self._distances(validate_data(self, X, dtype=np.float64, reset=False))

    def score_samples(self, X: Any) -> Float64[np.ndarray, " n"]:
        """Return the negative distance of each point: larger means more normal."""
        return -self.novelty(X)

    def decision_function(self, X: Any) -> Float64[np.ndarray, " n"]:
        """Return the score above the threshold: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Int64[np.ndarray, " n"]:
        """Return -1 for outliers and 1 for the others."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _check_parameters(self) -> None:
        if self.shrinkage != "ledoit-wolf" and not (_is_number(self.shrinkage) and 0 <= self.shrinkage <= 1):
            raise ValueError(f"shrinkage must lie between 0 and 1 or be 'ledoit-wolf', got {self.shrinkage!r}")
        if not (_is_number(self.contamination) and 0 < self.contamination <= 0.5):
            raise ValueError(f"contamination must lie in (0, 0.5], got {self.contamination!r}")

    def _learn(self, found: Moments) -> None:
        chosen = self.shrinkage
        self.shrinkage_ = ledoit_wolf_shrinkage(found) if chosen == "ledoit-wolf" else float(chosen)
        cov = found.scatter / found.count
        target = np.trace(cov) / len(cov) * np.eye(len(cov))
        self.covariance_ = (1 - self.shrinkage_) * cov + self.shrinkage_ * target
        self.moments_, self.location_ = found, found.mean

    def _distances(self, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, " n"]:
        factor = whitening_factor(torch.tensor(self.covariance_))
        return mahalanobis(torch.tensor(x), torch.tensor(self.location_), factor).numpy()


class DistanceClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classes by the nearest prototype, each with a distance of its own: ``OffsetL2``, trained with Adam.

    Prototypes begin at the means of the classes. The trained network is ``network_``, a plain
    ``nn.Sequential`` on features as they came, whose outputs are negative distances.

    Parameters
    ----------
    hidden : int or None
        Units of a hidden layer with absolute values, in whose space the distances are taken; None for none.
    epochs, lr : int, float
        How long and how quickly to train.
    seed : int
        The address of every random draw: the same seed gives the same network.

    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [5.0, 5.0], [5.0, 6.0]])
    >>> DistanceClassifier().fit(x, ["a", "a", "b", "b"]).predict([[1.0, 1.0], [4.0, 4.0]]).tolist()
    ['a', 'b']
    """

    classes_: np.ndarray
    network_: nn.Sequential

    def __init__(self, hidden: int | None = None, epochs: int = 30, lr: float = 0.05, seed: int = 0) -> None:
        self.hidden = hidden
        self.epochs = epochs
        self.lr = lr
        self.seed = seed

    def fit(self, X: Any, y: Any) -> DistanceClassifier:
        """Learn the prototypes and the weights of their distances."""
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        points, targets = torch.tensor(x), torch.tensor(labels)
        mean, scale = points.mean(0), points.std(0, correction=0)
        # A feature that never changes tells nothing, and must not be divided by zero.
        scale = torch.where(scale > 0, scale, 1.0)
        scaled, network = (points - mean) / scale, self._network(points.shape[1])
        _start_at_means(network, scaled, targets)
        protocol = Protocol(epochs=self.epochs, lr=self.lr, batch_size=_BATCH, loss="cross-entropy")
        self.network_ = _unscaled(_trained(network, (scaled, targets), protocol, self.seed), mean, scale)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return negative distances; for two classes, how much nearer the second is than the first."""
        scores = self._scores(X).numpy()
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Float64[np.ndarray, "n k"]:
        """Return the softmax of the negative distances."""
        return self._scores(X).softmax(1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of the nearest prototype."""
        nearest = self._scores(X).argmax(1).numpy()
        return self.classes_[nearest]

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        with torch.no_grad():
            return self.network_(torch.tensor(x))

    def _network(self, features: int) -> nn.Sequential:
        generator, classes = stream(self.seed, "distance-classifier"), len(self.classes_)
        if self.hidden is None:
            return nn.Sequential(OffsetL2(features, classes, generator=generator), Neg()).double()
        return build("abs-l2-neg", features, self.hidden, classes, generator=generator).double()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _start_at_means(network: nn.Sequential, x: Tensor, labels: Tensor) -> None:
    """Put each class's prototype at the mean of its points, as the head sees them."""
    with torch.no_grad():
        features = network[:-2](x)
        means = [features[labels == label].mean(0) for label in range(int(labels.max()) + 1)]
        network[-2].get_parameter("mu").copy_(torch.stack(means))


def _trained(network: nn.Sequential, data: tuple[Tensor, Tensor], protocol: Protocol, seed: int) -> nn.Sequential:
    engine = StackedEngine(network, *data, protocol, (seed,))
    cohort = Cohort("the classifier", engine, stack_state([network]), protocol)
    # Small batches gain nothing from more threads, and sums in one order give the same bits on any machine.
    with threadpool_limits(limits=1):
        cohort.advance(protocol.epochs)
    return unstack(network, cohort.parameters, 0)


def _unscaled(network: nn.Sequential, mean: Tensor, scale: Tensor) -> nn.Sequential:
    """Write the scaling of the features into the first layer, so that the network takes them as they come."""
    first = network[0]
    with torch.no_grad():
        if isinstance(first, OffsetL2):
            first.mu.mul_(scale).add_(mean)
            first.alpha.div_(scale)
        elif isinstance(first, nn.Linear):
            first.weight.div_(scale)
            first.bias.sub_(first.weight @ mean)
    return network
