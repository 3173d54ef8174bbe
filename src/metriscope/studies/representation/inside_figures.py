"""Figures of what lies inside: classes along units and output hyperplanes, prototypes as images, what alpha weighs.

Axes: N images, C classes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from metriscope.report import Figure, to_svg
from metriscope.report.scatter import LABEL_COLOURS
from metriscope.report.style import COLOURS, INK, figure, log_axes
from metriscope.studies.representation.analysis import Analysis
from metriscope.studies.representation.inside import BAND, Unit
from metriscope.studies.representation.results import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["distributions", "heat_maps", "prototypes", "weights"]

HEADS = ("relu", "relu2", "relu2-neg", "abs", "abs2", "abs2-neg")


def distributions(analysis: Analysis) -> Figure | None:
    """Draw figure 1 of S2: class-conditional distributions along chosen hidden units."""
    if not analysis.units:
        return None
    networks = list(dict.fromkeys(unit.run.network for unit in analysis.units))
    most = max(sum(unit.run.network == n for unit in analysis.units) for n in networks)
    drawing, axes = figure(9.2, 2.5 * len(networks), len(networks), most)
    for row, network in zip(axes, networks, strict=True):
        for ax, unit in zip(row, (u for u in analysis.units if u.run.network == network), strict=False):
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
    from scipy.stats import gaussian_kde

    x = np.linspace(unit.z.min(), unit.z.max(), 160)
    for digit in np.unique(unit.labels):
        values = unit.z[unit.labels == digit]
        if len(values) < 3 or np.ptp(values) < 1e-9:
            continue
        shade = LABEL_COLOURS[int(digit) % len(LABEL_COLOURS)]
        density = gaussian_kde(values)(x)
        ax.fill_between(x, 0, density, color=shade, alpha=0.07, linewidth=0)
        ax.plot(x, density, color=shade, linewidth=1.3, label=str(digit))
    ax.axvline(0, color=INK, linewidth=0.9, dashes=(4, 3))
    ax.set_yticks([])
    ax.set_ylim(bottom=0)


def heat_maps(analysis: Analysis) -> Figure | None:
    """Draw how far each class lies from each output's hyperplane, one map a network, mean over seeds."""
    found = [n for n in HEADS if n in set(analysis.planes["network"])]
    if not found:
        return None
    columns = min(3, len(found))
    height = -(-len(found) // columns)
    drawing, axes = figure(9.2, 3.0 * height, height, columns)
    shown = None
    for ax, network in zip(axes.flat, found, strict=False):
        part = analysis.planes[analysis.planes["network"] == network]
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
        f"the diagonal (z_c), an intensity representation off it. Mean over seeds. Shares of each class within ±{BAND} "
        "standard deviations of the output are in the table."
    )
    return Figure(
        "output-hyperplanes", "Which classes the outputs cross", to_svg(drawing, "output-hyperplanes"), caption
    )


def prototypes(analysis: Analysis) -> Figure | None:
    """Draw class means and prototypes mapped back through the first layer, one panel a network."""
    if not analysis.seen:
        return None
    kinds = {"means": "class mean", "nearest": "nearest image", "likeliest": "likeliest image"}
    drawing, axes = figure(9.2, 2.6 * len(analysis.seen), len(analysis.seen), 1)
    for ax, shown in zip(axes[:, 0], analysis.seen, strict=True):
        rows = [_row(getattr(shown, kind)) for kind in kinds]
        side = rows[0].shape[0]
        ax.imshow(np.concatenate(rows), cmap="RdBu_r", vmin=-1, vmax=1)
        ax.set_yticks([side * (i + 0.5) for i in range(len(rows))], list(kinds.values()))
        ax.set(xticks=[], title=title(shown.run.network))
        ax.tick_params(length=0)
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
    caption = (
        "For each class c: the mean training image; then two images that the first layer sends to the prototype μ_c, "
        "its activation undone by the signs of the class's mean pre-activation (ReLU: only the units that are on). As "
        "128 units do not fix 784 pixels, the one nearest to the class mean is shown, and the likeliest one under a "
        "Gaussian around the class mean with the covariance of the training images. Whatever the nearest image shows "
        "of the digit is what the first layer does not see of the class mean; the likeliest one keeps none of it. "
        "Each image has its own scale, red above and blue below zero."
    )
    return Figure("prototypes", "Prototypes as images", to_svg(drawing, "prototypes"), caption)


def _row(images: np.ndarray) -> np.ndarray:
    """Return images side by side, each divided by its largest absolute value."""
    side = math.isqrt(images.shape[1])
    reach = np.abs(images).max(axis=1, keepdims=True)
    scaled = np.divide(images, reach, out=np.zeros_like(images), where=reach > 0)
    return np.concatenate([image[: side * side].reshape(side, side) for image in scaled], axis=1)


def weights(analysis: Analysis) -> Figure | None:
    """Draw alpha against what it may weigh: the inverse deviation within the class, and where the class lies."""
    chosen = [
        next((h for h in analysis.observed if h.run.name == n), None) for n in ("abs-l2", "abs-l2-neg", "relu-l2-neg")
    ]
    found = [h for h in chosen if h is not None] or list(analysis.observed[:1])
    if not found:
        return None
    drawing, axes = figure(9.2, 2.7 * 2, 2, len(found))
    for column, hidden in enumerate(found):
        for c in hidden.classes:
            own, rest = hidden.post[hidden.labels == c], hidden.post[hidden.labels != c]
            sd = own.std(0).numpy()
            lean = ((own.mean(0) - rest.mean(0)) / hidden.post.std(0)).numpy()
            alpha, alive = hidden.alpha[c].numpy(), sd > 0
            looks = {"markersize": 2.4, "alpha": 0.5, "markeredgewidth": 0, "rasterized": True}
            shade = LABEL_COLOURS[c % len(LABEL_COLOURS)]
            axes[0, column].plot(1 / sd[alive], alpha[alive], "o", color=shade, **looks)
            axes[1, column].plot(lean[alive], alpha[alive], "o", color=shade, **looks)
        axes[0, column].set(title=title(hidden.run.network), xlabel="1 / sd within the class", ylabel="α")
        axes[1, column].set(xlabel="class mean above the others', in sd", ylabel="α")
        for ax in axes[:, column]:
            ax.axhline(1, color=COLOURS["truth"], linewidth=0.8, dashes=(4, 3))
    for ax in axes[0]:
        log_axes(ax, "x")
    caption = (
        "Each dot is a hidden unit's weight in one class's distance (colours: digits), first seed; dashed: where "
        "training begins. A Mahalanobis distance along the axes would have α rise with 1 / sd."
    )
    return Figure("alpha", "What alpha weighs", to_svg(drawing, "alpha"), caption)
