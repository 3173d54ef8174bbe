"""Figures of what the networks reached: accuracies over seeds, and learning curves.

Axes: S seeds, T observed epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metriscope.report import Figure, to_svg
from metriscope.report.plots import band, strip
from metriscope.report.style import COLORS, figure, legend
from metriscope.studies.representation.accuracy.measure import printed
from metriscope.studies.representation.figures import FAMILIES, color, family
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.plan import Setting, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["accuracies", "curves"]

SHOWN = {"train_loss": "training loss", "train_error": "training error", "test_error": "test error"}


def accuracies(results: Results, setting: Setting, name: str) -> Figure:
    """Draw every run's test accuracy with the shape of its distribution, and the printed means with deviations."""
    networks = results.networks(setting)
    groups = {title(n): results.accuracy(setting, n).to_numpy() for n in networks}
    drawing, axes = figure(9.2, 0.42 * len(networks) + 0.9)
    ax = axes[0, 0]
    strip(ax, groups, {title(n): color(n) for n in networks})
    for shape in (s for s in results.shapes if s.setting == str(setting)):
        row, height = networks.index(shape.network), 0.34 * shape.density
        shade = color(shape.network)
        ax.fill_between(shape.x, row - height, row + height, color=shade, alpha=0.16, linewidth=0, zorder=0)
    for row, network in enumerate(networks):
        _printed_marks(ax, row, network)
    # An interval of few runs may reach beyond what an accuracy can be.
    ax.set(xlabel="test accuracy, %", xlim=(max(0.0, ax.get_xlim()[0]), 100.5))
    caption = (
        f"{setting}. Each dot is a seed, the large dot the mean with its 95 % interval, the shape a kernel estimate of "
        "the distribution (three seeds or more). Hollow diamonds: every printed mean with its standard deviation."
    )
    return Figure(name, "Test accuracy of every run", to_svg(drawing, name), caption)


def _printed_marks(ax: Axes, row: int, network: str) -> None:
    table = printed("test_accuracy", network=network)
    places = dict.fromkeys(zip(table["mean"], table["sd"], strict=True)) if len(table) else {}
    for i, (mean, sd) in enumerate(places):
        height = row + 0.36 - 0.1 * i
        ax.plot([mean - sd, min(mean + sd, 100)], [height] * 2, color=COLORS["published"], linewidth=1.2)
        looks: dict[str, Any] = {"markeredgecolor": COLORS["published"], "markersize": 4.5, "zorder": 4}
        ax.plot([mean], [height], "D", color="white", **looks)


def curves(results: Results, setting: Setting, name: str) -> Figure:
    """Draw loss, training error and test error over epochs, one column per family."""
    networks = results.networks(setting)
    families = [f for f in FAMILIES if any(family(n) == f for n in networks)]
    alone = len(families) == 1
    drawing, axes = figure(9.2, 2.9, 1, len(SHOWN)) if alone else figure(9.2, 7.5, len(SHOWN), len(families))
    axes = axes.T if alone else axes
    for j, kind in enumerate(families):
        for network in (n for n in networks if family(n) == kind):
            for i, shown in enumerate(SHOWN):
                epochs, values = shown_curve(results, setting, network, shown)
                band(axes[i, j], epochs + 1, values, title(network), color(network), log="xy")
        for i, text in enumerate(SHOWN.values()):
            axes[i, j].set(xlabel="epoch + 1" if i == len(SHOWN) - 1 or alone else "", ylabel=text if j == 0 else "")
        axes[0, j].set_title(FAMILIES[kind])
        legend(axes[0, j], "lower left")
    for row in axes:
        low, high = min(a.get_ylim()[0] for a in row), max(a.get_ylim()[1] for a in row)
        for ax in row:
            ax.set_ylim(low, high)
    caption = (
        f"{setting}. Median over seeds, the band of the middle 80 %, extremes as thin lines; logarithmic axes. An "
        "error of none is drawn at one image of its part."
    )
    return Figure(name, "Learning curves", to_svg(drawing, name), caption)


def shown_curve(results: Results, setting: Setting, network: str, shown: str) -> tuple[np.ndarray, np.ndarray]:
    """Return epochs and values of a loss, or of an error, of which none is drawn at one image."""
    part, _, what = shown.partition("_")
    if what == "loss":
        return results.curve(setting, network, shown)
    epochs, values = results.curve(setting, network, f"{part}_accuracy")
    count = setting.train_size if part == "train" else results.test_sizes[setting.data]
    return epochs, np.maximum(1 - values, 1 / count)
