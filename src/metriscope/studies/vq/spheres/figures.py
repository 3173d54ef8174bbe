"""Figure 2: scalings and kernels of one seed."""

from __future__ import annotations

from metriscope.report import Figure, to_svg
from metriscope.report.style import figure
from metriscope.studies.vq.networks.figures import bare, draw_kernel, scatter
from metriscope.studies.vq.spheres.measure import Results

__all__ = ["scalings"]

COLUMNS = {"first": "VQ", "turned": "VQ, turned data", "shuffled": "VQ, random labels", "euclid": "Euclid"}


def scalings(results: Results) -> Figure:
    """Draw the scalings and kernels of one seed: VQ, turned VQ, random labels, Euclid; training and new points."""
    drawing, axes = figure(9.2, 6.6, 3, len(COLUMNS))
    for place, (role, name) in enumerate(COLUMNS.items()):
        panel = results.panels[role]
        sets = {"training points": (panel.training, panel.labels), "new points": (panel.new, panel.new_labels)}
        for ax, (part, (points, labels)) in zip(axes[:2, place], sets.items(), strict=True):
            scatter(ax, points, labels)
            bare(ax)
            ax.set_title(f"{name}: {part}" if place == 0 else name)
            ax.set_box_aspect(1)
        draw_kernel(axes[2, place], panel.kernel)
        axes[2, place].set_title("Kernel, training points" if place == 0 else "Kernel")
    caption = (
        "Seed 0. Top: classical scaling of the training points, colored by the labels that the network was given. "
        "Middle: the same for as many new points, true labels. Bottom: distances in label order, dark where near. The "
        "third network was given random labels."
    )
    return Figure("vq-scalings", "Figure 2, repeated, with controls", to_svg(drawing, "vq-scalings"), caption)
