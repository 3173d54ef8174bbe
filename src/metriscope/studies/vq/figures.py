"""Every drawing of the VQ study, experiment by experiment.

Axes: N points, G x G cells of a grid, K components, S seeds, T values of the kernel scale sigma2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metriscope.report import Figure, number, to_svg
from metriscope.report.plots import band, strip
from metriscope.report.style import COLORS, CYCLE, FAINT, INK, figure, legend, log_axes
from metriscope.studies.vq.digits import DigitsResults, printed
from metriscope.studies.vq.experiments import COMPARISONS, FORMS, KERNEL_MEASURES, PAIRS, PLACES, TWINS, Pair, name_of
from metriscope.studies.vq.measure import BeyondResults
from metriscope.studies.vq.moons import MoonsResults, SpheresResults
from metriscope.studies.vq.regions import ExplorerResults, LemmasResults, View

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    Values = Mapping[str, np.ndarray]

__all__ = [
    "TASKS", "aligned", "changes", "course", "curves", "depth", "eigenvectors", "matrices", "partitions",
    "rotation", "same_pieces", "scalings", "strictness",
]  # fmt: skip

WIDTH = 9.2
DATA_TITLES = {"first": "Moons", "turned": "Rotated by π/6"}
SCALING_TITLES = {"first": "VQ", "turned": "VQ, rotated data", "shuffled": "VQ, random labels", "euclid": "Euclid"}
NETWORK_TITLES = {"T4": "Trained (4)", "T6": "Trained (6)", "I4": "Initial (4)", "I6": "Initial (6)"}
PAIR_COLORS = (CYCLE[0], CYCLE[2], CYCLE[3], CYCLE[4], "#cc79a7", CYCLE[1])
TASKS = {"moons": "moons, 3 × 96", "T4": "digits, 4 × 16", "T6": "digits, 6 × 16", "both": "digits, 4 × 16 with 6 × 16"}
TASK_COLORS = dict(zip(TASKS, (CYCLE[2], CYCLE[0], CYCLE[1], CYCLE[5]), strict=True))
SEEDS = "Each dot is a seed; the large dot is the mean, the line its 95 % interval, or the range of fewer than five."
BAND = "Median over seeds, band of the middle 80 %, extremes as thin lines."


def _done(drawing: Drawing, name: str, title: str, caption: str) -> Figure:
    return Figure(name, title, to_svg(drawing, name), caption)


def _bare(ax: Axes) -> None:
    """Remove the grid, ticks and frame."""
    ax.grid(visible=False)
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)


def _draw_kernel(ax: Axes, distances: np.ndarray, title: str) -> None:
    """Draw distances between points in label order; darker is nearer."""
    ax.imshow(distances, cmap="viridis", interpolation="nearest")
    ax.set_title(title)
    _bare(ax)


def _scatter(ax: Axes, points: np.ndarray, labels: np.ndarray, size: float = 3.4) -> None:
    """Draw points of two classes."""
    for label, color in enumerate(CYCLE[:2]):
        ax.plot(*points[labels == label].T, "o", color=color, markersize=size, alpha=0.8, markeredgewidth=0)
    _bare(ax)


def _panels(height: float, titles: Collection[str]) -> tuple[Drawing, list[Axes]]:
    """Return a figure and its axes, side by side."""
    drawing, axes = figure(WIDTH, height, 1, len(titles))
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title)
    return drawing, list(axes[0])


def _strips(height: float, panels: Mapping[str, Values], colors: Mapping[str, str] | None = None) -> Any:
    """Return a figure and its axes with one strip plot per panel; only the first names its rows."""
    drawing, axes = _panels(height, panels)
    for ax, groups in zip(axes, panels.values(), strict=True):
        strip(ax, groups, colors)
        if ax is not axes[0]:
            ax.set_yticklabels([])
    return drawing, axes


def eigenvectors(results: MoonsResults) -> Figure:
    """Draw data, leading eigenvectors and training kernel of one seed, as it is and rotated."""
    components = len(results.pictures["first"].shares)
    drawing, axes = figure(WIDTH, 4.1, len(DATA_TITLES), components + 2)
    for row, (role, name) in zip(axes, DATA_TITLES.items(), strict=True):
        picture = results.pictures[role]
        _scatter(row[0], picture.points, picture.labels, 2.4)
        row[0].set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), aspect="equal", title=name)
        for k, (ax, image) in enumerate(zip(row[1:-1], picture.fields, strict=True)):
            reach = np.nanmax(np.abs(image))
            ax.imshow(image, origin="lower", cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
            ax.set_title(f"λ{'₁₂₃'[k]} / λ₁ = {picture.shares[k]:.2f}")
            _bare(ax)
        _draw_kernel(row[-1], picture.kernel, "Kernel")
    caption = (
        "Seed 0. Left: training points. Middle: the three leading eigenvectors of the centered VQ kernel on the unit "
        "disc, each with its eigenvalue relative to the first; red and blue are opposite signs. Right: VQ distances "
        "between the training points in label order, dark where they are near."
    )
    return _done(drawing, "vq-eigenvectors", "Figure 1, repeated", caption)


def rotation(results: MoonsResults) -> Figure:
    """Draw every seed of every comparison, one panel per measure."""
    titles = {"overlap": "Leading eigenspaces", "cosine": "Single eigenvectors", "alignment": "Whole kernels"}
    panels = {
        title: {text: results.values(name, measure) for name, text in COMPARISONS.items()}
        for measure, title in titles.items()
    }
    colors = dict(zip(COMPARISONS.values(), (CYCLE[0], INK, CYCLE[1], CYCLE[4], CYCLE[3]), strict=True))
    drawing, axes = _strips(2.7, panels, colors)
    for ax, measure in zip(axes, titles, strict=True):
        ax.set_xlabel(KERNEL_MEASURES[measure])
    return _done(drawing, "vq-turning-strip", "The gain from rotating back", f"{SEEDS} 1 is perfect agreement.")


def scalings(results: SpheresResults) -> Figure:
    """Draw the scalings and kernels of one seed: VQ, rotated VQ, random labels, Euclid; training and new points."""
    drawing, axes = figure(WIDTH, 6.6, 3, len(SCALING_TITLES))
    for column, (role, name) in zip(axes.T, SCALING_TITLES.items(), strict=True):
        panel, first = results.panels[role], role == "first"
        for ax, place, (points, labels) in zip(column[:2], PLACES.values(), panel.sets, strict=True):
            _scatter(ax, points, labels)
            ax.set_title(f"{name}: {place}" if first else name)
            ax.set_box_aspect(1)
        _draw_kernel(column[2], panel.kernel, "Kernel, training points" if first else "Kernel")
    caption = (
        "Seed 0. Top: classical scaling of the training points, colored by the labels that the network was trained "
        "on. Middle: the same for as many new points, with true labels. Bottom: distances in label order, dark where "
        "near. The third network was trained on random labels."
    )
    rows = results.rows[results.rows["points"] == "training"]
    apart = {
        text: rows[rows["distance"] == d]["silhouette"].mean() for d, text in (("first", "VQ"), ("euclid", "Euclid"))
    }
    heading = f"Silhouette of the moons: {', '.join(f'{v:.2f} by {text}' for text, v in apart.items())} (figure 2)"
    svg = to_svg(drawing, "vq-scalings", focus=(0, 3))
    return Figure("vq-scalings", heading, svg, caption)


def matrices(results: DigitsResults) -> Figure:
    """Draw figure 3 as printed, ours at the nearest scale, and our centered alignments."""
    best = results.nearest
    shown = {
        "Published": {pair: printed(pair) for pair in PAIRS},
        f"Ours, σ² = {number(best.scale, 2)}": {p: results.curve(p, best.form)[:, best.index].mean() for p in PAIRS},
        "Ours, centered alignment": {pair: results.alignments(pair).mean() for pair in PAIRS},
    }
    drawing, axes = _panels(3.3, shown)
    for ax, values in zip(axes, shown.values(), strict=True):
        _matrix(ax, {key: float(value) for key, value in values.items()})
        if ax is not axes[0]:
            ax.set_yticklabels([])
    caption = (
        f"Left: cosines of heat kernels as printed. Middle: ours, mean over {results.part.seeds} seeds, at the "
        f"form and scale nearest to the printed ones, {FORMS[best.form]}. Right: the centered alignment of the same "
        "networks. In the printed matrix the untrained pair is the most alike."
    )
    return _done(drawing, "vq-matrices", "Figure 3, printed and repeated", caption)


def _matrix(ax: Axes, values: Mapping[Pair, float]) -> None:
    labels, whole = list(NETWORK_TITLES), np.eye(len(NETWORK_TITLES))
    for (one, other), value in values.items():
        i, j = labels.index(one), labels.index(other)
        whole[i, j] = whole[j, i] = value
    ax.imshow(whole, vmin=0, vmax=1, cmap="viridis")
    ax.grid(visible=False)
    ax.set_xticks(range(len(labels)), list(NETWORK_TITLES.values()), rotation=30, ha="right")
    ax.set_yticks(range(len(labels)), list(NETWORK_TITLES.values()))
    for i, j in np.ndindex(*whole.shape):
        ink = "white" if whole[i, j] < 0.6 else "black"
        ax.text(j, i, f"{whole[i, j]:.2f}", ha="center", va="center", color=ink, fontsize=9)


def curves(results: DigitsResults) -> Figure:
    """Draw figure 4: cosines over scales in both forms, and where they take the printed values."""
    drawing, axes = _panels(3.7, FORMS.values())
    for ax, form in zip(axes, FORMS, strict=True):
        for pair, color in zip(PAIRS, PAIR_COLORS, strict=True):
            band(ax, results.scales[form], results.curve(pair, form), name_of(pair), color, log="x")
            for scale in results.places(pair, form)[0]:
                ax.plot([scale], [printed(pair)], "D", color="white", markeredgecolor=color, markersize=6, zorder=5)
        ax.set(xlabel="σ²", ylabel="cosine", ylim=(0, 1.03))
        if form == results.nearest.form:
            ax.axvline(results.nearest.scale, color=INK, linewidth=0.9, dashes=(4, 3))
    legend(axes[0], "lower right")
    caption = (
        f"{BAND} Hollow diamonds: where the mean curve takes the value printed for the pair. Dashed: the scale nearest "
        "to all six."
    )
    return _done(drawing, "vq-heat", "Figure 4, repeated: cosine of heat kernels", caption)


def changes(results: DigitsResults) -> Figure:
    """Draw the change of both architectures' cosine by training at each scale, with its simultaneous band."""
    drawing, axes = _panels(2.7, FORMS.values())
    for ax, form in zip(axes, FORMS, strict=True):
        found, scales = results.bands[form], results.scales[form]
        ax.fill_between(scales, found.low, found.high, color=CYCLE[0], alpha=0.2, linewidth=0)
        ax.plot(scales, found.mean, color=CYCLE[0], linewidth=1.8)
        ax.axhline(0, color=INK, linewidth=0.9)
        log_axes(ax, "x")
        ax.set(xlabel="σ²", ylabel="cosine, trained − initial", ylim=(-1.03, 1.03))
    caption = (
        f"Cosine of T4–T6 minus that of I4–I6, mean over {results.part.seeds} seeds. The band holds the true curve at "
        "all scales at once; each of its edges has a confidence of 95 %."
    )
    return _done(drawing, "vq-changes", "What training changes at each scale", caption)


