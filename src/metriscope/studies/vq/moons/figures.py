"""Figures of the moons in the plane.

Axes: N points, G x G cells of the grid, K components.
"""

from __future__ import annotations

import numpy as np

from metriscope.report import Figure, to_svg
from metriscope.report.plots import strip
from metriscope.report.style import CYCLE, INK, figure
from metriscope.studies.vq.moons.measure import Results
from metriscope.studies.vq.moons.plan import COMPARISONS, MEASURES
from metriscope.studies.vq.networks.figures import bare, draw_kernel, scatter

__all__ = ["eigenvectors", "turning"]

PANELS = {"overlap": "Leading eigenspaces", "cosine": "Single eigenvectors", "alignment": "Whole kernels"}
NAMES = {"first": "Moons", "turned": "Turned by π/6"}


def eigenvectors(results: Results) -> Figure:
    """Draw data, leading eigenvectors and training kernel of one seed, as it is and turned."""
    components = len(results.pictures["first"].shares)
    drawing, axes = figure(9.2, 4.1, len(NAMES), components + 2)
    for row, (role, name) in zip(axes, NAMES.items(), strict=True):
        picture = results.pictures[role]
        scatter(row[0], picture.points, picture.labels, 2.4)
        row[0].set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), aspect="equal", title=name)
        for k, (ax, image) in enumerate(zip(row[1:-1], picture.fields, strict=True)):
            reach = np.nanmax(np.abs(image))
            ax.imshow(image, origin="lower", cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
            ax.set_title(f"λ{'₁₂₃'[k]} / λ₁ = {picture.shares[k]:.2f}")
        draw_kernel(row[-1], picture.kernel)
        row[-1].set_title("Kernel")
        for ax in row:
            bare(ax)
    caption = (
        "Seed 0. Left: training points. Middle: the three leading eigenvectors of the centered VQ kernel on the unit "
        "disc, each with its eigenvalue relative to the first; red and blue are opposite signs. Right: VQ distances "
        "between the training points in label order, dark where they are near."
    )
    return Figure("vq-eigenvectors", "Figure 1, repeated", to_svg(drawing, "vq-eigenvectors"), caption)


def turning(results: Results) -> Figure:
    """Draw every seed of every comparison, one panel per measure."""
    drawing, axes = figure(9.2, 2.7, 1, len(MEASURES))
    colors = dict(zip(COMPARISONS.values(), (CYCLE[0], INK, CYCLE[1], CYCLE[4], CYCLE[3]), strict=True))
    for ax, (measure, title) in zip(axes[0], MEASURES.items(), strict=True):
        strip(ax, {text: results.values(name, measure) for name, text in COMPARISONS.items()}, colors)
        ax.set(title=PANELS[measure], xlabel=title)
        if ax is not axes[0, 0]:
            ax.set_yticklabels([])
    caption = "Each dot is a seed; the large dot is the mean with its 95 % interval. 1 is perfect agreement."
    return Figure("vq-turning-strip", "What turning back is worth", to_svg(drawing, "vq-turning-strip"), caption)
