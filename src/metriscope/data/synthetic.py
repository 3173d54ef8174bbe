"""Gaussians with a known metric: the ground truth that distance networks are asked to learn.

Axes: N points, D features. Everything is float64; callers cast what they train on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from metriscope.common.validation import check_shape, covariance, instance, integer, number, real_tensor
from metriscope.functional import mahalanobis, whitening_factor

__all__ = ["Gaussian", "random_gaussian", "sphere_moons", "turn", "two_moons"]


@dataclass(frozen=True)
class Gaussian:
    """A normal distribution, its samples, and the Mahalanobis distance that belongs to it."""

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
        """Return the number of features."""
        return self.mean.shape[-1]

    def sample(self, count: int, generator: Generator) -> Float[Tensor, "n d"]:
        """Return ``count`` points drawn from ``generator``."""
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
    """Return a Gaussian of random place and shape, its largest variance scaled to one.

    The mean is uniform in ``[-spread, spread]``; the covariance is ``A Aᵀ + ridge I`` with standard
    normal ``A``, divided by its largest eigenvalue.

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


def turn(x: Float[Tensor, "n d"], angle: float) -> Float[Tensor, "n d"]:
    """Return the points with their first two coordinates turned by ``angle``, anticlockwise about the origin.

    >>> turn(torch.tensor([[1.0, 0.0, 7.0]]).double(), math.pi / 2).round()
    tensor([[0., 1., 7.]], dtype=torch.float64)
    """
    x, angle = real_tensor(x, "x", "points features", empty=True), number(angle, "angle")
    if x.shape[-1] < 2:
        raise ValueError(f"x must have at least two features to be rotated, got the shape {tuple(x.shape)}")
    first, second = x[:, :1], x[:, 1:2]
    cosine, sine = math.cos(angle), math.sin(angle)
    return torch.cat([cosine * first - sine * second, sine * first + cosine * second, x[:, 2:]], dim=-1)


def two_moons(count: int, generator: Generator, noise: float = 0.1) -> tuple[Float[Tensor, "n 2"], Int64[Tensor, n]]:
    """Return ``count`` points of two interleaved half circles and the moon, 0 or 1, of each, in label order.

    Half circles have radius 1, points stand on them at equal angles, and ``noise`` is the standard deviation of
    what is added to each coordinate. Then the point about which the moons mirror each other becomes the origin,
    and all points are divided by the largest norm. One factor for both axes keeps the shape; a largest norm of 1
    keeps the points in [-1, 1]² and keeps them there under every turn.

    >>> x, y = two_moons(150, torch.Generator().manual_seed(0))
    >>> x.shape, y.bincount().tolist(), round(float(x.norm(dim=-1).max()), 12)
    (torch.Size([150, 2]), [75, 75], 1.0)
    """
    count, noise = integer(count, "count", least=2), number(noise, "noise", "[0, inf)")
    instance(generator, "generator", Generator)
    upper, lower = _half_circle(count // 2), -_half_circle(count - count // 2)
    # The moons' centers are (-1/2, -1/4) and (1/2, 1/4) from the point about which they mirror each other.
    shift = torch.tensor([0.5, 0.25], dtype=torch.float64)
    x = torch.cat([upper - shift, lower + shift])
    x = x + noise * torch.randn(count, 2, generator=generator, dtype=torch.float64)
    labels = (torch.arange(count) >= count // 2).to(torch.int64)
    return x / torch.linalg.vector_norm(x, dim=-1).max(), labels


def sphere_moons(
    x: Float[Tensor, "n 2"], generator: Generator, dim: int = 100, scale: float = 0.1
) -> Float[Tensor, "n d"]:
    """Return ``scale * x`` with ``dim - 2`` more coordinates, so that every point lies on the unit sphere.

    The added coordinates are uniform on the sphere whose radius makes the whole norm 1. The signal is in the first
    two coordinates; turning it is ``turn``.

    >>> x, _ = two_moons(150, torch.Generator().manual_seed(0))
    >>> points = sphere_moons(x, torch.Generator().manual_seed(1))
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
