"""How unlike the training data a point is, by class-conditional Mahalanobis distances in every layer of a network.

Axes: N points, L layers, K features of a layer, C classes. After Lee et al., "A simple unified framework for detecting
out-of-distribution samples" (NeurIPS 2018); relative distances after Ren et al., "A simple fix to Mahalanobis distance
for improving near-OOD detection" (2021).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64
from torch import Tensor, nn

from metriscope.common.validation import instance, integer, number
from metriscope.reading.features import batch_features
from metriscope.reading.layer_inputs import LayerSource, label_codes
from metriscope.reading.unit_statistics import shifted_products

__all__ = ["LayerNovelty"]


@dataclass
class _Sums:
    """Sums over the points so far of one layer's features: by class, and of their products around a fixed point."""

    shift: Float64[Tensor, " k"]
    products: Float64[Tensor, "k k"]
    by_class: dict[Any, tuple[int, Tensor]]

    @classmethod
    def start(cls, x: Float64[Tensor, "n k"]) -> _Sums:
        return cls(x.mean(0), torch.zeros(x.shape[1], x.shape[1]).double(), {})

    def add(self, x: Float64[Tensor, "n k"], labels: np.ndarray) -> None:
        centered = x - self.shift
        self.products += centered.T @ centered
        for label in np.unique(labels):
            own = centered[torch.as_tensor(labels == label)]
            count, total = self.by_class.get(label.item(), (0, torch.zeros_like(self.shift)))
            self.by_class[label.item()] = (count + len(own), total + own.sum(0))

    def merge(self, other: _Sums) -> None:
        by = other.shift - self.shift
        whole = sum((total for _, total in other.by_class.values()), torch.zeros_like(by))
        points = torch.tensor(sum(count for count, _ in other.by_class.values())).double()
        self.products += shifted_products(other.products, whole, points, by)
        for label, (count, total) in other.by_class.items():
            own, sums = self.by_class.get(label, (0, torch.zeros_like(by)))
            self.by_class[label] = (own + count, sums + total + count * by)

    def gaussians(self, shrinkage: float) -> tuple[_Gaussians, _Gaussians]:
        """Return Gaussians of the classes with a common covariance, and one Gaussian of all points."""
        counts = torch.tensor([count for count, _ in self.by_class.values()]).double()
        means = torch.stack([total for _, total in self.by_class.values()]) / counts[:, None]
        points, mean = counts.sum(), (means * counts[:, None]).sum(0) / counts.sum()
        within = (self.products - (means * counts[:, None]).T @ means) / points
        overall = self.products / points - torch.outer(mean, mean)
        shifted = means + self.shift, (mean + self.shift)[None]
        return _Gaussians.of(shifted[0], within, shrinkage), _Gaussians.of(shifted[1], overall, shrinkage)


@dataclass(frozen=True)
class _Gaussians:
    """Gaussians with one covariance; ``factor`` whitens it."""

    means: Float64[Tensor, "c k"]
    factor: Float64[Tensor, "k k"]

    @classmethod
    def of(cls, means: Tensor, cov: Tensor, shrinkage: float) -> _Gaussians:
        typical = cov.diagonal().mean()
        # A constant layer has no scale of its own, so any scale will do.
        typical = typical if float(typical) > 0 else torch.ones(()).double()
        full = (1 - shrinkage) * cov + shrinkage * typical * torch.eye(len(cov)).double()
        values, vectors = torch.linalg.eigh((full + full.T) / 2)
        floor = float(values[-1]) * len(cov) * torch.finfo(torch.float64).eps
        return cls(means, vectors / values.clamp(min=floor).sqrt())

    def distances(self, x: Float64[Tensor, "n k"]) -> Float64[Tensor, " n"]:
        """Return the squared distance of each point to the nearest mean."""
        return torch.cdist(x @ self.factor, self.means @ self.factor).square().amin(1)


