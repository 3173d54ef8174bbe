"""Initialization of one layer from data: hyperplanes that pass through points, and heads that start at class means.

Axes: ``n`` points, ``d`` features, ``k`` units, ``c`` classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope.common.validation import float64_tensor, instance, require_finite, whole_array
from metriscope.functional import bias_through
from metriscope.nn.clusters import ClusterCount, checked_count, cluster_planes, draw_integers
from metriscope.nn.heads import CosineHead, MahalanobisHead, NearestMean, RBFHead
from metriscope.nn.layers import OffsetL2

__all__ = ["init_from_clusters_", "init_head_", "init_through_points_"]

# Weight of the average variance times the identity in every covariance.
SHRINKAGE = 0.1

P = ParamSpec("P")
T = TypeVar("T")


def init_through_points_(linear: nn.Linear, x: Any, generator: torch.Generator | None = None) -> nn.Linear:
    """Set each unit's bias, in place, so that its hyperplane passes through a random point of ``x``.

    Weights stay as they are: ``b_k = -w_k · x_row``.

    Parameters
    ----------
    linear : nn.Linear
        The layer, which is changed.
    x : array of shape (n, d)
        Points.
    generator : torch.Generator or None
        Where the rows of ``x`` are drawn from; None for PyTorch's global generator.

    Returns
    -------
    nn.Linear
        The same layer.

    Raises
    ------
    ValueError
        If the layer has no bias, or ``x`` does not have its features.

    Examples
    --------
    >>> layer = init_through_points_(nn.Linear(2, 3), torch.ones(1, 2))
    >>> bool(layer(torch.ones(2)).abs().max() < 1e-6)
    True
    """
    points = _checked_points(linear, x)
    require_finite(linear.weight, "linear.weight")
    rows = draw_integers(len(points), linear.out_features, generator)
    with torch.no_grad():
        linear.bias.copy_(bias_through(linear.weight.cpu().double(), points[rows]))
    return linear


def init_from_clusters_(
    linear: nn.Linear, x: Any, n_clusters: ClusterCount, generator: torch.Generator | None = None
) -> nn.Linear:
    """Set a layer's weights and biases, in place, so that its units whiten clusters of ``x``.

    Clusters come from k-means, directions from the principal axes of each cluster. Units are distributed as evenly as
    possible, larger clusters first. The units of a cluster take its directions by descending variance,
    ``w = v / sqrt(variance)`` and ``b = -w · mean``, then the mirrored copies ``(-w, -b)`` in the same order, then both
    again, for any number of units. Directions without variance, such as constant features, are skipped.

    The covariance of a cluster with no more points than features is shrunk: ``(1 - s) S + s T``, where ``S`` is the
    sample covariance and ``T`` is diagonal, with the variances of the features over all points scaled to the average
    variance of the cluster. The intensity ``s`` is that of Ledoit and Wolf (2004) on features of unit variance, but at
    least one over the number of points. A cluster whose points coincide takes the covariance within all clusters.

    Parameters
    ----------
    linear : nn.Linear
        The layer, which is changed.
    x : array of shape (n, d)
        Points.
    n_clusters : int, "silhouette" or "bic"
        The number of clusters, or how it is chosen from at most ten: by the mean silhouette of k-means clusters (at
        least two), or by the Bayesian information criterion of Gaussian mixtures on the leading principal components.
    generator : torch.Generator or None
        Where the seed of k-means is drawn from; None for PyTorch's global generator.

    Returns
    -------
    nn.Linear
        The same layer.

    Raises
    ------
    ValueError
        If the layer has no bias, ``x`` does not have its features, there are too few distinct points, or no cluster
        varies in any direction.

    Examples
    --------
    >>> corners = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
    >>> init_from_clusters_(nn.Linear(2, 2), corners, n_clusters=1).bias
    Parameter containing:
    tensor([-0.8660, -0.8660], requires_grad=True)
    """
    points = _checked_points(linear, x)
    weight, bias = cluster_planes(points, linear.out_features, checked_count(n_clusters), generator)
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    return linear


def _checked_points(linear: nn.Linear, x: Any) -> Float[Tensor, "n d"]:
    if not isinstance(linear, nn.Linear) and isinstance(linear, nn.Module):
        kind = type(linear).__name__
        raise ValueError(f"linear must be a torch.nn.Linear, got a {kind}; init_model_ sets convolutions too")
    if instance(linear, "linear", nn.Linear).bias is None:
        raise ValueError("linear must have a bias to move its hyperplanes, got bias=False")
    points = float64_tensor(x, "x", "points features", {"features": linear.in_features})
    if not bool(points.square().sum().isfinite()):
        raise ValueError(f"x must be small enough to be squared, got entries up to {float(points.abs().max()):.3g}")
    return points


def init_head_(head: nn.Module, features: Any, labels: Any) -> nn.Module:
    """Initialize a head, in place, from the features and labels of points.

    Prototypes are set to the class means; weights and factors are set so that each class has unit variance along the
    axes that the head can scale. A linear layer becomes the linear discriminant of the classes (Fisher 1936): its
    logits differ from those of the shared Mahalanobis head only by a constant per point. Covariances of classes with
    few points are mixed with that of all classes, and every covariance is mixed with a tenth of its average variance
    times the identity (Friedman 1989, "Regularized discriminant analysis").

    Parameters
    ----------
    head : nn.Module
        A head of :func:`build_head`, or one of the layers that it is made of; it is changed.
    features : array of shape (n, d)
        The backbone's outputs for these points.
    labels : array of shape (n,)
        Their classes, 0 to ``out_features - 1``; each class needs at least one point.

    Returns
    -------
    nn.Module
        The same head.

    Raises
    ------
    ValueError
        If the layer is no head, the shapes do not fit, or a class has no point.

    Examples
    --------
    >>> from metriscope.nn import build_head
    >>> head = init_head_(build_head("cosine", 2, 2), [[3.0, 0.0], [0.0, 2.0]], [0, 1])
    >>> head(torch.tensor([[5.0, 0.0]])).argmax().item()
    0
    """
    layer = head[0] if isinstance(head, nn.Sequential) and len(head) else head
    start = next((rule for kind, rule in _STARTS.items() if isinstance(layer, kind)), None)
    if start is None:
        names = ", ".join(kind.__name__ for kind in _STARTS)
        raise ValueError(f"head must be one of {names}, got {type(layer).__name__}")
    classes = _classes(features, labels, (int(layer.in_features), int(layer.out_features)))  # type: ignore[arg-type]
    with torch.no_grad():
        start(layer, classes)
    return head


class _Classes(NamedTuple):
    """Means, covariances, variances along the features, and logarithms of the shares of all classes, in float64."""

    means: Float[Tensor, "c d"]
    covs: Float[Tensor, "c d d"]
    pooled: Float[Tensor, "d d"]
    log_shares: Float[Tensor, " c"]


def _classes(features: Any, labels: Any, sizes: tuple[int, int]) -> _Classes:
    width, count = sizes
    x = float64_tensor(features, "features", "points features", {"features": width})
    y = torch.as_tensor(whole_array(labels, "labels", f"{len(x)}", low=-(1 << 62)))
    found = y.unique().tolist()
    if found != list(range(count)):
        raise ValueError(f"labels must hold every class from 0 to {count - 1} and no other, got {found}")
    parts = [x[y == c] for c in range(count)]
    means = torch.stack([part.mean(0) for part in parts])
    scatters = torch.stack([(part - mean).mT @ (part - mean) for part, mean in zip(parts, means, strict=True)])
    counts = torch.tensor([len(part) for part in parts], dtype=torch.float64)
    pooled = _shrunk(scatters.sum(0) / len(x))
    # As if each class had as many further points as there are features, with the covariance of all classes.
    covs = (scatters + width * pooled) / (counts - 1 + width)[:, None, None]
    return _Classes(means, covs, pooled, (counts / len(x)).log())


def _shrunk(cov: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    identity = torch.eye(len(cov), dtype=cov.dtype)
    average = cov.diagonal().mean()
    # Classes of one point each do not vary at all: distances are then Euclidean.
    return (1 - SHRINKAGE) * cov + SHRINKAGE * average * identity if average > 0 else identity


def _factor(cov: Float[Tensor, "*c d d"]) -> Float[Tensor, "*c d d"]:
    """Return the lower triangular ``L`` with ``L cov Lᵀ = 1``."""
    return torch.linalg.inv(torch.linalg.cholesky(cov)).tril()


def _start_linear(layer: nn.Linear, found: _Classes) -> None:
    weight = torch.linalg.solve(found.pooled, found.means.mT).mT
    layer.weight.copy_(weight)
    if layer.bias is not None:
        layer.bias.copy_(found.log_shares - (weight * found.means).sum(1) / 2)


def _start_offsets(layer: OffsetL2, found: _Classes) -> None:
    variances = found.covs.diagonal(dim1=1, dim2=2)
    layer.mu.copy_(found.means)
    layer.alpha.copy_(variances.rsqrt() if layer.form == "formula" else 1 / variances)


def _start_rbf(layer: RBFHead, found: _Classes) -> None:
    layer.mu.copy_(found.means)
    layer.log_gamma.copy_(-(2 * found.covs.diagonal(dim1=1, dim2=2).mean(1)).log())


def _start_mahalanobis(layer: MahalanobisHead, found: _Classes) -> None:
    factor = _factor(found.pooled[None] if layer.shared else found.covs)
    layer.mu.copy_(found.means)
    layer.below.copy_(factor.tril(-1))
    layer.log_diagonal.copy_(factor.diagonal(dim1=1, dim2=2).log())
    layer.bias.copy_(found.log_shares)


def _start_means(layer: CosineHead | NearestMean, found: _Classes) -> None:
    layer.mu.copy_(found.means)


_STARTS: dict[type[nn.Module], Callable[[Any, _Classes], None]] = {
    nn.Linear: _start_linear,
    OffsetL2: _start_offsets,
    RBFHead: _start_rbf,
    MahalanobisHead: _start_mahalanobis,
    CosineHead: _start_means,
    NearestMean: _start_means,
}


def _renamed(function: Callable[P, T], old: str) -> Callable[P, T]:
    """Return a function under its old name; calling it warns that the name is deprecated."""

    @wraps(function)
    def alias(*args: P.args, **kwargs: P.kwargs) -> T:
        warnings.warn(f"{old} is deprecated: call {function.__name__}", DeprecationWarning, stacklevel=2)
        return function(*args, **kwargs)

    return alias


init_from_clusters = _renamed(init_from_clusters_, "init_from_clusters")
init_through_points = _renamed(init_through_points_, "init_through_points")
