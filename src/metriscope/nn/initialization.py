"""Initialization from data: hyperplanes that start where the points are, along the directions in which they vary.

Axes: ``n`` points, ``d`` features, ``k`` units, ``r`` usable directions of a cluster.
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

from metriscope.common.validation import float64_tensor, instance, integer, require_finite
from metriscope.functional import bias_through, principal_axes

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
    rows = _draw_integers(len(points), linear.out_features, generator)
    with torch.no_grad():
        linear.bias.copy_(bias_through(linear.weight.cpu().double(), points[rows]))
    return linear


def init_from_clusters_(
    linear: nn.Linear, x: Any, n_clusters: int, generator: torch.Generator | None = None
) -> nn.Linear:
    """Set a layer's weights and biases, in place, so that its units whiten clusters of ``x``.

    Clusters come from k-means, directions from the principal axes of each cluster. Units are distributed as evenly as
    possible, larger clusters first. The units of a cluster take its directions by descending variance,
    ``w = v / sqrt(variance)`` and ``b = -w · mean``, then the mirrored copies ``(-w, -b)`` in the same order, then both
    again. Directions without variance are skipped.

    Parameters
    ----------
    linear : nn.Linear
        The layer, which is changed.
    x : array of shape (n, d)
        Points.
    n_clusters : int
        The number of clusters.
    generator : torch.Generator or None
        Where the seed of k-means is drawn from; None for PyTorch's global generator.

    Returns
    -------
    nn.Linear
        The same layer.

    Raises
    ------
    ValueError
        If the layer has no bias, ``x`` does not have its features, there are too few distinct points, or a cluster
        varies in no direction.

    Examples
    --------
    >>> corners = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
    >>> init_from_clusters_(nn.Linear(2, 2), corners, n_clusters=1).bias
    Parameter containing:
    tensor([-0.8660, -0.8660], requires_grad=True)
    """
    points = _checked_points(linear, x)
    n_clusters = integer(n_clusters, "n_clusters")
    if len(points) < n_clusters:
        raise ValueError(f"{n_clusters} clusters need at least as many points, got {len(points)}")
    clusters = _clusters(points, n_clusters, generator)
    shares = [linear.out_features // n_clusters + (i < linear.out_features % n_clusters) for i in range(n_clusters)]
    planes = [_whitening_planes(*pair) for pair in zip(clusters, shares, strict=True) if pair[1] > 0]
    with torch.no_grad():
        linear.weight.copy_(torch.cat([weight for weight, _ in planes]))
        linear.bias.copy_(torch.cat([bias for _, bias in planes]))
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


def _draw_integers(high: int, count: int, generator: torch.Generator | None) -> Tensor:
    device = "cpu" if generator is None else generator.device
    return torch.randint(high, (count,), generator=generator, device=device).cpu()


def _clusters(
    points: Float[Tensor, "n d"], n_clusters: int, generator: torch.Generator | None
) -> list[Float[Tensor, "m d"]]:
    """Return the points of each cluster, largest cluster first."""
    # scikit-learn takes seconds to import, and only this function needs it.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    seed = int(_draw_integers(2**31, 1, generator))
    with warnings.catch_warnings():
        # It warns about points that coincide; that case is an error below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = torch.as_tensor(KMeans(n_clusters, n_init=1, random_state=seed).fit(points.numpy()).labels_)
    clusters = [points[labels == label] for label in range(n_clusters)]
    filled = sum(len(cluster) > 0 for cluster in clusters)
    if filled < n_clusters:
        raise ValueError(f"x has only {filled} distinct points, too few for {n_clusters} clusters")
    return sorted(clusters, key=len, reverse=True)


def _whitening_planes(cluster: Float[Tensor, "m d"], units: int) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    mean = cluster.mean(0)
    centered = cluster - mean
    variances, axes = principal_axes(centered.mT @ centered / max(1, len(cluster) - 1))
    # Sums of m terms leave rounding errors: in the eigenvalues, and in the mean that was subtracted.
    rounding = max(cluster.shape) * torch.finfo(cluster.dtype).eps
    floor = torch.maximum(rounding * variances[0], (rounding * cluster.abs().max()).square())
    usable = variances > floor
    if not bool(usable.any()):
        raise ValueError(
            f"a cluster of {len(cluster)} point{'s' * (len(cluster) > 1)} varies in no direction; "
            "ask for fewer clusters or remove repeated points"
        )
    directions = axes[usable] / variances[usable].sqrt()[:, None]
    unit = torch.arange(units)
    # Even rounds take a direction as it is, odd rounds its mirror image.
    sign = 1.0 - 2.0 * (unit // len(directions) % 2)
    weight = directions[unit % len(directions)] * sign[:, None].double()
    return weight, -(weight @ mean)


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
