"""Hyperplanes: how far points lie from each unit's hyperplane, and which units mirror each other.

Axes: ``s`` seeds, ``n`` points, ``d`` features, ``k`` units, ``p`` pairs.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from metriscope.common.validation import broadcast_axes, number, real_tensor, same_precision

__all__ = ["bias_through", "deduplicate", "distance_to_point", "mirrored_pairs", "signed_distance"]


def bias_through(weight: Float[Tensor, "*s k d"], points: Float[Tensor, "*s k d"]) -> Float[Tensor, "*s k"]:
    """Return the bias ``-w_k · x_k`` that puts the hyperplane of each unit through its own point.

    Parameters
    ----------
    weight : Tensor of shape (..., k, d)
        The weights of the units.
    points : Tensor of shape (..., k, d)
        One point per unit.

    Returns
    -------
    Tensor of shape (..., k)
        One bias per unit.

    Raises
    ------
    ValueError
        If the shapes do not fit together.

    Examples
    --------
    >>> bias_through(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([-11.])
    """
    sizes: dict[str, int] = {}
    weight = real_tensor(weight, "weight", "* units features", sizes)
    points = real_tensor(points, "points", "* units features", sizes)
    broadcast_axes(2, weight=weight, points=points)
    return -(weight * points).sum(-1)


def signed_distance(
    x: Float[Tensor, "*s n d"], weight: Float[Tensor, "*s k d"], bias: Float[Tensor, "*s k"]
) -> Float[Tensor, "*s n k"]:
    """Return the signed distance ``(w · x + b) / ‖w‖`` of each point to each hyperplane.

    Parameters
    ----------
    x : Tensor of shape (..., n, d)
        Points.
    weight : Tensor of shape (..., k, d)
        The weights of the units.
    bias : Tensor of shape (..., k)
        Their biases.

    Returns
    -------
    Tensor of shape (..., n, k)
        Distances, positive on the side to which ``w`` points; NaN for a unit whose weights are all zero.

    Raises
    ------
    ValueError
        If the shapes do not fit together.

    Examples
    --------
    >>> signed_distance(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]]), torch.tensor([-2.0]))
    tensor([[3.]])
    """
    weight, bias, x = _checked_layer(weight, bias, x, "x", "* points features")
    broadcast_axes((2, 2, 1), x=x, weight=weight, bias=bias)
    return _signed_distance(x, weight, bias)


def distance_to_point(
    point: Float[Tensor, "*s d"], weight: Float[Tensor, "*s k d"], bias: Float[Tensor, "*s k"]
) -> Float[Tensor, "*s k"]:
    """Return the distance ``|w · p + b| / ‖w‖`` of one point to each hyperplane.

    Parameters
    ----------
    point : Tensor of shape (..., d)
        The point.
    weight : Tensor of shape (..., k, d)
        The weights of the units.
    bias : Tensor of shape (..., k)
        Their biases.

    Returns
    -------
    Tensor of shape (..., k)
        Distances; NaN for a unit whose weights are all zero.

    Raises
    ------
    ValueError
        If the shapes do not fit together.

    Examples
    --------
    >>> distance_to_point(torch.tensor([3.0, 4.0]), torch.tensor([[0.0, -2.0]]), torch.tensor([2.0]))
    tensor([3.])
    """
    weight, bias, point = _checked_layer(weight, bias, point, "point", "* features")
    broadcast_axes((1, 2, 1), point=point, weight=weight, bias=bias)
    return _signed_distance(point[..., None, :], weight, bias).squeeze(-2).abs()


def mirrored_pairs(weight: Float[Tensor, "k d"], threshold: float = 0.999) -> Float[Tensor, "p 3"]:
    """Return the pairs of units whose weights point in opposite directions, the most opposite first.

    Pairs are chosen greedily from the smallest cosine, ties in the order of the units, and each unit is in at most
    one pair. A unit whose weights are all zero is in none.

    Parameters
    ----------
    weight : Tensor of shape (k, d)
        The weights of the units.
    threshold : float in (0, 1]
        A pair needs a cosine of at most ``-threshold``.

    Returns
    -------
    Tensor of shape (p, 3)
        One row ``(i, j, cosine)`` per pair, with ``i < j``.

    Raises
    ------
    ValueError
        If ``weight`` is not a finite matrix, or ``threshold`` is outside its interval.

    Examples
    --------
    >>> mirrored_pairs(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-2.0, 0.0]]))
    tensor([[ 0.,  2., -1.]], dtype=torch.float64)
    """
    weight = real_tensor(weight, "weight", "units features", empty=True)
    threshold = number(threshold, "threshold", "(0, 1]")
    cosine = _cosines(weight)
    # Exact opposites may miss -1 by the rounding of a sum of d products.
    rounding = weight.shape[-1] * torch.finfo(cosine.dtype).eps
    open_cosine = cosine.masked_fill(~(cosine <= -threshold + rounding), math.inf)
    pairs = _choose_pairs(open_cosine)
    rows = torch.cat([pairs.double(), cosine[pairs[:, 0], pairs[:, 1], None]], dim=1)
    # Two stable sorts: by cosine, and by the first unit where cosines are equal.
    rows = rows[rows[:, 0].argsort(stable=True)]
    return rows[rows[:, 2].argsort(stable=True)]


def deduplicate(
    weight: Float[Tensor, "k d"], bias: Float[Tensor, " k"], threshold: float = 0.999
) -> tuple[Float[Tensor, "u d"], Float[Tensor, " u"]]:
    """Return a layer's weights and biases without the second unit of each mirrored pair.

    Parameters
    ----------
    weight : Tensor of shape (k, d)
        The weights of the units.
    bias : Tensor of shape (k,)
        Their biases.
    threshold : float in (0, 1]
        A mirrored pair has a cosine of at most ``-threshold``.

    Returns
    -------
    weight : Tensor of shape (u, d)
        The weights of the units that are kept.
    bias : Tensor of shape (u,)
        Their biases.

    Raises
    ------
    ValueError
        If the shapes do not fit together, or ``threshold`` is outside its interval.

    Examples
    --------
    >>> deduplicate(torch.tensor([[1.0, 0.0], [-2.0, 0.0]]), torch.tensor([3.0, 4.0]))
    (tensor([[1., 0.]]), tensor([3.]))
    """
    sizes: dict[str, int] = {}
    weight = real_tensor(weight, "weight", "units features", sizes, empty=True)
    bias = real_tensor(bias, "bias", "units", sizes, empty=True)
    keep = torch.ones(weight.shape[0], dtype=torch.bool, device=weight.device)
    keep[mirrored_pairs(weight, threshold)[:, 1].long()] = False
    return weight[keep], bias[keep]


def _cosines(weight: Float[Tensor, "k d"]) -> Float[Tensor, "k k"]:
    weight = weight.detach().double()
    weight = weight * _inverse_size(weight)
    direction = weight / torch.linalg.vector_norm(weight, dim=-1, keepdim=True)
    return direction @ direction.mT


def _choose_pairs(cosine: Float[Tensor, "k k"]) -> Tensor:
    """Return pairs (i, j), i < j, chosen greedily from the smallest cosine; infinity excludes a pair.

    Each round takes every pair whose units are each other's best. The smallest entry of all is always such a pair,
    so the result is the same as choosing pairs one by one.
    """
    cosine = torch.minimum(cosine, cosine.mT).clone()
    units = torch.arange(cosine.shape[0], device=cosine.device)
    chosen = [units.new_empty(0, 2)]
    while bool(cosine.isfinite().any()):
        smallest, best = cosine.min(dim=1)
        mutual = (best[best] == units) & (units < best) & smallest.isfinite()
        pairs = torch.stack([units[mutual], best[mutual]], dim=1)
        cosine[pairs.flatten()] = math.inf
        cosine[:, pairs.flatten()] = math.inf
        chosen.append(pairs)
    return torch.cat(chosen)


def _checked_layer(
    weight: Tensor, bias: Tensor, x: Tensor, name: str, axes: str
) -> tuple[Float[Tensor, "*s k d"], Float[Tensor, "*s k"], Tensor]:
    sizes: dict[str, int] = {}
    weight = real_tensor(weight, "weight", "* units features", sizes)
    bias, x = real_tensor(bias, "bias", "* units", sizes), real_tensor(x, name, axes, sizes)
    weight, bias, x = same_precision(weight, bias, x)
    return weight, bias, x


def _signed_distance(x: Tensor, weight: Tensor, bias: Tensor) -> Float[Tensor, "*s n k"]:
    # Scaling a unit does not change its distances; the squares of very large or small weights would overflow.
    scale = _inverse_size(weight)
    weight, bias = weight * scale, bias * scale.squeeze(-1)
    length = torch.linalg.vector_norm(weight, dim=-1)
    # A unit without weights has no hyperplane; dividing by zero would give an infinite distance when b is not 0.
    length = length.masked_fill(length == 0, math.nan)
    return (x @ weight.mT + bias[..., None, :]) / length[..., None, :]


def _inverse_size(weight: Float[Tensor, "*s k d"]) -> Float[Tensor, "*s k 1"]:
    """Return the power of two that scales each unit's largest weight to about 1; the product is exact."""
    if weight.shape[-1] == 0:
        return weight.new_ones(*weight.shape[:-1], 1)
    largest = weight.detach().abs().amax(-1, keepdim=True)
    limit = math.frexp(torch.finfo(weight.dtype).max)[1] - 2
    power = torch.frexp(largest.double()).exponent.clamp(-limit, limit)
    return torch.exp2(-power.double()).to(weight.dtype)
