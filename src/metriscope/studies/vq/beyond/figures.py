"""Figures beyond the paper: alignment during training, and depth against width."""

from __future__ import annotations

from metriscope.report import Figure, to_svg
from metriscope.report.plots import band, strip
from metriscope.report.style import CYCLE, figure, legend
from metriscope.studies.vq.beyond.measure import Results

__all__ = ["TASKS", "course", "depth"]

TASKS = {"moons": "moons, 3 × 96", "T4": "digits, 4 × 16", "T6": "digits, 6 × 16", "both": "digits, 4 × 16 with 6 × 16"}
TASK_COLORS = dict(zip(TASKS, (CYCLE[2], CYCLE[0], CYCLE[1], CYCLE[5]), strict=True))


def course(results: Results) -> Figure:
    """Draw the alignment with the final network at each kept epoch."""
    drawing, axes = figure(9.2, 3.0, 1, 2)
    for ax, tasks in zip(axes[0], (("moons",), ("T4", "T6", "both")), strict=True):
        for task in tasks:
            epochs, values = results.course_of(task)
            band(ax, epochs, values, TASKS[task], TASK_COLORS[task])
        ax.set(xlabel="epoch", ylabel="centered alignment", ylim=(0, 1.03))
        # Epoch 0 belongs on the axis: linear up to the first kept epoch, logarithmic behind it.
        ax.set_xscale("symlog", linthresh=float(epochs[1]))
        ticks = [e for e in (0, 1, 3, 10, 30, 100, 300, 1_000) if e <= epochs[-1]]
        ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        ax.minorticks_off()
        ax.set_xlim(0, epochs[-1])
        legend(ax, "lower right" if ax is axes[0, 0] else "upper left")
    axes[0, 0].set_title("Moons: with the final network")
    axes[0, 1].set_title("Digits: with the final network, and with each other")
    caption = "Median over seeds, the band of the middle 80 %, extremes as thin lines."
    return Figure("vq-course", "When the kernel takes its shape", to_svg(drawing, "vq-course"), caption)


def depth(results: Results) -> Figure:
    """Draw alignments and ranks of networks of equal size."""
    shown = {"back": "Alignment, turned back", "still": "Alignment, not turned back", "rank": "Effective rank"}
    drawing, axes = figure(9.2, 2.3, 1, len(shown))
    for ax, (column, title) in zip(axes[0], shown.items(), strict=True):
        strip(ax, {str(name): part[column].to_numpy() for name, part in results.depths.groupby("network", sort=False)})
        ax.set_title(title)
        if ax is not axes[0, 0]:
            ax.set_yticklabels([])
    caption = "Depth × width at about equal parameters. Each dot is a seed; the large dot the mean with its interval."
    return Figure("vq-depth", "Depth against width", to_svg(drawing, "vq-depth"), caption)
