"""The exact linear regions of a network on a plane of its inputs.

Axes: V vertices, R regions, U units. A unit's pre-activation is affine on every region of the layers before it. So the
regions are found layer by layer: run the network at all vertices found so far, and cut at once all polygons in which a
unit changes sign. Values at the vertices are enough, because such a network is continuous.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from torch import nn

from metriscope.common.progress import progress as progress_bar
from metriscope.common.validation import integer, real_array
from metriscope.vq.regions.partition import Partition
from metriscope.vq.regions.piecewise import KinkSite, Network, check_affine, plane_of
from metriscope.vq.regions.polygons import Cutter

__all__ = ["linear_regions"]

# Values below this relative size are treated as rounding errors: a thinner region is not found.
_THIN = 1e-11
_ROUNDING = 1e-13
# With bounds up to this size, areas and products of areas are finite.
_LARGEST = 1e60
# Bytes of values that are held at once.
_ROOM = 1 << 29


def linear_regions(
    model: nn.Module,
    plane: Any = None,
    bounds: Any = ((-1.0, 1.0), (-1.0, 1.0)),
    *,
    max_regions: int | None = None,
    progress: bool = False,
) -> Partition:
    """Return all linear regions of a network on a plane, within the bounds.

    Parameters
    ----------
    model : torch.nn.Module
        Affine layers (linear, convolution, batch norm, sums, skips, concatenations, averages) and piecewise affine
        activations (ReLU, LeakyReLU, PReLU, Abs, Hardtanh, ReLU6, clamps around zero, softshrink, max pools). Any
        other layer raises an error that names it. A copy runs, in float64 and eval mode; the model is not changed.
    plane : tuple of arrays, optional
        ``(origin, u, v)``, each of the shape of one input: the point (s, t) stands for ``origin + s u + t v``. Through
        three points a, b, c: ``(a, b - a, c - a)``. Not needed for a network of two inputs, or of one.
    bounds : pair of pairs of float
        ``((s0, s1), (t0, t1))``; for one input, or a line ``(origin, u)``, just ``(s0, s1)``.
    max_regions : int, optional
        Stop with an error as soon as there are more regions.
    progress : bool
        Show a progress bar that counts units, if standard error is a terminal.

    Returns
    -------
    Partition
        The regions with their polygons, patterns and affine maps.

    Raises
    ------
    ValueError
        If the model is not piecewise affine and continuous or does not run on the plane, the plane or the bounds are
        not of the form described, or there are more than ``max_regions`` regions.

    Examples
    --------
    >>> import torch
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> _ = model[0].weight.data.copy_(torch.eye(2)), model[0].bias.data.zero_()
    >>> regions = linear_regions(model, bounds=((-1, 1), (-1, 1)))
    >>> len(regions), regions.areas.tolist(), regions.distance(*regions.locate([[-0.5, -0.5], [0.5, 0.5]]))
    (4, [1.0, 1.0, 1.0, 1.0], 2)
    """
    low, high, dims = _bounds(bounds)
    if plane is not None and dims == 1:
        plane = (*plane, *[np.zeros_like(real_array(part, "each part of plane")) for part in plane[-1:]])
    network = Network(model, plane_of(plane, dims))
    cutter, most = Cutter(low, high), None if max_regions is None else integer(max_regions, "max_regions")
    units = sum(_steps(site) for site in network.sites)
    done = 0
    with progress_bar("cutting along units", units) if progress else nullcontext(lambda _: None) as show:
        for site in network.sites:
            for _ in (_cut_by_levels if site.windows is None else _cut_by_pool)(cutter, network, site):
                done += 1
                show(done)
                if most is not None and len(cutter) > most:
                    raise ValueError(
                        f"there are more than max_regions = {most:,} regions: {len(cutter):,} after {done:,} of "
                        f"{units:,} units, in layer {site.layer.name!r}; choose narrower bounds or a larger max_regions"
                    )
    check_affine(cutter.mesh, network, None, network.outputs(cutter.vertices))
    return Partition(cutter.mesh, network, (low, high), dims)


def _bounds(bounds: Any) -> tuple[tuple[float, float], tuple[float, float], int]:
    """Return the lower and upper corner, and the number of dimensions; a line is a strip of height one."""
    pairs = real_array(bounds, "bounds")
    if pairs.shape not in ((2,), (2, 2)):
        raise ValueError(f"bounds must be ((s0, s1), (t0, t1)), or (s0, s1) for a line, got the shape {pairs.shape}")
    dims = pairs.ndim
    pairs = pairs if dims == 2 else np.stack([pairs, [0.0, 1.0]])
    if not (pairs[:, 0] < pairs[:, 1]).all():
        raise ValueError(f"bounds must rise from low to high, got {pairs[:dims].tolist()}")
    if np.abs(pairs).max() > _LARGEST:
        raise ValueError(f"bounds must be at most {_LARGEST:.0e} in size, got {np.abs(pairs).max():.3g}")
    low, high = (tuple(float(one) for one in pairs[:, side]) for side in (0, 1))
    return (low[0], low[1]), (high[0], high[1]), dims


def _steps(site: KinkSite) -> int:
    """Return the number of units or windows of an activation."""
    return site.layer.width // len(site.levels) if site.windows is None else len(site.windows)


def _cut_by_levels(cutter: Cutter, network: Network, site: KinkSite) -> Iterator[None]:
    """Cut along every threshold of every unit, and stop after each unit."""
    width = site.layer.width // len(site.levels)
    for units in _shares(width, len(cutter.vertices)):
        values = network.values(cutter.vertices, site, units)
        check_affine(cutter.mesh, network, site, values, units)
        scale = np.abs(values).max(initial=0.0)
        for level in site.levels:
            cutter.load(values - level)
            changing = set(_changing(values - level).tolist())
            for unit in range(values.shape[1]):
                if unit in changing:
                    cutter.cut(unit, _tolerance(cutter.values(unit), scale), slice(unit + 1, None))
                if level == site.levels[-1]:
                    yield
            if len(site.levels) > 1:
                values = network.values(cutter.vertices, site, units)


def _cut_by_pool(cutter: Cutter, network: Network, site: KinkSite) -> Iterator[None]:
    """Cut along the borders between the winners of every window, and stop after each window."""
    assert site.windows is not None
    for some in _shares(len(site.windows), len(cutter.vertices) * site.windows.shape[1]):
        windows = site.windows[some]
        units = np.unique(windows[windows >= 0])
        values = network.values(cutter.vertices, site, units)
        check_affine(cutter.mesh, network, site, values, units)
        cutter.load(values)
        scale = np.abs(values).max(initial=0.0)
        for window in windows:
            _cut_by_window(cutter, np.searchsorted(units, window[window >= 0]), _THIN * scale)
            yield


def _cut_by_window(cutter: Cutter, rivals: Int64[np.ndarray, " k"], tolerance: float) -> None:
    """Cut polygons without a single winner along all borders between rivals, then join those with the same winner.

    Borders between two rivals that do not win there are cut as well, and removed by merging, so that polygons stay
    convex.
    """
    given = np.stack([cutter.values(one) for one in rivals])
    decided = cutter.everywhere(given >= given.max(0) - tolerance).any(0)
    if decided.all():
        return
    since, cutter.origin = len(cutter.vertices), np.where(decided, -1, np.arange(len(cutter)))
    for one, other in combinations(rivals.tolist(), 2):
        cutter.cut_between(one, other, tolerance, np.flatnonzero(cutter.origin >= 0))
    rows = np.flatnonzero(cutter.origin >= 0)
    inside = cutter.means(rivals, rows)
    winner = (inside >= inside.max(0) - tolerance).argmax(0)
    cutter.merge(rows, cutter.origin[rows] * len(rivals) + winner)
    cutter.tidy(np.flatnonzero(cutter.origin >= 0), since)


def _shares(width: int, vertices: int) -> Iterator[Int64[np.ndarray, " u"]]:
    """Yield the units in as few parts as memory allows, with room for new vertices."""
    count = max(1, _ROOM // (32 * vertices))
    yield from np.split(np.arange(width), range(count, width, count))


def _changing(values: Float64[np.ndarray, "v u"]) -> Int64[np.ndarray, " n"]:
    return np.flatnonzero((values.min(0) < 0) & (values.max(0) > 0))


def _tolerance(values: Float64[np.ndarray, " v"], scale: float) -> float:
    return float(max(_THIN * np.abs(values).max(), _ROUNDING * scale))
