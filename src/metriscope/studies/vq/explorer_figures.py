"""A figure of exact regions, coloured by their VQ distance from one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metriscope.report import Figure, to_svg
from metriscope.report.style import figure
from metriscope.vq import vq_kernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from metriscope.studies.vq.explorer import Explored, View

__all__ = ["partitions"]

FROM = (0.0, 0.0)


def partitions(explored: Explored) -> Figure:
    """Return the regions of the ReLU networks on the moons: shallow and deep, before and after training."""
    shown = [view for view in explored.views if view.choices["activation"] == "ReLU"]
    shown = sorted((v for v in shown if v.choices["data"] == "moons"), key=_order)
    drawing, axes = figure(9.2, 2.7, columns=len(shown))
    for ax, view in zip(axes[0], shown, strict=True):
        _regions(ax, view)
    name = "vq-regions"
    caption = (
        "Colour is the number of units that lie between a region and the one in the middle; white lines are the "
        "network's decision boundary. Every polygon is exact."
    )
    return Figure(name, "Exact linear regions.", to_svg(drawing, name), caption)


def _regions(ax: Axes, view: View) -> None:
    partition = view.partition
    here = partition.locate([FROM])
    distances = vq_kernel(partition.patterns[here], partition.patterns)[0]
    # As an image inside the drawing: thousands of polygons would make the page heavy.
    partition.plot(color=distances, ax=ax, linewidths=0.12, edgecolors=(0, 0, 0, 0.35), rasterized=True)
    for segment in partition.decision_boundary():
        ax.plot(*np.asarray(segment).T, color="white", linewidth=1.1, solid_capstyle="round")
    ax.set(xticks=[], yticks=[], title=f"{view.choices['shape']}, {view.choices['state']}")
    ax.set_xlabel(f"{len(partition):,} regions")
    ax.grid(False)


def _order(view: View) -> tuple[bool, bool]:
    return view.choices["shape"] == "deep", view.choices["state"] == "trained"
