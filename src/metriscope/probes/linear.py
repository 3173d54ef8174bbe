"""Where a layer's hyperplanes lie: distance to a mean, mirrored pairs.

Axes: K units, D features. Measured in float64, returned as numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from metriscope import functional
from metriscope.common.validation import check_shape, covariance, float64_tensor, instance, integer, number

__all__ = [
    "EigenRecovery",
    "LostDirections",
    "MetricRank",
    "MirroredPair",
    "centering",
    "eigen_recovery",
    "layer_arrays",
    "lost_directions",
    "metric_error",
    "metric_rank",
    "mirrored_pairs",
    "sphericity",
]


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


Matrix = Tensor | np.ndarray


def _pair(weight: Matrix, cov: Matrix) -> tuple[Tensor, Tensor]:
    sizes: dict[str, int] = {}
    return float64_tensor(weight, "weight", "units features", sizes), _covariance(cov, sizes)


def _covariance(cov: Matrix, sizes: dict[str, int]) -> Tensor:
    found = covariance(cov, "cov", sizes=sizes).detach().cpu()
    check_shape(tuple(found.shape), "cov", "features features", sizes, empty=False)
    return found


def sphericity(weight: Matrix, cov: Matrix) -> float:
    """Return ``‖M / mean(diag M) - I‖`` with ``M = W cov Wᵀ``: 0 where the layer whitens up to scale.

    K units that measure only D < K directions cannot reach 0: their least value is ``sqrt(K (K - D) / D)``.

    >>> sphericity(torch.eye(3), torch.eye(3))
    0.0
    """
    return float(functional.sphericity(*_pair(weight, cov)))


def metric_error(weight: Matrix, cov: Matrix, relative: bool = False) -> float:
    """Return ``‖Wᵀ W - cov⁻¹‖``, or its share of ``‖cov⁻¹‖``: how wrong the learned metric is.

    >>> metric_error(torch.eye(2), torch.eye(2))
    0.0
    """
    w, c = _pair(weight, cov)
    # A covariance that is singular has no inverse to compare with; the factor refuses it.
    functional.whitening_factor(c)
    inverse = torch.linalg.inv(c)
    error = torch.linalg.matrix_norm(w.mT @ w - inverse)
    return float(error / torch.linalg.matrix_norm(inverse) if relative else error)


@dataclass(frozen=True)
class EigenRecovery:
    """Principal axes and the units matched to them; an axis without a unit has NaN."""

    eigenvalues: np.ndarray
    estimates: np.ndarray
    cosines: np.ndarray
    units: np.ndarray

    @property
    def mean_cosine(self) -> float:
        """Return the mean absolute cosine between matched units and axes."""
        return float(np.nanmean(self.cosines))

    @property
    def log_error(self) -> float:
        """Return the mean ``|log10(estimate / eigenvalue)|``: 1 is wrong by a factor of ten."""
        return float(np.nanmean(np.abs(np.log10(self.estimates / self.eigenvalues))))

    def to_pandas(self) -> pd.DataFrame:
        """Return one row a principal axis."""
        columns = {"eigenvalue": self.eigenvalues, "estimate": self.estimates, "cosine": self.cosines}
        return pd.DataFrame({**columns, "unit": self.units})


def eigen_recovery(weight: Matrix, cov: Matrix) -> EigenRecovery:
    """Match units to principal axes by the best total ``|cosine|``; a unit's eigenvalue is ``1 / ‖w‖²``.

    >>> eigen_recovery(torch.tensor([[0.0, 2.0], [1.0, 0.0]]), torch.diag(torch.tensor([1.0, 0.25]))).units
    array([1, 0])
    """
    from scipy.optimize import linear_sum_assignment

    w, c = _pair(weight, cov)
    values, vectors = torch.linalg.eigh(c)
    values, vectors = values.flip(0), vectors.flip(1)
    norms = torch.linalg.vector_norm(w, dim=1)
    cosines = (w @ vectors / norms[:, None]).abs().clamp(max=1).nan_to_num(nan=0.0).numpy()
    units, axes = linear_sum_assignment(cosines, maximize=True)
    estimates, matched, found = (np.full(len(values), np.nan) for _ in range(3))
    estimates[axes], matched[axes] = (1 / norms.square()).numpy()[units], cosines[units, axes]
    found[axes] = units
    return EigenRecovery(values.numpy(), estimates, matched, _whole(found))


def _whole(units: np.ndarray) -> np.ndarray:
    return units if np.isnan(units).any() else units.astype(np.int64)


@dataclass(frozen=True)
class MetricRank:
    """Which directions a layer measures.

    ``eigenvalues`` are those of the learned metric in whitened coordinates, descending, 1 where a direction
    is measured as it should be. ``lost`` has one row a lost direction and one column a principal axis: the
    share of the direction that lies on the axis. ``constant`` is what the distance keeps at
    the mean from outside the range of the weights: it stands in for the lost directions.
    """

    eigenvalues: np.ndarray
    rank: int
    lost: np.ndarray
    constant: float

    @property
    def lost_axis(self) -> float:
        """Return the principal axis that most of the last direction lies on, from 0; NaN if none is lost."""
        return float(self.lost[-1].argmax()) if len(self.lost) else float("nan")


def metric_rank(
    linear: nn.Linear, mean: Matrix, cov: Matrix, share: float | Matrix = 1.0, threshold: float = 0.1
) -> MetricRank:
    """Return the rank of the metric ``Wᵀ diag(share) W`` and what became of the directions it lost.

    A direction is lost if the metric gives it less than ``threshold`` of its true squared length. ``share`` is one
    number for all units, or one per unit: 1 for Abs; for ReLU how often each unit is on, 1/2 if it is mirrored.

    >>> layer = nn.Linear(2, 2)
    >>> state = {"weight": torch.tensor([[1.0, 0.0], [0.0, 0.0]]), "bias": torch.tensor([0.0, 0.7])}
    >>> _ = layer.load_state_dict(state)
    >>> found = metric_rank(layer, torch.zeros(2), torch.diag(torch.tensor([1.0, 0.5])))
    >>> found.rank, found.lost_axis, round(found.constant, 3)
    (1, 1.0, 0.7)
    """
    w, bias = layer_arrays(linear)
    sizes = {"units": w.shape[0], "features": w.shape[1]}
    point, c = float64_tensor(mean, "mean", "features", sizes), _covariance(cov, sizes)
    scale, threshold = _shares(share, sizes).sqrt(), number(threshold, "threshold", "[0, inf)")
    unwhiten = torch.linalg.inv(functional.whitening_factor(c))
    center = scale * (w @ point + bias)
    left, singular, right = torch.linalg.svd(scale[:, None] * w @ unwhiten, full_matrices=True)
    values = torch.zeros(len(c), dtype=torch.float64)
    values[: len(singular)] = singular.square()
    kept = int((values > threshold).sum())
    outside = center - left[:, :kept] @ (left[:, :kept].mT @ center)
    constant = float(torch.linalg.vector_norm(outside))
    return MetricRank(values.numpy(), kept, right[kept:].square().numpy(), constant)


def _shares(share: float | Matrix, sizes: dict[str, int]) -> Tensor:
    if isinstance(share, Tensor | np.ndarray) and share.ndim:
        shares = float64_tensor(share, "share", "units", sizes)
        if bool((shares < 0).any()):
            raise ValueError(f"share must be 0 or more for every unit, got {float(shares.min()):.3g}")
        return shares
    return torch.full((sizes["units"],), number(share, "share", "(0, inf)"), dtype=torch.float64)


@dataclass(frozen=True)
class LostDirections:
    """What a metric white in all but ``lost`` of ``dim`` directions must show, if it does its best."""

    dim: int
    lost: int
    constant: float
    loss: float
    sphericity: float


def lost_directions(dim: int, lost: int) -> LostDirections:
    """Return the least loss, and its constant, of a distance that misses ``lost`` directions.

    With q and p chi-squared of ``dim - lost`` and ``lost`` degrees, the least of
    ``E (sqrt(a q + c²) - sqrt(q + p))²`` over scale a and constant c, by Gauss-Legendre quadrature.

    >>> theory = lost_directions(2, 1)
    >>> round(theory.loss, 3), round(theory.sphericity, 3)
    (0.221, 1.414)
    """
    return _lost_directions(integer(dim, "dim"), integer(lost, "lost", 0, dim - 1))


@cache
def _lost_directions(dim: int, lost: int) -> LostDirections:
    if lost == 0:
        return LostDirections(dim, 0, 0.0, 0.0, 0.0)
    from scipy.optimize import minimize

    (q, wq), (p, wp) = _chi_squared(dim - lost), _chi_squared(lost)
    truth, weights = np.sqrt(q[:, None] + p[None]), wq[:, None] * wp[None]

    def loss(logs: np.ndarray) -> float:
        scale, square = np.exp(logs)
        return float((weights * (np.sqrt(scale * q + square)[:, None] - truth) ** 2).sum())

    best = minimize(loss, np.log([1.0, lost]), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13})
    white = float(functional.expected_sphericity(lost, dim))
    return LostDirections(dim, lost, float(np.exp(best.x[1] / 2)), float(best.fun), white)


def _chi_squared(degrees: int, nodes: int = 160) -> tuple[np.ndarray, np.ndarray]:
    # Nodes in the root of chi-squared, where the integrand is smooth at the origin.
    from scipy.stats import chi

    points, weights = np.polynomial.legendre.leggauss(nodes)
    low, high = max(0.0, degrees**0.5 - 9), degrees**0.5 + 9
    roots = low + (high - low) * (points + 1) / 2
    mass = weights * chi(degrees).pdf(roots)
    return roots**2, mass / mass.sum()
