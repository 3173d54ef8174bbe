"""Figures of what the networks reached: accuracies over seeds, learning curves, units that die, perturbations.

Axes: S seeds, T recorded epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metriscope.report import Figure, to_svg
from metriscope.report.plots import band, strip
from metriscope.report.style import COLOURS, CYCLE, FAINT, INK, figure, legend, log_axes
from metriscope.studies.representation.analysis import Analysis
from metriscope.studies.representation.measure import curve, printed
from metriscope.studies.representation.perturbed import NAMES, level_curve
from metriscope.studies.representation.results import Setting, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["accuracies", "colour", "curves", "dying", "family", "perturbations"]

STEMS = {
    "relu": COLOURS["relu"], "abs": COLOURS["abs"], "relu2": CYCLE[3], "abs2": CYCLE[4],
    "relu2-neg": CYCLE[2], "abs2-neg": "#7a5195", "relu-l2": COLOURS["relu"], "abs-l2": COLOURS["abs"],
    "relu-l2-neg": CYCLE[2], "abs-l2-neg": "#7a5195",
}  # fmt: skip
FAMILIES = {"no bias": "Linear head, no bias", "bias": "Linear head with bias", "l2": "OffsetL2 head"}
SHOWN = {"train_loss": "training loss", "train_error": "training error", "test_error": "test error"}
# Where ReLU units can die: both outputs, and the hidden layer of the baseline. With a bias the picture is the same.
PANELS = (("relu2", "output"), ("relu2-neg", "output"), ("relu", "hidden"))
THRESHOLDS = {"never": "never active", "under_1": "under 1 % of images", "under_5": "under 5 % of images"}


def family(network: str) -> str:
    """Return which of S2's three families a network belongs to.

    >>> family("abs2-neg"), family("relu-bias"), family("abs-l2")
    ('no bias', 'bias', 'l2')
    """
    return "l2" if "-l2" in network else "bias" if "-bias" in network else "no bias"


def colour(network: str) -> str:
    """Return a network's colour: the same with and without bias."""
    stem = network.split(" ")[0].removesuffix("-bias")
    return STEMS.get(stem, INK)


def accuracies(analysis: Analysis, setting: Setting, name: str) -> Figure:
    """Draw every run's test accuracy with its violin, and the printed means with their deviations."""
    networks = analysis.networks(setting)
    groups = {title(n): analysis.accuracy(setting, n).to_numpy() for n in networks}
    drawing, axes = figure(9.2, 0.42 * len(networks) + 0.9)
    ax = axes[0, 0]
    strip(ax, groups, {title(n): colour(n) for n in networks})
    for row, (network, values) in enumerate(zip(networks, groups.values(), strict=True)):
        _violin(ax, row, values, colour(network))
        _printed_marks(ax, row, network)
    # An interval of few runs may reach beyond what an accuracy can be.
    ax.set(xlabel="test accuracy, %", xlim=(max(0.0, ax.get_xlim()[0]), 100.5))
    caption = (
        f"{setting}. Each dot is a seed, the large dot the mean with its 95 % interval, the shape a kernel estimate of "
        "the distribution (three seeds or more). Hollow diamonds: every printed mean with its standard deviation."
    )
    return Figure(name, "Test accuracy of every run", to_svg(drawing, name), caption)


def _violin(ax: Axes, row: int, values: np.ndarray, shade: str) -> None:
    from scipy.stats import gaussian_kde

    # Three runs are the fewest that have a shape; runs that all agree have none.
    if len(values) < 3 or np.ptp(values) < 1e-9:
        return
    reach = np.ptp(values) * 0.35
    x = np.linspace(values.min() - reach, values.max() + reach, 120)
    density = gaussian_kde(values)(x)
    height = 0.34 * density / density.max()
    ax.fill_between(x, row - height, row + height, color=shade, alpha=0.16, linewidth=0, zorder=0)


def _printed_marks(ax: Axes, row: int, network: str) -> None:
    table = printed("test_accuracy", network=network)
    places = dict.fromkeys(zip(table["mean"], table["sd"], strict=True)) if len(table) else {}
    for i, (mean, sd) in enumerate(places):
        height = row + 0.36 - 0.1 * i
        ax.plot([mean - sd, min(mean + sd, 100)], [height] * 2, color=COLOURS["published"], linewidth=1.2)
        looks: dict[str, Any] = {"markeredgecolor": COLOURS["published"], "markersize": 4.5, "zorder": 4}
        ax.plot([mean], [height], "D", color="white", **looks)


