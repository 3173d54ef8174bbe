"""Gaussians with a known metric: the ground truth that distance networks are asked to learn.

Axes: N points, D features. Everything is float64; callers cast what they train on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from metriscope.functional import mahalanobis, whitening_factor
from metriscope.validation import check_shape, covariance, instance, integer, number, real_tensor

__all__ = ["Gaussian", "random_gaussian"]


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
