"""Synthetic data: Gaussians with a known Mahalanobis distance, and two moons in the plane or on a sphere.

Axes: N points, D features. Everything is float64; callers cast what they train on.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from metriscope.common.validation import check_shape, covariance, instance, integer, number, real_tensor
from metriscope.functional import mahalanobis, whitening_factor

__all__ = ["Gaussian", "random_gaussian", "rotate", "sphere_moons", "turn", "two_moons"]


@dataclass(frozen=True)
class Gaussian:
    """A normal distribution, its samples, and its Mahalanobis distance.

    Parameters
    ----------
    mean : Tensor of shape (d,)
        Mean.
    cov : Tensor of shape (d, d)
        Covariance, which must be symmetric.

    Raises
    ------
    ValueError
        If ``mean`` or ``cov`` is not finite or has another shape, or ``cov`` is not symmetric.

    Examples
    --------
    >>> gaussian = Gaussian(torch.zeros(2), torch.diag(torch.tensor([4.0, 1.0])))
    >>> gaussian.distance(torch.tensor([[2.0, 0.0]]))
    tensor([1.], dtype=torch.float64)
    >>> gaussian.sample(5, torch.Generator().manual_seed(0)).shape
    torch.Size([5, 2])
    """

    mean: Float[Tensor, d]
    cov: Float[Tensor, "d d"]

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        mean = real_tensor(self.mean, "mean", "features", sizes).double()
        cov = covariance(self.cov, "cov", sizes=sizes)
        check_shape(tuple(cov.shape), "cov", "features features", sizes, empty=False)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "cov", cov)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.mean.shape[-1]

    def sample(self, count: int, generator: Generator) -> Float[Tensor, "n d"]:
        """Return ``count`` points drawn from ``generator``.

        Raises
        ------
        ValueError
            If ``count`` is negative, or the covariance is not positive definite.
        """
        count = integer(count, "count", least=0)
        instance(generator, "generator", Generator)
        noise = torch.randn(count, self.dim, generator=generator, dtype=torch.float64)
        root, failed = torch.linalg.cholesky_ex(self.cov)
        if bool(failed):
            raise ValueError(
                "cov must be a covariance that is positive definite to draw points from, got one that is not"
            )
        return self.mean + noise @ root.mT

    def distance(self, x: Float[Tensor, "n d"]) -> Float[Tensor, n]:
        """Return the true Mahalanobis distance of each point to the mean."""
        points = real_tensor(x, "x", "points features", {"features": self.dim}, empty=True)
        return mahalanobis(points.to(torch.float64), self.mean, whitening_factor(self.cov))


def random_gaussian(dim: int, generator: Generator, ridge: float = 1e-3, spread: float = 10.0) -> Gaussian:
    """Return a Gaussian with random mean and covariance, its largest variance scaled to one.

    The mean is uniform in ``[-spread, spread]``; the covariance is ``A Aᵀ + ridge I`` with standard normal ``A``,
    divided by its largest eigenvalue.

    Parameters
    ----------
    dim : int
        Number of features.
    generator : torch.Generator
        Source of random numbers.
    ridge : float
        What is added to the diagonal of the covariance before scaling.
    spread : float
        Largest absolute value of an entry of the mean.

    Returns
    -------
    Gaussian
        The distribution.

    Raises
    ------
    ValueError
        If a number is out of range, or ``generator`` is not a ``torch.Generator``.

    Examples
    --------
    >>> gaussian = random_gaussian(3, torch.Generator().manual_seed(0))
    >>> bool(torch.isclose(torch.linalg.eigvalsh(gaussian.cov)[-1], torch.tensor(1.0).double()))
    True
    """
    dim, ridge, spread = integer(dim, "dim"), number(ridge, "ridge", "[0, inf)"), number(spread, "spread", "[0, inf)")
    instance(generator, "generator", Generator)
    mean = (2 * torch.rand(dim, generator=generator, dtype=torch.float64) - 1) * spread
    root = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    cov = root @ root.mT + ridge * torch.eye(dim, dtype=torch.float64)
    return Gaussian(mean, cov / torch.linalg.eigvalsh(cov)[-1])


def rotate(x: Float[Tensor, "n d"], angle: float) -> Float[Tensor, "n d"]:
    """Rotate the first two coordinates of points counterclockwise about the origin.

    Parameters
    ----------
    x : Tensor of shape (n, d)
        Points with at least two features.
    angle : float
        Angle in radians.

    Returns
    -------
    Tensor of shape (n, d)
        Rotated points; further coordinates stay as they are.

    Raises
    ------
    ValueError
        If the points have fewer than two features or ``angle`` is not finite.

    Examples
    --------
    >>> rotate(torch.tensor([[1.0, 0.0, 7.0]]).double(), math.pi / 2).round()
    tensor([[0., 1., 7.]], dtype=torch.float64)
    """
    x, angle = real_tensor(x, "x", "points features", empty=True), number(angle, "angle")
    if x.shape[-1] < 2:
        raise ValueError(f"x must have at least two features to be rotated, got the shape {tuple(x.shape)}")
    first, second = x[:, :1], x[:, 1:2]
    cosine, sine = math.cos(angle), math.sin(angle)
    return torch.cat([cosine * first - sine * second, sine * first + cosine * second, x[:, 2:]], dim=-1)


def turn(x: Float[Tensor, "n d"], angle: float) -> Float[Tensor, "n d"]:
    """Rotate points; deprecated name of :func:`rotate`."""
    warnings.warn("metriscope.data.turn is called metriscope.data.rotate now", DeprecationWarning, stacklevel=2)
    return rotate(x, angle)


def two_moons(count: int, generator: Generator, noise: float = 0.1) -> tuple[Float[Tensor, "n 2"], Int64[Tensor, n]]:
    """Return points of two interleaved half circles, and the moon of each point.

    The half circles have radius 1, with points at equal angles. After the noise is added, the points are divided by
    the largest norm, so that they lie in [-1, 1]² under every rotation. The origin is the point about which the moons
    are symmetric.

    Parameters
    ----------
    count : int
        Number of points, at least two; half of them in each moon.
    generator : torch.Generator
        Source of random numbers.
    noise : float
        Standard deviation of the noise in each coordinate, before scaling.

    Returns
    -------
    x : Tensor of shape (count, 2)
        Points, those of moon 0 first.
    y : int64 Tensor of shape (count,)
        Moon of each point, 0 or 1.

    Raises
    ------
    ValueError
        If a number is out of range, or ``generator`` is not a ``torch.Generator``.

    Examples
    --------
    >>> x, y = two_moons(150, generator=torch.Generator().manual_seed(0))
    >>> x.shape, y.bincount().tolist(), round(float(x.norm(dim=-1).max()), 12)
    (torch.Size([150, 2]), [75, 75], 1.0)
    """
    count, noise = integer(count, "count", least=2), number(noise, "noise", "[0, inf)")
    instance(generator, "generator", Generator)
    upper, lower = _half_circle(count // 2), -_half_circle(count - count // 2)
    # The centers of the half circles are (-1/2, -1/4) and (1/2, 1/4).
    shift = torch.tensor([0.5, 0.25], dtype=torch.float64)
    x = torch.cat([upper - shift, lower + shift])
    x = x + noise * torch.randn(count, 2, generator=generator, dtype=torch.float64)
    labels = (torch.arange(count) >= count // 2).to(torch.int64)
    return x / torch.linalg.vector_norm(x, dim=-1).max(), labels


def sphere_moons(
    x: Float[Tensor, "n 2"], generator: Generator, dim: int = 100, scale: float = 0.1
) -> Float[Tensor, "n d"]:
    """Embed points of the plane in more dimensions, on the unit sphere.

    The first two coordinates are ``scale * x``; the others are uniform on the sphere whose radius makes the whole norm
    1. :func:`rotate` rotates the first two.

    Parameters
    ----------
    x : Tensor of shape (n, 2)
        Points, such as those of :func:`two_moons`.
    generator : torch.Generator
        Source of random numbers.
    dim : int
        Number of features of the result, at least three.
    scale : float
        Factor of ``x``.

    Returns
    -------
    Tensor of shape (n, dim)
        Points of norm 1.

    Raises
    ------
    ValueError
        If a scaled point has a norm above 1.

    Examples
    --------
    >>> x, _ = two_moons(150, generator=torch.Generator().manual_seed(0))
    >>> points = sphere_moons(x, generator=torch.Generator().manual_seed(1))
    >>> points.shape, bool(torch.allclose(points.norm(dim=-1), torch.ones(150).double()))
    (torch.Size([150, 100]), True)
    """
    x, dim, scale = real_tensor(x, "x", "points 2"), integer(dim, "dim", least=3), number(scale, "scale")
    instance(generator, "generator", Generator)
    signal = scale * x.to(torch.float64)
    rest = 1 - signal.square().sum(dim=-1, keepdim=True)
    if bool((rest < 0).any()):
        raise ValueError(f"x scaled by {scale} must have norms of at most 1, got {float((1 - rest.min()).sqrt()):.3g}")
    noise = torch.randn(len(x), dim - 2, generator=generator, dtype=torch.float64)
    return torch.cat([signal, rest.sqrt() * noise / torch.linalg.vector_norm(noise, dim=-1, keepdim=True)], dim=-1)


def _half_circle(count: int) -> Float[Tensor, "n 2"]:
    angles = torch.linspace(0, math.pi, count, dtype=torch.float64)
    return torch.stack([angles.cos(), angles.sin()], dim=-1)
