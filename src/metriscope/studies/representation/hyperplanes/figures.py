"""Classes along hidden units and output hyperplanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metriscope.report import Figure, to_svg
from metriscope.report.plots import LABEL_COLORS
from metriscope.report.style import INK, figure
from metriscope.studies.representation.hyperplanes.measure import Unit
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.plan import BASE, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["distributions", "heat_maps"]

HEADS = tuple(sorted(BASE, key=lambda name: name.startswith("abs")))


def distributions(results: Results) -> Figure | None:
    """Draw figure 1 of the paper: class-conditional distributions along chosen hidden units."""
    if not results.units:
        return None
    networks = list(dict.fromkeys(unit.network for unit in results.units))
    most = max(sum(unit.network == n for unit in results.units) for n in networks)
    drawing, axes = figure(9.2, 2.5 * len(networks), len(networks), most)
    for row, network in zip(axes, networks, strict=True):
        for ax, unit in zip(row, (u for u in results.units if u.network == network), strict=False):
            _densities(ax, unit)
            ax.set_title(f"{title(network)}: unit {unit.unit}, for {unit.digit}")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    looks = {"frameon": False, "fontsize": 9, "handlelength": 1.2, "columnspacing": 1.1}
    drawing.legend(handles, labels, loc="outside lower center", ncols=10, **looks)
    caption = (
        "Pre-activations of the first layer on training images (seed 0 where it was run), by class; dashed: the "
        "hyperplane. Shown is, for the digits 0, 3 and 8, the hidden unit with the largest absolute weight to that "
        "digit's output. Each curve is a kernel estimate that encloses the same area."
    )
    return Figure("unit-distributions", "Classes along hidden units", to_svg(drawing, "unit-distributions"), caption)


def _densities(ax: Axes, unit: Unit) -> None:
    for digit, density in unit.densities.items():
        shade = LABEL_COLORS[digit % len(LABEL_COLORS)]
        ax.fill_between(unit.x, 0, density, color=shade, alpha=0.07, linewidth=0)
        ax.plot(unit.x, density, color=shade, linewidth=1.3, label=str(digit))
    ax.axvline(0, color=INK, linewidth=0.9, dashes=(4, 3))
    ax.set_yticks([])
    ax.set_ylim(bottom=0)


def heat_maps(results: Results) -> Figure | None:
    """Draw how far each class lies from each output's hyperplane, one map per network, mean over seeds."""
    planes = results.tables["planes"]
    found = [n for n in HEADS if n in set(planes["network"])]
    if not found:
        return None
    columns = min(3, len(found))
    height = -(-len(found) // columns)
    drawing, axes = figure(9.2, 3.0 * height, height, columns)
    shown = None
    for ax, network in zip(axes.flat, found, strict=False):
        part = planes[planes["network"] == network]
        wide = part.pivot_table(index="output", columns="class", values="distance", aggfunc="mean")
        shown = ax.imshow(wide.to_numpy(), cmap="viridis_r", vmin=0, vmax=4)
        ax.grid(visible=False)
        ax.set(title=title(network), xticks=range(wide.shape[1]), yticks=range(wide.shape[0]))
        ax.set(xlabel="class", ylabel="output")
    for ax in axes.flat[len(found) :]:
        ax.set_axis_off()
    if shown is not None:
        bar = drawing.colorbar(shown, ax=axes, shrink=0.6, extend="max")
        bar.set_label("|mean of the class| / its sd along the output")
    caption = (
        "How far the mean of each class lies from each output's hyperplane, in standard deviations of the class: dark "
        "is far (4 and more), pale is crossed through the middle. A distance representation has its pale fields on "
        "the diagonal (z_c), an intensity representation off it. Mean over seeds. Shares of each class within a "
        "quarter of the output's standard deviation are in the table."
    )
    return Figure(
        "output-hyperplanes", "Which classes the outputs cross", to_svg(drawing, "output-hyperplanes"), caption
    )
