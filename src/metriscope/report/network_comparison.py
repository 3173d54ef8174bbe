"""The page of two networks on the same points: one sentence and a gauge, two maps, and where they disagree.

Axes: N points. Large sets are shown by an even sample of points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape

import numpy as np
import pandas as pd

from metriscope import vq
from metriscope.reading.comparison import LEVEL, PERMUTATIONS, Comparison, PointAgreement, compared, point_agreement
from metriscope.reading.inspection import Answers, Subject, answers
from metriscope.report.document import Block, Details, Page, Panel, Prose, Section, Table
from metriscope.report.html import inline
from metriscope.report.network_figures import gauge, heat_map, point_map, quantized
from metriscope.report.network_layers import units_table
from metriscope.report.network_pages import captured, maps_panel, network_script, network_style
from metriscope.report.numbers import number, plural
from metriscope.report.point_views import PointViews

__all__ = ["compare_page"]

SHOWN = 20
# Points with different answers that are measured, evenly chosen; the page lists a few of them.
_MEASURED = 1_000
# Alignments from which on two networks are said to be the same up to scale, nearly the same, and so on.
_WORDS = (
    (1 - 1e-12, "see these points in the same way, up to scale"),
    (0.95, "see these points almost in the same way"),
    (0.6, "see these points much alike"),
    (0.2, "see these points somewhat alike"),
)


def compare_page(
    one: Subject, two: Subject, provenance: Mapping[str, object], announce: Callable[[str], None] = lambda line: None
) -> Page:
    """Return the page of two networks on the same points."""
    announce("comparing the networks")
    found, told, other = compared(one, two), answers(one)[0], answers(two)[0]
    opposed = _different_answers(one, two, told, other)
    rows = np.concatenate([found.shown.rows, opposed.rows])
    views, others = PointViews(one, rows.tolist(), told), PointViews(two, [], other)
    announce("drawing the page")
    sections = (
        Section("Alignment", (*_alignment(found, one, two), *_answers(views, others))),
        Section("Maps side by side", _maps(found, (one, two), views, others)),
        Section("Where they disagree", (*_different(opposed, views, others), *_disagreements(found, views, others))),
        Section("Layer by layer", (_layers(found, one, two),)),
        Section("Units", (units_table(one, "-a"), units_table(two, "-b"))),
        Section("What was captured", (*captured(one, "-a"), *captured(two, "-b"))),
    )
    about, style = plural(len(one.patterns), "point"), f"{network_style()}\n{views.style}"
    return Page(f"{one.name} against {two.name}", about, sections, provenance, script=network_script(), style=style)


def _alignment(found: Comparison, one: Subject, two: Subject) -> tuple[Block, ...]:
    whole = found.whole
    if whole is None:
        return (Prose(f"The alignment is undefined: it needs at least two points, got {len(one.patterns)}."),)
    value = float(np.asarray(whole.value))
    if np.isnan(value):
        return (Prose(f"The alignment is undefined: {whole.reason}."),)
    p = float(np.asarray(whole.p_value))
    low, high = np.quantile(whole.null, [0.025, 0.975])
    words = next((text for least, text in _WORDS if value >= least), "see these points in different ways")
    words += f", {'no more' if p > 1 - LEVEL else 'more'} than chance"
    if found.same:
        words = "have identical patterns: at every point, each unit has the same sign in both"
    sentence = (
        f"**{one.name}** and **{two.name}** {words}: alignment **{number(value)}**, {_interval_text(whole)}; "
        f"shuffled points give {number(float(low))} to {number(float(high))} (p = {number(p)})."
    )
    interval = None if whole.interval_reason else (float(whole.interval[0]), float(whole.interval[1]))
    drawn = f'<p class="sentence">{inline(sentence)}</p>{gauge(value, whole.null, interval)}'
    note = (
        f"Debiased centered alignment of the VQ distances of {plural(whole.points, 'point')}: 1 is the same geometry "
        "up to scale, and 0 what unrelated networks have on average. The band holds 95 % of the values of "
        f"{PERMUTATIONS} shuffles of the points. Near 0 judge by the band, not by the interval."
    )
    return Panel("gauge", "", drawn), Prose(note)


def _different_answers(one: Subject, two: Subject, answers: Answers | None, others: Answers | None) -> PointAgreement:
    """Return the points with different answers on which the networks agree least, of evenly chosen ones."""
    rows = (
        np.zeros(0, int) if answers is None or others is None else np.flatnonzero(answers.predicted != others.predicted)
    )
    if len(rows) > _MEASURED:
        rows = rows[np.linspace(0, len(rows) - 1, _MEASURED).round().astype(int)]
    return point_agreement(one, two, rows).lowest(SHOWN)


def _answers(views: PointViews, others: PointViews) -> tuple[Block, ...]:
    """Return at how many points the networks answer differently, and how often each is right."""
    a, b = views.answers, others.answers
    if a is None or b is None:
        return ()
    differ = a.predicted != b.predicted
    share = f"{differ.mean():.1%}".replace("%", " %")
    text = f"They give different answers at {int(differ.sum()):,} of {plural(len(differ), 'point')} ({share})"
    if a.right is None or b.right is None:
        return (Prose(f"{text}."),)
    only = [int((differ & own).sum()) for own in (a.right, b.right)]
    right = [int(own.sum()) for own in (a.right, b.right)]
    text += f"; A is right at {only[0]:,} of these and B at {only[1]:,}. Of all points, A is right at {right[0]:,} "
    return (Prose(f"{text}and B at {right[1]:,}."),)


def _interval_text(found: vq.Alignment) -> str:
    """Return the interval in words; the value may be defined where the interval is not."""
    if found.interval_reason:
        return f"its interval undefined ({found.interval_reason})"
    low, high = (float(end) for end in found.interval)
    return f"{LEVEL:.0%} jackknife interval {number(low)} to {number(high)}".replace("%", " %")


def _title(row: int, views: PointViews, others: PointViews) -> str:
    """Return a point's number and label, and what either network answers, as plain text."""
    parts = [f"point {views.subject.patterns.ids[row]}"]
    if views.subject.labels is not None:
        parts.append(f"label {views.subject.labels[row]}")
    for name, each in (("A", views), ("B", others)):
        if each.answers is not None:
            parts.append(f"{name} answers {each.answers.predicted[row]}{' (wrong)' if each.wrong(row) else ''}")
    return ", ".join(parts)


