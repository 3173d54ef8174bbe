"""The drawing of separation over the number of training points."""

from __future__ import annotations

import numpy as np

from metriscope.report import Figure, to_svg
from metriscope.report.plots import band
from metriscope.report.style import CYCLE, INK, figure, legend
from metriscope.studies.vq.moons.plan import PLACES
from metriscope.studies.vq.sample_sizes.measure import SampleSizesResults
from metriscope.studies.vq.sample_sizes.plan import STRUCTURE

__all__ = ["separation"]

CURVES = {
    ("training", "first"): ("VQ, training points", CYCLE[0]),
    ("new", "first"): ("VQ, new points", CYCLE[1]),
    ("new", "euclid"): ("Euclid, new points", CYCLE[3]),
}


def separation(results: SampleSizesResults) -> Figure:
    """Draw silhouette, accuracy of the network on new points, and effective rank over the number of points."""
    counts = np.unique(results.rows["count"])
    drawing, ((left, middle, right),) = figure(9.2, 3.2, 1, 3)
    for (points, distance), (title, color) in CURVES.items():
        band(left, counts, results.values("silhouette", points, distance), title, color, log="x")
        band(right, counts, results.values("rank", points, distance), title, color, log="x")
    band(middle, counts, results.values("test", "new", "first"), "network", CYCLE[2], log="x")
    band(middle, counts, results.values("neighbor", "new", "first"), "nearest neighbor, VQ", CYCLE[1], log="x")
    left.axhline(STRUCTURE, color=INK, linewidth=0.9, dashes=(4, 3))
    titles = ("silhouette on the plane", f"accuracy, {PLACES['new']}", "effective rank")
    for ax, title in zip((left, middle, right), titles, strict=True):
        ax.set(xlabel="training points n", ylabel=title)
    for ax in (left, middle):
        legend(ax)
    caption = (
        "Median over seeds, band of the middle 80 %, extremes as thin lines. Left and right: classical scaling of VQ "
        f"and Euclidean distances. Dashed: a silhouette of {STRUCTURE:g}, above which classes count as separated."
    )
    name = "vq-sample-sizes"
    return Figure(name, "From how many points on are new points separated?", to_svg(drawing, name), caption)
