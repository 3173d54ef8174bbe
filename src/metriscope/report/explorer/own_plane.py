"""The explorer of a user's network, on the plane through three of the user's points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float64

from metriscope.reading.inspection import Subject
from metriscope.report.document import Companion
from metriscope.report.explorer.scene import Scene
from metriscope.report.explorer.web_page import explorer_page
from metriscope.vq import vq_kernel
from metriscope.vq.regions.exact import linear_regions
from metriscope.vq.regions.partition import Partition

__all__ = ["explorer_of", "three_points"]

# Regions that a browser still moves through without waiting, and how often the view may be halved to have no more.
REGIONS, HALVINGS = 9_000, 5
# The colors in which drawing.js shows points of label 0, 1 and 2.
_COLORS = ("white", "black", "orange")


def explorer_of(subject: Subject, announce: Callable[[str], None] = lambda line: None) -> Companion:
    """Return the page ``explore.html``: distances on the plane through three points, of different labels if there are.

    The view is narrowed around the middle of the three points until it holds few enough regions. Lengths on the plane
    are those of the data. A ValueError says why a network or its points cannot be drawn.
    """
    if subject.model is None or subject.points is None:
        raise ValueError("an explorer needs the network itself, not saved patterns")
    if not isinstance(inputs := subject.points.take(np.arange(len(subject.points))[:1]), np.ndarray):
        raise ValueError("an explorer needs points that are one array of numbers, not several arrays by name")
    if inputs.dtype.kind != "f":
        raise ValueError(
            f"an explorer needs points that are numbers between which a line can be drawn, got {inputs.dtype}"
        )
    rows = three_points(subject)
    points = np.asarray(subject.points.take(rows), np.float64)
    announce("finding the linear regions on the plane through three points")
    plane, places = _plane(points)
    partition, size = _regions(subject, plane)
    inside = (np.abs(places) <= size).all(1)
    length = float(np.linalg.norm(plane[1]))
    scene = _scene(subject, partition, length * size, (length * partition.vertices, length * places[inside], inside))
    ids = [str(subject.patterns.ids[row]) for row in rows]
    text = f"VQ, region-graph and Euclidean distance on the plane through the points {', '.join(ids)}: "
    text += f"{len(partition):,} linear regions.{_zoom(size, inside)}"
    colored = ", ".join(f"{one} ({color})" for one, color in zip(ids, _COLORS, strict=True))
    note = f"The plane goes through the points {colored}. Coordinates and Euclidean distances are in units of the data."
    title = f"{subject.name}: how far is it, for this network?"
    html = explorer_page([scene], title, "inspect.html", f"{note}{_zoom(size, inside)}")
    return Companion("explore.html", "Explore distances on a plane through three points", text, html)


def _zoom(size: float, inside: Bool[np.ndarray, " 3"]) -> str:
    """Return by how much a view is narrowed, and how many of the three points it still holds; nothing if it is not."""
    if size == 1:
        return ""
    left = ("none", "one", "two", "all")[int(inside.sum())]
    text = (
        f" The view is zoomed in {1 / size:.0f} times, around the middle of the three points: a wider one would hold "
    )
    return f"{text}more than {REGIONS:,} linear regions. It holds {left} of the three points."


def three_points(subject: Subject) -> np.ndarray:
    """Return the rows of three points with different patterns, near to each other, of three labels if there are.

    Near points of different labels show where the network separates the labels.
    """
    rows = subject.shown_rows()
    kernel = vq_kernel(subject.patterns[rows]).astype(np.float64)
    labels = np.arange(len(rows)) if subject.labels is None else np.unique(subject.labels[rows], return_inverse=True)[1]
    if len(np.unique(labels)) < 3:
        labels = np.arange(len(rows))
    best, found = np.inf, None
    for i, own in enumerate(kernel):
        first = np.where((labels != labels[i]) & (own > 0), own, np.inf)
        j = int(first.argmin())
        second = np.where((labels != labels[j]) & (kernel[j] > 0), first + kernel[j], np.inf)
        k = int(second.argmin())
        if own[j] + second[k] < best:
            best, found = own[j] + second[k], (i, j, k)
    if found is None:
        raise ValueError("an explorer needs at least three points with different patterns")
    return rows[list(found)]


Plane = tuple[Float64[np.ndarray, "*d"], Float64[np.ndarray, "*d"], Float64[np.ndarray, "*d"]]


def _plane(points: Float64[np.ndarray, n * d]) -> tuple[Plane, Float64[np.ndarray, "3 2"]]:
    """Return the plane in which the three points fit into the square from -1 to 1, and their places on it."""
    flat = points.reshape(3, -1)
    middle = flat.mean(0)
    u, s, axes = np.linalg.svd(flat - middle, full_matrices=False)
    if len(s) < 2 or s[1] <= 1e-9 * s[0]:
        raise ValueError("an explorer needs three points that span a plane; the three chosen lie on a line")
    places = u[:, :2] * s[:2]
    reach = 1.25 * float(np.abs(places).max())
    shape = points.shape[1:]
    parts = middle.reshape(shape), (reach * axes[0]).reshape(shape), (reach * axes[1]).reshape(shape)
    return parts, places / reach


def _regions(subject: Subject, plane: Plane) -> tuple[Partition, float]:
    """Return the regions of the widest view around the middle that has few enough, and half the side of the view."""
    assert subject.model is not None
    for halving in range(HALVINGS + 1):
        size = 0.5**halving
        try:
            return linear_regions(subject.model, plane, ((-size, size),) * 2, max_regions=REGIONS), size
        except ValueError as error:
            if "max_regions" not in str(error) or halving == HALVINGS:
                raise
    raise AssertionError("the last view returns or raises")


def _scene(
    subject: Subject, partition: Partition, reach: float, drawn: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Scene:
    """Return the scene of a view that reaches so far from its middle; ``drawn`` are vertices, points, and which."""
    vertices, points, inside = drawn
    names = {layer.name: name.plain for layer, name in zip(subject.patterns.layers, subject.names, strict=True)}
    return Scene(
        choices={"network": subject.name},
        bounds=((-reach, reach), (-reach, reach)),
        vertices=vertices,
        corners=partition.corners,
        starts=partition.starts,
        signs=partition.patterns.signs(),
        layers=tuple((names.get(layer.name, layer.name), layer.width) for layer in partition.layers),
        points=points,
        labels=np.flatnonzero(inside),
    )