def _maps(
    found: Comparison, subjects: tuple[Subject, Subject], views: PointViews, others: PointViews
) -> tuple[Block, ...]:
    titles = [_title(int(row), views, others) for row in found.shown.rows]
    labels = None if subjects[0].labels is None else subjects[0].labels[found.shown.rows]
    maps, blocks = [], []
    for key, places, subject in zip("ab", found.places, subjects, strict=True):
        if places is None:
            why = "all points have the same pattern" if len(subject.patterns) > 1 else "there is one point only"
            blocks.append(Prose(f"A map of {subject.name} is undefined, because {why} and no distance is left."))
        else:
            drawn = point_map(f"map-{key}", f"map of {subject.name}", quantized(places.places), labels, titles)
            maps.append((subject.name, drawn))
    if not maps:
        return tuple(blocks)
    caption = (
        "Classical scaling of each network's VQ distances; the second map is rotated, mirrored and scaled to lie as "
        f"near to the first as it can. {len(titles):,} of {len(subjects[0].patterns):,} points; a point that is "
        "pointed at or chosen in one map is marked in both."
    )
    either = [int(views.wrong(int(row)) or others.wrong(int(row))) for row in found.shown.rows]
    data = views.records(found.shown.rows.tolist()) | {"titles": titles, "wrong": either}
    return maps_panel(maps, "", data, labels, caption), *blocks


def _different(opposed: PointAgreement, views: PointViews, others: PointViews) -> tuple[Block, ...]:
    """Return the points that the networks answer differently, if both answer and there are any."""
    if views.answers is None or others.answers is None or not len(opposed.rows):
        return ()
    count, listed = int((views.answers.predicted != others.answers.predicted).sum()), len(opposed.rows)
    caption = f"{listed:,} of {plural(count, 'point')} with different answers, "
    caption += "those on which the networks agree least about distances to other points first."
    caption += f" Only {_MEASURED:,} of these points, evenly chosen, were compared." if count > _MEASURED else ""
    return _listed(
        "different-answers", "Points that the networks answer differently", opposed, (views, others), caption
    )


