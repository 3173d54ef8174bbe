"""Verdicts on C21 to C25: pure rules on numbers over seeds first, then one function a claim.

Axes: S seeds, T scales sigma2. Claims whose part was not run are listed as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from metriscope.functional import Summary, summarize
from metriscope.report import Claim, Evidence, Verdict, number
from metriscope.studies.contract import claims
from metriscope.studies.vq import moons as figure1
from metriscope.studies.vq import spheres as figure2
from metriscope.studies.vq.digits import PAIRS, Digits, name_of, printed
from metriscope.studies.vq.heat import FORMS, SCALES, order, ranges
from metriscope.studies.vq.lemmas import judge_lemma1, judge_lemma2
from metriscope.studies.vq.moons import Moons
from metriscope.studies.vq.parts import Judgement, mean_text
from metriscope.studies.vq.spec import NAME
from metriscope.studies.vq.spheres import Spheres

__all__ = ["JUDGES", "Turning", "alike_verdict", "separation_verdict", "turning_verdict", "verdicts"]

# Turned back may fall short of what two starts on the same data give by this share of what turning back is worth:
# a quarter is less than intervals over ten seeds can tell apart.
SHORT = 0.25
# Kaufman and Rousseeuw (1990) see no substantial structure in a mean silhouette of this or less.
SEPARATE = 0.25

COMPARED = tuple(figure1.COMPARISONS.items())

Values = Float[np.ndarray, " s"]


@dataclass(frozen=True)
class Turning:
    """What turning back is worth in one measure, over seeds: paired differences and a verdict."""

    worth: Summary
    short: Summary
    verdict: Verdict


def turning_verdict(back: Values, still: Values, ceiling: Values) -> Turning:
    """Judge one measure: whether the kernel turns with the data, as far as two starts allow.

    Turned back must lie above not turned back in paired comparison (95 % t interval above zero): else it depends, or
    is contradicted where the mean is not even above. It must also come as near as two starts on the same data do,
    which no two networks can be asked to pass: the interval of the gap to them reaches zero, or its mean is at most
    a quarter of what turning back is worth. A larger gap says that something other than the data stays behind.
    """
    worth, short = summarize(back - still), summarize(ceiling - back)
    if not worth.low > 0:
        return Turning(worth, short, "depends" if worth.mean > 0 else "contradicted")
    near = short.low <= 0 or short.mean <= SHORT * worth.mean
    return Turning(worth, short, "supported" if near else "depends")


def separation_verdict(seen: Values, new: Values, euclid: Values) -> Verdict:
    """Judge separation by silhouettes, one a seed: of training points, of new points, and Euclid's of training points.

    Contradicted if the training points are not separated, or not more than by Euclid (paired, 95 % t interval).
    Supported if new points are separated too. Else the separation is of the labels that were learned by heart, and
    the claim depends on which points are looked at.
    """
    if seen.mean() <= SEPARATE or not summarize(seen - euclid).low > 0:
        return "contradicted"
    return "supported" if new.mean() > SEPARATE else "depends"


def alike_verdict(aligned: Values, signs: Mapping[str, Int[np.ndarray, " t"]]) -> Verdict:
    """Judge C23 from paired differences of alignment, one a seed, and the order of the cosines at each scale.

    Supported if the centred alignment grows (95 % t interval above zero) and no scale of either form says the
    reverse; contradicted if it shrinks or stays and no scale says that it grows; else it depends on the measure.
    """
    grown = summarize(aligned)
    more, less = (any((each == sign).any() for each in signs.values()) for sign in (1, -1))
    if grown.low > 0:
        return "depends" if less else "supported"
    return "depends" if more else "contradicted"


def _evidence(label: str, values: Values, published: float | None = None) -> Evidence:
    return Evidence(label, mean_text(values), published, "S4 fig. 3" if published is not None else "")


def judge_turning(moons: Moons) -> Judgement:
    """Judge C21 by all three measures; they must agree."""
    measures, names = figure1.MEASURES, ("back", "still", "ceiling")
    found = {m: turning_verdict(*(moons.values(c, m) for c in names)) for m in measures}
    verdicts = {turning.verdict for turning in found.values()}
    verdict: Verdict = verdicts.pop() if len(verdicts) == 1 else "depends"
    means = {m: ", ".join(f"{moons.values(c, m).mean():.2f}" for c in names) for m in measures}
    parts = [f"{measures[m]} {means[m]} ({t.verdict})" for m, t in found.items()]
    before = {m: moons.values("start back", m) - moons.values("start", m) for m in ("alignment", "overlap")}
    reason = (
        f"Turned back, not turned back, and two starts on the same data, means over {moons.plan.seeds} seeds: "
        f"{'; '.join(parts)}. Before training, turning back changes the alignment by "
        f"{mean_text(before['alignment'])} and the eigenspace overlap by {mean_text(before['overlap'])}"
        f"{_axes(before['overlap'])}. High values alone say little: kernels of untrained networks are "
        f"{mean_text(moons.values('start', 'alignment'))} aligned."
    )
    worth = [
        _evidence(f"worth of turning back, paired: {text}", moons.values("back", m) - moons.values("still", m))
        for m, text in measures.items()
    ]
    # The other measures stand in the part's own table.
    rows = [_evidence(f"{t}: {measures['alignment']}", moons.values(c, "alignment")) for c, t in COMPARED]
    return Judgement(verdict, reason, (*worth, *rows))


def _axes(before: Values) -> str:
    return ": untrained kernels keep to the axes" if summarize(before).high < 0 else ""


def judge_separation(spheres: Spheres) -> Judgement:
    """Judge C22 by the silhouette on the plane, with new points and random labels beside it."""
    places = (("first", "training"), ("first", "new"), ("euclid", "training"))
    verdict = separation_verdict(*(spheres.values(*place, "silhouette") for place in places))

    def text(distance: str, place: str, measure: str = "silhouette") -> str:
        return mean_text(spheres.values(distance, place, measure))

    reason = (
        f"Training points: silhouette {text('first', 'training')} against Euclid's {text('euclid', 'training')}; "
        f"effective rank {text('first', 'training', 'rank')} against {text('euclid', 'training', 'rank')}, and "
        f"{text('start', 'training', 'rank')} before training. New points of the same moons: silhouette "
        f"{text('first', 'new')}, nearest-neighbour accuracy {text('first', 'new', 'neighbour')}, the network's own "
        f"accuracy {mean_text(spheres.accuracies('first'))}, where 0.5 is chance. Random labels, on the training "
        f"points they were given to: silhouette {text('shuffled', 'training')}, rank "
        f"{text('shuffled', 'training', 'rank')}.{_memory(verdict, spheres)}"
    )
    rows = [
        _evidence(f"{figure2.DISTANCES[d]}, {figure2.PLACES[p]}: {figure2.MEASURES[m]}", spheres.values(d, p, m))
        for d, p, m in _keys(spheres)
        if m == "silhouette" or (m == "rank" and p == "training")
    ]
    return Judgement(verdict, reason, tuple(rows))


def _keys(spheres: Spheres) -> list[tuple[str, str, str]]:
    pairs = [(d, p) for p in figure2.PLACES for d in figure2.DISTANCES if len(spheres.values(d, p, "rank"))]
    return [(d, p, m) for m in figure2.MEASURES for d, p in pairs]


def _memory(verdict: Verdict, spheres: Spheres) -> str:
    by_heart = spheres.values("shuffled", "training", "silhouette").mean() > SEPARATE
    if verdict != "depends" or not by_heart:
        return ""
    return (
        " 150 points in 100 dimensions can be cut apart by any labels: what the figure separates are labels learned by "
        "heart, and of the moons little was found."
    )


def judge_alikeness(digits: Digits) -> Judgement:
    """Judge C23: 4 against 6 layers, trained against initial."""
    trained, initial = PAIRS[0], PAIRS[-1]
    gain = digits.alignments(trained) - digits.alignments(initial)
    signs = {form: order(digits.curve(trained, form) - digits.curve(initial, form)) for form in FORMS}
    best = digits.nearest()
    grown = "more alike" if summarize(gain).low > 0 else "not clearly more alike"
    parts = [f"with {FORMS[form]} {_order(form, sign)}" for form, sign in signs.items()]
    reason = (
        f"By the centred alignment training makes them {grown}: {mean_text(digits.alignments(trained))} against "
        f"{mean_text(digits.alignments(initial))} before (paired difference {mean_text(gain)}; shuffled images give "
        f"{number(float(digits.alignments(trained, 'null').mean()), 2)}). The uncentred cosine of S4 says either, "
        f"as σ² has it: {'; '.join(parts)}. The printed numbers, {printed(trained)} trained and {printed(initial)} "
        f"before, say the reverse of the sentence they illustrate. Ours come nearest to all six at {FORMS[best.form]}, "
        f"σ² = {number(best.scale, 2)}, {number(best.error, 2)} away (root mean square)."
    )
    scale = f"{FORMS[best.form]}, σ² = {number(best.scale, 2)}"
    aligned = [_evidence(f"{name_of(pair)}: centred alignment", digits.alignments(pair)) for pair in PAIRS]
    cosines = [
        _evidence(f"{name_of(p)}: cosine, {scale}", digits.curve(p, best.form)[:, best.index], printed(p))
        for p in PAIRS
    ]
    return Judgement(alike_verdict(gain, signs), reason, (*aligned, *cosines))


def _order(form: str, signs: Int[np.ndarray, " t"]) -> str:
    texts = []
    for wanted, word in ((1, "more alike"), (-1, "less alike")):
        found = [_range(*ends) for ends in ranges(SCALES[form], signs, wanted)]
        texts.append(f"{word} for σ² {' and '.join(found)}" if found else f"{word} nowhere")
    return ", ".join(texts)


def _range(low: float, high: float) -> str:
    return f"from {number(low, 2)} to {number(high, 2)}" if high > low else f"of {number(low, 2)}"


# Claim -> the part that measures it, and the judge of what that part collected.
JUDGES: dict[str, tuple[str, Callable[[Any], Judgement]]] = {
    "C21": ("moons", judge_turning),
    "C22": ("spheres", judge_separation),
    "C23": ("digits", judge_alikeness),
    "C24": ("lemmas", judge_lemma1),
    "C25": ("lemmas", judge_lemma2),
}


def verdicts(results: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Return every claim of the study in the ledger's order, from what each part collected, by the part's name."""
    found = []
    for entry in claims(NAME):
        part, judge = JUDGES.get(entry.id, ("", _not_run))
        judgement = judge(results[part]) if part in results else _not_run(None)
        verdict = (judgement.verdict, judgement.reason, judgement.evidence)
        found.append(Claim(entry.id, entry.text, entry.source, *verdict))
    return tuple(found)


def _not_run(_: object) -> Judgement:
    return Judgement("not run", "No part of this run measures it.")
