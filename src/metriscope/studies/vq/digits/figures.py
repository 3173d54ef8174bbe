"""Figures of the networks on digits: matrices of cosines, curves over scales, alignments over seeds.

Axes: S seeds, T scales sigma2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metriscope.report import Figure, number, to_svg
from metriscope.report.plots import band, strip
from metriscope.report.style import COLORS, CYCLE, FAINT, INK, figure, legend, log_axes
from metriscope.studies.vq.digits.measure import Results, printed
from metriscope.studies.vq.digits.plan import FORMS, PAIRS, TWINS, Pair, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["aligned", "changes", "curves", "matrices"]

LABELS = ("T4", "T6", "I4", "I6")
TITLES = {"T4": "Trained (4)", "T6": "Trained (6)", "I4": "Initial (4)", "I6": "Initial (6)"}
PAIR_COLORS = (CYCLE[0], CYCLE[2], CYCLE[3], CYCLE[4], "#cc79a7", CYCLE[1])


def matrices(results: Results) -> Figure:
    """Draw figure 3 as printed, ours at the nearest scale, and our centered alignments."""
    best = results.nearest
    shown = {
        "Published": {pair: printed(pair) for pair in PAIRS},
        f"Ours, σ² = {number(best.scale, 2)}": {p: results.curve(p, best.form)[:, best.index].mean() for p in PAIRS},
        "Ours, centered alignment": {pair: results.alignments(pair).mean() for pair in PAIRS},
    }
    drawing, axes = figure(9.2, 3.3, 1, len(shown))
    for ax, (title, values) in zip(axes[0], shown.items(), strict=True):
        _matrix(ax, {key: float(value) for key, value in values.items()})
        ax.set_title(title)
        if ax is not axes[0, 0]:
            ax.set_yticklabels([])
    caption = (
        f"Left: cosines of heat kernels as S4 prints them. Middle: ours, mean over {results.part.seeds} seeds, at the "
        f"form and scale nearest to the printed ones, {FORMS[best.form]}. Right: the centered alignment of the same "
        "networks. In the printed matrix the untrained pair is the most alike."
    )
    return Figure("vq-matrices", "Figure 3, printed and repeated", to_svg(drawing, "vq-matrices"), caption)


def _matrix(ax: Axes, values: dict[Pair, float]) -> None:
    whole = np.eye(len(LABELS))
    for (one, other), value in values.items():
        i, j = LABELS.index(one), LABELS.index(other)
        whole[i, j] = whole[j, i] = value
    ax.imshow(whole, vmin=0, vmax=1, cmap="viridis")
    ax.grid(visible=False)
    names = [TITLES[label] for label in LABELS]
    ax.set_xticks(range(len(LABELS)), names, rotation=30, ha="right")
    ax.set_yticks(range(len(LABELS)), names)
    for i, j in np.ndindex(*whole.shape):
        ink = "white" if whole[i, j] < 0.6 else "black"
        ax.text(j, i, f"{whole[i, j]:.2f}", ha="center", va="center", color=ink, fontsize=9)


def curves(results: Results) -> Figure:
    """Draw figure 4: cosines over scales in both forms, with the places where they take the printed values."""
    drawing, axes = figure(9.2, 3.7, 1, len(FORMS))
    for ax, (form, title) in zip(axes[0], FORMS.items(), strict=True):
        for pair, color in zip(PAIRS, PAIR_COLORS, strict=True):
            band(ax, results.scales[form], results.curve(pair, form), name_of(pair), color, log="x")
            for scale in results.places(pair, form)[0]:
                ax.plot([scale], [printed(pair)], "D", color="white", markeredgecolor=color, markersize=6, zorder=5)
        ax.set(title=title, xlabel="σ²", ylabel="cosine", ylim=(0, 1.03))
    legend(axes[0, 0], "lower right")
    place = axes[0, list(FORMS).index(results.nearest.form)]
    place.axvline(results.nearest.scale, color=INK, linewidth=0.9, dashes=(4, 3))
    caption = (
        "Median over seeds, the band of the middle 80 %, extremes as thin lines. Hollow diamonds: where the mean curve "
        "takes the value that S4 prints for the pair. Dashed: the scale nearest to all six."
    )
    return Figure("vq-heat", "Figure 4, repeated: cosine of heat kernels", to_svg(drawing, "vq-heat"), caption)


def changes(results: Results) -> Figure:
    """Draw what training does to the cosine of both architectures at each scale, with the band for all at once."""
    drawing, axes = figure(9.2, 2.7, 1, len(FORMS))
    for ax, (form, title) in zip(axes[0], FORMS.items(), strict=True):
        found, scales = results.bands[form], results.scales[form]
        ax.fill_between(scales, found.low, found.high, color=CYCLE[0], alpha=0.2, linewidth=0)
        ax.plot(scales, found.mean, color=CYCLE[0], linewidth=1.8)
        ax.axhline(0, color=INK, linewidth=0.9)
        log_axes(ax, "x")
        ax.set(title=title, xlabel="σ²", ylabel="cosine, trained − initial", ylim=(-1.03, 1.03))
    caption = (
        f"Cosine of T4–T6 less that of I4–I6, mean over {results.part.seeds} seeds. The band holds the true curve at "
        "all scales at once; each of its edges has a confidence of 95 %."
    )
    return Figure("vq-changes", "What training changes at each scale", to_svg(drawing, "vq-changes"), caption)


def aligned(results: Results) -> Figure:
    """Draw the centered alignment of every seed, architectures and starts, with its null."""
    pairs = (*PAIRS, *TWINS)
    drawing, axes = figure(9.2, 3.4)
    groups = {name_of(pair): results.alignments(pair) for pair in pairs}
    colors = {name_of(p): _kind_color(p) for p in pairs}
    strip(axes[0, 0], groups, colors)
    for row, pair in enumerate(pairs):
        null = results.alignments(pair, "null").mean()
        axes[0, 0].plot([null, null], [row - 0.3, row + 0.3], color=FAINT, linewidth=2.2, zorder=1)
    log_axes(axes[0, 0], "")
    axes[0, 0].set(xlabel="centered alignment on test images", xlim=(-0.05, 1))
    caption = (
        "Each dot is a seed; the large dot is the mean with its 95 % interval. Blue: both trained; orange: both before "
        "training; gray: one of each. Grey bars: the mean with the images of one network shuffled."
    )
    return Figure("vq-aligned", "Centered alignment", to_svg(drawing, "vq-aligned"), caption)


def _kind_color(pair: Pair) -> str:
    kinds = {label[0] for label in pair}
    return {"T": COLORS["abs"], "I": COLORS["relu"]}[kinds.pop()] if len(kinds) == 1 else "#8b949e"
