"""The figures of all experiments: accuracies and learning curves, units, perturbations, and prototypes.

Axes: S seeds, T observed epochs, C classes, D pixels. A network has the same color in every figure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from metriscope.report import Figure, to_svg
from metriscope.report.plots import LABEL_COLORS, band, panels, strip
from metriscope.report.style import COLORS, CYCLE, FAINT, INK, figure, legend, log_axes
from metriscope.studies.representation.accuracy import by_seed, printed
from metriscope.studies.representation.measure import RepresentationResults
from metriscope.studies.representation.plan import BASE, Setting, title
from metriscope.studies.representation.units import Unit
from metriscope.studies.tidy_tables import matching

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "SPREAD", "accuracies", "color", "curves", "distributions", "dying", "heat_maps", "perturbations", "prototypes",
    "weights",
]  # fmt: skip

VIOLET = "#7a5195"
STEMS = {
    "relu": COLORS["relu"], "abs": COLORS["abs"], "relu2": CYCLE[3], "abs2": CYCLE[4],
    "relu2-neg": CYCLE[2], "abs2-neg": VIOLET, "relu-l2": COLORS["relu"], "abs-l2": COLORS["abs"],
    "relu-l2-neg": CYCLE[2], "abs-l2-neg": VIOLET,
}  # fmt: skip
FAMILIES = {"no bias": "Linear head, no bias", "bias": "Linear head with bias", "l2": "OffsetL2 head"}
CURVES = {"train_loss": "training loss", "train_error": "training error", "test_error": "test error"}
# Where ReLU units can die: both outputs, and the hidden layer of the baseline. With a bias the picture is the same.
PANELS = (("relu2", "output"), ("relu2-neg", "output"), ("relu", "hidden"))
THRESHOLDS = {"never": "never active", "under_1": "under 1 % of images", "under_5": "under 5 % of images"}
HEADS = tuple(sorted(BASE, key=lambda name: name.startswith("abs")))
IMAGES = {"means": "class mean", "nearest": "nearest image", "likeliest": "likeliest image"}
SPREAD = "Median over seeds, the band of the middle 80 %, extremes as thin lines"


def family(network: str) -> str:
    """Return which of the paper's three families a network belongs to.

    >>> family("abs2-neg"), family("relu-bias"), family("abs-l2")
    ('no bias', 'bias', 'l2')
    """
    return "l2" if "-l2" in network else "bias" if "-bias" in network else "no bias"


def color(network: str) -> str:
    """Return a network's color: the same with and without bias."""
    return STEMS.get(network.removesuffix("-bias"), INK)


def accuracies(results: RepresentationResults, setting: Setting, name: str) -> Figure:
    """Draw every run's test accuracy with the shape of its distribution, and the printed means with deviations."""
    networks = results.networks(setting)
    groups = {title(n): results.accuracy(setting, n).to_numpy() for n in networks}
    drawing, axes = figure(6.4, 0.36 * len(networks) + 0.8)
    ax = axes[0, 0]
    strip(ax, groups, {title(n): color(n) for n in networks})
    for row, network in enumerate(networks):
        if shape := results.shapes.get((str(setting), network)):
            x, ends = shape[0], (row - 0.34 * shape[1], row + 0.34 * shape[1])
            ax.fill_between(x, *ends, color=color(network), alpha=0.16, linewidth=0, zorder=0)
        _printed_marks(ax, row, network)
    # An interval of few runs may extend beyond 100 %.
    ax.set(xlabel="test accuracy, %", xlim=(max(0.0, ax.get_xlim()[0]), 100.5))
    caption = (
        f"{setting}. Each dot is a seed, the large dot the mean with its 95 % interval, "
        "or the range of fewer than five, the shape a kernel estimate of "
        "the distribution (five seeds or more). Hollow diamonds: every printed mean with its standard deviation."
    )
    ours = {n: float(results.accuracy(setting, n).mean()) for n in ("relu", "relu2") if n in networks}
    texts = [f"{title(n)} reaches {value:.1f} %" for n, value in reversed(ours.items())]
    heading = ", ".join(texts) if len(texts) > 1 else "Test accuracy of every run"
    return Figure(name, heading, to_svg(drawing, name), caption)


def _printed_marks(ax: Axes, row: int, network: str) -> None:
    table = printed("test_accuracy", network=network)
    places = dict.fromkeys(zip(table["mean"], table["sd"], strict=True)) if len(table) else {}
    for i, (mean, sd) in enumerate(places):
        height = row + 0.36 - 0.1 * i
        ax.plot([mean - sd, min(mean + sd, 100)], [height] * 2, color=COLORS["published"], linewidth=1.2)
        looks: dict[str, Any] = {"markeredgecolor": COLORS["published"], "markersize": 4.5, "zorder": 4}
        ax.plot([mean], [height], "D", color="white", **looks)


