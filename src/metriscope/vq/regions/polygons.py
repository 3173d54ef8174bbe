"""Convex polygons that tile a rectangle, and cutting all of them along the zero line of a function.

Axes: V vertices, C corners, R polygons, F functions, E edges. A function is affine on every polygon and continuous, so
its values at the vertices determine it. Polygons that share a side share its two vertices: a cut makes one new
vertex on a side, for both of its polygons.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int64

__all__ = ["Cutter", "Mesh", "Sides", "decision_segments", "depths", "nearest_polygon", "runs"]

Positions = Int64[np.ndarray, " n"]
Places = Float64[np.ndarray, "n 2"]
Shares = Float64[np.ndarray, " n"]
# The corners of several polygons, one after the other, and how many each has.
Pieces = tuple[Int64[np.ndarray, " c"], Int64[np.ndarray, " p"]]


@dataclass(frozen=True, eq=False)
class Mesh:
    """Polygons as runs of corners, counter-clockwise: polygon r has the corners ``starts[r]`` to ``starts[r + 1]``."""

    vertices: Float64[np.ndarray, "v 2"]
    corners: Int64[np.ndarray, " c"]
    starts: Int64[np.ndarray, " r+1"]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def owners(self) -> Int64[np.ndarray, " c"]:
        """Return the polygon of each corner."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def following(self) -> Int64[np.ndarray, " c"]:
        """Return the next vertex after each corner, counter-clockwise around its polygon."""
        return self.corners[_following(self.starts)]

    @cached_property
    def centers(self) -> Float64[np.ndarray, "r 2"]:
        """Return the mean of each polygon's corners: a point inside it."""
        return self.means(self.vertices)

    @cached_property
    def areas(self) -> Float64[np.ndarray, " r"]:
        """Return each polygon's area; computed around its center, so that no digits are lost far from the origin."""
        center = self.centers[self.owners]
        a, b = self.vertices[self.corners] - center, self.vertices[self.following] - center
        return self._sums(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]) / 2

    def means(self, values: Float64[np.ndarray, "v ..."]) -> Float64[np.ndarray, "r ..."]:
        """Return the mean over each polygon's corners of values given at the vertices."""
        counts = np.diff(self.starts).reshape(-1, *[1] * (values.ndim - 1))
        return self._sums(values[self.corners]) / counts

    def _sums(self, values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, self.starts[:-1]) if len(self) else values[:0]

    @cached_property
    def sides(self) -> Sides:
        """Return every side that two polygons share."""
        low, high = np.minimum(self.corners, self.following), np.maximum(self.corners, self.following)
        order = np.lexsort((high, low))
        same = (low[order][1:] == low[order][:-1]) & (high[order][1:] == high[order][:-1])
        first = order[:-1][same]
        return Sides(self.owners[first], self.owners[order[1:][same]], low[first], high[first])


@dataclass(frozen=True, eq=False)
class Sides:
    """Sides that two polygons share: both polygons, and the two vertices between which the side runs."""

    left: Int64[np.ndarray, " e"]
    right: Int64[np.ndarray, " e"]
    begin: Int64[np.ndarray, " e"]
    end: Int64[np.ndarray, " e"]


