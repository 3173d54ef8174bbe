"""Accuracy against the level of each perturbation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metriscope.report import Figure, to_svg
from metriscope.report.plots import band
from metriscope.report.style import FAINT, figure, legend, log_axes
from metriscope.studies.representation.accuracy.measure import printed
from metriscope.studies.representation.figures import color
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.perturbation.measure import level_curve
from metriscope.studies.representation.plan import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["perturbations"]


def perturbations(results: Results) -> Figure | None:
    """Draw accuracy against the level of each perturbation, with the printed ranges."""
    table = results.tables["perturbed"]
    found = [n for n in results.comparing.perturbed if n in set(table["network"])]
    if not found:
        return None
    drawing, axes = figure(9.2, 3.1, 1, 3)
    for ax, kind in zip(axes[0], ("scale", "clip", "offset"), strict=True):
        for network in found:
            levels, values = level_curve(table, network, kind)
            if "-bias" in network:
                middle = np.median(values, axis=0)
                ax.plot(100 * levels, middle, color=color(network), linewidth=1, dashes=(4, 3), label=title(network))
            else:
                band(ax, 100 * levels, values, title(network), color(network))
        _printed_range(ax, kind)
        ax.set(title=kind.capitalize(), xlabel="% of the unit's range" if kind != "scale" else "%")
        if kind == "offset":
            ax.set_xlim(-30, 30)
        else:
            log_axes(ax, "x")
    axes[0, 0].set(ylabel="training accuracy, %")
    low = min(0.0, *(ax.get_ylim()[0] for ax in axes[0]))
    for ax in axes[0]:
        ax.set_ylim(low, 103)
    legend(axes[0, 0], "lower left")
    caption = (
        "Median over seeds, the band of the middle 80 %, extremes as thin lines; dashed: the networks with a bias in "
        "the second layer. Grey: the printed range within which accuracy holds (offset: that of ReLU; the lines "
        "inside: Abs). Offsets beyond ±30 % are in the table."
    )
    return Figure("perturbations", "Perturbed pre-activations", to_svg(drawing, "perturbations"), caption)


def _printed_range(ax: Axes, kind: str) -> None:
    table = printed("perturbation", kind=kind).set_index("network")
    high = 100 * float(table.loc["relu", "high"]) if "high" in table else 1_000.0
    ax.axvspan(100 * float(table.loc["relu", "low"]), high, color=FAINT, alpha=0.35, linewidth=0, zorder=0)
    if kind == "offset":
        for edge in ("low", "high"):
            ax.axvline(100 * float(table.loc["abs", edge]), color=FAINT, linewidth=1.2, zorder=0)
