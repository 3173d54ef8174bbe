"""Geometry on a mesh of convex polygons: borders between the largest of several functions, and points in polygons.

Axes: R polygons, C corners, O functions, N points, B segments.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from metriscope.vq.mesh import Mesh, runs

__all__ = ["decision_segments", "depths", "nearest_polygon"]

# Numbers of points times corners that are compared at once.
_CHUNK = 1 << 24


def decision_segments(mesh: Mesh, values: Float64[np.ndarray, "v o"]) -> Float64[np.ndarray, "b 2 2"]:
    """Return where the only function is zero, or where the two largest of several meet, as segments.

    Each pair of functions is equal along one chord of a polygon at most; of that, what no third function exceeds is
    part of the border.
    """
    if values.shape[1] == 1:
        values = np.concatenate([values, np.zeros_like(values)], 1)
    found = []
    for a, b in combinations(range(values.shape[1]), 2):
        ends, heights = _chords(mesh, values[:, a] - values[:, b], values)
        others = np.delete(heights, [a, b], axis=2)
        begin, end = _uncovered(heights[:, :, a], others)
        kept = begin < end
        ends, begin, end = ends[kept], begin[kept, None], end[kept, None]
        across = ends[:, 1] - ends[:, 0]
        found.append(np.stack([ends[:, 0] + begin * across, ends[:, 0] + end * across], 1))
    return np.concatenate(found)


def _chords(
    mesh: Mesh, gap: Float64[np.ndarray, " v"], values: Float64[np.ndarray, "v o"]
) -> tuple[Float64[np.ndarray, "n 2 2"], Float64[np.ndarray, "n 2 o"]]:
    """Return the two points on the outline of each polygon where a function is zero, and all values at them."""
    here, there = gap[mesh.corners], gap[mesh.following]
    # A zero at a corner belongs to the side that begins there.
    sides = np.flatnonzero(((here < 0) & (there > 0)) | ((here > 0) & (there < 0)) | ((here == 0) & (there != 0)))
    owners = mesh.owners[sides]
    pairs = np.flatnonzero((owners[1:] == owners[:-1]) & (np.bincount(owners, minlength=len(mesh))[owners[1:]] == 2))
    both = sides[np.stack([pairs, pairs + 1], 1)]
    share = (here[both] / (here[both] - there[both]))[..., None]
    a, b = mesh.corners[both], mesh.following[both]
    ends = mesh.vertices[a] + share * (mesh.vertices[b] - mesh.vertices[a])
    return ends, values[a] + share * (values[b] - values[a])


def _uncovered(
    ours: Float64[np.ndarray, "n 2"], others: Float64[np.ndarray, "n 2 o"]
) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    """Return the share of each chord, from and to, on which no other function exceeds ours."""
    lead = ours[..., None] - others
    first, last = lead[:, 0], lead[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = first / (first - last)
    begin = np.where(first < 0, np.where(last < 0, np.inf, crossing), 0.0).max(1, initial=0.0)
    end = np.where(last < 0, np.where(first < 0, -np.inf, crossing), 1.0).min(1, initial=1.0)
    return begin, end


def nearest_polygon(mesh: Mesh, points: Float64[np.ndarray, "n 2"]) -> Int64[np.ndarray, " n"]:
    """Return the polygon in which each point lies deepest, of all; meant for few points."""
    found = np.empty(len(points), np.int64)
    step = max(1, _CHUNK // len(mesh.corners))
    for begin in range(0, len(points), step):
        rows = slice(begin, begin + step)
        margins = _margins(mesh, points[rows, None], slice(None))
        found[rows] = np.minimum.reduceat(margins, mesh.starts[:-1], axis=1).argmax(1)
    return found


def depths(
    mesh: Mesh, points: Float64[np.ndarray, "n 2"], polygons: Int64[np.ndarray, " n"]
) -> Float64[np.ndarray, " n"]:
    """Return how far inside its polygon each point lies; negative outside."""
    if len(points) == 0:
        return np.empty(0)
    at, counts = runs(mesh.starts, polygons)
    margins = _margins(mesh, np.repeat(points, counts, axis=0), at)
    return np.minimum.reduceat(margins, np.cumsum(counts) - counts)


def _margins(mesh: Mesh, points: Float64[np.ndarray, "*n 2"], corners: Any) -> Float64[np.ndarray, "*n"]:
    """Return how far each point lies to the left of the side that begins at a corner."""
    a, b = mesh.vertices[mesh.corners[corners]], mesh.vertices[mesh.following[corners]]
    along, to = b - a, points - a
    length = np.maximum(np.linalg.norm(along, axis=-1), 1e-300)
    return (along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0]) / length