def curves(analysis: Analysis, setting: Setting, name: str) -> Figure:
    """Draw loss, training error and test error over epochs, one column a family."""
    networks = analysis.networks(setting)
    families = [f for f in FAMILIES if any(family(n) == f for n in networks)]
    alone = len(families) == 1
    drawing, axes = figure(9.2, 2.9, 1, len(SHOWN)) if alone else figure(9.2, 7.5, len(SHOWN), len(families))
    axes = axes.T if alone else axes
    for j, kind in enumerate(families):
        for network in (n for n in networks if family(n) == kind):
            for i, shown in enumerate(SHOWN):
                epochs, values = _shown(analysis, setting, network, shown)
                band(axes[i, j], epochs + 1, values, title(network), colour(network), log="xy")
        for i, text in enumerate(SHOWN.values()):
            axes[i, j].set(xlabel="epoch + 1" if i == len(SHOWN) - 1 or alone else "", ylabel=text if j == 0 else "")
        axes[0, j].set_title(FAMILIES[kind])
        legend(axes[0, j], "lower left")
    for row in axes:
        low, high = (
            f(edge) for f, edge in ((min, [a.get_ylim()[0] for a in row]), (max, [a.get_ylim()[1] for a in row]))
        )
        for ax in row:
            ax.set_ylim(low, high)
    caption = (
        f"{setting}. Median over seeds, the band of the middle 80 %, extremes as thin lines; logarithmic axes. An "
        "error of none is drawn at one image."
    )
    return Figure(name, "Learning curves", to_svg(drawing, name), caption)


def _shown(analysis: Analysis, setting: Setting, network: str, shown: str) -> tuple[np.ndarray, np.ndarray]:
    part, _, what = shown.partition("_")
    if what == "loss":
        return curve(analysis.results, setting, network, shown)
    epochs, values = curve(analysis.results, setting, network, f"{part}_accuracy")
    return epochs, np.maximum(1 - values, 1 / setting.train_size)


def dying(analysis: Analysis, setting: Setting, name: str) -> Figure | None:
    """Draw the share of inactive units over epochs, where units can die."""
    table = analysis.dead[(analysis.dead["setting"] == str(setting)) & (analysis.dead["part"] == "train")]
    panels = [p for p in PANELS if len(table[(table["network"] == p[0]) & (table["layer"] == p[1])])]
    if not panels:
        return None
    drawing, axes = figure(9.2, 2.9, 1, len(panels))
    for ax, (network, layer) in zip(axes[0], panels, strict=True):
        part = table[(table["network"] == network) & (table["layer"] == layer)]
        for (key, text), shade in zip(THRESHOLDS.items(), (INK, COLOURS["relu"], CYCLE[3]), strict=True):
            wide = part.pivot(index="seed", columns="epoch", values=key)
            band(ax, wide.columns.to_numpy(dtype=float) + 1, wide.to_numpy(dtype=float), text, shade, log="x")
        ax.set(title=f"{title(network)}, {layer} units", xlabel="epoch + 1", ylabel="% of units", ylim=(-4, 104))
    legend(axes[0, -1], "upper right")
    caption = (
        f"{setting}. Share of units active (|activation| > 10⁻⁶) for no training image, for under 1 % and for under "
        "5 % of them: median over seeds, the band of the middle 80 %, extremes as thin lines."
    )
    return Figure(name, "When units die", to_svg(drawing, name), caption)


def perturbations(analysis: Analysis) -> Figure | None:
    """Draw accuracy against the level of each perturbation, with the printed ranges."""
    found = [n for n in NAMES if n in set(analysis.perturbed["network"])]
    if not found:
        return None
    drawing, axes = figure(9.2, 3.1, 1, 3)
    for ax, kind in zip(axes[0], ("scale", "clip", "offset"), strict=True):
        for network in found:
            levels, values = level_curve(analysis.perturbed, network, kind)
            if "-bias" in network:
                middle = np.median(values, axis=0)
                ax.plot(100 * levels, middle, color=colour(network), linewidth=1, dashes=(4, 3), label=title(network))
            else:
                band(ax, 100 * levels, values, title(network), colour(network))
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
