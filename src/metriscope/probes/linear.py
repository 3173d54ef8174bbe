"""Probes of a linear layer: where its hyperplanes lie, which units mirror each other, which metric it has learned.

Axes: K units, D features. Everything is measured in float64 and returned as numbers or numpy arrays. A layer may be
given as an ``nn.Linear``, as its weight matrix, or as a pair ``(weight, bias)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from metriscope import functional
from metriscope.common.validation import check_shape, covariance, described, float64_tensor, number

__all__ = [
    "EigenRecovery", "MetricRank", "MirroredPair", "centering", "eigen_recovery", "metric_error", "metric_rank",
    "mirrored_pairs", "sphericity",
]  # fmt: skip

Matrix: TypeAlias = Tensor | np.ndarray
Layer: TypeAlias = nn.Linear | Matrix | tuple[Matrix, Matrix]


class MirroredPair(NamedTuple):
    """Two units whose weights point in opposite directions.

    Attributes
    ----------
    i, j : int
        The two units, with ``i < j``.
    cosine : float
        The cosine between their weights, near -1.

    Examples
    --------
    >>> MirroredPair(i=0, j=2, cosine=-1.0).j
    2
    """

    i: int
    j: int
    cosine: float


def centering(layer: nn.Linear | tuple[Matrix, Matrix], mean: Matrix) -> np.ndarray:
    """Return the distance from each unit's hyperplane to ``mean``.

    Parameters
    ----------
    layer : nn.Linear or pair of arrays
        The layer, or its weight of shape (K, D) and its bias of shape (K,).
    mean : array of shape (D,)
        The point.

    Returns
    -------
    array of shape (K,)
        One distance per unit; NaN for a unit whose weights are all zero.

    Raises
    ------
    ValueError
        If ``layer`` is neither a linear layer nor a pair, or ``mean`` does not have its number of features.

    Examples
    --------
    >>> centering((torch.tensor([[0.0, 2.0]]), torch.tensor([2.0])), [5.0, 0.0])
    array([1.])
    """
    if not isinstance(layer, nn.Linear | tuple):
        raise ValueError(f"layer must be a torch.nn.Linear or a pair (weight, bias), got {described(layer)}")
    weight, bias = _weight_and_bias(layer)
    point = float64_tensor(mean, "mean", "features", {"features": weight.shape[1]})
    return functional.distance_to_point(point, weight, bias).numpy()


def _weight_and_bias(layer: Any) -> tuple[Tensor, Tensor]:
    """Return the weight and the bias of a layer in float64; zeros where there is no bias."""
    given = (layer.weight, layer.bias) if isinstance(layer, nn.Linear) else layer
    weight, bias = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    sizes: dict[str, int] = {}
    weight = float64_tensor(weight, "weight", "units features", sizes)
    return weight, torch.zeros(len(weight)).double() if bias is None else float64_tensor(bias, "bias", "units", sizes)


def _weight_and_covariance(layer: Layer, cov: Matrix) -> tuple[Tensor, Tensor]:
    weight = _weight_and_bias(layer)[0]
    return weight, _covariance(cov, weight.shape[1])


def _covariance(cov: Matrix, features: int) -> Tensor:
    sizes = {"features": features}
    found = covariance(cov, "cov", sizes=sizes).detach().cpu()
    check_shape(tuple(found.shape), "cov", "features features", sizes, empty=False)
    return found


def mirrored_pairs(layer: Layer, threshold: float = 0.999) -> tuple[MirroredPair, ...]:
    """Return the pairs of units whose weights point in opposite directions, the most opposite first.

    Parameters
    ----------
    layer : nn.Linear or array of shape (K, D)
        The layer or its weight.
    threshold : float in (0, 1]
        A pair needs a cosine of at most ``-threshold``.

    Returns
    -------
    tuple of MirroredPair
        The pairs; each unit is in at most one.

    Raises
    ------
    ValueError
        If the weight is not a finite matrix, or ``threshold`` is outside its interval.

    Examples
    --------
    >>> mirrored_pairs(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-2.0, 0.0]]))
    (MirroredPair(i=0, j=2, cosine=-1.0),)
    """
    rows = functional.mirrored_pairs(_weight_and_bias(layer)[0], threshold)
    return tuple(MirroredPair(int(i), int(j), float(cosine)) for i, j, cosine in rows)


def sphericity(layer: Layer, cov: Matrix) -> float:
    """Return ``‖M / mean(diag M) - I‖_F`` with ``M = W cov Wᵀ``: 0 if the layer whitens up to scale.

    K units that measure only D < K directions cannot reach 0: their least value is ``sqrt(K (K - D) / D)``.

    Parameters
    ----------
    layer : nn.Linear or array of shape (K, D)
        The layer or its weight.
    cov : array of shape (D, D)
        The covariance of its inputs.

    Returns
    -------
    float
        The sphericity; NaN for a layer that is constant on the data.

    Raises
    ------
    ValueError
        If the shapes do not fit together, or ``cov`` is not symmetric.

    Examples
    --------
    >>> sphericity(torch.eye(3), torch.eye(3))
    0.0
    """
    return float(functional.sphericity(*_weight_and_covariance(layer, cov)))


def metric_error(layer: Layer, cov: Matrix, relative: bool = False) -> float:
    """Return ``‖Wᵀ W - cov⁻¹‖_F``: how wrong the metric of the layer is.

    Parameters
    ----------
    layer : nn.Linear or array of shape (K, D)
        The layer or its weight.
    cov : array of shape (D, D)
        The covariance whose Mahalanobis distance is the right metric; positive definite.
    relative : bool
        Whether to divide by ``‖cov⁻¹‖_F``.

    Returns
    -------
    float
        The error.

    Raises
    ------
    ValueError
        If the shapes do not fit together, or ``cov`` is not positive definite.

    Examples
    --------
    >>> metric_error(torch.eye(2), torch.eye(2))
    0.0
    """
    w, c = _weight_and_covariance(layer, cov)
    # A singular covariance has no inverse; whitening_factor refuses it.
    functional.whitening_factor(c)
    inverse = torch.linalg.inv(c)
    error = torch.linalg.matrix_norm(w.mT @ w - inverse)
    return float(error / torch.linalg.matrix_norm(inverse) if relative else error)


@dataclass(frozen=True)
class EigenRecovery:
    """The principal axes of a covariance, largest variance first, and the units matched to them.

    Parameters
    ----------
    eigenvalues : array of shape (D,)
        The variance along each axis.
    estimates : array of shape (D,)
        The variance that the matched unit implies, ``1 / ‖w‖²``; NaN for an axis without a unit.
    cosines : array of shape (D,)
        The absolute cosine between axis and unit; NaN for an axis without a unit.
    units : array of shape (D,)
        The number of the matched unit; NaN for an axis without a unit.

    Examples
    --------
    >>> found = EigenRecovery(np.array([4.0]), np.array([4.0]), np.array([1.0]), np.array([0]))
    >>> found.mean_cosine, found.log_error
    (1.0, 0.0)
    """

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
        """Return the mean ``|log10(estimate / eigenvalue)|``: 1 means wrong by a factor of ten."""
        return float(np.nanmean(np.abs(np.log10(self.estimates / self.eigenvalues))))

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per principal axis."""
        columns = {"eigenvalue": self.eigenvalues, "estimate": self.estimates, "cosine": self.cosines}
        return pd.DataFrame({**columns, "unit": self.units})


