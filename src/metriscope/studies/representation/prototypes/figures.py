"""Prototypes as images, and what alpha weighs."""

from __future__ import annotations

import math

import numpy as np

from metriscope.report import Figure, to_svg
from metriscope.report.plots import LABEL_COLORS
from metriscope.report.style import COLORS, figure, log_axes
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.plan import title

__all__ = ["prototypes", "weights"]


def prototypes(results: Results) -> Figure | None:
    """Draw class means and prototypes mapped back through the first layer, one panel per network."""
    if not results.seen:
        return None
    kinds = {"means": "class mean", "nearest": "nearest image", "likeliest": "likeliest image"}
    drawing, axes = figure(9.2, 2.6 * len(results.seen), len(results.seen), 1)
    for ax, shown in zip(axes[:, 0], results.seen, strict=True):
        rows = [_row(getattr(shown, kind)) for kind in kinds]
        side = rows[0].shape[0]
        ax.imshow(np.concatenate(rows), cmap="RdBu_r", vmin=-1, vmax=1)
        ax.set_yticks([side * (i + 0.5) for i in range(len(rows))], list(kinds.values()))
        ax.set(xticks=[], title=title(shown.network))
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


def weights(results: Results) -> Figure | None:
    """Draw alpha against what it may weigh: the inverse deviation within the class, and where the class lies."""
    if not results.alphas:
        return None
    drawing, axes = figure(9.2, 2.7 * 2, 2, len(results.alphas))
    looks = {"markersize": 2.4, "alpha": 0.5, "markeredgewidth": 0, "rasterized": True}
    for column, shown in enumerate(results.alphas):
        for c, part in shown.table.groupby("class"):
            shade = LABEL_COLORS[int(str(c)) % len(LABEL_COLORS)]
            axes[0, column].plot(part["1 / sd"], part["alpha"], "o", color=shade, **looks)
            axes[1, column].plot(part["lean"], part["alpha"], "o", color=shade, **looks)
        axes[0, column].set(title=title(shown.network), xlabel="1 / sd within the class", ylabel="α")
        axes[1, column].set(xlabel="class mean above the others', in sd", ylabel="α")
        for ax in axes[:, column]:
            ax.axhline(1, color=COLORS["truth"], linewidth=0.8, dashes=(4, 3))
    for ax in axes[0]:
        log_axes(ax, "x")
    caption = (
        "Each dot is a hidden unit's weight in one class's distance (colors: digits), first seed; dashed: where "
        "training begins. A Mahalanobis distance along the axes would have α rise with 1 / sd."
    )
    return Figure("alpha", "What alpha weighs", to_svg(drawing, "alpha"), caption)
