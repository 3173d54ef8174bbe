"""Findings about a network: sentences with their numbers, the most important first.

A network without problems gives only neutral facts. Every sentence states what was counted, of how many, and on how
many points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd

from metriscope.reading.inspection import Inspection, class_distances
from metriscope.vq.capture.patterns import Layer

__all__ = ["LEVELS", "Finding", "findings"]

Level = Literal["problem", "notable", "fine", "fact"]
LEVELS: tuple[Level, ...] = get_args(Level)

# Activations whose output changes on both sides of zero: a unit that is always on one side still carries information.
_TWO_SIDED = frozenset(
    {"abs", "tanh", "softsign", "tanhshrink", "hardtanh", "sigmoid", "hardsigmoid", "logsigmoid", "erf", "glu"}
)
# From this share of a layer's units on, a sentence says that units are always on, or rarely on.
_MANY = 0.25
# Squared length, relative to the longest, below which a layer does not measure a direction.
_LOST = 1e-10
# A point is far from all others beyond this many (robust) deviations, times the median, and shares of all signs.
_FAR, _TIMES, _LEAST = 6.0, 1.5, 0.05
_LISTED, _NAMED = 3, 6
# The largest p-value and the smallest number of points for the sentence that novel points are misclassified more often.
_LEVEL, _FEWEST = 0.01, 5
# The positions at which a unit must be on for the pooled sign to be positive.
_POOLED = {
    "mean": "at half of the tokens or more",
    "any": "at any token",
    "first": "at the first token",
    "last": "at the last token",
}
# What the network takes from a unit, by kind.
_USES = {
    "distance": "what counts is how close its pre-activation is to zero",
    "intensity": "what counts is how large its pre-activation is",
}


@dataclass(frozen=True)
class Finding:
    """One sentence: ``level`` says how important it is, ``weight`` orders those of the same level.

    If many layers have the same ``kind`` of finding, all but the first few share one sentence, made of their ``short``.

    Examples
    --------
    >>> Finding("problem", "11 of 32 units of `fc1` (Linear) are dead on all 1,000 points", 11 / 32).level
    'problem'
    """

    level: Level
    text: str
    weight: float = 0.0
    kind: str = ""
    short: str = ""


def findings(found: Inspection) -> tuple[Finding, ...]:
    """Return the findings about a network, the most important first."""
    parts = [*_missed(found), *_whole(found), *_layers(found), *_points(found)]
    if not any(one.level in ("problem", "notable") for one in parts):
        parts.append(_nothing(found))
    told = sorted([*parts, *_facts(found)], key=lambda one: (LEVELS.index(one.level), -one.weight))
    return tuple(_folded(told))


def _folded(told: list[Finding]) -> Iterator[Finding]:
    """Yield findings in order, and after the first few of a kind one finding that names the rest."""
    for at, one in enumerate(told):
        before = sum(each.kind == one.kind for each in told[:at]) if one.kind else 0
        rest = [each.short for each in told[at:] if each.kind == one.kind]
        if before < _LISTED or (before == _LISTED and len(rest) == 1):
            yield one
        elif before == _LISTED:
            listed, more = "; ".join(rest[:_NAMED]), f"; and {len(rest) - _NAMED} more" if len(rest) > _NAMED else ""
            yield Finding(
                one.level, f"{one.kind.capitalize()} in {len(rest):,} more layers: {listed}{more}.", one.weight
            )


def _nothing(found: Inspection) -> Finding:
    units, count = len(found.units), len(found.subject.patterns)
    if count < 2:
        return Finding(
            "fine", "There is one point only: no unit can be called dead, always on or a duplicate of another."
        )
    return Finding(
        "fine",
        f"Nothing unusual found: of {units:,} units, none is dead, duplicate, mirrored or saturated on {count:,} "
        "points, and nothing that ran was missed.",
    )


def _missed(found: Inspection) -> Iterator[Finding]:
    missed = found.subject.patterns.missed
    ran = [one for one in missed.operations if one.role in ("missed", "dropped")]
    if ran:
        count = sum(one.count for one in ran)
        names = [f"{one.what}{f' in `{one.where}`' if one.where else ''} ({one.reason})" for one in ran[:_LISTED]]
        more = f", and {len(ran) - _LISTED} more" if len(ran) > _LISTED else ""
        verb = "activation was" if count == 1 else "activations were"
        yield Finding("problem", f"{count:,} {verb} not captured: {', '.join(names)}{more}.", 2)
    for doubt in missed.doubts:
        yield Finding("notable", f"Not certain: {doubt}.", 2)


def _whole(found: Inspection) -> Iterator[Finding]:
    count = len(found.subject.patterns)
    if count < 2:
        return
    if found.regions == 1:
        text = f"No unit separates any two of the {count:,} points: all points have the same pattern."
        yield Finding("problem", text, 3)
    told = found.answers
    if told is not None and len(set(told.predicted)) == 1 and (told.right is None or not told.right.all()):
        yield Finding(
            "problem", f"The network gives the same answer, {told.predicted[0]}, at all {count:,} points.", 2.5
        )
    if 1 < found.regions < count / 2:
        text = f"The {count:,} points have only {found.regions:,} different patterns: the rest cannot be distinguished."
        yield Finding("notable", text, 1 - found.regions / count)


def _layers(found: Inspection) -> Iterator[Finding]:
    subject = found.subject
    if len(subject.patterns) < 2:
        return
    parts = zip(subject.names, subject.nouns(), subject.patterns.layers, strict=True)
    for at, (name, noun, layer) in enumerate(parts):
        own = found.units[found.units["at"] == at]
        if own.empty:
            continue
        pooled = subject.tokens if subject.tokens and name.tokens else ""
        told = _Layer(own, f"{name}", noun, len(subject.patterns), layer, pooled)
        yield from told.unused()
        yield from told.partners()
        yield from _lost(found, at, told)


@dataclass(frozen=True)
class _Layer:
    """One layer's units, the names for it and for them, and the number of points."""

    units: pd.DataFrame
    name: str
    noun: str
    points: int
    layer: Layer
    pooled: str = ""

    def count(self, chosen: pd.Series) -> tuple[int, str]:
        """Return how many units are chosen, and the beginning of a sentence about them."""
        found, total = int(chosen.sum()), len(chosen)
        nouns = self.noun if total == 1 else f"{self.noun}s"
        whole = "The only" if total == 1 else f"All {total:,}" if found == total else f"{found:,} of {total:,}"
        return found, f"{whole} {nouns} of {self.name} {'is' if found == 1 else 'are'}"

    def numbers(self, chosen: pd.Series) -> str:
        """Return the numbers of the chosen units in brackets, the first few of many; nothing if all are chosen."""
        units = self.units.loc[chosen, "unit"].tolist()
        if len(units) == len(chosen):
            return ""
        if len(units) == 1:
            return f" ({self.noun} {units[0]})"
        # If only one more remains, it is named as well: "and 1 more" would take as much room.
        named = units if len(units) <= _NAMED + 1 else units[:_NAMED]
        more = f", and {len(units) - len(named):,} more" if len(named) < len(units) else ""
        return f" ({self.noun}s {', '.join(map(str, named))}{more})"

    def unused(self) -> Iterator[Finding]:
        """Yield units that are dead, saturated, always on or rarely on."""
        if self.pooled and (self.units["by"] != "values").all():
            yield from self._unused_tokens()
            return
        status, everywhere = self.units["status"], f"on all {self.points:,} points"
        smooth = not self.layer.piecewise_affine
        positions = " at every position" if self.layer.channel_axis is not None else ""
        two_sided, constant = self.layer.kind in _TWO_SIDED, "above zero" if smooth else "linear"
        rows = (
            ("dead", "notable", f"dead: below zero {everywhere}", 0.0, two_sided or not smooth),
            ("dead", "problem", f"dead {everywhere}", 0.0, two_sided or smooth),
            ("saturated", "problem", f"saturated {everywhere}", 0.0, False),
            ("always on", "notable", f"always on{positions}: {constant} {everywhere}", _MANY, two_sided),
            ("rare", "notable", f"on at less than 1 % of the {self.points:,} points", _MANY, two_sided),
        )
        for word, level, text, least, skipped in rows:
            found, opening = self.count(status == word)
            if found and found >= least * len(self.units) and not skipped:
                short = f"{self.name} {found:,} of {len(self.units):,}"
                sentence = f"{opening} {text}{self.numbers(status == word)}."
                yield Finding(level, sentence, found / len(self.units), f"{word} {self.noun}s", short)  # type: ignore[arg-type]

    def _unused_tokens(self) -> Iterator[Finding]:
        found, opening = self.count(self.units["status"] == "dead")
        if found and self.layer.kind not in _TWO_SIDED:
            how, short = _POOLED[self.pooled], f"{self.name} {found:,} of {len(self.units):,}"
            # Units of a sequence are on at few tokens, so it means little that they are never on at a majority.
            level: Level = "notable" if self.pooled == "any" else "fact"
            text = f"{opening} on {how} of none of the {self.points:,} points."
            yield Finding(level, text, found / len(self.units), f"{self.noun}s that are on {how} of no point", short)

    def partners(self) -> Iterator[Finding]:
        """Yield duplicates, and mirrored pairs."""
        by_values = (self.units["by"] == "values").all()
        same = (
            "the same zero set within 0.05 deviations" if by_values else f"the same signs on all {self.points:,} points"
        )
        for column, level, what, how in (
            ("duplicate_of", "problem", "duplicates", f"{same}, on the same side" if by_values else same),
            (
                "mirrored_with",
                "notable",
                "mirrored",
                f"{same}, on opposite sides" if by_values else "always opposite signs",
            ),
        ):
            chosen = self.units[self.units[column].notna()]
            pairs = {tuple(sorted((int(u), int(v)))) for u, v in zip(chosen["unit"], chosen[column], strict=True)}
            if pairs:
                text, weight = self._paired(sorted(pairs), what, how), len(chosen) / len(self.units)
                yield Finding(level, text, weight, f"{what} {self.noun}s", f"{self.name} {len(pairs):,}")  # type: ignore[arg-type]

    def _paired(self, pairs: list[tuple[int, ...]], what: str, how: str) -> str:
        listed = ", ".join(f"{u} and {v}" for u, v in pairs[:_LISTED])
        total = len(self.units)
        if len(pairs) == 1:
            verb = "are duplicates of each other" if what == "duplicates" else "are mirrored"
            return f"{self.noun.capitalize()}s {listed} of {self.name} {verb}: {how}."
        more = f", and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else ""
        return (
            f"{len(pairs):,} pairs among the {total:,} {self.noun}s of {self.name} are {what} ({listed}{more}): {how}."
        )