def aligned(results: DigitsResults) -> Figure:
    """Draw the centered alignment of every seed, architectures and starts, with its null."""
    pairs = (*PAIRS, *TWINS)
    colors = {name_of(pair): _kind_color(pair) for pair in pairs}
    drawing, (ax,) = _strips(3.4, {"": {name_of(pair): results.alignments(pair) for pair in pairs}}, colors)
    for row, pair in enumerate(pairs):
        null = results.alignments(pair, "null").mean()
        ax.plot([null, null], [row - 0.3, row + 0.3], color=FAINT, linewidth=2.2, zorder=1)
    ax.set(xlabel="centered alignment on test images", xlim=(-0.05, 1))
    caption = (
        f"{SEEDS} Blue: both trained; orange: both before training; gray: one of each. Gray bars: the mean with the "
        "images of one network shuffled."
    )
    return _done(drawing, "vq-aligned", "Centered alignment", caption)


def _kind_color(pair: Pair) -> str:
    kinds = {label[0] for label in pair}
    return {"T": COLORS["abs"], "I": COLORS["relu"]}[kinds.pop()] if len(kinds) == 1 else "#8b949e"


def same_pieces(results: LemmasResults) -> Figure:
    """Return figure 5: two networks with the same pieces of an interval, and the VQ distances of the pieces."""
    pieces = results.pieces
    count = 2**pieces.layers
    drawing, axes = _panels(2.9, [f"{pieces.layers} units make {count} pieces", *pieces.distances])
    axes[0].plot(pieces.z, pieces.value, color=COLORS["truth"], linewidth=1.2)
    for cut in np.arange(1, count) / count:
        axes[0].axvline(cut, color="0.75", linewidth=0.6)
    axes[0].set(xlabel="input", ylabel="output")
    for ax, distances in zip(axes[1:], pieces.distances.values(), strict=True):
        image = ax.imshow(distances, cmap="viridis", vmin=0, vmax=count - 1)
        ax.set(xlabel="piece", ylabel="piece")
        ax.grid(False)
        ax.set_xticks([0, count - 1], ["1", str(count)])
        ax.set_yticks([0, count - 1], ["1", str(count)])
        drawing.colorbar(image, ax=ax, shrink=0.8, label="VQ distance")
    caption = (
        "Left: the tent map applied three times, and the pieces of the interval on which it is affine. Middle and "
        "right: VQ distances of the eight pieces, in order, for this network and for one hidden layer of seven units "
        "that cuts at the same places. In the deep network, distant pieces are near if most units see the same side."
    )
    return _done(drawing, "vq-figure-5", "Figure 5: the same pieces, two geometries.", caption)


