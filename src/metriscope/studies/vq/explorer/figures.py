"""A figure of exact regions, colored by their VQ distance from one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metriscope.report import Figure, to_svg
from metriscope.report.style import figure
from metriscope.studies.vq.explorer.measure import Results, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["partitions"]


def partitions(results: Results) -> Figure:
    """Return the regions of the ReLU networks on the moons: shallow and deep, before and after training."""
    shown = [view for view in results.views if view.choices["activation"] == "ReLU"]
    shown = sorted((v for v in shown if v.choices["data"] == "moons"), key=_order)
    drawing, axes = figure(9.2, 2.7, columns=len(shown))
    for ax, view in zip(axes[0], shown, strict=True):
        _regions(ax, view)
    name = "vq-regions"
    caption = (
        "Color is the number of units that lie between a region and the one in the middle; white lines are the "
        "network's decision boundary. Every polygon is exact."
    )
    return Figure(name, "Exact linear regions.", to_svg(drawing, name), caption)


def _regions(ax: Axes, view: View) -> None:
    from matplotlib.collections import PolyCollection

    scene = view.scene
    shapes = np.split(scene.vertices[scene.corners], scene.starts[1:-1])
    # As an image inside the drawing: thousands of polygons would make the page heavy.
    drawn = PolyCollection(shapes, array=view.distances.astype(float), cmap="viridis", rasterized=True)
    drawn.set(linewidths=0.12, edgecolors=(0, 0, 0, 0.35))
    ax.add_collection(drawn)
    for segment in view.boundary:
        ax.plot(*np.asarray(segment).T, color="white", linewidth=1.1, solid_capstyle="round")
    (x0, x1), (y0, y1) = scene.bounds
    ax.set(xticks=[], yticks=[], xlim=(x0, x1), ylim=(y0, y1), aspect="equal")
    ax.set_title(f"{view.choices['shape']}, {view.choices['state']}")
    ax.set_xlabel(f"{len(scene.starts) - 1:,} regions")
    ax.grid(False)


def _order(view: View) -> tuple[bool, bool]:
    return view.choices["shape"] == "deep", view.choices["state"] == "trained"
