"""Pages about a network of somebody's own: what was captured, its units, its geometry, and how two compare.

Axes: N points, H bits. Large sets are shown by an even sample of their points; every number says of how many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from metriscope.report.document import Block, Details, Figure, Page, Prose, Section, Table
from metriscope.report.numbers import number
from metriscope.report.plots import hover_scatter
from metriscope.report.style import COLORS, CYCLE, figure, legend, log_axes
from metriscope.report.svg import to_svg
from metriscope.vq import (
    VQMDS,
    Alignment,
    Patterns,
    alignment,
    heat_cosine,
    novelty,
    region_count,
    utilization,
    vq_kernel,
)

__all__ = ["Subject", "compare_page", "inspect_page"]

SHOWN = 2_000  # points drawn or compared pair by pair; beyond it a picture shows no more
KERNEL = 400  # pixels along a side of the kernel picture
NOVEL = 20
SCALES = np.geomspace(0.01, 100, 49)  # of the mean distance, or its square
PERMUTATIONS, LEVEL = 200, 0.95


@dataclass(frozen=True)
class Subject:
    """A network's patterns, what it is called, and its points' labels if they have any."""

    name: str
    patterns: Patterns
    labels: np.ndarray | None = None

    def shown_rows(self, most: int = SHOWN) -> np.ndarray:
        """Return the rows of evenly chosen points, all of them if there are few."""
        return np.unique(np.linspace(0, len(self.patterns) - 1, min(most, len(self.patterns))).round().astype(int))

    def sample(self) -> Subject:
        """Return the points that are shown."""
        rows = self.shown_rows()
        return Subject(self.name, self.patterns[rows], None if self.labels is None else self.labels[rows])


def inspect_page(subject: Subject, provenance: dict[str, object]) -> Page:
    """Return the page of one network."""
    count, bits = len(subject.patterns), subject.patterns.width
    sections = (
        Section("What was captured", _captured(subject)),
        Section("Units", _units(subject)),
        Section("Geometry", _geometry(subject)),
        Section("Most novel points", _novel(subject)),
    )
    return Page(subject.name, f"{_points(count)}, {bits:,} signs per point", sections, provenance)


def compare_page(one: Subject, two: Subject, provenance: dict[str, object]) -> Page:
    """Return the page of two networks on the same points."""
    alone = (Prose("The alignment is undefined: it compares distances between points, and there is one point only."),)
    sections = (
        Section("Alignment", _alignment(one, two) if len(one.patterns) > 1 else alone),
        Section("Heat kernels", _heat(one, two)),
        Section("Geometry side by side", (*_embedding(one, "a"), *_embedding(two, "b"))),
        Section("What was captured", (*_captured(one, "-a"), *_captured(two, "-b"))),
        Section("Units", (*_units(one, "-a"), *_units(two, "-b"))),
    )
    return Page(f"{one.name} against {two.name}", _points(len(one.patterns)), sections, provenance)


def _points(count: int) -> str:
    return f"{count:,} point" + ("" if count == 1 else "s")


def _captured(subject: Subject, suffix: str = "") -> tuple[Block, ...]:
    rows = [
        {
            "layer": layer.name,
            "kind": layer.kind,
            "signs": layer.width,
            "shape": " × ".join(str(n) for n in layer.shape),
            "piecewise affine": layer.piecewise_affine,
            "seen by": layer.seen,
        }
        for layer in subject.patterns.layers
    ]
    curved = [row["layer"] for row in rows if not row["piecewise affine"]]
    note = (
        f"Not piecewise affine, taken by the sign of the pre-activation: {', '.join(map(str, curved))}."
        if curved
        else ""
    )
    return (Table(f"layers{suffix}", f"{subject.name}: layers", pd.DataFrame(rows), note),)


def _units(subject: Subject, suffix: str = "") -> tuple[Block, ...]:
    found = utilization(subject.patterns)
    table = found.to_pandas()
    odd = table[table["status"] != "active"].reset_index(drop=True)
    drawing, axes = figure(9.2, 2.6)
    for i, (layer, part) in enumerate(table.groupby("layer", sort=False)):
        if i < len(CYCLE):
            shares = np.sort(part["active"].to_numpy())
            axes[0, 0].plot(np.linspace(0, 1, len(shares)), shares, color=CYCLE[i], label=str(layer))
    axes[0, 0].set(xlabel="units, least active first", ylabel="share of points on", ylim=(-0.03, 1.03))
    legend(axes[0, 0], "upper left")
    name = f"activity{suffix}"
    layers = len(subject.patterns.layers)
    caption = "Each line is a layer: the share of points at which a unit is on, over its units."
    caption += f" The first {len(CYCLE)} of {layers} layers are drawn." if layers > len(CYCLE) else ""
    blocks: list[Block] = _silence(subject, table["status"])
    blocks += [
        Table(f"units{suffix}", f"{subject.name}: units by layer", found.summary()),
        Figure(name, "How often units are on", to_svg(drawing, name), caption),
    ]
    if len(odd):
        shown = Table(f"odd-units{suffix}", "Units that are not active", odd)
        blocks.append(Details(f"{len(odd):,} units that are dead, rare or always on", (shown,)))
    return tuple(blocks)


def _silence(subject: Subject, status: pd.Series) -> list[Block]:
    """Return a warning where no unit is off at some points and on at others."""
    if not status.isin(["dead", "always on"]).all():
        return []
    if len(subject.patterns) == 1:
        text = "There is one point only, at which every unit is either off or on: none can be called dead or always on."
    else:
        text = f"**No unit of {subject.name} tells any two points apart**: each is off at all of them, or on at all."
    return [Prose(text)]


def _geometry(subject: Subject) -> tuple[Block, ...]:
    shown = subject.sample()
    kernel = vq_kernel(shown.patterns)
    regions = region_count(subject.patterns)
    text = (
        f"The VQ distance of two points is the number of units that put them on different sides. "
        f"{_points(len(subject.patterns))} fall{'s' if len(subject.patterns) == 1 else ''} into {regions:,} different "
        f"pattern{'' if regions == 1 else 's'}; {_mean_distance(kernel, subject.patterns.width)}"
    )
    return (Prose(text + _within(kernel, shown.labels)), _kernel_figure(kernel, shown), *_embedding(subject, "mds"))


def _mean_distance(kernel: np.ndarray, width: int) -> str:
    count = len(kernel)
    if count < 2:
        return "the mean distance of two points is undefined, because there is one point only."
    # The diagonal is no pair of points.
    mean = float(kernel.sum(dtype=np.float64)) / (count * (count - 1))
    return f"the mean distance of two points is {number(mean)} of {width:,}."


def _within(kernel: np.ndarray, labels: np.ndarray | None) -> str:
    if labels is None or len(np.unique(labels)) < 2:
        return ""
    same = labels[:, None] == labels[None]
    apart = ~np.eye(len(labels), dtype=bool)
    if not (same & apart).any():
        return ""
    within, between = float(kernel[same & apart].mean()), float(kernel[~same].mean())
    return f" Within a label it is {number(within)}, between labels {number(between)}."


def _kernel_figure(kernel: np.ndarray, shown: Subject) -> Figure:
    order = np.arange(len(kernel)) if shown.labels is None else np.argsort(shown.labels, kind="stable")
    step = -(-len(order) // KERNEL)
    picked = order[::step]
    drawing, axes = figure(6.4, 5.2)
    image = axes[0, 0].imshow(kernel[np.ix_(picked, picked)], cmap="viridis", interpolation="nearest")
    axes[0, 0].grid(visible=False)
    axes[0, 0].set(xlabel="point", ylabel="point")
    drawing.colorbar(image, ax=axes[0, 0], label="VQ distance")
    how = "in label order" if shown.labels is not None else "in the order given"
    chosen = f"{len(picked):,} of {len(order):,} points" if step > 1 else f"All {len(order):,} points"
    caption = f"{chosen}, {how}: dark squares on the diagonal are groups that the network keeps together."
    return Figure("kernel", "VQ distances", to_svg(drawing, "kernel"), caption)


def _embedding(subject: Subject, name: str) -> tuple[Block, ...]:
    """Return the map of the points, or the reason why there is none."""
    points, patterns = len(subject.patterns), region_count(subject.patterns)
    if patterns < 2:
        why = f"all {points:,} points have the same pattern" if points > 1 else "there is one point only"
        return (Prose(f"{subject.name}: a map of the points is undefined, because {why} and no distance is left."),)
    # No three corners of a cube lie on a line: two patterns span one axis, and three at least two.
    axes = min(2, patterns - 1)
    fitted = VQMDS(n_components=axes).fit(subject.patterns)
    shown, rows = subject.sample(), subject.shown_rows()
    titles = [_title(i, shown) for i in range(len(shown.patterns))]
    places = np.zeros((len(rows), 2))
    places[:, :axes] = fitted.embedding_[rows]
    names = ("first axis", "second axis" if axes == 2 else "")
    svg = hover_scatter(f"{name}-embedding", places, titles, shown.labels, names)
    values = ", ".join(number(float(v)) for v in fitted.eigenvalues_)
    line = " The points have two different patterns, so that a second axis is undefined." if axes == 1 else ""
    caption = (
        f"Classical MDS of the VQ distance, exact, {len(rows):,} of {points:,} points drawn; rest the "
        f"pointer on a point to see which it is. Eigenvalues: {values}.{line}"
    )
    return (Figure(f"{name}-embedding", f"{subject.name}: map of the points", svg, caption),)


def _title(i: int, shown: Subject) -> str:
    label = "" if shown.labels is None else f", label {shown.labels[i]}"
    return f"point {shown.patterns.ids[i]}{label}"


def _novel(subject: Subject) -> tuple[Block, ...]:
    patterns = subject.patterns
    if len(patterns) < 2:
        return (Prose("Novelty is undefined: there is one point only, and no other that it could be unlike."),)
    # Among themselves a point's nearest is itself: the second nearest is another.
    distances = novelty(patterns, patterns, k=2)
    if not distances.any():
        return (Prose("No point is novel: each shares its pattern with another, so that all distances are 0."),)
    top = np.argsort(-distances, kind="stable")[:NOVEL]
    frame = pd.DataFrame({"point": patterns.ids[top], "signs to the nearest other point": distances[top]})
    if subject.labels is not None:
        frame["label"] = subject.labels[top]
    note = f"Median over all points: {number(float(np.median(distances)))}. Larger is less like the rest."
    return (Table("novel", "Points that are least like any other", frame, note),)


def _alignment(one: Subject, two: Subject) -> tuple[Block, ...]:
    if len(one.patterns) < 2:
        return (Prose(f"The alignment is undefined: it needs at least two points, got {len(one.patterns)}."),)
    found = alignment(one.patterns, two.patterns, permutations=PERMUTATIONS, interval=LEVEL)
    if np.isnan(found.value).all():
        return (Prose(f"The alignment is undefined: {found.reason}."), *_layer_map(one, two))
    value = float(np.asarray(found.value))
    text = (
        f"Centered alignment {number(value)} (debiased), {_interval_text(found)}; with shuffled points "
        f"{number(float(np.mean(found.null)))} on average ({PERMUTATIONS} permutations), "
        f"p = {number(float(np.asarray(found.p_value)))}. 1 is the same geometry up to scale, and 0 what unrelated "
        "networks have on average. Near 0 judge by the permutations, not by the interval."
    )
    drawing, axes = figure(9.2, 2.2)
    axes[0, 0].hist(found.null, bins=30, color=COLORS["truth"], alpha=0.35, label="shuffled")
    axes[0, 0].axvline(value, color=COLORS["abs"], linewidth=2, label="measured")
    least = min(0.0, value, float(found.null.min()))
    axes[0, 0].set(xlabel="centered alignment", ylabel="permutations", xlim=(1.05 * least, 1))
    legend(axes[0, 0], "upper center")
    null = Figure("alignment-null", "Alignment and its null", to_svg(drawing, "alignment-null"))
    return (Prose(text), null, *_layer_map(one, two))


def _interval_text(found: Alignment) -> str:
    """Return the interval in words; the value may be defined where the interval is not."""
    if found.interval_reason:
        return f"its interval undefined ({found.interval_reason})"
    low, high = (float(end) for end in found.interval)
    return f"{LEVEL:.0%} jackknife interval {number(low)} to {number(high)}".replace("%", " %")


def _layer_map(one: Subject, two: Subject) -> tuple[Block, ...]:
    found = alignment(one.patterns, two.patterns, by_layer=True)
    matrix = np.asarray(found.value)
    if np.isnan(matrix).all():
        return (Prose(f"No pair of layers has an alignment: {found.reason}."),)
    rows, columns = ([layer.name for layer in s.patterns.layers] for s in (one, two))
    drawing, axes = figure(1.6 + 0.75 * len(columns) + 2, 1.4 + 0.45 * len(rows))
    image = axes[0, 0].imshow(matrix, vmin=min(0.0, float(np.nanmin(matrix))), vmax=1, cmap="viridis", aspect="auto")
    axes[0, 0].grid(visible=False)
    axes[0, 0].set_xticks(range(len(columns)), columns, rotation=30, ha="right")
    axes[0, 0].set_yticks(range(len(rows)), rows)
    for i, j in np.ndindex(*matrix.shape):
        ink = "white" if matrix[i, j] < 0.6 else "black"
        axes[0, 0].text(j, i, number(matrix[i, j], 2), ha="center", va="center", color=ink, fontsize=8)
    drawing.colorbar(image, ax=axes[0, 0], label="centered alignment")
    undefined = f" A dash is an undefined value: {found.reason}." if found.reason else ""
    caption = f"Rows: {one.name}. Columns: {two.name}.{undefined}"
    return (Figure("alignment-layers", "Layer by layer", to_svg(drawing, "alignment-layers"), caption),)


def _heat(one: Subject, two: Subject) -> tuple[Block, ...]:
    a, b = one.sample(), two.sample()
    typical = float(np.mean([vq_kernel(s.patterns).mean() for s in (a, b)]))
    if typical == 0:
        points = _points(len(a.patterns))
        text = f"The cosine of the heat kernels is 1 at every scale and says nothing: all distances of {points} are 0."
        return (Prose(text),)
    drawing, axes = figure(9.2, 2.8)
    forms = {"distance": ("exp(−d / σ²)", typical, "abs"), "squared": ("exp(−d² / σ²)", typical**2, "relu")}
    for form, (label, unit, color) in forms.items():
        values = heat_cosine(a.patterns, b.patterns, SCALES * unit, form=form)
        axes[0, 0].plot(SCALES, values, color=COLORS[color], label=label)
    log_axes(axes[0, 0], "x")
    axes[0, 0].set(xlabel="σ² in units of the mean distance (its square)", ylabel="cosine", ylim=(0, 1.03))
    legend(axes[0, 0], "lower right")
    caption = (
        f"Cosine of the two networks' heat kernels on {len(a.patterns):,} points. Not centered: it rises to 1 for "
        "any two networks as σ² grows, so read it beside the alignment above."
    )
    return (Figure("heat", "Cosine of heat kernels", to_svg(drawing, "heat"), caption),)
