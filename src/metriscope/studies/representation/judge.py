"""The claims C12 to C17, C26 and C27 as criteria on the tables, and the numbers beside those that the sources print.

Networks are compared as two groups of runs, by Welch's test: replayed starts of different networks share nothing, and
where our own starts share their first layer, ignoring this makes no error more likely. Runs by the paper's
protocol are tested at 5, 10 and 20 runs of each network. Accuracies are per cent of test images; the table ``judged``
has, for each claim, the runs of the setting nearest to the paper's protocol that has enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from metriscope.report import Evidence, mean_text
from metriscope.studies.evidence import Above, Below, Region, Within
from metriscope.studies.representation.accuracy import last_epochs, printed
from metriscope.studies.representation.centers import STATEMENT as CENTERS
from metriscope.studies.representation.collapse_page import STATEMENT as COLLAPSE
from metriscope.studies.representation.experiments import LOOKS
from metriscope.studies.representation.perturbations_page import perturbation_statement
from metriscope.studies.representation.plan import BASE, DISTANCES, title
from metriscope.studies.representation.units import INACTIVE
from metriscope.studies.tidy_tables import matching
from metriscope.studies.verdicts import Criterion, Look, Statement, Values

__all__ = ["STATEMENTS"]

Tables = Mapping[str, pd.DataFrame]

SOURCE = "Oursland 2025"
# Reasons for the margins.
POINT = "The columns that the paper prints for one network differ by up to about a point."
TENFOLD = "Ten times what counts as the same."
TENTH = "One of ten outputs."
THREEFOLD = "The paper prints deviations more than tenfold apart and calls this high variance; threefold is far less."
THIRD = "About two standard deviations of a network's accuracy over seeds (0.17 points in the paper)."
AHEAD = "Best means above; the paper does not say by how much."
FACTOR = "More stable means a smaller deviation over runs; the paper does not say by how much."

BASELINES = ("relu", "abs")


def _difference(claim: str, a: str, b: str, region: Region, why: str, test: str = "mean", **more: Any) -> Criterion:
    """Return the criterion that one network's mean accuracy minus another's lies in a region.

    With the test "spread", the criterion is on the ratio of the two standard deviations over seeds.
    """
    ratio = f"log of the ratio of deviations, {title(a)} over {title(b)}"
    text = ratio if test == "spread" else f"{title(a)} − {title(b)}, points"
    one, other = (Values.of("judged", "test_accuracy", claim=claim, network=network) for network in (a, b))
    return Criterion(text, one, region, why, test=test, minus=other, **more)


def _collapse() -> tuple[Criterion, ...]:
    text = "share of ReLU2's outputs that no training image makes active"
    never = Values.of("judged", "never", claim="C12", network="relu2")
    silent = Criterion(text, never, Above(0.1), TENTH, test="bootstrap")
    return _difference("C12", "relu", "relu2", Above(10.0), TENFOLD), silent


def _bias() -> tuple[Criterion, ...]:
    return tuple(_difference("C15", f"{n}-bias", n, Within(0.3), THIRD, fewest=10, level=title(n)) for n in BASE)


def _fold() -> tuple[Criterion, ...]:
    return (
        _difference("C14", "abs2", "abs", Within(1.0), POINT),
        _difference("C14", "abs2-neg", "abs2", Below(-1.0), POINT),
        # The jackknife leaves one run out and needs a deviation of the rest.
        _difference("C14", "abs2-neg", "abs2", Above(math.log(3)), THREEFOLD, "spread", fewest=5),
    )


def _distance() -> tuple[Criterion, ...]:
    ahead = [_difference("C16", a, b, Above(0.0), AHEAD) for a in DISTANCES for b in BASELINES]
    own = ((name, name.split("-")[0]) for name in DISTANCES)
    steady = [_difference("C16", a, b, Below(0.0), FACTOR, "spread", fewest=10) for a, b in own]
    pairs = ((f"{name}-neg", name) for name in DISTANCES if not name.endswith("-neg"))
    closed = [_difference("C16", a, b, Within(0.3), THIRD, fewest=10) for a, b in pairs]
    return (*closed, *ahead, *steady)


def _runs(rows: pd.DataFrame) -> str:
    """Return a sentence on the setting in which a claim was judged, and on the number of runs of each network."""
    parts = []
    for setting, part in rows.groupby("setting", sort=False):
        counts = part.groupby("network", sort=False)["seed"].nunique()
        parts.append(f"{setting} ({', '.join(f'{title(str(n))}: {count}' for n, count in counts.items())})")
    return f"Runs: {'; '.join(parts)}." if parts else ""


def _beside(claim: str) -> Callable[[Tables], tuple[Evidence, ...]]:
    """Return a function that returns each network's accuracy beside every printed one."""

    def evidence(tables: Tables) -> tuple[Evidence, ...]:
        rows = []
        for network, part in matching(tables["judged"], claim=claim).groupby("network", sort=False):
            theirs = printed("test_accuracy", network=str(network))
            pairs = zip(theirs["mean"], theirs["sd"], strict=True) if len(theirs) else ()
            spots = dict.fromkeys(f"{mean:.2f} ± {sd:.2f}" for mean, sd in pairs)
            label = f"{title(str(network))}: test accuracy, %, mean of {len(part)}"
            ours = mean_text(part["test_accuracy"])
            rows.append(Evidence(label, ours, ", ".join(spots) or None, SOURCE if spots else ""))
        return tuple(rows)

    return evidence


