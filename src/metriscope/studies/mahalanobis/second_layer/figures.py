"""How the second layer groups units, and how far it takes clusters apart."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Figure, to_svg
from metriscope.report.plots import strip
from metriscope.report.style import figure
from metriscope.studies.mahalanobis.second_layer.plan import DATA, FIRST, HEADS
from metriscope.studies.published import matching

__all__ = ["SPACES", "layers"]

SPACES = {
    "inputs": "inputs",
    "first layer": "after the first layer",
    "untrained": "after an untrained second",
    "second layer": "after the second layer",
}


def layers(table: pd.DataFrame) -> Figure:
    """Draw silhouettes in every space and the agreement of groups of units, one row per first layer."""
    rows = matching(table, head=next(iter(HEADS)))
    names = [name for name in DATA if name in set(rows["data"])]
    shown = [first for first in FIRST if first in set(rows["first"])]
    drawing, axes = figure(9.2, 2.4 * len(shown), len(shown), len(names) + 1)
    for line, first in zip(axes, shown, strict=True):
        for ax, name in zip(line, names, strict=False):
            part = matching(rows, first=first, data=name)
            strip(ax, {text: part[space].to_numpy() for space, text in SPACES.items()})
            ax.set(title=f"{name}, {first}", xlabel="silhouette of new points")
            ax.tick_params(axis="y", labelleft=ax is line[0])
        parts = {name: matching(rows, first=first, data=name)["agreement"].to_numpy() for name in names}
        strip(line[-1], parts)
        line[-1].set(title=f"groups of units, {first}", xlabel="adjusted Rand index")
    caption = (
        "Left: how far the clusters of new points are apart in each space. Right: agreement between k-means groups of "
        "second-layer weights and the clusters whose mean each hyperplane passes through; 0 is chance. Second layer "
        "before softmax. Each dot is a start with points of its own (mixtures: of 3, 4 or 5 clusters)."
    )
    return Figure("second-layer", "What the second layer does", to_svg(drawing, "second-layer"), caption)