def _lost(found: Inspection, at: int, told: _Layer) -> Iterator[Finding]:
    reading = found.readings.get(at)
    if reading is None or reading.metric is None:
        return
    values = np.asarray(reading.metric.eigenvalues)
    possible = min(len(told.units), len(values))
    lost = possible - int((values > _LOST * values.max(initial=0)).sum()) if values.any() else possible
    dead = int((told.units["status"] == "dead").sum())
    same = int(told.units["duplicate_of"].notna().sum() + told.units["mirrored_with"].notna().sum())
    # Dead units and partners measure no direction of their own, and have their own sentence.
    if lost > dead + same or lost > max(dead, possible / 2):
        text = f"Layer {told.name} has lost {lost:,} of {possible:,} directions: its {len(told.units):,} {told.noun}s "
        text += f"measure {possible - lost:,} of those that they could."
        yield Finding("problem", text, lost / possible, "lost directions", f"{told.name} {lost:,} of {possible:,}")


def _points(found: Inspection) -> Iterator[Finding]:
    novelty, rows = found.novelty, found.novel
    if novelty is None or not len(rows) or len(novelty) < 10:
        return
    middle, width = float(np.median(novelty)), found.subject.patterns.width
    spread = 1.4826 * float(np.median(np.abs(novelty - middle)))
    far = (
        np.flatnonzero(novelty > max(middle + _FAR * spread, _TIMES * middle, _LEAST * width))
        if spread
        else np.zeros(0, int)
    )
    if len(far):
        ids = ", ".join(str(found.subject.patterns.ids[row]) for row in rows[: min(_LISTED, len(far))])
        verb, more = (
            ("point is", "") if len(far) == 1 else ("points are", ", ...") if len(far) > _LISTED else ("points are", "")
        )
        text = f"{len(far):,} {verb} far from all others (point {ids}{more}): the nearest other differs in "
        yield Finding(
            "notable", f"{text}{novelty[far].min():,.0f} signs or more, against {middle:,.0f} typically.", 0.5
        )
    yield from _novel_errors(found)