class Cutter:
    """A rectangle that is cut along one function after another.

    ``load`` takes the values of functions at all vertices; ``cut`` cuts along the zero line of one of them, and
    computes the values of the others at the vertices that it adds.
    """

    def __init__(self, low: tuple[float, float], high: tuple[float, float]) -> None:
        self._count = 4
        self._points = np.array([low, (high[0], low[1]), high, (low[0], high[1])], np.float64)
        self._functions = np.empty((0, 4))
        self._corners, self._starts = np.arange(4), np.array([0, 4])
        self.origin = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return len(self._starts) - 1

    @property
    def vertices(self) -> Float64[np.ndarray, "v 2"]:
        """Return the vertices so far."""
        return self._points[: self._count]

    @property
    def mesh(self) -> Mesh:
        """Return the polygons as they are now."""
        return Mesh(self.vertices.copy(), self._corners, self._starts)

    def load(self, functions: Float64[np.ndarray, "v f"]) -> None:
        """Load the functions to cut by; they replace those loaded before."""
        self._functions = np.ascontiguousarray(functions.T)
        self._points = self.vertices.copy()

    def values(self, function: int) -> Float64[np.ndarray, " v"]:
        """Return a loaded function at every vertex."""
        return self._functions[function, : self._count]

    def means(self, functions: Positions, rows: Positions) -> Float64[np.ndarray, "f n"]:
        """Return the mean of functions over the corners of some polygons: their values inside."""
        at, counts = runs(self._starts, rows)
        values = self._functions[functions[:, None], self._corners[at]]
        return np.add.reduceat(values, np.cumsum(counts) - counts, axis=1) / counts

    def everywhere(self, true: Bool[np.ndarray, "f v"]) -> Bool[np.ndarray, "f r"]:
        """Return, for each polygon, whether a condition holds at all of its corners."""
        return np.logical_and.reduceat(true[:, self._corners], self._starts[:-1], axis=1)

    def cut(self, function: int, tolerance: float, needed: slice = slice(None)) -> None:
        """Cut every polygon in which a function takes both signs; values within the tolerance count as zero.

        Only the loaded functions in ``needed`` are computed at the new vertices.
        """
        values = self.values(function)
        sides = _sides(values, tolerance)
        rows = np.flatnonzero(_both_signs(sides[self._corners], self._starts[:-1]))
        self._cut(rows, sides, values, needed)

    def cut_between(self, one: int, other: int, tolerance: float, rows: Positions) -> None:
        """Cut some polygons where one function overtakes another."""
        if len(rows) == 0:
            return
        at, counts = runs(self._starts, rows)
        corners = self._corners[at]
        values, sides = np.zeros(self._count), np.zeros(self._count, np.int8)
        values[corners] = self._functions[one, corners] - self._functions[other, corners]
        sides[corners] = _sides(values[corners], tolerance)
        crossed = rows[_both_signs(sides[corners], np.cumsum(counts) - counts)]
        self._cut(crossed, sides, values, slice(None))

    def _cut(self, rows: Positions, sides: Int8[np.ndarray, " v"], values: np.ndarray, needed: slice) -> None:
        if len(rows) == 0:
            return
        at, counts = runs(self._starts, rows)
        ends = np.cumsum(counts)
        after = at + 1
        after[ends - 1] = self._starts[rows]
        here, there = self._corners[at], self._corners[after]
        crossing = sides[here] * sides[there] < 0
        new = np.full(len(here), -1, np.int64)
        new[crossing] = self._divide(here[crossing], there[crossing], values, needed)
        pieces = [_piece(here, new, sides[here] * way >= 0, ends - counts) for way in (1, -1)]
        self._replace(rows, at, pieces, [self.origin[rows]] * 2)

    def _divide(self, a: Positions, b: Positions, values: np.ndarray, needed: slice) -> Positions:
        """Make one vertex for each side (a, b), at the zero of the function, and return its number."""
        keys, where = np.unique(np.minimum(a, b) * self._count + np.maximum(a, b), return_inverse=True)
        low, high = keys // self._count, keys % self._count
        share = values[low] / (values[low] - values[high])
        self._reserve(self._count + len(keys))
        new = slice(self._count, self._count + len(keys))
        ends = self._points[low], self._points[high]
        between = (1 - share)[:, None] * ends[0] + share[:, None] * ends[1]
        # Rounding must not carry a vertex past the ends of its side, and so out of the rectangle.
        self._points[new] = np.clip(between, np.minimum(*ends), np.maximum(*ends))
        rest = self._functions[needed]
        rest[:, new] = (1 - share) * rest[:, low] + share * rest[:, high]
        self._count = new.stop
        return new.start + where

    def _reserve(self, count: int) -> None:
        if count > len(self._points):
            room = max(count, 2 * len(self._points))
            points, functions = np.empty((room, 2)), np.empty((len(self._functions), room))
            points[: self._count], functions[:, : self._count] = self.vertices, self._functions[:, : self._count]
            self._points, self._functions = points, functions

    def _replace(self, rows: Positions, at: Positions, pieces: list[Pieces], origins: list[np.ndarray]) -> None:
        kept, lengths = np.ones(len(self._corners), bool), np.diff(self._starts)
        kept[at] = False
        whole = np.ones(len(self), bool)
        whole[rows] = False
        self._corners = np.concatenate([self._corners[kept], *(corners for corners, _ in pieces)])
        self._starts = _starts(np.concatenate([lengths[whole], *(counts for _, counts in pieces)]))
        self.origin = np.concatenate([self.origin[whole], *origins])

    def merge(self, rows: Positions, groups: Positions) -> None:
        """Merge the polygons of each group into one; the union of a group is convex.

        Its outline consists of the sides that no two polygons of the group share, ordered by angle around its center.
        """
        _, group, size = np.unique(groups, return_inverse=True, return_counts=True)
        several = size[group] > 1
        if not several.any():
            return
        rows, (first, group) = rows[several], np.unique(group[several], return_index=True, return_inverse=True)[1:]
        at, counts = runs(self._starts, rows)
        part = Mesh(self.vertices, self._corners[at], _starts(counts))
        joined = _joined(part, group[part.owners])
        self._replace(rows, at, [joined], [self.origin[rows[first]]])

    def tidy(self, rows: Positions, since: int) -> None:
        """Remove the corners in the middle of a side whose vertices are numbered ``since`` or above.

        They are left over where polygons were cut and merged again.
        """
        at, counts = runs(self._starts, rows)
        corners, starts = self._corners[at], _starts(counts)
        keep = ~_straight(corners, starts) | (corners < since)
        kept = np.add.reduceat(keep.astype(np.int64), starts[:-1])
        self._replace(rows, at, [(corners[keep], kept)], [self.origin[rows]])


