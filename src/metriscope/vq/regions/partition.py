"""An exact partition of a plane into linear regions: their patterns, maps, neighbors and distances.

Axes: R regions, E shared sides, N points, O outputs. Points are in the plane's own coordinates; a line has one.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float64, Int64

from metriscope.common.validation import check_shape, real_array, whole_array
from metriscope.rng import stream
from metriscope.vq.capture.capture import packed_rows
from metriscope.vq.capture.patterns import Layer, Patterns
from metriscope.vq.capture.selection import Positions
from metriscope.vq.capture.session import Session
from metriscope.vq.regions.piecewise import Network
from metriscope.vq.regions.polygons import Mesh, decision_segments, depths, nearest_polygon

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame
    from scipy.sparse import csr_array

__all__ = ["Partition"]

Corner = tuple[float, float]

# A point that was computed to lie on the border of the bounds, by interpolation or an affine map, misses the border by
# at most a few units in the last place.
_SLACK = 8 * float(np.finfo(np.float64).eps)
# Points that are run at once.
_ROWS = 1024


class Partition:
    """The regions of a bounded plane, or of a line, on each of which a network is one affine map.

    :func:`linear_regions` makes it. ``vertices``, ``corners`` and ``starts`` hold the polygons: region r has the
    vertices ``corners[starts[r]:starts[r + 1]]``, counter-clockwise; regions that share a side share its vertices.

    Parameters
    ----------
    mesh : Mesh
        The polygons.
    network : Network
        The network on the plane of its inputs.
    bounds : pair of pairs of float
        The lower and the upper corner of the plane.
    dims : int
        2 for a plane, 1 for a line.

    Examples
    --------
    >>> from metriscope.vq import linear_regions
    >>> model = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.ReLU())
    >>> _ = model[0].weight.data.fill_(1.0), model[0].bias.data.copy_(torch.tensor([0.0, 0.5]))
    >>> regions = linear_regions(model, bounds=(-1, 1))
    >>> len(regions), regions.locate([-0.75, 0.75]).tolist(), sorted(regions.areas.tolist())
    (3, [2, 0], [0.5, 0.5, 1.0])
    """

    def __init__(self, mesh: Mesh, network: Network, bounds: tuple[Corner, Corner], dims: int) -> None:
        self._mesh, self._network = mesh, network
        self.bounds, self.dims = bounds, dims
        self.vertices, self.corners, self.starts = mesh.vertices, mesh.corners, mesh.starts

    def __len__(self) -> int:
        return len(self._mesh)

    def __repr__(self) -> str:
        units = sum(site.layer.width for site in self._network.sites)
        return f"Partition({len(self):,} regions by {units:,} units, {len(self._mesh.sides.left):,} shared sides)"

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Return the layers whose units cut the plane."""
        return tuple(site.layer for site in self._network.sites)

    @cached_property
    def polygons(self) -> list[Float64[np.ndarray, "k d"]]:
        """Return the corners of each region, counter-clockwise; on a line, its two ends."""
        found = np.split(self.vertices[self.corners], self.starts[1:-1])
        return found if self.dims == 2 else [np.array([[one[:, 0].min()], [one[:, 0].max()]]) for one in found]

    @property
    def centers(self) -> Float64[np.ndarray, "r d"]:
        """Return a point inside each region: the mean of its corners."""
        return self._mesh.centers[:, : self.dims]

    @property
    def areas(self) -> Float64[np.ndarray, " r"]:
        """Return the area of each region in the plane's coordinates; on a line, its length."""
        return self._mesh.areas

    @cached_property
    def patterns(self) -> Patterns:
        """Return the sign pattern of each region, as ``capture`` gives it for a point inside."""
        return self._patterns(self._mesh.centers)

    @cached_property
    def maps(self) -> Float64[np.ndarray, "r o d+1"]:
        """Return each region's affine map: outputs are ``maps[..., 0] + maps[..., 1:] @ point`` on the whole region."""
        slopes = self._network.slopes(self._mesh.centers)[..., : self.dims]
        constant = self._network.outputs(self._mesh.centers) - np.einsum("rod,rd->ro", slopes, self.centers)
        return np.concatenate([constant[..., None], slopes], -1)

    def evaluate(self, points: Any) -> Float64[np.ndarray, "n o"]:
        """Return the outputs at points within the bounds, by the affine map of each point's region.

        Raises
        ------
        ValueError
            If a point lies outside the bounds.
        """
        regions = self.locate(points)
        if (regions < 0).any():
            raise ValueError(f"{int((regions < 0).sum())} of {len(regions)} points lie outside the bounds")
        maps = self.maps[regions]
        return maps[..., 0] + np.einsum("nod,nd->no", maps[..., 1:], self._points(points)[:, : self.dims])

    @cached_property
    def graph(self) -> csr_array:
        """Return the region graph: 1 where two regions share a side."""
        from scipy.sparse import csr_array

        a, b = self._mesh.sides.left, self._mesh.sides.right
        ones = np.ones(2 * len(a), np.int8)
        found = csr_array((ones, (np.concatenate([a, b]), np.concatenate([b, a]))), shape=(len(self), len(self)))
        found.sum_duplicates()
        found.data[:] = 1
        return found

    def edges(self) -> DataFrame:
        """Return one row per shared side: both regions, its length, and the unit that it crosses.

        ``units`` counts the units that change sign there: one, unless several units have the same border;
        then ``layer`` and ``unit`` name the first of them.
        """
        from pandas import DataFrame

        sides = self._mesh.sides
        which, count = self._crossings()
        ends = np.cumsum([layer.width for layer in self.layers])
        layer = np.minimum(np.searchsorted(ends, which, side="right"), len(ends) - 1)
        names = np.array([one.name for one in self.layers], object)
        unit = which - np.concatenate([[0], ends])[layer]
        length = np.linalg.norm(self.vertices[sides.end] - self.vertices[sides.begin], axis=1)
        columns = {"a": sides.left, "b": sides.right, "layer": names[layer], "unit": unit, "units": count}
        return DataFrame({**columns, "length": length} if self.dims == 2 else columns)

    def _crossings(self) -> tuple[Int64[np.ndarray, " e"], Int64[np.ndarray, " e"]]:
        """Return the first unit that differs across each side, and how many do."""
        signs, sides = self.patterns.signs(), self._mesh.sides
        first, count = np.empty(len(sides.left), np.int64), np.empty(len(sides.left), np.int64)
        step = max(1, (1 << 27) // max(1, signs.shape[1]))
        for begin in range(0, len(first), step):
            rows = slice(begin, begin + step)
            differ = signs[sides.left[rows]] != signs[sides.right[rows]]
            first[rows], count[rows] = differ.argmax(1), differ.sum(1)
        return first, count

    def distance(self, i: Any, j: Any = None) -> Any:
        """Return how many sides the shortest path between regions crosses: a number, or an array for arrays.

        Without ``j``, the distances of each region ``i`` to all regions.
        """
        from scipy.sparse.csgraph import dijkstra

        a = self._checked(i, "i")
        sources, where = np.unique(a, return_inverse=True)
        found = dijkstra(self.graph, directed=False, indices=sources, unweighted=True).astype(np.int64)
        if j is None:
            return found[where.reshape(a.shape)]
        a, b = np.broadcast_arrays(where.reshape(a.shape), self._checked(j, "j"))
        return found[a, b] if a.ndim else int(found[a, b])

    def _checked(self, regions: Any, name: str) -> Int64[np.ndarray, "*n"]:
        return whole_array(regions, name, high=len(self))

    def locate(self, points: Any) -> Int64[np.ndarray, " n"]:
        """Return the region of each point of the plane, -1 outside the bounds.

        A point on a border belongs to the side on which ``capture`` sees it. A point that misses the bounds by no more
        than the rounding of float64 lies on them.
        """
        places, (low, high) = self._points(points), np.asarray(self.bounds)
        slack = _SLACK * np.maximum(np.abs(low), np.abs(high))
        inside = ((places >= low - slack) & (places <= high + slack)).all(1)
        places = places.clip(low, high)
        found = np.full(len(places), -1)
        if inside.any():
            found[inside] = self._of_pattern(self._patterns(places[inside]))
            lost = inside & (found < 0)
            found[lost] = nearest_polygon(self._mesh, places[lost])
        return found

    def _points(self, points: Any) -> Float64[np.ndarray, "n 2"]:
        given = real_array(points, "points", empty=True)
        if given.ndim == 1 and self.dims == 1:
            given = given[:, None]
        check_shape(given.shape, "points", f"points {self.dims}", None, empty=True)
        return given if self.dims == 2 else np.column_stack([given, np.full(len(given), 0.5)])

    def _of_pattern(self, patterns: Patterns) -> Int64[np.ndarray, " n"]:
        """Return the region with each pattern; -1 for a pattern that no region has, such as that of a corner."""
        order, keys = self._lookup
        wanted = _keys(patterns)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[at] == wanted, order[at], -1)

    @cached_property
    def _lookup(self) -> tuple[np.ndarray, np.ndarray]:
        keys = _keys(self.patterns)
        order = np.argsort(keys)
        return order, keys[order]

    def _patterns(self, places: Float64[np.ndarray, "n 2"]) -> Patterns:
        if not self.layers:
            return Patterns((), np.zeros((len(places), 0), np.uint8))
        # No further probe is needed: everything that the network runs was already found to be affine between its kinks.
        session = Session(self._network.model, None, None, Positions(), probing=False)
        rows = packed_rows(session, self._network.inputs(places), _ROWS, len(places))
        return Patterns(session.watch.layers, rows)

    def decision_boundary(self) -> Float64[np.ndarray, "b 2 d"]:
        """Return the border between classes as segments: where one output is zero, or where the two largest meet.

        On a line, the border consists of points, each given as a segment of length zero.
        """
        return decision_segments(self._mesh, self._network.outputs(self.vertices))[..., : self.dims]

    def plot(self, color: Any = "random", ax: Axes | None = None, **style: Any) -> Axes:
        """Draw the regions and return the axes.

        ``color`` is one number per region, or ``"random"`` (neighbors differ), ``"area"``, ``"output"`` (the class, or
        the only output), or None for borders alone; ``style`` is passed to matplotlib's ``PolyCollection``.
        """
        from matplotlib import pyplot
        from matplotlib.collections import PolyCollection

        axes = pyplot.subplots()[1] if ax is None else ax
        shapes = np.split(self.vertices[self.corners], self.starts[1:-1])
        values = self._colors(color)
        looks: dict[str, Any] = {"linewidths": 0.4, "edgecolors": "0.35"}
        looks |= {"facecolors": "none"} if values is None else {"array": values, "cmap": "viridis"}
        axes.add_collection(PolyCollection(shapes, **(looks | style)))
        low, high = self.bounds
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        if self.dims == 2:
            axes.set_aspect("equal")
        else:
            axes.set_yticks([])
        return axes

    def _colors(self, color: Any) -> Float64[np.ndarray, " r"] | None:
        """Return the number by which each region is colored."""
        if color is None:
            return None
        if not isinstance(color, str):
            return real_array(color, "color", str(len(self)))
        if color == "random":
            return torch.randperm(len(self), generator=stream(0, "colors")).numpy().astype(np.float64)
        if color == "area":
            return np.log10(self.areas)
        if color == "output":
            values = self.evaluate(self.centers)
            return values[:, 0] if values.shape[1] == 1 else values.argmax(1).astype(np.float64)
        raise ValueError(f"color must be one number per region, None, or one of random, area, output, got {color!r}")

    def check(self, points: int = 1_000, seed: int = 0, generator: torch.Generator | None = None) -> None:
        """Check the partition against the network, and raise AssertionError with one sentence if it is wrong.

        Areas add up to the whole; vertices, sides and regions obey Euler's formula; random points lie where
        ``capture`` says; maps give the network's outputs there; no two regions have the same pattern. The points are
        drawn from ``generator`` if given, else from a stream of ``seed``.
        """
        low, high = np.asarray(self.bounds)
        whole = float(np.prod(high - low))
        _expect(abs(self.areas.sum() - whole) <= 1e-9 * whole, f"areas add up to {self.areas.sum()}, not to {whole}")
        sides = len(self.corners) - len(self._mesh.sides.left)
        pieces = len(np.unique(self.corners)) - sides + len(self)
        _expect(pieces == 1, f"vertices - sides + regions must be 1 by Euler's formula, got {pieces}")
        source = stream(seed, "check") if generator is None else generator
        drawn = torch.rand(points, 2, dtype=torch.float64, generator=source).numpy()
        places = low + (high - low) * drawn
        regions = self.locate(places[:, : self.dims])
        astray = int((depths(self._mesh, places, regions) < -1e-9).sum())
        _expect(astray == 0, f"{astray} of {points} points lie outside the region of their pattern")
        ours, theirs = self.evaluate(places[:, : self.dims]), self._network.outputs(places)
        gap = np.abs(ours - theirs).max(initial=0.0)
        close = gap <= 1e-9 * max(1.0, np.abs(theirs).max(initial=0.0))
        _expect(close, f"the affine maps miss the network's outputs by {gap}")
        distinct = len(np.unique(_keys(self.patterns)))
        _expect(distinct == len(self), f"{len(self)} regions have only {distinct} patterns")


def _expect(true: bool, sentence: str) -> None:
    if not true:
        raise AssertionError(sentence)


def _keys(patterns: Patterns) -> np.ndarray:
    """Return each pattern as one value that can be sorted and compared."""
    rows = np.ascontiguousarray(patterns.packed)
    return rows.view(np.dtype((np.void, rows.shape[1])))[:, 0] if rows.shape[1] else np.zeros(len(rows), np.int64)
