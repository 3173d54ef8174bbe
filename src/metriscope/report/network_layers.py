"""The layers of a network on its page, one at a time: units, what they are used for, and at which classes they are on.

Axes: C classes, K units. Convolutions are listed by channel, tokens by feature.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float64

from metriscope import vq
from metriscope.reading.inspection import (
    PROBED,
    Inspection,
    Subject,
    class_activity,
    class_distances,
    partner_notes,
)
from metriscope.report.document import Block, Details, Panel, Table
from metriscope.report.network_figures import heat_map
from metriscope.report.numbers import number, plural
from metriscope.report.point_views import PointViews

__all__ = ["CLASSES", "layer_blocks", "listed_units", "shown_layers", "unit_importance", "units_table"]

# Layers that are shown one by one, units of a layer that are listed, units and classes of a heat map.
LAYERS, UNITS, COLUMNS, CLASSES = 16, 16, 48, 40
# Rows of the table of odd units.
ODD = 200
# With less information about the class, in nats, it is not shown where that information is.
TELLING = 0.01


def shown_layers(subject: Subject) -> list[int]:
    """Return the numbers of the layers that are shown one by one, evenly chosen if there are many."""
    count = len(subject.patterns.layers)
    return np.unique(np.linspace(0, count - 1, min(LAYERS, count)).round().astype(int)).tolist()


def layer_blocks(found: Inspection, views: PointViews) -> tuple[Block, ...]:
    """Return how the units of each layer are used, then one layer at a time."""
    subject = found.subject
    shown = shown_layers(subject)
    options = [f'<option value="{at}">{escape(subject.names[at].plain)}</option>' for at in shown]
    choose = (
        '<label class="choose" hidden>Layer <select data-chooses="layers">' + "".join(options) + "</select></label>"
    )
    parts = "".join(_layer_part(found, views, at) for at in shown)
    caption = f"{len(shown)} of {len(subject.names)} layers, evenly chosen." if len(shown) < len(subject.names) else ""
    panel = Panel("layers", "One layer at a time.", choose + parts, caption)
    table = found.units.assign(layer=[subject.names[at].plain for at in found.units["at"]])
    table["partners"] = partner_notes(table)
    odd = table[(table["status"] != "active") | (table["partners"] != "")]
    kept = ["layer", "unit", "active", "status", "partners", "saturated"]
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
    note = "By signs alone: a dead unit is at or above zero at no point, one that is always on at every point. "
    note += "A channel counts once, over all its positions. Max pools have no units of their own."
    return Table(f"units{suffix}", f"{subject.name}: units by layer", table, note)


class UnitImportance(NamedTuple):
    """How much each unit of a layer matters, and what was measured for that, in words."""

    weights: Float64[np.ndarray, " k"]
    measured: str


# What a unit's importance is measured by, from the best measure to one that needs neither labels nor class scores.
_RANKED = {
    "ablation_effect": "how far the log-odds of a class fall if the unit is fixed at its mean, the largest fall first",
    "information": "how much the unit tells about the class (mutual information), the most first",
}


def unit_importance(found: Inspection, at: int) -> UnitImportance:
    """Return how much each unit of a layer matters, by the best measure that is known for all of them."""
    own, reading = found.units[found.units["at"] == at], found.readings.get(at)
    for column, words in _RANKED.items():
        if reading is not None and len(reading.units) == len(own):
            measured = reading.units[column].to_numpy(float)
            if np.isfinite(measured).all() and measured.any():
                return UnitImportance(measured, words)
    return UnitImportance(
        -np.abs(own["active"].to_numpy() - 0.5), "how close to 50 % of the points the unit is on, the closest first"
    )


def listed_units(found: Inspection, at: int) -> pd.DataFrame:
    """Return the units of a layer that are listed: those with partners, then those that matter most."""
    own = found.units[found.units["at"] == at]
    own = own.assign(partners=partner_notes(own))
    alone, dead = (own["partners"] == "").to_numpy(), (own["status"] == "dead").to_numpy()
    return own.iloc[np.lexsort((-unit_importance(found, at).weights, dead, alone))[:UNITS]]


def _order(found: Inspection, at: int, listed: pd.DataFrame) -> str:
    """Return the order in which units are listed, as a sentence."""
    first = "units with a partner first, then " if (listed["partners"] != "").any() else ""
    last = ", dead units last" if (listed["status"] == "dead").any() else ""
    return f"Order: {first}by {unit_importance(found, at).measured}{last}."


def _layer_part(found: Inspection, views: PointViews, at: int) -> str:
    subject, layer, name = found.subject, found.subject.patterns.layers[at], found.subject.names[at]
    noun, own = subject.nouns()[at], found.units[found.units["at"] == at]
    lines = [f"<h3>{escape(name.plain)}</h3><p>{escape(_about(found, at))}</p>"]
    idle = bool(own["status"].isin(["dead", "always on", "saturated"]).all())
    if len(own) and idle:
        lines.append(f"<p>No {noun} changes sign between any two points: there is nothing to list.</p>")
    elif len(own):
        listed = listed_units(found, at)
        more = f" ({len(listed)} of {len(own):,})" if len(listed) < len(own) else ""
        order = escape(_order(found, at, listed)) if len(listed) > 1 else ""
        lines.append(f"<h4>{noun.capitalize()}s{more}</h4><p class='note'>{order}</p>{_unit_rows(listed, views, noun)}")
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
    text += f"Of {plural(len(own), noun)}, {idle} {'is' if idle == 1 else 'are'} dead and {always} always on. "
    reading = found.readings.get(at)
    if reading is None:
        return f"{text}Not read as distances: {found.unread.get(at, '')}."
    if probed := found.perturbed.get(at):
        text += f"How the network uses a {noun} was found by perturbing it alone on {plural(probed, 'point')}"
        hurried = probed < min(max(PROBED), len(subject.patterns))
        text += ", not more, for lack of time (--read-seconds 0: no limit). " if hurried else ". "
    if np.isfinite(reading.sphericity) and reading.metric is not None:
        values = reading.metric.eigenvalues
        effective = values.sum() ** 2 / (values**2).sum()
        text += (
            f"Its inputs vary in {plural(len(values), 'direction')}, and the effective rank of the layer is "
            f"{number(float(effective), 2)}: it would be {len(values):,} if the layer weighted all directions equally, "
            "and 1 if it passed on only one. "
        )
    if np.isfinite(reading.near_information) and reading.information > TELLING and idle < len(own):
        share = number(100 * reading.near_information, 2)
        text += (
            f"Of what the pre-activations of its {noun}s tell about the class, {share} % comes from the half of the "
            "values closest to zero (about 50 % means that closeness to zero does not matter)."
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
        active = f'<span class="bar" style="--v:{row["active"]:.3f}"></span>{number(100 * row["active"], 2)} %'
        cells = [str(row["unit"]), active, row["status"], row["partners"]]
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
