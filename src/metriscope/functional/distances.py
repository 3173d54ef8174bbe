"""Distances between points and centers, with a gradient that is zero, not NaN, where a distance is zero.

Axes: ``s`` seeds, ``n`` points, ``d`` features, ``k`` units or prototypes.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from metriscope.common.validation import broadcast_axes, check_shape, number, one_of, require_tensors, same_precision

__all__ = ["OffsetForm", "mahalanobis", "norm", "offset_l2", "require_form"]

OffsetForm: TypeAlias = Literal["formula", "squared-weights"]

# Entries of the largest temporary: small enough for a CPU's cache, large enough to fill an accelerator.
_BLOCK_CPU = 2**18
_BLOCK_ACCELERATOR = 2**24


def require_form(form: str, p: float = 2.0) -> None:
    """Raise a ``ValueError`` unless ``form`` is a form of the weighted distance that allows the exponent ``p``.

    >>> require_form("formula", 4)
    """
    one_of(form, "form", get_args(OffsetForm))
    if number(p, "p", "[1, inf)") != 2 and form != "formula":
        raise ValueError(f'a p-norm with p = {p:g} needs form="formula", got {form!r}')


def norm(z: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*rest"]:
    """Return the Euclidean norm of ``z`` along ``dim``; where the norm is zero, all its derivatives are zero.

    Parameters
    ----------
    z : Tensor
        Vectors along the axis ``dim``.
    dim : int
        The axis that is reduced.

    Returns
    -------
    Tensor
        The norms, without the axis ``dim``.

    Raises
    ------
    ValueError
        If ``z`` is not a dense tensor of real numbers.

    Examples
    --------
    >>> norm(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([5., 0.])
    """
    require_tensors(z=z)
    (z,) = same_precision(z)
    # The plain norm has gradient 0 at 0 but a second derivative of NaN; a constant there has neither.
    zero = torch.linalg.vector_norm(z.detach(), dim=dim, keepdim=True) == 0
    length = torch.linalg.vector_norm(z.masked_fill(zero, 1.0), dim=dim)
    return length.masked_fill(zero.squeeze(dim), 0.0)


def mahalanobis(
    x: Float[Tensor, "*s n d"], mean: Float[Tensor, "*s d"], factor: Float[Tensor, "*s k d"]
) -> Float[Tensor, "*s n"]:
    """Return the distance of each point to ``mean`` in the metric ``factorᵀ factor``.

    Parameters
    ----------
    x : Tensor of shape (..., n, d)
        Points.
    mean : Tensor of shape (..., d)
        The center.
    factor : Tensor of shape (..., k, d)
        A factor of the metric, such as ``whitening_factor(cov)`` for the Mahalanobis distance of a Gaussian.

    Returns
    -------
    Tensor of shape (..., n)
        One distance per point.

    Raises
    ------
    ValueError
        If an argument is not a tensor, or the shapes do not fit together.

    Examples
    --------
    >>> mahalanobis(torch.tensor([[3.0, 4.0]]), torch.zeros(2), torch.eye(2))
    tensor([5.])
    """
    require_tensors(x=x, mean=mean, factor=factor)
    sizes = {"features": x.shape[-1]} if x.ndim else {}
    for name, one, axes in (("x", x, "points"), ("mean", mean, ""), ("factor", factor, "units")):
        check_shape(tuple(one.shape), name, f"* {axes} features", sizes, empty=True)
    broadcast_axes((2, 1, 2), x=x, mean=mean, factor=factor)
    x, mean, factor = same_precision(x, mean, factor)
    return norm((x - mean[..., None, :]) @ factor.mT)


def offset_l2(
    x: Float[Tensor, "*n d"],
    mu: Float[Tensor, "k d"],
    alpha: Float[Tensor, "k d"],
    form: OffsetForm = "formula",
    p: float = 2.0,
) -> Float[Tensor, "*n k"]:
    """Return the weighted distance of each point to each prototype, ``‖alpha_i * (x - mu_i)‖_p``.

    Differences are computed before they are squared, so that no digits cancel far from the origin. For p = 2 the work
    is done in blocks: no tensor of points x prototypes x features is ever built, nor kept for the gradient.

    Parameters
    ----------
    x : Tensor of shape (..., d)
        Points.
    mu : Tensor of shape (k, d)
        Prototypes.
    alpha : Tensor of shape (k, d)
        One weight per prototype and feature.
    form : "formula" or "squared-weights"
        ``"formula"`` multiplies the difference by ``alpha``. ``"squared-weights"`` multiplies the squared difference,
        ``sqrt(sum_d alpha_id (x - mu_i)_d²)``, and is NaN where negative weights make that sum negative.
    p : float
        The exponent of the norm, at least 1; other values than 2 need ``"formula"``.

    Returns
    -------
    Tensor of shape (..., k)
        One distance per point and prototype.

    Raises
    ------
    ValueError
        If an argument is not a tensor, the shapes do not fit together, or ``form`` is unknown or does not allow ``p``.

    Examples
    --------
    >>> offset_l2(torch.tensor([3.0, 2.0]), torch.zeros(1, 2), torch.tensor([[1.0, 2.0]]))
    tensor([5.])
    """
    require_form(form, p)
    x, mu, alpha = _check_offset_l2(x, mu, alpha)
    if p != 2:
        return torch.linalg.vector_norm(alpha * (x.unsqueeze(-2) - mu), ord=p, dim=-1)
    weight = alpha.square() if form == "formula" else alpha
    # Like PyTorch's own norms, distances keep their precision where matrix products are cast to half of it.
    with torch.autocast(x.device.type, enabled=False):
        distances = _WeightedDistance.apply(x.reshape(-1, x.shape[-1]), mu, weight)
    return distances.reshape(*x.shape[:-1], mu.shape[0])


def _check_offset_l2(x: Tensor, mu: Tensor, alpha: Tensor) -> tuple[Tensor, ...]:
    require_tensors(x=x, mu=mu, alpha=alpha)
    if mu.ndim != 2 or mu.shape != alpha.shape:
        raise ValueError(
            f"mu and alpha must have the same shape (units, features), got {tuple(mu.shape)} and {tuple(alpha.shape)}"
        )
    if x.ndim == 0 or x.shape[-1] != mu.shape[-1]:
        raise ValueError(f"x must end in the {mu.shape[-1]} features of mu, got the shape {tuple(x.shape)}")
    return same_precision(x, mu, alpha)


def _blocks(x: Float[Tensor, "n d"]) -> tuple[list[int], int]:
    """Return the sizes of the row blocks and the number of units to treat at a time."""
    rows, features = x.shape
    if torch.compiler.is_compiling():
        # A traced batch size is a symbol: splitting rows would fix it, so only the units are split.
        return [rows], 1
    budget = _BLOCK_CPU if x.device.type == "cpu" else _BLOCK_ACCELERATOR
    height = max(1, min(rows, budget // max(1, features)))
    sizes = [min(height, rows - start) for start in range(0, rows, height)]
    return sizes or [0], max(1, budget // max(1, height * features))


def _row_distances(x: Tensor, mu: Tensor, weight: Tensor, units: int) -> Float[Tensor, "n k"]:
    blocks = zip(mu.split(units), weight.split(units), strict=True)
    # The gradient is written by hand below, so the root needs no guard at zero.
    parts = [((x - center[:, None]).square() @ share[..., None]).squeeze(-1).sqrt().mT for center, share in blocks]
    return torch.cat(parts, dim=-1)


def _row_gradients(
    x: Tensor, mu: Tensor, weight: Tensor, scale: Float[Tensor, "n k"], units: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what some rows add to the three gradients; ``scale`` is the incoming gradient divided by the distance."""
    of_x, of_mu, of_weight = torch.zeros_like(x), [], []
    blocks = zip(mu.split(units), weight.split(units), scale.mT.split(units), strict=True)
    for center, weighing, share in blocks:
        difference = x - center[:, None]
        of_x = of_x + (difference * weighing[:, None] * share[..., None]).sum(0)
        of_mu.append(-(share[:, None] @ difference).squeeze(1) * weighing)
        of_weight.append((share[:, None] @ difference.square()).squeeze(1) / 2)
    return of_x, torch.cat(of_mu), torch.cat(of_weight)


class _WeightedDistance(torch.autograd.Function):
    """``sqrt(sum_d weight_kd (x_nd - mu_kd)²)``, whose differences are computed again for the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, mu: Tensor, weight: Tensor) -> Float[Tensor, "n k"]:
        sizes, units = _blocks(x)
        return torch.cat([_row_distances(rows, mu, weight, units) for rows in x.split(sizes)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, *grads: Float[Tensor, "n k"]) -> tuple[Tensor, Tensor, Tensor]:
        x, mu, weight, distance = ctx.saved_tensors
        # Dividing by infinity makes the gradient at distance zero 0, to every order.
        scale = grads[0] / distance.masked_fill(distance == 0, torch.inf)
        sizes, units = _blocks(x)
        of_x, of_mu, of_weight = [], torch.zeros_like(mu), torch.zeros_like(weight)
        for rows, share in zip(x.split(sizes), scale.split(sizes), strict=True):
            row_x, row_mu, row_weight = _row_gradients(rows, mu, weight, share, units)
            of_x.append(row_x)
            of_mu, of_weight = of_mu + row_mu, of_weight + row_weight
        return torch.cat(of_x), of_mu, of_weight