def curves(results: RepresentationResults, setting: Setting, name: str) -> Figure:
    """Draw loss, training error and test error over epochs, one column per family."""
    networks = results.networks(setting)
    families = [f for f in FAMILIES if any(family(n) == f for n in networks)]
    alone = len(families) == 1
    drawing, axes = figure(9.2, 2.9, 1, len(CURVES)) if alone else figure(9.2, 7.5, len(CURVES), len(families))
    axes = axes.T if alone else axes
    for j, kind in enumerate(families):
        for network in (n for n in networks if family(n) == kind):
            for i, shown in enumerate(CURVES):
                epochs, values = results.curve(setting, network, shown)
                band(axes[i, j], epochs + 1, values, title(network), color(network), log="xy")
        for i, text in enumerate(CURVES.values()):
            axes[i, j].set(xlabel="epoch + 1" if i == len(CURVES) - 1 or alone else "", ylabel=text if j == 0 else "")
        axes[0, j].set_title(FAMILIES[kind])
        legend(axes[0, j], "lower left")
    for row in axes:
        low, high = min(a.get_ylim()[0] for a in row), max(a.get_ylim()[1] for a in row)
        for ax in row:
            ax.set_ylim(low, high)
    caption = f"{setting}. {SPREAD}; logarithmic axes. An error of zero is drawn as one image of its part."
    return Figure(name, "Learning curves", to_svg(drawing, name), caption)


def dying(results: RepresentationResults, setting: Setting, name: str) -> Figure | None:
    """Draw the share of inactive units over epochs, where units can die."""
    table = matching(results.tables["dead"], setting=str(setting), part="train")
    parts = {panel: matching(table, network=panel[0], layer=panel[1]) for panel in PANELS}
    panels = {panel: part for panel, part in parts.items() if len(part)}
    if not panels:
        return None
    drawing, axes = figure(9.2, 2.9, 1, len(panels))
    for ax, ((network, layer), part) in zip(axes[0], panels.items(), strict=True):
        for (key, text), shade in zip(THRESHOLDS.items(), (INK, COLORS["relu"], CYCLE[3]), strict=True):
            epochs, values = by_seed(part, "epoch", key)
            band(ax, epochs + 1, values, text, shade, log="x")
        ax.set(title=f"{title(network)}, {layer} units", xlabel="epoch + 1", ylabel="% of units", ylim=(-4, 104))
    legend(axes[0, -1], "upper right")
    caption = (
        f"{setting}. Share of units active (|activation| > 10⁻⁶) for no training image, for under 1 % and for under "
        f"5 % of them. {SPREAD}."
    )
    return Figure(name, "When units die", to_svg(drawing, name), caption)


def distributions(results: RepresentationResults) -> Figure | None:
    """Draw figure 1 of the paper: class-conditional distributions along chosen hidden units."""
    if not results.units:
        return None
    networks = list(dict.fromkeys(unit.network for unit in results.units))
    shown = [[unit for unit in results.units if unit.network == network] for network in networks]
    drawing, axes = figure(9.2, 2.5 * len(networks), len(networks), max(map(len, shown)))
    for row, units in zip(axes, shown, strict=True):
        for ax, unit in zip(row, units, strict=False):
            _densities(ax, unit)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    looks = {"frameon": False, "fontsize": 9, "handlelength": 1.2, "columnspacing": 1.1}
    drawing.legend(handles, labels, loc="outside lower center", ncols=10, **looks)
    caption = (
        "Pre-activations of the first layer on training images (seed 0 where it was run), by class; dashed: the "
        "hyperplane. For each of the digits 0, 3 and 8, the hidden unit with the largest absolute weight to that "
        "digit's output is shown. Each curve is a kernel estimate that encloses the same area."
    )
    return Figure("unit-distributions", "Classes along hidden units", to_svg(drawing, "unit-distributions"), caption)


def _densities(ax: Axes, unit: Unit) -> None:
    for digit, density in unit.densities.items():
        shade = LABEL_COLORS[digit % len(LABEL_COLORS)]
        ax.fill_between(unit.x, 0, density, color=shade, alpha=0.07, linewidth=0)
        ax.plot(unit.x, density, color=shade, linewidth=1.3, label=str(digit))
    ax.axvline(0, color=INK, linewidth=0.9, dashes=(4, 3))
    ax.set(title=f"{title(unit.network)}: unit {unit.unit}, for {unit.digit}", yticks=[])
    ax.set_ylim(bottom=0)


def heat_maps(results: RepresentationResults) -> Figure | None:
    """Draw how far each class lies from each output's hyperplane, one map per network, mean over seeds."""
    planes = results.tables["planes"]
    found = [n for n in HEADS if n in set(planes["network"])]
    if not found:
        return None
    drawing, axes = panels(len(found), 3.0, min(3, len(found)))
    for ax, network in zip(axes, found, strict=True):
        part = matching(planes, network=network)
        wide = part.pivot_table(index="output", columns="class", values="distance", aggfunc="mean")
        ax.imshow(wide.to_numpy(), cmap="viridis_r", vmin=0, vmax=4)
        ax.grid(visible=False)
        ax.set(title=title(network), xticks=range(wide.shape[1]), yticks=range(wide.shape[0]))
        ax.set(xlabel="class", ylabel="output")
    bar = drawing.colorbar(axes[0].images[0], ax=drawing.axes, shrink=0.6, extend="max")
    bar.set_label("|mean of the class| / its sd along the output")
    name = "output-hyperplanes"
    caption = (
        "How far the mean of each class lies from each output's hyperplane, in standard deviations of the class: dark "
        "is far (4 and more), pale means that the hyperplane goes through the middle of the class. A distance "
        "representation has its pale fields on the diagonal (z_c), an intensity representation off it. Mean over seeds."
    )
    return Figure(name, "Which classes the outputs cross", to_svg(drawing, name), caption)