def _collapse_evidence(tables: Tables) -> tuple[Evidence, ...]:
    judged = set(matching(tables["judged"], claim="C12")["setting"])
    dead = pd.concat([tables[name] for name in ("recorded dead", "dead") if name in tables])
    dead = matching(dead, network="relu2", layer="output", part="train")
    last = last_epochs(dead[dead["setting"].isin(judged)])
    theirs = printed("dead_output_units", network="relu2")
    rows = []
    for key, text in (INACTIVE | {"never": "none"}).items() if len(last) else ():
        known = ", ".join(f"{mean:g}" for mean in matching(theirs, threshold=key)["mean"])
        label = f"ReLU2 outputs, % active for {text} of training images"
        rows.append(Evidence(label, mean_text(last[key]), known or None, f"{SOURCE} and its author's notes"))
    return (*_beside("C12")(tables), *rows)


def _distance_notes(tables: Tables) -> str:
    """Return sentences on how far prototypes have moved, a different question from how accurate networks are."""
    judged, places = matching(tables["judged"], claim="C16"), tables["places"]
    own = places[places["setting"].isin(set(judged["setting"]))]
    if own.empty:
        return _runs(judged)
    own = own[own["output"] == own["class"]]
    return (
        f"{_runs(judged)} After training ‖μ‖ is {own['norm of mu'].mean():.2f} on average, at the start it is about "
        f"{own['fresh norm'].mean():.2f}, and class means lie {own['distance'].mean():.4g} away."
    )


def _statement(claim: str, text: str, criteria: tuple[Criterion, ...], **more: Any) -> Statement:
    """Return a claim of the paper on accuracies, with its runs as a note and the printed accuracies as evidence."""
    usual: dict[str, Any] = {"source": SOURCE, "looks": tuple(Look(*row) for row in LOOKS)}
    usual |= {"notes": lambda tables: _runs(matching(tables["judged"], claim=claim))}
    return Statement(claim, text, criteria=criteria, **{**usual, "evidence": _beside(claim), **more})


STATEMENTS = (
    _statement("C12", "ReLU2 collapses, and its output units die.", _collapse(), evidence=_collapse_evidence),
    _statement("C13", "ReLU2-Neg recovers to the baseline.",
               (_difference("C13", "relu2-neg", "relu", Within(1.0), POINT),)),
    _statement("C14", "Abs2 keeps the baseline; Abs2-Neg drops, with high variance.", _fold()),
    _statement("C15", "A bias in the second layer changes little.", _bias(), factor="network"),
    _statement("C16", "OffsetL2 networks are best and most stable, and the gap between normal and Neg closes.",
               _distance(), notes=_distance_notes),
    perturbation_statement(_runs),
    COLLAPSE,
    CENTERS,
)  # fmt: skip
