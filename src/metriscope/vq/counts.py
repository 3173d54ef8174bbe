"""Counts and scores that sign patterns give under other names: linear regions, local complexity, NASWOT.

Axes: ``n`` points, ``h`` bits, ``d`` features, ``r`` distinct patterns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from metriscope.rng import stream
from metriscope.validation import instance, integer, number, real_tensor
from metriscope.vq.patterns import Patterns

__all__ = ["local_complexity", "naswot_score", "pattern_multiplicities", "region_count"]

# As many directions as are usual for images, where all of them would be thousands of forward passes.
_DIRECTIONS = 32


def region_count(p: Patterns) -> int:
    """Return the number of distinct patterns among the points: the linear regions that they visit.

    Where every layer is piecewise affine, points with the same pattern lie where the network is one affine
    map; the number is a lower bound of the number of regions, and at most ``len(p)``. Of other layers it
    counts the cells that their sign changes cut. No points visit no region.

    Regions as a measure of a network: Pascanu, Montúfar & Bengio, "On the number of response regions of
    deep feed forward networks with piece-wise linear activations" (ICLR 2014); Montúfar, Pascanu, Cho &
    Bengio, "On the number of linear regions of deep neural networks" (NeurIPS 2014).

    Laws: does not change with the order of units or points, with points or units taken twice, with a positive
    scale or a turned sign of a unit. A unit or a point more never makes it smaller.

    >>> from metriscope.vq.patterns import Layer
    >>> region_count(Patterns((Layer("act", 8, "relu"),), np.array([[3], [1], [3]], np.uint8)))
    2
    """
    return len(pattern_multiplicities(p))


def pattern_multiplicities(p: Patterns) -> Int64[np.ndarray, " r"]:
    """Return how many points share each distinct pattern, largest first; they add up to ``len(p)``.

    >>> from metriscope.vq.patterns import Layer
    >>> pattern_multiplicities(Patterns((Layer("act", 8, "relu"),), np.array([[3], [1], [3]], np.uint8)))
    array([2, 1])
    """
    if len(instance(p, "p", Patterns)) == 0 or p.width == 0:
        return np.full(int(len(p) > 0), len(p), np.int64)
    rows = np.ascontiguousarray(p.packed)
    # One opaque value a row sorts by memory alone, many times quicker than sorting rows.
    _, counts = np.unique(rows.view(np.dtype((np.void, rows.shape[1]))), return_counts=True)
    return np.sort(counts.astype(np.int64))[::-1].copy()


def local_complexity(
    model: nn.Module, point: Any, radius: float, samples: int | None = None, seed: int = 0, **options: Any
) -> int:
    """Return how many bits change sign among the corners of a cross-polytope round ``point``.

    The corners are ``point ± radius * v_i`` for ``samples`` orthonormal directions ``v_i``, drawn uniformly,
    each from its own stream of ``seed``; at most as many as the point has features, by default all up to 32.
    A bit counts if it is not the same at every corner. For a unit of the first layer that is so exactly if its
    hyperplane separates corners; for a deeper one it is a lower bound, since it may change and change back
    between corners. ``options`` go to ``metriscope.capture``.

    After Humayun, Balestriero & Baraniuk, "Deep networks always grok and here is why" (ICML 2024).

    Range: 0 to the number of bits. It is defined for a positive radius only, and anything else is an error.
    """
    corners = _corners(_checked_point(point), radius, samples, seed)
    # Capture is heavy, and the other counts do without it.
    from metriscope.vq.capture import capture

    # Of an array capture chooses the precision itself; a tensor keeps its own.
    data = corners if isinstance(point, Tensor) else corners.numpy()
    packed = capture(model, data, **options).packed
    changing = np.bitwise_or.reduce(packed ^ packed[0], axis=0)
    return int(np.unpackbits(changing).sum())


def naswot_score(p: Patterns) -> float:
    """Return ``log |det K|`` of the kernel ``K_ij = h - d_ij``, how many units agree at two points.

    Larger means that the network tells the points apart more clearly. It is -inf, the logarithm of zero,
    where ``K`` is singular within rounding: two equal patterns suffice, and so do more than ``h + 1`` points.
    Without points or units there is no kernel, and the score is NaN.

    Mellor, Turner, Storkey & Crowley, "Neural architecture search without training" (ICML 2021).

    Laws: does not change with the order of units or points, with a positive scale or a turned sign of a unit.
    It does with a unit that never changes, which adds 1 to every entry.

    >>> from metriscope.vq.patterns import Layer
    >>> p = Patterns((Layer("act", 8, "relu"),), np.array([[0], [255]], np.uint8))
    >>> bool(np.isclose(naswot_score(p), np.log(64)))
    True
    """
    if len(instance(p, "p", Patterns)) == 0 or p.width == 0:
        return math.nan
    signs = p.signs().astype(np.float64)
    # With s = ±1 the product s·s' is agreements less disagreements, and both add up to h.
    eigenvalues = np.linalg.eigvalsh((p.width + signs @ signs.T) / 2)
    if eigenvalues[0] <= eigenvalues[-1] * len(p) * np.finfo(np.float64).eps:
        return -math.inf
    return float(np.log(eigenvalues).sum())


def _checked_point(point: Any) -> Tensor:
    found = real_tensor(point, "point").detach().cpu()
    floating = point.is_floating_point() if isinstance(point, Tensor) else np.asarray(point).dtype.kind == "f"
    if not floating:
        raise ValueError("point must hold floating-point numbers to be moved, got whole numbers or booleans")
    return found


def _corners(point: Float[Tensor, "*shape"], radius: float, samples: int | None, seed: int) -> Tensor:
    """Return the corners, those in the positive directions first."""
    features = point.numel()
    count = min(features, _DIRECTIONS) if samples is None else samples
    radius, count = number(radius, "radius", "(0, inf)"), integer(count, "samples", 1, features)
    streams = [stream(seed, "local-complexity", i) for i in range(count)]
    drawn = [torch.randn(features, generator=generator, dtype=torch.float64) for generator in streams]
    # A positive diagonal of R makes the orthonormal columns uniformly distributed.
    axes, triangle = torch.linalg.qr(torch.stack(drawn, dim=1))
    steps = radius * (axes * triangle.diagonal().sign()).mT.reshape(count, *point.shape)
    return torch.cat([point + steps, point - steps]).to(point.dtype)
