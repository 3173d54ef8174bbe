"""The claim C17 as criteria on the levels of Oursland 2024b, and its numbers beside the printed ones.

A change is that of a run's training accuracy, in points, from the same run without any perturbation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import pandas as pd

from metriscope.report import Evidence, mean_text
from metriscope.studies.evidence import Below, Within
from metriscope.studies.judging import Criterion, Statement, Values
from metriscope.studies.representation.accuracy.measure import printed, select
from metriscope.studies.representation.perturbations.plan import per_cent
from metriscope.studies.representation.plan import title

__all__ = ["HARMLESS", "OFFSETS", "perturbation_statement"]

Tables = Mapping[str, pd.DataFrame]

SOURCE = "Oursland 2024b"
UNHARMED = "Half a point: at levels that the paper calls unchanged, its own table is up to 0.39 below its baseline."
FALLS = "The paper says that accuracy falls outside of its range, and not by how much: the next level that it prints."
HARM = "More than what counts as unharmed, at a tenth of the range: scaling to a tenth and clipping half are harmless."

# The ends of the ranges within which scaling and clipping are said to change nothing.
HARMLESS = (("scale", 0.1, "scaled to 10 %"), ("scale", 2.0, "scaled to 200 %"), ("clip", 0.5, "clipped at 50 %"))
# By network, the ends of the range of offsets that it is said to withstand, and the next printed levels outside of it.
OFFSETS = {"relu-bias": ((-0.03, -0.05), (0.02, 0.03)), "abs-bias": ((-0.01, -0.02), (0.01, 0.02))}
HARMFUL = (-0.1, 0.1)


def _criteria(network: str) -> Iterator[Criterion]:
    def change(kind: str, level: float) -> Values:
        return Values.of("harm", "change", network=network, kind=kind, level=level)

    text, name = "points of training accuracy, pre-activations", title(network)
    unharmed = [*HARMLESS, *(("offset", end, f"moved by {per_cent(end)}") for end, _ in OFFSETS[network])]
    for kind, level, words in unharmed:
        yield Criterion(f"{text} {words}", change(kind, level), Within(0.5), UNHARMED, level=name)
    for end, beyond in OFFSETS[network]:
        words, inside = f"{text} moved by {per_cent(beyond)} in place of {per_cent(end)}", change("offset", end)
        yield Criterion(words, change("offset", beyond), Below(0.0), FALLS, minus=inside, paired=True, level=name)
    for level in HARMFUL:
        words = f"{text} moved by {per_cent(level)}"
        yield Criterion(words, change("offset", level), Below(-0.5), HARM, level=name)


def perturbation_statement(runs: Callable[[pd.DataFrame], str]) -> Statement:
    """Return the claim; ``runs`` says where the rows of a table were measured."""

    def notes(tables: Tables) -> str:
        return f"{runs(tables['harm'])} {REPLAYED if 'replays' in tables else OWN}"

    text = "Scaling and clipping of pre-activations are harmless, small offsets are not."
    criteria = tuple(criterion for network in OFFSETS for criterion in _criteria(network))
    return Statement("C17", text, f"{SOURCE}, Oursland 2025", criteria, "network", notes, _evidence)


REPLAYED = (
    "These networks start from the random numbers of the published runs, and levels are those of the author's program: "
    "shares of the range of the activation, and an offset leaves the largest activation where it was."
)
OWN = (
    "No replayed network is at hand: these start from random numbers of our own. Levels are those of the author's "
    "program. Its networks have a bias in both layers; without one in the second, scaling cannot change which output "
    "is largest."
)


def _evidence(tables: Tables) -> tuple[Evidence, ...]:
    return tuple(_levels(tables) if "replays" in tables else _ranges(tables))


def _levels(tables: Tables) -> Iterator[Evidence]:
    """Yield the accuracy of the replayed networks at the levels of the criteria, beside the printed one."""
    theirs = printed("perturbation_level").set_index(["network", "kind", "level"])["mean"]
    for network, part in tables["harm"].groupby("network", sort=False):
        offsets = sorted({*HARMFUL, *(level for pair in OFFSETS[str(network)] for level in pair)})
        for kind, level in (*((kind, level) for kind, level, _ in HARMLESS), *(("offset", level) for level in offsets)):
            label = f"{title(str(network))}: training accuracy, %, {kind} {per_cent(level)}"
            known = theirs.get((network, kind, level))
            ours = mean_text(select(part, kind=kind, level=level)["accuracy"])
            yield Evidence(label, ours, known and f"{known:.2f}", SOURCE if known else "")


def _ranges(tables: Tables) -> Iterator[Evidence]:
    """Yield the levels between which accuracy holds, beside the printed ones."""
    theirs = printed("perturbation").set_index(["network", "kind"])
    for (network, kind), part in tables["ranges"].groupby(["network", "kind"], sort=False):
        known = (network, kind) in theirs.index
        there = _ends(float(theirs.loc[(network, kind), end]) for end in ("low", "high")) if known else None
        label = f"{title(str(network))}: {kind} within which accuracy holds, medians"
        ours = _ends(float(part[end].median()) for end in ("low", "high"))
        yield Evidence(label, ours, there, SOURCE if known else "")


def _ends(ends: Iterable[float]) -> str:
    return " to ".join("any" if math.isinf(v) or math.isnan(v) else per_cent(float(f"{v:.3g}")) for v in ends)