def _disagreements(found: Comparison, views: PointViews, others: PointViews) -> tuple[Block, ...]:
    known = int(np.isfinite(found.shown.agreement).sum())
    if not known:
        return (Prose("No point has an agreement: in one of the networks its distances to all others are the same."),)
    middle = number(float(np.nanmedian(found.shown.agreement)), 2)
    caption = "The correlation of a point's distances to all others in A with those in B; the median over points is "
    least = found.shown.lowest(min(SHOWN, known))
    title = "Points on which the networks disagree most"
    return _listed("disagreements", title, least, (views, others), f"{caption}{middle}.")


def _listed(
    name: str, title: str, shown: PointAgreement, pair: tuple[PointViews, PointViews], caption: str
) -> tuple[Block, ...]:
    """Return points with the answers of both networks, how far their distances agree, and their nearest points."""
    views, ids = pair[0], pair[0].subject.patterns.ids
    notes = [f"agreement {number(float(one), 2)}" for one in shown.agreement]
    if views.pictured:
        html = _pictures(*pair, shown.rows, notes, list(shown.nearest))
    else:
        near = zip(notes, *shown.nearest, strict=True)
        text = [f"{note}; nearest in A {ids[a]}, in B {ids[b]}" for note, a, b in near]
        html = views.gallery(shown.rows.tolist(), text, "how far the networks agree", _judges(*pair))
    columns = {"point": ids[shown.rows]}
    if views.subject.labels is not None:
        columns["label"] = views.subject.labels[shown.rows]
    columns |= {head: each.answers.predicted[shown.rows] for head, each in _judges(*pair).items() if each.answers}
    columns |= {
        "agreement": shown.agreement,
        "nearest in A": ids[shown.nearest[0]],
        "nearest in B": ids[shown.nearest[1]],
    }
    table = Table(name, title, pd.DataFrame(columns))
    return Panel(name, f"{title}.", html, caption), Details("The same as a table", (table,))


def _judges(views: PointViews, others: PointViews) -> dict[str, PointViews]:
    """Return the networks that answer, by the heading of their answers."""
    return {f"{name} answers": each for name, each in (("A", views), ("B", others)) if each.answers is not None}


def _pictures(
    views: PointViews, others: PointViews, rows: np.ndarray, notes: list[str], nearest: list[np.ndarray]
) -> str:
    items = []
    for row, note, a, b in zip(rows, notes, *nearest, strict=True):
        lines = (
            [f"<span>label <b>{escape(str(views.subject.labels[row]))}</b></span>"]
            if views.subject.labels is not None
            else []
        )
        lines += [
            f"<span>{head} <b>{each.answer(int(row))}</b></span>" for head, each in _judges(views, others).items()
        ]
        pair = "".join(views.picture(int(each)) for each in (a, b))
        number_ = f'<span class="id">#{escape(str(views.subject.patterns.ids[row]))}</span>'
        items.append(
            f'<li>{views.picture(int(row))}{number_}{"".join(lines)}<span class="note-line">{note}</span>'
            f'<span class="note-line">nearest in A, in B</span><span class="pair">{pair}</span></li>'
        )
    return f'<ol class="gallery">{"".join(items)}</ol>'


def _layers(found: Comparison, one: Subject, two: Subject) -> Block:
    if found.layers is None or np.isnan(np.asarray(found.layers.value)).all():
        why = "it needs at least two points" if found.layers is None else found.layers.reason
        return Prose(f"No pair of layers has an alignment: {why}.")
    matrix = np.asarray(found.layers.value, float)
    names = tuple([name.plain for name in each.names] for each in (one, two))
    titles = (f"layers of {one.name}", f"layers of {two.name}", "centered alignment")
    low = min(0.0, float(np.nanmin(matrix)))
    drawn = heat_map("alignment-layers", matrix, (names[0], names[1]), titles, (low, 1.0))
    dash = f" A dash is an undefined value: {found.layers.reason}." if found.layers.reason else ""
    return Panel(
        "alignment-layers",
        "Alignment of each layer of A with each of B.",
        drawn,
        f"1 is the same geometry, 0 none in common.{dash}",
    )