def strictness(results: LemmasResults) -> Figure:
    """Return how often and by how much the second lemma is strict, by depth, and the tent map's distances."""
    drawing, axes = _panels(3.2, ("Random networks", "Tent map"))
    _shares(axes[0], results)
    tents = results.tents
    axes[1].plot(tents["layers"], tents["largest graph"], "o-", color=CYCLE[1], label="region graph, 2ᴸ − 1")
    axes[1].plot(tents["layers"], tents["largest VQ"], "s-", color=CYCLE[0], label="VQ")
    log_axes(axes[1], "y")
    axes[1].set(xlabel="layers L, one unit each", ylabel="largest distance")
    legend(axes[1], "upper left")
    caption = (
        "Left: each dot is a random network, each line a mean. "
        "Right: the largest distance between two pieces of the unit interval."
    )
    return _done(drawing, "vq-strictness", "Lemma 2: how often the region graph is longer.", caption)


def _shares(ax: Axes, results: LemmasResults) -> None:
    """Draw the share of strict pairs of every network, by depth, Abs to the right of ReLU."""
    depths = sorted(results.networks["depth"].unique())
    for (depth, activation), some in results.networks.groupby(["depth", "activation"]):
        values, color = 100 * some["strict"].to_numpy(), COLORS[str(activation).lower()]
        middle = depths.index(depth) + (0.2 if activation == "Abs" else -0.2)
        across = middle + 0.15 * np.linspace(-1, 1, len(values)) * (len(values) > 1)
        label = str(activation) if depth == depths[0] else None
        ax.plot(across, values, "o", markersize=2.8, color=color, alpha=0.7, markeredgewidth=0, label=label)
        ax.hlines(values.mean(), middle - 0.18, middle + 0.18, color=color, linewidth=1.6)
    ax.set_xticks(range(len(depths)), [str(depth) for depth in depths])
    ax.set(xlabel="hidden layers", ylabel="pairs with VQ < graph, %")
    legend(ax, "upper left")


