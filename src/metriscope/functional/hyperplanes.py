"""Hyperplanes: how far points lie from each unit's hyperplane, and which units mirror each other.

Axes: ``s`` seeds, ``n`` points, ``d`` features, ``k`` units, ``p`` pairs.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["bias_through", "deduplicate", "distance_to_point", "mirrored_pairs", "signed_distance"]


def bias_through(weight: Float[Tensor, "*s k d"], points: Float[Tensor, "*s k d"]) -> Float[Tensor, "*s k"]:
    """Return the bias ``-w_k · x_k`` that sends the hyperplane of each unit through its own point.

    >>> bias_through(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([-11.])
    """
    if weight.shape[-2:] != points.shape[-2:]:
        raise ValueError(
            "each unit needs one point of its own: "
            f"weights have shape {tuple(weight.shape)}, points {tuple(points.shape)}"
        )
    return -(weight * points).sum(-1)


def signed_distance(
    x: Float[Tensor, "*s n d"], weight: Float[Tensor, "*s k d"], bias: Float[Tensor, "*s k"]
) -> Float[Tensor, "*s n k"]:
    """Return ``(w · x + b) / ‖w‖``, positive on the side ``w`` points to; NaN where ``w`` is zero.

    >>> signed_distance(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]]), torch.tensor([-2.0]))
    tensor([[3.]])
    """
    _check_hyperplanes(x, weight, bias)
    length = torch.linalg.vector_norm(weight, dim=-1)
    # A unit without weights has no hyperplane; dividing would call it infinitely far when b is not 0.
    length = length.masked_fill(length == 0, math.nan)
    return (x @ weight.mT + bias[..., None, :]) / length[..., None, :]


def distance_to_point(
    point: Float[Tensor, "*s d"], weight: Float[Tensor, "*s k d"], bias: Float[Tensor, "*s k"]
) -> Float[Tensor, "*s k"]:
    """Return the distance ``|w · p + b| / ‖w‖`` of one point to each hyperplane; NaN where ``w`` is zero.

    >>> distance_to_point(torch.tensor([3.0, 4.0]), torch.tensor([[0.0, -2.0]]), torch.tensor([2.0]))
    tensor([3.])
    """
    return signed_distance(point[..., None, :], weight, bias).squeeze(-2).abs()


def mirrored_pairs(weight: Float[Tensor, "k d"], threshold: float = 0.999) -> Float[Tensor, "p 3"]:
    """Return rows ``(i, j, cosine)``, ``i < j``, of units that point opposite ways, most mirrored first.

    A pair needs a cosine of at most ``-threshold``. Each unit is used at most once, the most mirrored
    pairs choosing first and equals in the order of their units. Units without weights pair with none.

    >>> mirrored_pairs(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-2.0, 0.0]]))
    tensor([[ 0.,  2., -1.]], dtype=torch.float64)
    """
    if weight.ndim != 2:
        raise ValueError(f"weights must have the shape (units, features), got {tuple(weight.shape)}")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], got {threshold}")
    cosine = _cosines(weight)
    # Exact opposites may miss -1 by the rounding of a sum of d products.
    rounding = weight.shape[-1] * torch.finfo(cosine.dtype).eps
    open_cosine = cosine.masked_fill(~(cosine <= -threshold + rounding), math.inf)
    pairs = _choose_pairs(open_cosine)
    rows = torch.cat([pairs.double(), cosine[pairs[:, 0], pairs[:, 1], None]], dim=1)
    return rows[_lexicographic(rows[:, 0], rows[:, 2])]


def deduplicate(
    weight: Float[Tensor, "k d"], bias: Float[Tensor, " k"], threshold: float = 0.999
) -> tuple[Float[Tensor, "u d"], Float[Tensor, " u"]]:
    """Return the weights and biases with one unit, the first, kept of each mirrored pair.

    >>> deduplicate(torch.tensor([[1.0, 0.0], [-2.0, 0.0]]), torch.tensor([3.0, 4.0]))
    (tensor([[1., 0.]]), tensor([3.]))
    """
    if bias.shape != weight.shape[:1]:
        raise ValueError(f"{weight.shape[0]} units need as many biases, got shape {tuple(bias.shape)}")
    keep = torch.ones(weight.shape[0], dtype=torch.bool, device=weight.device)
    keep[mirrored_pairs(weight, threshold)[:, 1].long()] = False
    return weight[keep], bias[keep]


def _cosines(weight: Float[Tensor, "k d"]) -> Float[Tensor, "k k"]:
    weight = weight.detach().double()
    direction = weight / torch.linalg.vector_norm(weight, dim=-1, keepdim=True)
    return direction @ direction.mT


def _choose_pairs(cosine: Float[Tensor, "k k"]) -> Tensor:
    """Return pairs (i, j), i < j, chosen greedily from the smallest cosine; infinity bars a pair.

    The globally smallest entry is always the best of both its units, so taking in each round every pair
    whose units prefer each other gives what taking them one by one would.
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


def _lexicographic(minor: Tensor, major: Tensor) -> Tensor:
    order = minor.argsort(stable=True)
    return order[major[order].argsort(stable=True)]


def _check_hyperplanes(x: Tensor, weight: Tensor, bias: Tensor) -> None:
    if x.shape[-1] != weight.shape[-1]:
        raise ValueError(f"points have {x.shape[-1]} features, the weights have {weight.shape[-1]}")
    if bias.shape[-1:] != weight.shape[-2:-1]:
        raise ValueError(f"{weight.shape[-2]} units need as many biases, got shape {tuple(bias.shape)}")
