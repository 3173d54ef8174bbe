"""The page of a user's own network: findings first, then its points, its layers and units, and what was captured.

Axes: N points, H bits. Large sets are shown by an even sample of points; every number states how many it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html import escape
from importlib.resources import files

import numpy as np
import pandas as pd

from metriscope import vq
from metriscope.reading.findings import Finding, findings
from metriscope.reading.inspection import (
    Inspection,
    Subject,
    centered_places,
    class_activity,
    class_distances,
    inspected,
    layer_table,
)
from metriscope.report.document import Block, Companion, Details, Page, Panel, Prose, Section, Table
from metriscope.report.html import inline
from metriscope.report.network_figures import heat_map, legend_of, point_map, quantized
from metriscope.report.numbers import number
from metriscope.report.point_views import PointViews

__all__ = [
    "Subject",
    "captured",
    "inspect_page",
    "maps_panel",
    "network_script",
    "network_style",
    "plural",
    "units_table",
]

# Layers that are shown one by one, units of a layer that are listed, units and classes of a heat map.
LAYERS, UNITS, COLUMNS, CLASSES = 16, 16, 48, 40
# Points of a heat map without labels, and rows of the table of odd units.
PAIRS, ODD = 100, 200
# Nats on the class from which on it is worth telling where a layer's information lies.
TELLING = 0.01
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


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "point"), plural(2_000, "point")
    ('1 point', '2,000 points')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def inspect_page(
    subject: Subject,
    provenance: dict[str, object],
    announce: Callable[[str], None] = lambda line: None,
    explorer: Companion | None = None,
) -> Page:
    """Return the page of one network; ``announce`` is told what is being done, ``explorer`` is a page to link to."""
    found = inspected(subject, announce)
    views = PointViews(subject, _seen(found).tolist(), found.answers)
    announce("drawing the page")
    sections = [
        Section("Findings", (findings_panel(findings(found)),)),
        Section("Map of the points", (*_map(found, views), *([explorer] if explorer else []))),
        Section("Most novel points", _novel(found, views)),
        Section("Distances", _distances(found)),
        Section("Layers and units", _layers(found, views)),
        Section("What was captured", captured(subject)),
    ]
    about = f"{plural(len(subject.patterns), 'point')}, {subject.patterns.width:,} signs per point{subject.note}"
    style = f"{network_style()}\n{views.style}"
    return Page(subject.name, about, tuple(sections), provenance, script=network_script(), style=style)


def _seen(found: Inspection) -> np.ndarray:
    """Return the rows of all points that the page shows somewhere."""
    listed = [found.rows, found.novel]
    for at in _shown_layers(found.subject):
        for column in ("prototype", "strongest"):
            own = _listed_units(found, at)[column]
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
    return Panel("findings", "", f'<ul class="findings">{"".join(items)}</ul>')


def _shown_layers(subject: Subject) -> list[int]:
    """Return the numbers of the layers that are shown one by one, evenly chosen if there are many."""
    count = len(subject.patterns.layers)
    return np.unique(np.linspace(0, count - 1, min(LAYERS, count)).round().astype(int)).tolist()


def _map(found: Inspection, views: PointViews) -> tuple[Block, ...]:
    subject, count = found.subject, len(found.subject.patterns)
    whole = centered_places(found.kernel)
    if whole is None:
        why = f"all {count:,} points have the same pattern" if count > 1 else "there is one point only"
        return (Prose(f"A map of the points is undefined, because {why} and no distance is left."),)
    places, options = {"all": quantized(whole.places)}, ['<option value="all">all layers</option>']
    for at in _shown_layers(subject) if len(subject.patterns.layers) > 1 else []:
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


def _layers(found: Inspection, views: PointViews) -> tuple[Block, ...]:
    subject = found.subject
    shown = _shown_layers(subject)
    options = [f'<option value="{at}">{escape(subject.names[at].plain)}</option>' for at in shown]
    choose = (
        '<label class="choose" hidden>Layer <select data-chooses="layers">' + "".join(options) + "</select></label>"
    )
    parts = "".join(_layer_part(found, views, at) for at in shown)
    caption = f"{len(shown)} of {len(subject.names)} layers, evenly chosen." if len(shown) < len(subject.names) else ""
    panel = Panel("layers", "One layer at a time.", choose + parts, caption)
    table = found.units.assign(layer=[subject.names[at].plain for at in found.units["at"]])
    odd = table[(table["status"] != "active") | table["duplicate_of"].notna() | table["mirrored_with"].notna()]
    kept = ["layer", "unit", "active", "status", "duplicate_of", "mirrored_with", "saturated"]
    blocks: list[Block] = [units_table(subject), panel]
    if len(odd):
        rows = odd[kept].head(ODD).reset_index(drop=True)
        note = f"The first {ODD} of {len(odd):,}." if len(odd) > ODD else ""
        verb = "is" if len(odd) == 1 else "are"
        summary = f"{plural(len(odd), 'unit')} that {verb} dead, rare, always on, saturated or a partner of another"
        blocks.append(Details(summary, (Table("odd-units", "Units that stand out", rows, note),)))
    return tuple(blocks)


def units_table(subject: Subject, suffix: str = "") -> Table:
    """Return how the units of each layer are used; channels count once."""
    table = vq.utilization(subject.patterns, by="channel").summary().rename(columns={"opposites": "mirrored"})
    names = {layer.name: name.plain for layer, name in zip(subject.patterns.layers, subject.names, strict=True)}
    table["layer"] = table["layer"].map(names)
    note = "By signs alone; a channel counts once, over all its positions. Max pools have no units of their own."
    return Table(f"units{suffix}", f"{subject.name}: units by layer", table, note)


def _listed_units(found: Inspection, at: int) -> pd.DataFrame:
    """Return the units of a layer that are listed: those with partners, then those that matter most."""
    own, reading = found.units[found.units["at"] == at], found.readings.get(at)
    partner = (own["duplicate_of"].notna() | own["mirrored_with"].notna()).to_numpy()
    weight = -np.abs(own["active"].to_numpy() - 0.5)
    if reading is not None and len(reading.units) == len(own):
        for column in ("information", "ablation_effect"):
            measured = reading.units[column].to_numpy(float)
            if np.isfinite(measured).all() and measured.any():
                weight = measured
    idle = own["status"].isin(["dead"]).to_numpy()
    return own.iloc[np.lexsort((-weight, idle, ~partner))[:UNITS]]


def _layer_part(found: Inspection, views: PointViews, at: int) -> str:
    subject, layer, name = found.subject, found.subject.patterns.layers[at], found.subject.names[at]
    noun, own = subject.nouns()[at], found.units[found.units["at"] == at]
    lines = [f"<h3>{escape(name.plain)}</h3><p>{escape(_about(found, at))}</p>"]
    idle = bool(own["status"].isin(["dead", "always on", "saturated"]).all())
    if len(own) and idle:
        lines.append(f"<p>No {noun} changes sign between any two points: there is nothing to list.</p>")
    elif len(own):
        listed = _listed_units(found, at)
        more = (
            f" ({len(listed)} of {len(own):,}: those with partners, then those that matter most)"
            if len(listed) < len(own)
            else ""
        )
        lines.append(f"<h4>{noun.capitalize()}s{more}</h4>{_unit_rows(listed, views, noun)}")
    if subject.labels is not None and len(own) and not idle:
        lines.append(_class_heat(found, at, noun))
    if found.labels is not None and len(np.unique(found.labels)) > 1:
        classes, means = class_distances(found.layer_kernel(layer), found.labels)
        if len(classes) <= 14 and np.nanmax(means, initial=0) > 0:
            names = [str(one) for one in classes]
            titles = ("class", "class", "mean distance in this layer, in signs")
            lines.append(
                f"<h4>Distances between classes</h4>{heat_map(f'classes-{at}', means, (names, names), titles)}"
            )
    return f'<div class="layer-part" data-part="layers" data-key="{at}">{"".join(lines)}</div>'


def _about(found: Inspection, at: int) -> str:
    subject, layer, name = found.subject, found.subject.patterns.layers[at], found.subject.names[at]
    own = found.units[found.units["at"] == at]
    shape = " × ".join(map(str, layer.shape))
    text = f"{plural(layer.width, 'sign')} per point ({shape}), read before {name.activation}. "
    if not len(own):
        return f"{text}A max pool: which element of each window is the largest; it has no units of its own."
    noun = subject.nouns()[at]
    idle, always = int((own["status"] == "dead").sum()), int((own["status"] == "always on").sum())
    text += f"Of {plural(len(own), noun)}, {idle} never on, {always} always on. "
    reading = found.readings.get(at)
    if reading is None:
        return f"{text}Not read as distances: {found.unread.get(at, '')}."
    if np.isfinite(reading.sphericity) and reading.metric is not None:
        values = reading.metric.eigenvalues
        effective = values.sum() ** 2 / (values**2).sum()
        text += (
            f"Its inputs vary in {plural(len(values), 'direction')}; it measures them as unequally as if there were "
        )
        text += f"{number(float(effective), 2)} of equal weight. "
    if np.isfinite(reading.near_information) and reading.information > TELLING:
        share = number(100 * reading.near_information, 2)
        text += (
            f"{share} % of what its {noun}s tell about the class is in the half of the rows nearest to their zero sets."
        )
    return text


def _unit_rows(listed: pd.DataFrame, views: PointViews, noun: str) -> str:
    read = listed["prototype"].notna().any()
    heads = [noun, "on at", "status", "partner"]
    judged = bool(listed["kind"].isin(["distance", "intensity"]).any())
    heads += ["used as", "for class"] if judged else []
    heads += ["nearest to its zero set", "strongest at"] if read else []
    lines = []
    for row in listed.to_dict("records"):
        partner = [
            f"{word} {int(row[column])}"
            for column, word in (("duplicate_of", "duplicates"), ("mirrored_with", "mirrors"))
            if pd.notna(row[column])
        ]
        active = f'<span class="bar" style="--v:{row["active"]:.3f}"></span>{number(100 * row["active"], 2)} %'
        cells = [str(row["unit"]), active, row["status"], ", ".join(partner)]
        if judged:
            serves = "" if pd.isna(row["serves"]) else escape(str(row["serves"]))
            cells += ["" if row["kind"] == "neither" else str(row["kind"]), serves]
        if read:
            idle = row["status"] == "dead"
            chips = [
                f'<span class="chips">{"".join(views.chip(int(p)) for p in row[column])}</span>'
                if isinstance(row[column], tuple) and not idle
                else ""
                for column in ("prototype", "strongest")
            ]
            cells += chips
        lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    head = "".join(f'<th scope="col">{one}</th>' for one in heads)
    table = f'<table class="units"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{noun}s">{table}</div>'


def _class_heat(found: Inspection, at: int, noun: str) -> str:
    """Return how often each unit is on, class by class, the units that differ most between classes first."""
    subject = found.subject
    assert subject.labels is not None
    labels = subject.labels[found.rows]
    shares = class_activity(subject.patterns[found.rows], subject.patterns.layers[at], labels)
    names = [str(one) for one in np.unique(labels)]
    units = np.sort(np.argsort(-shares.std(0), kind="stable")[:COLUMNS])
    chosen = (
        f", the {len(units)} of {shares.shape[1]:,} that differ most between classes"
        if len(units) < shares.shape[1]
        else ""
    )
    rows = slice(0, CLASSES)
    titles = ("class", noun, "share of points at which it is on")
    drawn = heat_map(
        f"activity-{at}", shares[rows][:, units], (names[rows], [str(u) for u in units]), titles, (0.0, 1.0)
    )
    return f"<h4>On at which classes{chosen}</h4>{drawn}"


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
