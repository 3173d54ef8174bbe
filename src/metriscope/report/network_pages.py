"""The page of a user's network: findings first, then its points, its layers and units, and what was captured.

Axes: N points, H bits. Large sets are shown by an even sample of points; every number states how many it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from importlib.resources import files

import numpy as np
import pandas as pd

from metriscope.reading.findings import Finding, findings
from metriscope.reading.inspection import (
    Inspection,
    Subject,
    centered_places,
    class_distances,
    inspected,
    layer_table,
)
from metriscope.report.document import Block, Companion, Details, Page, Panel, Prose, Section, Table
from metriscope.report.html import inline
from metriscope.report.network_figures import heat_map, legend_of, point_map, quantized
from metriscope.report.network_layers import CLASSES, layer_blocks, listed_units, shown_layers
from metriscope.report.numbers import number, plural
from metriscope.report.point_views import PointViews

__all__ = [
    "Subject",
    "captured",
    "inspect_page",
    "inspection_page",
    "maps_panel",
    "network_script",
    "network_style",
]

# Points of a heat map without labels.
PAIRS = 100
_HINT = "Rest the pointer on a point to see it; drag over several to list them. The arrow keys step through the points."


@cache
def network_script() -> str:
    """Return the script of the pages of a network."""
    text = files("metriscope.report").joinpath("network.js").read_text("utf-8")
    return f'(() => {{\n"use strict";\n{text}}})();\n'


@cache
def network_style() -> str:
    """Return the style of the pages of a network."""
    return files("metriscope.report").joinpath("network.css").read_text("utf-8")


def inspect_page(
    subject: Subject, provenance: Mapping[str, object], announce: Callable[[str], None] = lambda line: None
) -> Page:
    """Return the page of one network; ``announce`` is called before each step."""
    return inspection_page(inspected(subject, announce), provenance)


def inspection_page(
    found: Inspection, provenance: Mapping[str, object], explorer: Companion | Prose | None = None
) -> Page:
    """Return the page of what was measured; ``explorer`` is a page to link to, or says why there is none."""
    subject = found.subject
    views = PointViews(subject, _seen(found).tolist(), found.answers)
    sections = [
        Section("Findings", (findings_panel(findings(found)),)),
        Section("Map of the points", (*_map(found, views), *([explorer] if explorer else []))),
        Section("Most novel points", _novel(found, views)),
        Section("Distances", _distances(found)),
        Section("Layers and units", layer_blocks(found, views)),
        Section("What was captured", captured(subject)),
    ]
    about = f"{plural(len(subject.patterns), 'point')}, {subject.patterns.width:,} signs per point"
    about += f"; tokens pooled ({subject.tokens})" if subject.tokens else ""
    style = f"{network_style()}\n{views.style}"
    return Page(subject.name, about, tuple(sections), provenance, script=network_script(), style=style)


def _seen(found: Inspection) -> np.ndarray:
    """Return the rows of all points that the page shows somewhere."""
    listed = [found.rows, found.novel]
    for at in shown_layers(found.subject):
        for column in ("prototype", "strongest"):
            own = listed_units(found, at)[column]
            listed += [np.array(rows, int) for rows in own if isinstance(rows, tuple)]
    return np.concatenate(listed)


def findings_panel(told: tuple[Finding, ...]) -> Panel:
    """Return the findings as a list, each with its level as a word."""
    words = {"fine": "in order"}
    items = [
        f'<li class="{one.level}"><span class="tag">{words.get(one.level, one.level)}</span>'
        f"<span>{inline(one.text)}</span></li>"
        for one in told
    ]
    data = {"findings": [{"level": one.level, "text": one.text} for one in told]}
    return Panel("findings", "", f'<ul class="findings">{"".join(items)}</ul>', data=data)


def _map(found: Inspection, views: PointViews) -> tuple[Block, ...]:
    subject, count = found.subject, len(found.subject.patterns)
    whole = centered_places(found.kernel)
    if whole is None:
        why = f"all {count:,} points have the same pattern" if count > 1 else "there is one point only"
        return (Prose(f"A map of the points is undefined, because {why} and no distance is left."),)
    places, options = {"all": quantized(whole.places)}, ['<option value="all">all layers</option>']
    for at in shown_layers(subject) if len(subject.patterns.layers) > 1 else []:
        own = centered_places(found.layer_kernel(subject.patterns.layers[at]))
        if own is not None:
            places[str(at)] = quantized(own.places)
            options.append(f'<option value="{at}">{escape(subject.names[at].plain)}</option>')
    titles = [views.title(int(row)) for row in found.rows]
    drawn = point_map("map", "map of the points", places["all"], found.labels, titles)
    shares = " and ".join(number(100 * float(share), 2) for share in whole.shares)
    caption = (
        "Squared distances on the map are VQ distances, the numbers of signs in which two points differ, as well as a "
        f"plane can show them (classical scaling). Of the variance over all layers, the axes hold {shares} %. "
        f"{len(titles):,} of {count:,} points."
    )
    choose = (
        '<label class="choose" hidden>Layer <select data-places>' + "".join(options) + "</select></label>"
        if len(options) > 1
        else ""
    )
    return (
        maps_panel(
            [("", drawn)], choose, views.records(found.rows.tolist()) | {"places": places}, found.labels, caption
        ),
    )


def maps_panel(
    maps: list[tuple[str, str]], choose: str, data: dict[str, object], labels: np.ndarray | None, caption: str
) -> Panel:
    """Return one map, or two side by side, with the place where a point is shown."""
    drawings = [
        f"<div>{f'<h4>{escape(head)}</h4>' if head else ''}<div class='card'>{drawn}</div>"
        f"{'' if at else legend_of(labels)}</div>"
        for at, (head, drawn) in enumerate(maps)
    ]
    told = f'<div><div class="told" aria-live="polite"><p class="hint">{_HINT}</p></div><div class="tray"></div></div>'
    cls = "maps two" if len(maps) > 1 else "maps"
    inner = f"{choose}<div class='{cls}'>{''.join(drawings)}{told}</div>"
    return Panel("points", "Where the points lie.", f'<div data-points="points-data">{inner}</div>', caption, data)


def _novel(found: Inspection, views: PointViews) -> tuple[Block, ...]:
    if found.novelty is None:
        return (Prose("Novelty is undefined: there is one point only, and no other that it could be unlike."),)
    if not len(found.novel):
        return (Prose("No point is novel: each shares its pattern with another, so that all distances are 0."),)
    rows, subject = found.novel, found.subject
    notes = [plural(int(found.novelty[row]), "sign") for row in rows]
    median = number(float(np.median(found.novelty)))
    text = "Points whose nearest other point is farthest away: the number is how many signs differ. "
    panel = Panel(
        "novel",
        "Points that are least like any other.",
        views.gallery(rows.tolist(), notes, "to the nearest other"),
        f"{text}Median over all points: {median}.",
    )
    table = pd.DataFrame({"point": subject.patterns.ids[rows], "signs to the nearest other point": found.novelty[rows]})
    if subject.labels is not None:
        table["label"] = subject.labels[rows]
    if found.answers is not None:
        table["answered"] = found.answers.predicted[rows]
    return panel, Details("The same as a table", (Table("novel", "Most novel points", table),))


def _distances(found: Inspection) -> tuple[Block, ...]:
    subject, count = found.subject, len(found.subject.patterns)
    width = subject.patterns.width
    kernel, pairs = found.kernel, ~np.eye(len(found.kernel), dtype=bool)
    verb = "fall" if count > 1 else "falls"
    text = f"{plural(count, 'point')} {verb} into {plural(found.regions, 'different pattern')}; "
    if not pairs.any():
        return (Prose(f"{text}the mean distance of two points is undefined, because there is one point only."),)
    text += f"the mean distance of two points is {number(float(kernel[pairs].mean()))} of {width:,}."
    if found.labels is None and kernel.any():
        return Prose(text), _point_distances(found)
    if found.labels is None:
        return (Prose(text),)
    classes, means = class_distances(kernel, found.labels)
    within, between = _mean_distances(kernel, found.labels)
    if np.isfinite([within, between]).all():
        text += f" Within a label it is {number(within)}, between labels {number(between)}."
    shown = np.unique(np.linspace(0, len(classes) - 1, min(CLASSES, len(classes))).round().astype(int))
    names = [str(one) for one in classes[shown]]
    chosen = f" {len(shown)} of {len(classes):,} classes are shown." if len(shown) < len(classes) else ""
    part = means[np.ix_(shown, shown)]
    if np.isnan(part).all() or not kernel.any():
        return (Prose(text),)
    drawn = heat_map("classes", part, (names, names), ("class", "class", "mean VQ distance, in signs"))
    caption = (
        "The mean number of signs in which a point of one class differs from one of another, or from another of its "
    )
    caption += f"own class.{chosen}"
    return Prose(text), Panel("classes", "Distances between classes.", drawn, caption)


def _mean_distances(kernel: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    same = labels[:, None] == labels
    within = kernel[same & ~np.eye(len(kernel), dtype=bool)]
    between = kernel[~same]
    return (float(within.mean()) if len(within) else np.nan), (float(between.mean()) if len(between) else np.nan)


def _point_distances(found: Inspection) -> Panel:
    picked = np.unique(np.linspace(0, len(found.rows) - 1, min(PAIRS, len(found.rows))).round().astype(int))
    names = [str(one) for one in found.subject.patterns.ids[found.rows[picked]]]
    part = found.kernel[np.ix_(picked, picked)].astype(float)
    drawn = heat_map("pairs", part, (names, names), ("point", "point", "VQ distance, in signs"))
    caption = f"{len(picked):,} of {len(found.subject.patterns):,} points, in the order given; labels would group them."
    return Panel("pairs", "Distances between points.", drawn, caption)


def captured(subject: Subject, suffix: str = "") -> tuple[Block, ...]:
    """Return the layers that were captured, and what else ran."""
    table = layer_table(subject)
    smooth = ", ".join(table.loc[~table["piecewise affine"], "layer"])
    note = f"Not piecewise affine, read by the sign of the pre-activation: {smooth}." if smooth else ""
    missed = subject.patterns.missed
    blocks: list[Block] = [Table(f"layers{suffix}", f"{subject.name}: layers", table, note), Prose(f"{missed}.")]
    if missed.operations:
        ran = missed.to_pandas().rename(columns={"what": "operation", "where": "module"})
        rows = Table(f"missed{suffix}", f"{subject.name}: operations that were not captured", ran)
        blocks.append(Details(f"{plural(len(ran), 'operation')} beside the captured layers, with the reason", (rows,)))
    return tuple(blocks)
