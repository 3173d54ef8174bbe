"""One network on a square of its input plane: its linear regions, their sign patterns, its training points.

Axes: V vertices, C corners of all polygons, R regions, H units, N points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from jaxtyping import Float64, Int8, Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from metriscope.vq.regions.polygons import Mesh

__all__ = ["Bounds", "Scene", "check_together"]

Bounds = tuple[tuple[float, float], tuple[float, float]]

# Share of the square's area that rounding may lose; a polygon that is missing or clockwise loses more.
_AREA_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Scene:
    """A network to explore: ``choices`` names it, by the same attributes as the other scenes of its page.

    Polygon ``r`` has the corners ``vertices[corners[starts[r]:starts[r + 1]]]``, counter-clockwise. The polygons tile
    the square ``bounds``, and two that share an edge share its two vertices. ``signs`` holds +1 or -1 for each region
    and unit; ``layers`` the name and width of each layer, in the order of the units.
    """

    choices: Mapping[str, str]
    bounds: Bounds
    vertices: Float64[np.ndarray, "v 2"]
    corners: Int64[np.ndarray, " c"]
    starts: Int64[np.ndarray, " r+1"]
    signs: Int8[np.ndarray, "r h"]
    layers: tuple[tuple[str, int], ...]
    points: Float64[np.ndarray, "n 2"]
    labels: Int64[np.ndarray, " n"]

    def __post_init__(self) -> None:
        for fault in _faults(self):
            raise ValueError(f"scene {dict(self.choices)}: {fault}")

    @property
    def mesh(self) -> Mesh:
        """Return the polygons."""
        return Mesh(self.vertices, self.corners, self.starts)


def check_together(scenes: Sequence[Scene]) -> None:
    """Check that one page can distinguish the scenes: the same attributes, and no two with equal values."""
    if not scenes:
        raise ValueError("an explorer page needs at least one scene, got none")
    keys = list(scenes[0].choices)
    seen = set()
    for scene in scenes:
        if set(scene.choices) != set(keys):
            raise ValueError(f"every scene must name its {keys}, got one with {list(scene.choices)}")
        address = tuple(scene.choices[key] for key in keys)
        if address in seen:
            raise ValueError(f"every scene needs choices of its own, got {dict(scene.choices)} twice")
        seen.add(address)


def _faults(scene: Scene) -> Iterator[str]:
    """Return what is wrong, the simplest first: later checks rely on what earlier ones have passed."""
    checks = (_faults_of_words, _faults_of_polygons, _faults_of_signs, _faults_of_points, _faults_of_tiling)
    return chain.from_iterable(check(scene) for check in checks)


def _faults_of_words(scene: Scene) -> Iterator[str]:
    words = chain.from_iterable(scene.choices.items())
    if not all(isinstance(word, str) and word for word in words):
        yield f"choices must be words for words, got {dict(scene.choices)}"
    (x0, x1), (y0, y1) = scene.bounds
    if not (np.isfinite([x0, x1, y0, y1]).all() and x0 < x1 and np.isclose(x1 - x0, y1 - y0)):
        yield f"bounds must be a square ((x0, x1), (y0, y1)), got {scene.bounds}"


def _faults_of_polygons(scene: Scene) -> Iterator[str]:
    vertices, corners, starts = scene.vertices, scene.corners, scene.starts
    if vertices.ndim != 2 or vertices.shape[1] != 2 or not np.isfinite(vertices).all():
        yield f"vertices must be finite, of shape (V, 2), got the shape {vertices.shape}"
    if corners.ndim != 1 or corners.dtype.kind not in "iu" or starts.ndim != 1 or starts.dtype.kind not in "iu":
        yield f"corners and starts must be flat integers, got {corners.dtype}, {starts.dtype}"
    ends = f"{starts[0]} to {starts[-1]}" if len(starts) > 1 else f"{len(starts)} of them"
    if len(starts) < 2 or starts[0] != 0 or starts[-1] != len(corners):
        yield f"starts must run from 0 to the {len(corners)} corners, got {ends}"
    if (fewest := int(np.diff(starts).min())) < 3:
        yield f"every polygon needs 3 corners or more, got one with {fewest}"
    if corners.min() < 0 or corners.max() >= len(vertices):
        yield f"corners must number the {len(vertices)} vertices, got {corners.min()} to {corners.max()}"


def _faults_of_signs(scene: Scene) -> Iterator[str]:
    regions, units = len(scene.starts) - 1, sum(width for _, width in scene.layers)
    if not scene.layers or min(width for _, width in scene.layers) < 1:
        yield f"layers must have a name and a width of 1 or more, got {scene.layers}"
    if scene.signs.shape != (regions, units):
        yield f"signs must have the shape {(regions, units)} (regions, units), got {scene.signs.shape}"
    if not (np.abs(scene.signs) == 1).all():
        yield f"signs must be +1 or -1, got {np.unique(scene.signs).tolist()}"


def _faults_of_points(scene: Scene) -> Iterator[str]:
    count = len(scene.labels)
    if scene.points.shape != (count, 2) or scene.labels.ndim != 1:
        yield f"{count} labels need points of shape ({count}, 2), got {scene.points.shape}"
    if not np.isfinite(scene.points).all():
        yield f"points must be finite, got {int((~np.isfinite(scene.points)).sum())} numbers that are not"
    if count and not 0 <= scene.labels.min() <= scene.labels.max() < 256:
        yield f"labels must lie within 0 and 255, got {scene.labels.min()} to {scene.labels.max()}"


def _faults_of_tiling(scene: Scene) -> Iterator[str]:
    (x0, x1), (y0, y1) = scene.bounds
    mesh = scene.mesh
    share = float(mesh.areas.sum() / ((x1 - x0) * (y1 - y0)))
    if abs(share - 1) > _AREA_TOLERANCE:
        yield f"polygons must tile the square counter-clockwise, got {share:.6g} of its area"
    edges = np.sort(np.stack([mesh.corners, mesh.following]), axis=0)
    busiest = int(np.unique(edges, axis=1, return_counts=True)[1].max())
    if busiest > 2:
        yield f"an edge belongs to 2 polygons at most, got one that belongs to {busiest}"
    left, right = mesh.sides.left, mesh.sides.right
    graph = coo_array((np.ones(len(left)), (left, right)), shape=(len(mesh), len(mesh)))
    pieces = int(connected_components(graph, directed=False)[0])
    if pieces > 1:
        yield f"neighbors must share the two vertices of their edge, got {pieces} pieces that share none"