def _piece(here: Positions, new: Positions, mine: Bool[np.ndarray, " n"], starts: Positions) -> Pieces:
    """Return the corners on one side of a cut, the new vertices among them, and how many each polygon has."""
    both = np.stack([np.where(mine, here, -1), new], 1)
    there = both >= 0
    return both[there], np.add.reduceat(there.sum(1), starts)


def runs(starts: Int64[np.ndarray, " r+1"], rows: Positions) -> tuple[Positions, Positions]:
    """Return the places of all corners of some polygons, one polygon after the other, and how many each has."""
    counts = starts[rows + 1] - starts[rows]
    before = np.cumsum(counts) - counts
    return np.repeat(starts[rows] - before, counts) + np.arange(int(counts.sum())), counts


def _starts(counts: Positions) -> Int64[np.ndarray, " r+1"]:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _following(starts: Int64[np.ndarray, " r+1"]) -> Positions:
    """Return the place of the next corner after each corner."""
    after = np.arange(1, starts[-1] + 1)
    after[starts[1:] - 1] = starts[:-1]
    return after


def _joined(mesh: Mesh, group: Int64[np.ndarray, " c"]) -> Pieces:
    """Return the outline of each group of polygons, given the group of each corner."""
    low, high = np.minimum(mesh.corners, mesh.following), np.maximum(mesh.corners, mesh.following)
    order = np.lexsort((high, low, group))
    keys = np.stack([group, low, high])[:, order]
    shared = (keys[:, 1:] == keys[:, :-1]).all(0)
    keep = np.ones(len(group), bool)
    keep[order[:-1][shared]] = keep[order[1:][shared]] = False
    corners, group = mesh.corners[keep], group[keep]
    size, points = np.bincount(group), mesh.vertices[corners]
    center = np.stack([np.bincount(group, points[:, axis]) for axis in (0, 1)], 1) / size[:, None]
    across = points - center[group]
    return corners[np.lexsort((np.arctan2(across[:, 1], across[:, 0]), group))], size


def _straight(corners: Positions, starts: Int64[np.ndarray, " r+1"]) -> Bool[np.ndarray, " c"]:
    """Return which corners may lie inside a side: corners of one polygon only, or of two between the same neighbors."""
    after = _following(starts)
    before = np.empty_like(after)
    before[after] = np.arange(len(after))
    low = np.minimum(corners[before], corners[after])
    high = np.maximum(corners[before], corners[after])
    order = np.lexsort((high, low, corners))
    _, which, times = np.unique(corners, return_inverse=True, return_counts=True)
    straight = times[which] == 1
    keys = np.stack([corners, low, high])[:, order]
    pair = (times[which[order[:-1]]] == 2) & (keys[:, 1:] == keys[:, :-1]).all(0)
    straight[order[:-1][pair]] = straight[order[1:][pair]] = True
    return straight


def _sides(values: Float64[np.ndarray, " n"], tolerance: float) -> Int8[np.ndarray, " n"]:
    return (values > tolerance).view(np.int8) - (values < -tolerance).view(np.int8)


def _both_signs(sides: Int8[np.ndarray, " c"], starts: Positions) -> Bool[np.ndarray, " r"]:
    return (np.maximum.reduceat(sides, starts) > 0) & (np.minimum.reduceat(sides, starts) < 0)


# Numbers of points times corners that are compared at once.
_CHUNK = 1 << 24


def decision_segments(mesh: Mesh, values: Float64[np.ndarray, "v o"]) -> Float64[np.ndarray, "b 2 2"]:
    """Return where the only function is zero, or where the two largest of several meet, as segments.

    Two functions are equal along at most one chord of a polygon. The part of the chord where no third function is
    larger belongs to the border.
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


def _chords(mesh: Mesh, gap: Shares, values: Float64[np.ndarray, "v o"]) -> tuple[np.ndarray, np.ndarray]:
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


def _uncovered(ours: Places, others: Float64[np.ndarray, "n 2 o"]) -> tuple[Shares, Shares]:
    """Return the ends of the part of each chord where ours is the largest function, as shares of its length."""
    lead = ours[..., None] - others
    first, last = lead[:, 0], lead[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = first / (first - last)
    begin = np.where(first < 0, np.where(last < 0, np.inf, crossing), 0.0).max(1, initial=0.0)
    end = np.where(last < 0, np.where(first < 0, -np.inf, crossing), 1.0).min(1, initial=1.0)
    return begin, end


def nearest_polygon(mesh: Mesh, points: Places) -> Positions:
    """Return the polygon in which each point lies deepest; it compares all polygons, so it is meant for few points."""
    found = np.empty(len(points), np.int64)
    step = max(1, _CHUNK // len(mesh.corners))
    for begin in range(0, len(points), step):
        rows = slice(begin, begin + step)
        margins = _margins(mesh, points[rows, None], slice(None))
        found[rows] = np.minimum.reduceat(margins, mesh.starts[:-1], axis=1).argmax(1)
    return found


def depths(mesh: Mesh, points: Places, polygons: Positions) -> Float64[np.ndarray, " n"]:
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
