"""Whitening: the linear maps under which a Gaussian becomes spherical, and how far a layer is from one.

Axes: ``s`` seeds, ``d`` features, ``k`` units. Everything here is measured and returned in float64.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from metriscope.common.validation import broadcast_axes, covariance, integer, number, real_tensor

__all__ = ["expected_sphericity", "learned_covariance", "principal_axes", "sphericity", "whitening_factor"]


def expected_sphericity(lost: float, d: int) -> float:
    """Return the sphericity of a metric that lost ``lost`` of ``d`` directions and is white in the others.

    Parameters
    ----------
    lost : float
        How many directions are lost, from 0 to ``d``; a mean over several networks need not be whole.
    d : int
        The number of features.

    Returns
    -------
    float
        ``sqrt(lost * d / (d - lost))``; NaN if all directions are lost, as then there is no scale to compare with.

    Raises
    ------
    ValueError
        If ``lost`` is not between 0 and ``d``.

    Examples
    --------
    >>> round(expected_sphericity(1, 2), 3), round(expected_sphericity(1, 10), 3)
    (1.414, 1.054)
    """
    lost = number(lost, "lost", f"[0, {integer(d, 'd')}]")
    return math.sqrt(lost * d / (d - lost)) if lost < d else math.nan


def learned_covariance(weight: Float[Tensor, "*s k d"], cov: Float[Tensor, "*s d d"]) -> Float[Tensor, "*s k k"]:
    """Return the covariance ``W cov Wᵀ`` of a layer's pre-activations.

    Parameters
    ----------
    weight : Tensor of shape (..., k, d)
        The weights of the layer.
    cov : Tensor of shape (..., d, d)
        The covariance of its inputs.

    Returns
    -------
    Tensor of shape (..., k, k)
        The covariance of its outputs.

    Raises
    ------
    ValueError
        If the shapes do not fit together, or ``cov`` is not symmetric.

    Examples
    --------
    >>> learned_covariance(torch.tensor([[2.0, 0.0]]), torch.eye(2))
    tensor([[4.]], dtype=torch.float64)
    """
    sizes: dict[str, int] = {}
    weight = real_tensor(weight, "weight", "* units features", sizes).double()
    cov = covariance(cov, "cov", sizes=sizes)
    broadcast_axes(2, weight=weight, cov=cov)
    return weight @ cov @ weight.mT


def sphericity(weight: Float[Tensor, "*s k d"], cov: Float[Tensor, "*s d d"]) -> Float[Tensor, "*s"]:
    """Return ``‖M / mean(diag M) - I‖_F`` for ``M = W cov Wᵀ``: 0 when the layer whitens up to scale.

    Parameters
    ----------
    weight : Tensor of shape (..., k, d)
        The weights of the layer.
    cov : Tensor of shape (..., d, d)
        The covariance of its inputs.

    Returns
    -------
    Tensor of shape (...)
        One number per layer; NaN for a layer that is constant on the data.

    Raises
    ------
    ValueError
        If the shapes do not fit together, or ``cov`` is not symmetric.

    Examples
    --------
    >>> sphericity(torch.eye(2), torch.diag(torch.tensor([1.0, 3.0])))
    tensor(0.7071, dtype=torch.float64)
    """
    learned = learned_covariance(weight, cov)
    scale = learned.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    shape = learned / scale.masked_fill(scale == 0, math.nan)
    identity = torch.eye(learned.shape[-1], dtype=learned.dtype, device=learned.device)
    return torch.linalg.matrix_norm(shape - identity)


def principal_axes(
    cov: Float[Tensor, "*s d d"],
) -> tuple[Float[Tensor, "*s d"], Float[Tensor, "*s d d"]]:
    """Return the principal axes of a covariance and the variances along them, largest first.

    Parameters
    ----------
    cov : Tensor of shape (..., d, d)
        The covariance.

    Returns
    -------
    variances : Tensor of shape (..., d)
        The eigenvalues, in descending order.
    axes : Tensor of shape (..., d, d)
        The eigenvectors as rows, each with its largest entry positive.

    Raises
    ------
    ValueError
        If ``cov`` is not square, finite and symmetric.

    Examples
    --------
    >>> variances, axes = principal_axes(torch.diag(torch.tensor([1.0, 3.0])))
    >>> variances, axes
    (tensor([3., 1.], dtype=torch.float64), tensor([[0., 1.], [1., 0.]], dtype=torch.float64))
    """
    cov = covariance(cov)
    variances, vectors = torch.linalg.eigh((cov + cov.mT) / 2)
    axes = vectors.mT.flip(-2)
    largest = axes.gather(-1, axes.abs().argmax(-1, keepdim=True))
    # Adding zero changes the -0.0 that a flipped sign leaves behind to 0.0.
    return variances.flip(-1), axes * largest.sign() + 0.0


def whitening_factor(cov: Float[Tensor, "*s d d"]) -> Float[Tensor, "*s d d"]:
    """Return ``L^-1/2 Vᵀ``, which maps a Gaussian with this covariance to one with the identity as covariance.

    Parameters
    ----------
    cov : Tensor of shape (..., d, d)
        The covariance, positive definite.

    Returns
    -------
    Tensor of shape (..., d, d)
        Whitening directions as rows, from the largest variance to the smallest.

    Raises
    ------
    ValueError
        If ``cov`` is not square, finite, symmetric and positive definite.

    Examples
    --------
    >>> whitening_factor(torch.diag(torch.tensor([0.25, 4.0])))
    tensor([[0.0000, 0.5000],
            [2.0000, 0.0000]], dtype=torch.float64)
    """
    variances, axes = principal_axes(cov)
    # An eigenvalue this far below the largest is rounding, whatever its sign.
    floor = variances[..., 0].abs() * variances.shape[-1] * torch.finfo(variances.dtype).eps
    if bool((variances[..., -1] <= floor).any()):
        raise ValueError(
            "cov must be a covariance that is positive definite, "
            f"got a smallest eigenvalue of {float(variances[..., -1].min()):.3g}"
        )
    return axes / variances.sqrt()[..., None]
