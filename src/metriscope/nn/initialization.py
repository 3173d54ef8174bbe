"""Initialization of one layer from data: hyperplanes that start where the points are, along their directions.

Axes: ``n`` points, ``d`` features, ``k`` units.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope.common.validation import float64_tensor, instance, require_finite
from metriscope.functional import bias_through
from metriscope.nn.clusters import ClusterCount, checked_count, cluster_planes, draw_integers

__all__ = ["draw_", "empty_linear", "fresh_linear", "init_from_clusters_", "init_through_points_"]

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


def _renamed(function: Callable[P, T], old: str) -> Callable[P, T]:
    """Return a function under its old name, which warns that it has a new one."""

    @wraps(function)
    def alias(*args: P.args, **kwargs: P.kwargs) -> T:
        warnings.warn(f"{old} is deprecated: call {function.__name__}", DeprecationWarning, stacklevel=2)
        return function(*args, **kwargs)

    return alias


init_from_clusters = _renamed(init_from_clusters_, "init_from_clusters")
init_through_points = _renamed(init_through_points_, "init_through_points")


def _checked_points(linear: nn.Linear, x: Any) -> Float[Tensor, "n d"]:
    if instance(linear, "linear", nn.Linear).bias is None:
        raise ValueError("linear must have a bias to move its hyperplanes, got bias=False")
    points = float64_tensor(x, "x", "points features", {"features": linear.in_features})
    if not bool(points.square().sum().isfinite()):
        raise ValueError(f"x must be small enough to be squared, got entries up to {float(points.abs().max()):.3g}")
    return points


def draw_(target: Tensor, fill: Callable[[Tensor], object], generator: torch.Generator | None) -> None:
    """Fill ``target`` in place, drawing on the device of the generator."""
    with torch.no_grad():
        # A CPU stream must give the same numbers to a layer on another device.
        device = target.device if generator is None else generator.device
        drawn = torch.empty_like(target, device=device, requires_grad=False)
        fill(drawn)
        target.copy_(drawn)


def empty_linear(
    in_features: int,
    out_features: int,
    bias: bool = True,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Linear:
    """Return a linear layer with unset values; creating it draws no random numbers."""
    place = torch.get_default_device() if device is None else device
    return nn.utils.skip_init(nn.Linear, in_features, out_features, bias=bias, device=place, dtype=dtype)


def fresh_linear(
    in_features: int, out_features: int, bias: bool = True, generator: torch.Generator | None = None
) -> nn.Linear:
    """Return a linear layer with PyTorch's default initialization, uniform within ``1/sqrt(in_features)``.

    >>> from metriscope.rng import stream
    >>> first, second = (fresh_linear(3, 2, generator=stream(0, "init")) for _ in range(2))
    >>> bool(first.weight.equal(second.weight))
    True
    """
    linear = empty_linear(in_features, out_features, bias)
    draw_(linear.weight, lambda w: nn.init.kaiming_uniform_(w, a=math.sqrt(5), generator=generator), generator)
    if linear.bias is not None:
        bound = 1 / math.sqrt(in_features)
        draw_(linear.bias, lambda b: b.uniform_(-bound, bound, generator=generator), generator)
    return linear