def perturbations(results: RepresentationResults) -> Figure | None:
    """Draw accuracy against the level of each perturbation, with the printed ranges."""
    table = results.tables["perturbed"]
    found = [n for n in results.comparing.perturbed if n in set(table["network"])]
    if not found:
        return None
    drawing, axes = figure(9.2, 3.1, 1, 3)
    for ax, kind in zip(axes[0], ("scale", "clip", "offset"), strict=True):
        for network in found:
            levels, values = by_seed(matching(table, network=network, kind=kind), "level", "accuracy")
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
        f"{SPREAD}; dashed: the networks with a bias in the second layer. Gray: the printed range within which "
        "accuracy holds (offset: that of ReLU; the lines inside: Abs). Offsets beyond ±30 % are in the table."
    )
    return Figure("perturbations", "Perturbed pre-activations", to_svg(drawing, "perturbations"), caption)


def _printed_range(ax: Axes, kind: str) -> None:
    table = printed("perturbation", kind=kind).set_index("network")
    high = 100 * float(table.loc["relu", "high"]) if "high" in table else 1_000.0
    ax.axvspan(100 * float(table.loc["relu", "low"]), high, color=FAINT, alpha=0.35, linewidth=0, zorder=0)
    if kind == "offset":
        for edge in ("low", "high"):
            ax.axvline(100 * float(table.loc["abs", edge]), color=FAINT, linewidth=1.2, zorder=0)


def prototypes(results: RepresentationResults) -> Figure | None:
    """Draw class means and prototypes mapped back through the first layer, one panel per network."""
    if not results.seen:
        return None
    drawing, axes = figure(9.2, 2.6 * len(results.seen), len(results.seen), 1)
    for ax, (network, shown) in zip(axes[:, 0], results.seen.items(), strict=True):
        rows = [_side_by_side(shown[kind]) for kind in IMAGES]
        side = rows[0].shape[0]
        ax.imshow(np.concatenate(rows), cmap="RdBu_r", vmin=-1, vmax=1)
        ax.set_yticks([side * (i + 0.5) for i in range(len(rows))], list(IMAGES.values()))
        ax.set(xticks=[], title=title(network))
        ax.tick_params(length=0)
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
    caption = (
        "For each class c: the mean training image, and two of the images that the first layer maps to the prototype "
        "μ_c (activation undone by the signs of the class's mean pre-activation; ReLU: only units that are on): the "
        "nearest to the class mean, and the likeliest under a Gaussian around it with the covariance of the training "
        "images. What the nearest image shows of the digit is the part of the class mean that the first layer does not "
        "see; the likeliest image keeps none of it. Each image has its own scale, red above and blue below zero."
    )
    return Figure("prototypes", "Prototypes as images", to_svg(drawing, "prototypes"), caption)


def _side_by_side(images: np.ndarray) -> np.ndarray:
    """Return images in one row, each divided by its largest absolute value."""
    side = math.isqrt(images.shape[1])
    reach = np.abs(images).max(axis=1, keepdims=True)
    scaled = np.divide(images, reach, out=np.zeros_like(images), where=reach > 0)
    return np.concatenate([image[: side * side].reshape(side, side) for image in scaled], axis=1)


def weights(results: RepresentationResults) -> Figure | None:
    """Draw alpha against what it may weigh: the inverse deviation within the class, and the class's mean."""
    if not results.alphas:
        return None
    drawing, axes = figure(9.2, 2.7 * 2, 2, len(results.alphas))
    labels = {"1 / sd": "1 / sd within the class", "lean": "class mean above the others', in sd"}
    looks = {"markersize": 2.4, "alpha": 0.5, "markeredgewidth": 0, "rasterized": True}
    for column, (network, table) in zip(axes.T, results.alphas.items(), strict=True):
        for ax, (name, label) in zip(column, labels.items(), strict=True):
            for c, part in table.groupby("class"):
                ax.plot(part[name], part["alpha"], "o", color=LABEL_COLORS[int(str(c)) % len(LABEL_COLORS)], **looks)
            ax.set(xlabel=label, ylabel="α")
            ax.axhline(1, color=COLORS["truth"], linewidth=0.8, dashes=(4, 3))
        column[0].set_title(title(network))
        log_axes(column[0], "x")
    caption = (
        "Each dot is a hidden unit's weight in one class's distance (colors: digits), first seed; dashed: where "
        "training begins. A Mahalanobis distance along the axes would have α rise with 1 / sd."
    )
    return Figure("alpha", "What alpha weighs", to_svg(drawing, "alpha"), caption)