def eigen_recovery(layer: Layer, cov: Matrix) -> EigenRecovery:
    """Match units to the principal axes of ``cov`` so that the sum of absolute cosines is largest.

    Parameters
    ----------
    layer : nn.Linear or array of shape (K, D)
        The layer or its weight.
    cov : array of shape (D, D)
        The covariance of its inputs.

    Returns
    -------
    EigenRecovery
        The axes with their units, cosines and estimated variances.

    Raises
    ------
    ValueError
        If the shapes do not fit together, or ``cov`` is not symmetric.

    Examples
    --------
    >>> eigen_recovery(torch.tensor([[0.0, 2.0], [1.0, 0.0]]), torch.diag(torch.tensor([1.0, 0.25]))).units
    array([1, 0])
    """
    from scipy.optimize import linear_sum_assignment

    w, c = _weight_and_covariance(layer, cov)
    values, vectors = torch.linalg.eigh(c)
    values, vectors = values.flip(0), vectors.flip(1)
    norms = torch.linalg.vector_norm(w, dim=1)
    cosines = (w @ vectors / norms[:, None]).abs().clamp(max=1).nan_to_num(nan=0.0).numpy()
    units, axes = linear_sum_assignment(cosines, maximize=True)
    estimates, matched, found = (np.full(len(values), np.nan) for _ in range(3))
    estimates[axes], matched[axes] = (1 / norms.square()).numpy()[units], cosines[units, axes]
    found[axes] = units
    return EigenRecovery(values.numpy(), estimates, matched, found if np.isnan(found).any() else found.astype(np.int64))


