"""The explorer of a user's network, on the plane through three of the user's points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

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


def explorer_of(subject: Subject, announce: Callable[[str], None] = lambda line: None) -> Companion:
    """Return the page ``explore.html``: distances on the plane through three points, of different labels if there are.

    The view is narrowed around the middle of the three points until it holds few enough regions.
    """
    if subject.model is None or subject.points is None:
        raise ValueError("--explore needs the network itself, not saved patterns")
    if not isinstance(inputs := subject.points.take(np.arange(len(subject.points))[:1]), np.ndarray):
        raise ValueError("--explore needs points that are one array of numbers, not several arrays by name")
    if inputs.dtype.kind != "f":
        raise ValueError(
            f"--explore needs points that are numbers between which a line can be drawn, got {inputs.dtype}"
        )
    rows = three_points(subject)
    points = np.asarray(subject.points.take(rows), np.float64)
    announce("finding the linear regions on the plane through three points")
    plane, places = _plane(points)
    partition, size = _regions(subject, plane)
    scene = _scene(subject, partition, size, (rows, places))
    ids = ", ".join(str(subject.patterns.ids[row]) for row in rows)
    text = f"VQ, region-graph and Euclidean distance on the plane through the points {ids}: "
    text += f"{len(partition):,} linear regions"
    narrow = f", within {size:.2g} of the view that holds all three" if size < 1 else ""
    html = explorer_page([scene], f"{subject.name}: how far is it, for this network?", "inspect.html")
    return Companion("explore.html", "Explore distances on a plane through three points", f"{text}{narrow}.", html)


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
        raise ValueError("--explore needs at least three points with different patterns")
    return rows[list(found)]


Plane = tuple[Float64[np.ndarray, "*d"], Float64[np.ndarray, "*d"], Float64[np.ndarray, "*d"]]


def _plane(points: Float64[np.ndarray, n * d]) -> tuple[Plane, Float64[np.ndarray, "3 2"]]:
    """Return the plane in which the three points fit into the square from -1 to 1, and their places on it."""
    flat = points.reshape(3, -1)
    middle = flat.mean(0)
    u, s, axes = np.linalg.svd(flat - middle, full_matrices=False)
    if len(s) < 2 or s[1] <= 1e-9 * s[0]:
        raise ValueError("--explore needs three points that span a plane; the three chosen lie on a line")
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
                raise ValueError(f"--explore cannot draw this network: {error}") from error
    raise AssertionError("the last view returns or raises")


def _scene(subject: Subject, partition: Partition, size: float, three: tuple[np.ndarray, np.ndarray]) -> Scene:
    rows, places = three
    names = {layer.name: name.plain for layer, name in zip(subject.patterns.layers, subject.names, strict=True)}
    inside = (np.abs(places) <= size).all(1)
    return Scene(
        choices={"network": subject.name},
        bounds=((-size, size), (-size, size)),
        vertices=partition.vertices,
        corners=partition.corners,
        starts=partition.starts,
        signs=partition.patterns.signs(),
        layers=tuple((names.get(layer.name, layer.name), layer.width) for layer in partition.layers),
        points=places[inside],
        labels=np.arange(len(rows))[inside],
    )