def _clearly_novel(found: Inspection) -> np.ndarray:
    """Return the most novel points, without those that only their order sets apart from points that are left out."""
    rows, novelty = found.novel, found.novelty
    if novelty is None or not len(rows):
        return rows
    last = novelty[rows[-1]]
    return rows[novelty[rows] > last] if (novelty >= last).sum() > len(rows) else rows


def _novel_errors(found: Inspection) -> Iterator[Finding]:
    from scipy.stats import hypergeom

    if found.answers is None or found.answers.right is None:
        return
    wrong, rows = ~found.answers.right, _clearly_novel(found)
    among, total = int(wrong[rows].sum()), int(wrong.sum())
    p = float(hypergeom.sf(among - 1, len(wrong), total, len(rows)))
    if among and p < _LEVEL and len(rows) >= _FEWEST:
        text = f"{among} of the {len(rows)} most novel points are misclassified, against {total:,} of all "
        yield Finding("notable", f"{text}{len(wrong):,}.", 0.4)


def _facts(found: Inspection) -> Iterator[Finding]:
    right = None if found.answers is None else found.answers.right
    if right is not None:
        text = f"The network answers {int(right.sum()):,} of {len(right):,} points correctly ({right.mean():.1%}"
        yield Finding("fact", f"{text.replace('%', ' %')}).", 9)
        yield from _confused(found)
    yield from _kinds(found)
    labels = found.labels
    if labels is None or found.regions < 2:
        return
    classes, means = class_distances(found.kernel, labels)
    between = means + np.diag(np.full(len(classes), np.nan))
    if len(classes) > 2 and not np.isnan(between).all():
        a, b = np.unravel_index(np.nanargmin(between), between.shape)
        text = f"The classes nearest to each other are {classes[a]} and {classes[b]}: their points differ in "
        text += f"{between[a, b]:,.0f} signs on average, against {np.nanmean(between):,.0f} on average over all pairs "
        yield Finding("fact", f"{text}of different classes.", 5)