def course(results: BeyondResults) -> Figure:
    """Draw the alignment with the final network at each kept epoch."""
    panels = {
        "Moons: with the final network": ("moons",),
        "Digits: with the final network, and with each other": ("T4", "T6", "both"),
    }
    drawing, axes = _panels(3.0, panels)
    for ax, tasks in zip(axes, panels.values(), strict=True):
        for task in tasks:
            epochs, values = results.course_of(task)
            band(ax, epochs, values, TASKS[task], TASK_COLORS[task])
        ax.set(xlabel="epoch", ylabel="centered alignment", ylim=(0, 1.03))
        # Epoch 0 belongs on the axis: linear up to the first kept epoch, logarithmic from there.
        ax.set_xscale("symlog", linthresh=float(epochs[1]))
        ticks = [e for e in (0, 1, 3, 10, 30, 100, 300, 1_000) if e <= epochs[-1]]
        ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        ax.minorticks_off()
        ax.set_xlim(0, epochs[-1])
        legend(ax, "lower right" if ax is axes[0] else "upper left")
    return _done(drawing, "vq-course", "When the kernel takes its shape", BAND)


def depth(results: BeyondResults) -> Figure:
    """Draw alignments and ranks of networks of equal size."""
    shown = {"Alignment, rotated back": "back", "Alignment, not rotated back": "still", "Effective rank": "rank"}
    networks = {str(name): rows for name, rows in results.depths.groupby("network", sort=False)}
    panels = {title: {n: rows[column].to_numpy() for n, rows in networks.items()} for title, column in shown.items()}
    drawing, _ = _strips(2.3, panels)
    return _done(drawing, "vq-depth", "Depth against width", f"Depth × width at about equal parameters. {SEEDS}")