@dataclass(frozen=True)
class MetricRank:
    """Which directions the metric of a layer measures.

    Parameters
    ----------
    eigenvalues : array of shape (D,)
        Eigenvalues of the metric in whitened coordinates, in descending order; 1 for a direction measured correctly.
    rank : int
        How many directions are measured.
    lost : array of shape (D - rank, D)
        One row per lost direction and one column per principal axis: the share of the direction along the axis.
    constant : float
        The norm of the part of ``W mean + b`` orthogonal to the range of ``W``, which stands in for lost directions.

    Examples
    --------
    >>> MetricRank(np.array([1.0, 0.0]), 1, np.array([[0.0, 1.0]]), 0.7).lost_axis
    1.0
    """

    eigenvalues: np.ndarray
    rank: int
    lost: np.ndarray
    constant: float

    @property
    def lost_axis(self) -> float:
        """Return the principal axis, from 0, nearest to the last lost direction; NaN if no direction is lost."""
        return float(self.lost[-1].argmax()) if len(self.lost) else float("nan")


def metric_rank(
    layer: Layer, mean: Matrix, cov: Matrix, share: float | Matrix = 1.0, threshold: float = 0.1
) -> MetricRank:
    """Return the rank of the metric ``Wᵀ diag(share) W`` and the directions that it has lost.

    Parameters
    ----------
    layer : nn.Linear, array of shape (K, D), or pair of arrays
        The layer, its weight alone, or its weight and bias; a weight alone counts as a layer without bias.
    mean : array of shape (D,)
        The mean of its inputs.
    cov : array of shape (D, D)
        Their covariance, positive definite.
    share : float or array of shape (K,)
        The weight of each unit in the metric: 1 for Abs; for ReLU the share of points at which the unit is active, or
        1/2 for a unit of a mirrored pair.
    threshold : float
        A direction is lost if the metric gives it at most this share of its true squared length.

    Returns
    -------
    MetricRank
        The rank, the eigenvalues, the lost directions and the constant that replaces them.

    Raises
    ------
    ValueError
        If the shapes do not fit together, ``cov`` is not positive definite, or a share or the threshold is negative.

    Examples
    --------
    >>> layer = (torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([0.0, 0.7]))
    >>> found = metric_rank(layer, torch.zeros(2), torch.diag(torch.tensor([1.0, 0.5])))
    >>> found.rank, found.lost_axis, round(found.constant, 3)
    (1, 1.0, 0.7)
    """
    w, bias = _weight_and_bias(layer)
    sizes = {"units": w.shape[0], "features": w.shape[1]}
    point, c = float64_tensor(mean, "mean", "features", sizes), _covariance(cov, w.shape[1])
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