class LayerNovelty:
    """Score points by their Mahalanobis distance to the nearest class in every layer: larger is less alike.

    Parameters
    ----------
    model : torch.nn.Module
        The network; it is not changed.
    relative : bool
        Subtract the distance to all training points as one Gaussian, which all classes share: better in every problem
        of ``metriscope bench novelty``, most of all for out-of-distribution points that resemble the classes.
    shrinkage : float
        The share of the covariance that is replaced by a multiple of the identity with the same mean variance.
    batch_size : int
        How many points to run at once, unless the data comes in batches.

    Raises
    ------
    ValueError
        If ``shrinkage`` is not between 0 and 1, or ``batch_size`` is not positive.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU())
    >>> x = np.random.default_rng(0).normal(size=(100, 2))
    >>> y = x[:, 0] > 0
    >>> novelty = LayerNovelty(model).partial_fit(x[:40], y[:40]).partial_fit(x[40:80], y[40:80])
    >>> scores = novelty.calibrate(x[80:]).score(np.array([[0.0, 0.0], [50.0, 50.0]]))
    >>> bool(scores[1] > scores[0])
    True
    """

    def __init__(
        self, model: nn.Module, relative: bool = True, shrinkage: float = 0.01, batch_size: int = 1024
    ) -> None:
        self.model, self.relative = model, relative
        self.shrinkage, self.batch_size = number(shrinkage, "shrinkage", "[0, 1]"), integer(batch_size, "batch_size")
        self._sums: dict[str, _Sums] = {}
        self._fitted: dict[str, tuple[_Gaussians, _Gaussians]] = {}
        self._calibration: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    @property
    def layers(self) -> tuple[str, ...]:
        """Return the names of the layers that were fitted."""
        return tuple(self._sums)

    def partial_fit(self, data: Any, labels: Any) -> LayerNovelty:
        """Add training points and their classes; memory does not grow with the number of points.

        Parameters
        ----------
        data : tensor, array, mapping, data set or loader
            Training points.
        labels : array of int or str
            One label per point.

        Returns
        -------
        LayerNovelty
            Itself.

        Raises
        ------
        ValueError
            If labels and points differ in number, or the layers differ from those of earlier points.
        """
        source, first = LayerSource(self.model, data, self.batch_size), 0
        names, codes = label_codes(labels, len(labels) if source.expected is None else source.expected)
        with source.opened():
            for batch in source.batches():
                own = names[codes[first : first + batch.points]]
                if len(own) != batch.points:
                    raise ValueError(f"labels must have one entry per point, got {len(codes)} for more points")
                self._add(batch_features(source, batch), own)
                first += batch.points
        if first != len(codes):
            raise ValueError(f"labels must have one entry per point, got {len(codes)} for {first} points")
        self._fitted, self._calibration = {}, None
        return self

    def merge(self, other: LayerNovelty) -> LayerNovelty:
        """Add the training points of another detector of the same model, perhaps fitted by another process.

        Parameters
        ----------
        other : LayerNovelty
            A detector that was fitted on other points; it is not changed.

        Returns
        -------
        LayerNovelty
            Itself, without its calibration.

        Raises
        ------
        ValueError
            If the layers differ.
        """
        theirs = instance(other, "other", LayerNovelty)._sums
        if self._sums and theirs and other.layers != self.layers:
            raise ValueError(f"the layers must stay the same, got {other.layers} after {self.layers}")
        for name, sums in theirs.items():
            if name in self._sums:
                self._sums[name].merge(sums)
            else:
                self._sums[name] = deepcopy(sums)
        self._fitted, self._calibration = {}, None
        return self

    def _add(self, features: dict[str, Tensor], labels: np.ndarray) -> None:
        if self._sums and tuple(features) != self.layers:
            raise ValueError(f"the layers must stay the same, got {tuple(features)} after {self.layers}")
        for name, x in features.items():
            if name not in self._sums:
                self._sums[name] = _Sums.start(x.double())
            self._sums[name].add(x.double(), labels)

    def layer_scores(self, data: Any) -> Float64[np.ndarray, "n l"]:
        """Return one score per point and layer: the squared distance to the nearest class, or the relative one.

        Parameters
        ----------
        data : tensor, array, mapping, data set or loader
            The points to score.

        Returns
        -------
        array of shape (n, l)
            The scores, layers in the order of ``layers``.

        Raises
        ------
        ValueError
            If nothing was fitted yet.
        """
        if not self._sums:
            raise ValueError("nothing was fitted yet: call partial_fit with training points and labels first")
        if not self._fitted:
            self._fitted = {name: sums.gaussians(self.shrinkage) for name, sums in self._sums.items()}
        source = LayerSource(self.model, data, self.batch_size)
        with source.opened():
            parts = [self._scored(batch_features(source, batch)) for batch in source.batches()]
        return np.concatenate(parts)

    def _scored(self, features: dict[str, Tensor]) -> Float64[np.ndarray, "n l"]:
        columns = []
        for name, (classes, overall) in self._fitted.items():
            x = features[name].double() if name in features else torch.empty(0, 0)
            if x.shape[1:] != overall.means.shape[1:]:
                raise ValueError(
                    f"layer {name!r} must have {overall.means.shape[1]} outputs as fitted, got {x.shape[1]}"
                )
            score = classes.distances(x)
            columns.append(score - overall.distances(x) if self.relative else score)
        return torch.stack(columns, 1).numpy()

    def calibrate(self, inside: Any, outside: Any = None) -> LayerNovelty:
        """Learn how to combine the layers from points that were not fitted.

        Parameters
        ----------
        inside : tensor, array, mapping, data set or loader
            Points like the training points; each layer's scores are divided by their deviation on these points.
        outside : tensor, array, mapping, data set or loader, optional
            Points unlike the training points, but not those to be detected: the layers are then weighted by logistic
            regression. Without them, all layers have the same weight.

        Returns
        -------
        LayerNovelty
            Itself.
        """
        known = self.layer_scores(inside)
        middle, spread = known.mean(0), known.std(0)
        spread = np.where(spread > 0, spread, 1.0)
        weights = np.full(known.shape[1], 1 / known.shape[1])
        if outside is not None:
            weights = _separating((known - middle) / spread, (self.layer_scores(outside) - middle) / spread)
        self._calibration = middle, spread, weights
        return self

    def weights(self) -> pd.Series[float]:
        """Return the weight of each layer.

        Returns
        -------
        Series
            One weight per layer, none negative; they sum to 1.

        Raises
        ------
        ValueError
            If it was not calibrated yet.
        """
        if self._calibration is None:
            raise ValueError("the layers were not weighted yet: call calibrate with held-out points first")
        return pd.Series(self._calibration[2], index=list(self.layers))

    def score(self, data: Any) -> Float64[np.ndarray, " n"]:
        """Return one score per point: the weighted sum of its standardized scores in all layers.

        Parameters
        ----------
        data : tensor, array, mapping, data set or loader
            The points to score.

        Returns
        -------
        array of shape (n,)
            The scores; larger is less like the training points.

        Raises
        ------
        ValueError
            If it was not calibrated yet.
        """
        weights = self.weights().to_numpy()
        assert self._calibration is not None
        middle, spread, _ = self._calibration
        return np.asarray(((self.layer_scores(data) - middle) / spread) @ weights)


def _separating(inside: Float64[np.ndarray, "n l"], outside: Float64[np.ndarray, "m l"]) -> Float64[np.ndarray, " l"]:
    """Return the weights of a logistic regression that separates outside from inside, with both sides weighted equally.

    Layers with a negative weight are left out, one at a time, because a more typical point must not get a larger score.
    If no layer is left, all have the same weight.
    """
    from sklearn.linear_model import LogisticRegression

    # Distances of out-of-distribution points have heavy tails; beyond ten deviations, more distance adds no
    # information.
    x = np.clip(np.concatenate([inside, outside]), -10, 10)
    y = np.repeat([0, 1], [len(inside), len(outside)])
    weights, used = np.zeros(x.shape[1]), np.arange(x.shape[1])
    while len(used):
        found = LogisticRegression(class_weight="balanced", max_iter=1000).fit(x[:, used], y).coef_[0]
        if found.min() >= 0:
            weights[used] = found / found.sum() if found.sum() > 0 else 1 / len(used)
            return weights
        used = np.delete(used, found.argmin())
    return np.full(x.shape[1], 1 / x.shape[1])
