"""What several figures draw: points by class, kernels, and axes without a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metriscope.report.style import CYCLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["bare", "draw_kernel", "scatter"]

CLASSES = (CYCLE[0], CYCLE[1])


def bare(ax: Axes) -> None:
    """Take grid, ticks and frame away: what is drawn speaks for itself."""
    ax.grid(visible=False)
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)


def draw_kernel(ax: Axes, distances: np.ndarray) -> None:
    """Draw distances between points in label order; darker is nearer."""
    ax.imshow(distances, cmap="viridis", interpolation="nearest")
    bare(ax)


def scatter(ax: Axes, points: np.ndarray, labels: np.ndarray, size: float = 3.4) -> None:
    """Draw points of two classes."""
    for label, color in enumerate(CLASSES):
        chosen = points[labels == label]
        ax.plot(*chosen.T, "o", color=color, markersize=size, alpha=0.8, markeredgewidth=0)
