"""Pages about a user's own network: what was captured, its units, its geometry, and how two networks compare.

Axes: N points, H bits. Large sets are shown by an even sample of points; every number states how many it uses.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from metriscope.reading import inspection
from metriscope.reading.inspection import DistanceSummary, Subject
from metriscope.report.document import Block, Details, Figure, Page, Prose, Section, Table
from metriscope.report.numbers import number
from metriscope.report.plots import hover_scatter
from metriscope.report.style import COLORS, CYCLE, figure, legend, log_axes
from metriscope.report.svg import to_svg
from metriscope.vq import Alignment, region_count

__all__ = ["Subject", "compare_page", "inspect_page"]

KERNEL = 400  # pixels along a side of the kernel picture


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
    sections = (
        Section("Alignment", _alignment(one, two)),
        Section("Heat kernels", _heat(one, two)),
        Section("Geometry side by side", (*_embedding(one, "a"), *_embedding(two, "b"))),
        Section("What was captured", (*_captured(one, "-a"), *_captured(two, "-b"))),
        Section("Units", (*_units(one, "-a"), *_units(two, "-b"))),
    )
    return Page(f"{one.name} against {two.name}", _points(len(one.patterns)), sections, provenance)


def _points(count: int) -> str:
    return f"{count:,} point" + ("" if count == 1 else "s")


def _captured(subject: Subject, suffix: str = "") -> tuple[Block, ...]:
    table = inspection.layer_table(subject.patterns)
    smooth = ", ".join(table.loc[~table["piecewise affine"], "layer"])
    note = f"Not piecewise affine, read by the sign of the pre-activation: {smooth}." if smooth else ""
    missed = subject.patterns.missed
    blocks: list[Block] = [Table(f"layers{suffix}", f"{subject.name}: layers", table, note), Prose(f"{missed}.")]
    if missed.operations:
        ran = missed.to_pandas().rename(columns={"what": "operation", "where": "module"})
        rows = Table(f"missed{suffix}", f"{subject.name}: operations that were not captured", ran)
        blocks.append(Details(f"{len(ran):,} operations that were not captured, with the reason", (rows,)))
    return tuple(blocks)


def _units(subject: Subject, suffix: str = "") -> tuple[Block, ...]:
    summary, table = inspection.unit_tables(subject.patterns)
    odd = table[table["status"] != "active"].reset_index(drop=True)
    blocks: list[Block] = _silence(subject, table["status"])
    blocks += [
        Table(f"units{suffix}", f"{subject.name}: units by layer", summary),
        _activity(table, f"activity{suffix}"),
    ]
    if len(odd):
        shown = Table(f"odd-units{suffix}", "Units that are not active", odd)
        blocks.append(Details(f"{len(odd):,} units that are dead, rare or always on", (shown,)))
    return tuple(blocks)


def _activity(table: pd.DataFrame, name: str) -> Figure:
    drawing, axes = figure(9.2, 2.6)
    layers = list(table.groupby("layer", sort=False))
    for color, (layer, part) in zip(CYCLE, layers, strict=False):
        shares = np.sort(part["active"].to_numpy())
        axes[0, 0].plot(np.linspace(0, 1, len(shares)), shares, color=color, label=str(layer))
    axes[0, 0].set(xlabel="units, least active first", ylabel="share of points on", ylim=(-0.03, 1.03))
    legend(axes[0, 0], "upper left")
    caption = "Each line is a layer: the share of points at which a unit is on, over its units."
    caption += f" The first {len(CYCLE)} of {len(layers)} layers are drawn." if len(layers) > len(CYCLE) else ""
    return Figure(name, "How often units are on", to_svg(drawing, name), caption)


def _silence(subject: Subject, status: pd.Series) -> list[Block]:
    """Return a warning if no unit is off at some points and on at others."""
    if not status.isin(["dead", "always on"]).all():
        return []
    if len(subject.patterns) == 1:
        text = "There is one point only, at which every unit is either off or on: none can be called dead or always on."
    else:
        text = f"**No unit of {subject.name} tells any two points apart**: each is off at all of them, or on at all."
    return [Prose(text)]


def _geometry(subject: Subject) -> tuple[Block, ...]:
    shown = subject.sample()
    found, regions = inspection.distances(shown), region_count(subject.patterns)
    text = (
        f"The VQ distance of two points is the number of units that put them on different sides. "
        f"{_points(len(subject.patterns))} fall{'s' if len(subject.patterns) == 1 else ''} into {regions:,} different "
        f"pattern{'' if regions == 1 else 's'}; {_mean_distances(found, subject.patterns.width)}"
    )
    return (Prose(text), _kernel_figure(found, shown), *_embedding(subject, "mds"))


def _mean_distances(found: DistanceSummary, width: int) -> str:
    if np.isnan(found.mean):
        return "the mean distance of two points is undefined, because there is one point only."
    text = f"the mean distance of two points is {number(found.mean)} of {width:,}."
    if np.isnan(found.within + found.between):
        return text
    return f"{text} Within a label it is {number(found.within)}, between labels {number(found.between)}."


def _kernel_figure(found: DistanceSummary, shown: Subject) -> Figure:
    count = len(found.kernel)
    order = np.arange(count) if shown.labels is None else np.argsort(shown.labels, kind="stable")
    step = -(-count // KERNEL)
    picked = order[::step]
    drawing, axes = figure(6.4, 5.2)
    image = axes[0, 0].imshow(found.kernel[np.ix_(picked, picked)], cmap="viridis", interpolation="nearest")
    axes[0, 0].grid(visible=False)
    axes[0, 0].set(xlabel="point", ylabel="point")
    drawing.colorbar(image, ax=axes[0, 0], label="VQ distance")
    how = "in label order" if shown.labels is not None else "in the order given"
    chosen = f"{len(picked):,} of {count:,} points" if step > 1 else f"All {count:,} points"
    caption = f"{chosen}, {how}: dark squares on the diagonal are groups that the network keeps together."
    return Figure("kernel", "VQ distances", to_svg(drawing, "kernel"), caption)


def _embedding(subject: Subject, name: str) -> tuple[Block, ...]:
    """Return the map of the points, or the reason why there is none."""
    points, found = len(subject.patterns), inspection.point_map(subject)
    if found is None:
        why = f"all {points:,} points have the same pattern" if points > 1 else "there is one point only"
        return (Prose(f"{subject.name}: a map of the points is undefined, because {why} and no distance is left."),)
    shown, one_axis = subject.sample(), len(found.eigenvalues) == 1
    titles = [f"point {point}" for point in shown.patterns.ids]
    if shown.labels is not None:
        titles = [f"{title}, label {label}" for title, label in zip(titles, shown.labels, strict=True)]
    names = ("first axis", "" if one_axis else "second axis")
    svg = hover_scatter(f"{name}-embedding", found.places, titles, shown.labels, names)
    values = ", ".join(number(float(v)) for v in found.eigenvalues)
    line = " The points have two different patterns, so that a second axis is undefined." if one_axis else ""
    caption = (
        f"Classical MDS of the VQ distance, exact, {len(titles):,} of {points:,} points drawn; rest the "
        f"pointer on a point to see which it is. Eigenvalues: {values}.{line}"
    )
    return (Figure(f"{name}-embedding", f"{subject.name}: map of the points", svg, caption),)


def _novel(subject: Subject) -> tuple[Block, ...]:
    if len(subject.patterns) < 2:
        return (Prose("Novelty is undefined: there is one point only, and no other that it could be unlike."),)
    table, median = inspection.novel_points(subject)
    if table["signs to the nearest other point"].max() == 0:
        return (Prose("No point is novel: each shares its pattern with another, so that all distances are 0."),)
    note = f"Median over all points: {number(median)}. Larger is less like the rest."
    return (Table("novel", "Points that are least like any other", table, note),)


def _alignment(one: Subject, two: Subject) -> tuple[Block, ...]:
    if len(one.patterns) < 2:
        return (Prose(f"The alignment is undefined: it needs at least two points, got {len(one.patterns)}."),)
    whole, layers = inspection.alignments(one, two)
    by_layer = _layer_map(layers, f"Rows: {one.name}. Columns: {two.name}.")
    value = float(np.asarray(whole.value))
    if np.isnan(value):
        return Prose(f"The alignment is undefined: {whole.reason}."), by_layer
    text = (
        f"Centered alignment {number(value)} (debiased), {_interval_text(whole)}; with shuffled points "
        f"{number(float(np.mean(whole.null)))} on average ({inspection.PERMUTATIONS} permutations), "
        f"p = {number(float(np.asarray(whole.p_value)))}. 1 is the same geometry up to scale, and 0 what unrelated "
        "networks have on average. Near 0 judge by the permutations, not by the interval."
    )
    return Prose(text), _null_figure(value, whole.null), by_layer


def _null_figure(value: float, null: np.ndarray) -> Figure:
    drawing, axes = figure(9.2, 2.2)
    axes[0, 0].hist(null, bins=30, color=COLORS["truth"], alpha=0.35, label="shuffled")
    axes[0, 0].axvline(value, color=COLORS["abs"], linewidth=2, label="measured")
    least = min(0.0, value, float(null.min()))
    axes[0, 0].set(xlabel="centered alignment", ylabel="permutations", xlim=(1.05 * least, 1))
    legend(axes[0, 0], "upper center")
    return Figure("alignment-null", "Alignment and its null", to_svg(drawing, "alignment-null"))


def _interval_text(found: Alignment) -> str:
    """Return the interval in words; the value may be defined where the interval is not."""
    if found.interval_reason:
        return f"its interval undefined ({found.interval_reason})"
    low, high = (float(end) for end in found.interval)
    return f"{inspection.LEVEL:.0%} jackknife interval {number(low)} to {number(high)}".replace("%", " %")


def _layer_map(found: Alignment, caption: str) -> Block:
    matrix = np.asarray(found.value)
    if np.isnan(matrix).all():
        return Prose(f"No pair of layers has an alignment: {found.reason}.")
    rows, columns = found.first, found.second
    drawing, axes = figure(1.6 + 0.75 * len(columns) + 2, 1.4 + 0.45 * len(rows))
    image = axes[0, 0].imshow(matrix, vmin=min(0.0, float(np.nanmin(matrix))), vmax=1, cmap="viridis", aspect="auto")
    axes[0, 0].grid(visible=False)
    axes[0, 0].set_xticks(range(len(columns)), columns, rotation=30, ha="right")
    axes[0, 0].set_yticks(range(len(rows)), rows)
    for i, j in np.ndindex(*matrix.shape):
        ink = "white" if matrix[i, j] < 0.6 else "black"
        axes[0, 0].text(j, i, number(matrix[i, j], 2), ha="center", va="center", color=ink, fontsize=8)
    drawing.colorbar(image, ax=axes[0, 0], label="centered alignment")
    caption += f" A dash is an undefined value: {found.reason}." if found.reason else ""
    return Figure("alignment-layers", "Layer by layer", to_svg(drawing, "alignment-layers"), caption)


def _heat(one: Subject, two: Subject) -> tuple[Block, ...]:
    table, points = inspection.heat_cosines(one, two), len(one.shown_rows())
    if table.empty:
        text = "The cosine of the heat kernels is 1 at every scale and says nothing: all distances of "
        return (Prose(f"{text}{_points(points)} are 0."),)
    drawing, axes = figure(9.2, 2.8)
    for form, label, color in (("distance", "exp(−d / σ²)", "abs"), ("squared", "exp(−d² / σ²)", "relu")):
        axes[0, 0].plot(table["scale"], table[form], color=COLORS[color], label=label)
    log_axes(axes[0, 0], "x")
    axes[0, 0].set(xlabel="σ² in units of the mean distance (its square)", ylabel="cosine", ylim=(0, 1.03))
    legend(axes[0, 0], "lower right")
    caption = (
        f"Cosine of the two networks' heat kernels on {points:,} points. Not centered: it rises to 1 for "
        "any two networks as σ² grows, so read it beside the alignment above."
    )
    return (Figure("heat", "Cosine of heat kernels", to_svg(drawing, "heat"), caption),)