def partitions(results: ExplorerResults) -> Figure:
    """Return the regions of the ReLU networks on the moons: shallow and deep, before and after training."""
    shown = [v for v in results.views if (v.choices["activation"], v.choices["data"]) == ("ReLU", "moons")]
    shown.sort(key=lambda view: (view.choices["shape"] == "deep", view.choices["state"] == "trained"))
    drawing, axes = _panels(2.7, [f"{view.choices['shape']}, {view.choices['state']}" for view in shown])
    for ax, view in zip(axes, shown, strict=True):
        _regions(ax, view)
    caption = (
        "Color is the number of units that lie between a region and the one in the middle; white lines are the "
        "network's decision boundary. Every polygon is exact."
    )
    return _done(drawing, "vq-regions", "Exact linear regions.", caption)


def _regions(ax: Axes, view: View) -> None:
    from matplotlib.collections import PolyCollection

    scene = view.scene
    shapes = np.split(scene.vertices[scene.corners], scene.starts[1:-1])
    # As an image inside the drawing: thousands of polygons would make the page heavy.
    drawn = PolyCollection(shapes, array=view.distances.astype(float), cmap="viridis", rasterized=True)
    drawn.set(linewidths=0.12, edgecolors=(0, 0, 0, 0.35))
    ax.add_collection(drawn)
    for segment in view.boundary:
        ax.plot(*np.asarray(segment).T, color="white", linewidth=1.1, solid_capstyle="round")
    (x0, x1), (y0, y1) = scene.bounds
    ax.set(xticks=[], yticks=[], xlim=(x0, x1), ylim=(y0, y1), aspect="equal")
    ax.set_xlabel(f"{len(scene.starts) - 1:,} regions")
    ax.grid(False)
