"""The drawing of the replayed perturbation experiment: accuracy over the level, with the printed points on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from metriscope.report import Figure, to_svg
from metriscope.report.plots import band
from metriscope.report.style import COLORS, figure, legend, log_axes
from metriscope.studies.representation.accuracy.measure import by_seed, printed, select
from metriscope.studies.representation.figures import SPREAD, color
from metriscope.studies.representation.perturbations.plan import NETWORKS
from metriscope.studies.representation.plan import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["levels"]

# Title, kind, and the per cent and accuracies shown; None for all.
PANELS: tuple[tuple[str, str, tuple[int, int] | None, tuple[int, int]], ...] = (
    ("Scale", "scale", None, (0, 103)),
    ("Clip", "clip", None, (0, 103)),
    ("Offset", "offset", (-205, 105), (0, 103)),
    ("Small offsets", "offset", (-10, 10), (80, 101)),
)


def levels(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw training accuracy against the level of each perturbation, with every printed point."""
    table, theirs = tables["replayed grid"], printed("perturbation_level")
    found = [network for network in NETWORKS if network in set(table["network"])]
    drawing, axes = figure(9.2, 6.0, 2, 2)
    for ax, (heading, kind, reach, heights) in zip(axes.flat, PANELS, strict=True):
        for network in found:
            x, values = by_seed(select(table, network=network, kind=kind), "level", "accuracy")
            band(ax, 100 * x, values, title(network), color(network))
            _points(ax, select(theirs, network=network, kind=kind))
        ax.set(title=heading, xlabel="%" if kind == "scale" else "% of the unit's range", ylim=heights)
        if reach is None:
            log_axes(ax, "x")
        else:
            ax.set_xlim(*reach)
    for ax in axes[:, 0]:
        ax.set(ylabel="training accuracy, %")
    legend(axes[0, 0], "lower right")
    caption = (
        f"By the definition of the author's program. {SPREAD.replace('seeds', 'runs')}. Hollow diamonds: every printed "
        "mean of Oursland (2024b). Offsets within ±10 % once more, enlarged."
    )
    return Figure("replayed-levels", "Replayed perturbations", to_svg(drawing, "replayed-levels"), caption)


def _points(ax: Axes, theirs: pd.DataFrame) -> None:
    looks: dict[str, Any] = {"markeredgecolor": COLORS["published"], "markersize": 4.5, "zorder": 4}
    ax.plot(100 * theirs["level"], theirs["mean"], "D", color="white", linestyle="none", **looks)
