"""Sign patterns as features: on which side of each hyperplane a point lies.

Axes: ``n`` points, ``d`` features, ``k`` hyperplanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64, Int8
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from metriscope.common.validation import instance, integer
from metriscope.runs.estimators import SavedEstimator, points
from metriscope.sklearn.prototypes import RandomState, center_and_scale
from metriscope.vq.capture import Patterns, capture
from metriscope.vq.measures.embedding import sign_patterns

__all__ = ["PatternTransformer"]

# Hyperplanes pass near sampled points, not through them: on a plane, rounding would decide the sign.
_NEAR = 0.1


class PatternTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SavedEstimator, BaseEstimator):  # type: ignore[misc]
    """Points as signs: +1 on the positive side of each hyperplane, else -1.

    The hyperplanes are those of a network that is given, in all of its activations, or random ones near the data.

    Parameters
    ----------
    network : torch.nn.Module or None
        A trained network whose activation patterns are taken; it is left as it is. None for random hyperplanes.
    n_hyperplanes : int
        The number of random hyperplanes, where no network is given.
    layers : str, type, list or None
        Which layers of the network to take, as in :func:`metriscope.capture`; None for all.
    batch_size : int
        How many points pass the network at once.
    random_state : int, numpy.random.RandomState or None
        What the hyperplanes are drawn from.

    Attributes
    ----------
    weight_, bias_ : arrays of shape (n_hyperplanes, d) and (n_hyperplanes,)
        The random hyperplanes: Gaussian directions in standardized features, each near a random point of the data.

    Notes
    -----
    ``save`` does not save the network: give it to ``load(path, network=...)`` again.

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
