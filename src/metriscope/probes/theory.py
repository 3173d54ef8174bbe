"""What theory predicts for a distance network that has lost some directions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from metriscope import functional
from metriscope.common.validation import integer

__all__ = ["LostDirections", "lost_directions"]


@dataclass(frozen=True)
class LostDirections:
    """Properties of the best distance network that has lost some directions and whitens the others.

    Parameters
    ----------
    dim : int
        The number of features.
    lost : int
        How many directions are lost.
    constant : float
        The constant that replaces them.
    loss : float
        The smallest possible mean squared error.
    sphericity : float
        The sphericity of the layer.

    Examples
    --------
    >>> LostDirections(dim=2, lost=0, constant=0.0, loss=0.0, sphericity=0.0) == lost_directions(2, 0)
    True
    """

    dim: int
    lost: int
    constant: float
    loss: float
    sphericity: float


def lost_directions(dim: int, lost: int) -> LostDirections:
    """Return the properties of the distance network with the smallest loss among those that lost ``lost`` directions.

    The loss is the minimum of ``E (sqrt(a q + c²) - sqrt(q + p))²`` over scale a and constant c, where q and p are
    chi-squared with ``dim - lost`` and ``lost`` degrees of freedom, by Gauss-Legendre quadrature.

    Parameters
    ----------
    dim : int
        The number of features.
    lost : int
        How many directions are lost, fewer than ``dim``.

    Returns
    -------
    LostDirections
        The loss, the constant and the sphericity.

    Raises
    ------
    ValueError
        If ``dim`` is not a positive integer, or ``lost`` is not an integer from 0 to ``dim - 1``.

    Examples
    --------
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
    # The nodes are in the root of chi-squared, in which the integrand is smooth at the origin.
    from scipy.stats import chi

    points, weights = np.polynomial.legendre.leggauss(nodes)
    low, high = max(0.0, degrees**0.5 - 9), degrees**0.5 + 9
    roots = low + (high - low) * (points + 1) / 2
    mass = weights * chi(degrees).pdf(roots)
    return roots**2, mass / mass.sum()
