"""Where a layer's hyperplanes lie: distance to a mean, mirrored pairs.

Axes: K units, D features. Measured in float64, returned as numpy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from metriscope import functional
from metriscope.validation import float64_tensor, instance

__all__ = ["MirroredPair", "centering", "layer_arrays", "mirrored_pairs"]


class MirroredPair(NamedTuple):
    """Two units whose weights point in opposite directions."""

    i: int
    j: int
    cosine: float


def centering(linear: nn.Linear, mean: Tensor | np.ndarray) -> np.ndarray:
    """Return each unit's distance from its hyperplane to ``mean``; NaN for a unit without weights.

    >>> layer = nn.Linear(2, 1)
    >>> _ = layer.load_state_dict({"weight": torch.tensor([[0.0, 2.0]]), "bias": torch.tensor([2.0])})
    >>> centering(layer, [5.0, 0.0])
    array([1.])
    """
    weight, bias = layer_arrays(linear)
    point = float64_tensor(mean, "mean", "features", {"features": weight.shape[1]})
    return functional.distance_to_point(point, weight, bias).numpy()


def layer_arrays(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return the weights and the biases of a linear layer in float64, zeros where it has no bias."""
    sizes: dict[str, int] = {}
    weight = float64_tensor(instance(linear, "linear", nn.Linear).weight, "linear.weight", "units features", sizes)
    none = torch.zeros(len(weight), dtype=torch.float64)
    return weight, none if linear.bias is None else float64_tensor(linear.bias, "linear.bias", "units", sizes)


def mirrored_pairs(weight: Tensor | np.ndarray, threshold: float = 0.999) -> tuple[MirroredPair, ...]:
    """Return the pairs of units whose cosine is at most ``-threshold``, each unit in one pair at most.

    >>> mirrored_pairs(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-2.0, 0.0]]))
    (MirroredPair(i=0, j=2, cosine=-1.0),)
    """
    rows = functional.mirrored_pairs(float64_tensor(weight, "weight", "units features"), threshold)
    return tuple(MirroredPair(int(i), int(j), float(cosine)) for i, j, cosine in rows)