def _confused(found: Inspection) -> Iterator[Finding]:
    assert found.answers is not None
    assert found.subject.labels is not None
    table = pd.DataFrame({"label": found.subject.labels.astype(str), "answer": found.answers.predicted})
    wrong = table[~found.answers.right].value_counts()  # type: ignore[operator]
    if len(wrong) and wrong.iloc[0] > 1:
        label, answer = wrong.index[0]
        size = int((table["label"] == label).sum())
        yield Finding("fact", f"Class {label} is most often taken for {answer}: {wrong.iloc[0]} of {size:,} times.", 8)


def _kinds(found: Inspection) -> Iterator[Finding]:
    subject = found.subject
    for at, (name, noun) in enumerate(zip(subject.names, subject.nouns(), strict=True)):
        own = found.units[found.units["at"] == at]
        used = own["kind"].isin(list(_USES))
        if not used.any() or subject.labels is None:
            continue
        kinds = own["kind"].value_counts()
        dead = int((~used & (own["status"] == "dead")).sum())
        neither = len(own) - int(used.sum())
        uses = [f"{kinds[kind]:,} as {kind} ({why})" for kind, why in _USES.items() if kind in kinds]
        text = f"Of {len(own):,} {noun}s of {name}, the network uses {' and '.join(uses)}"
        text += f", and {neither:,} as neither of the two" if neither else ""
        text += f" ({dead:,} of them dead)" if dead else ""
        short = f"{name} {', '.join(f'{kinds.get(kind, 0):,} as {kind}' for kind in _USES)}"
        yield Finding("fact", f"{text}.", 7 - at / (1 + len(subject.names)), f"uses of {noun}s", short)
