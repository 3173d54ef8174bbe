"""The claims C12 to C17 as criteria on the tables, and the numbers beside what the sources print.

Runs are paired by seed: networks of one seed start from the same first layer. Accuracies are per cent of test
images; the table ``judged`` has, for each claim, the runs of the setting nearest to the paper's protocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import pandas as pd

from metriscope.report import Evidence, mean_text
from metriscope.studies.evidence import Above, Below, Region, Within
from metriscope.studies.judging import Criterion, Statement, Values
from metriscope.studies.representation.accuracy.measure import printed
from metriscope.studies.representation.plan import BASE, DISTANCES, Comparing, title

__all__ = ["STATEMENTS"]

Tables = Mapping[str, pd.DataFrame]

# Why a margin is what it is.
POINT = "The columns that the paper prints for one network differ by up to about a point."
TENFOLD = "Ten times what counts as the same."
TENTH = "One of ten outputs."
THREEFOLD = (
    "The paper prints deviations that differ by more than tenfold and calls this high variance; three is far less."
)
THIRD = "About two standard deviations of a network's accuracy over seeds (0.17 points in the paper)."
AHEAD = "Best means above; by how much the paper does not say."
FACTOR = "More stable means a smaller deviation over runs; by how much the paper does not say."
LEVELS = "The perturbation paper's levels and its own point of accuracy within which it calls a network unharmed."
HARM = "More than the point of accuracy within which a network counts as unharmed, at an offset of 5 % of the range."

BASELINES = ("relu", "abs")
# Levels at which scaling and clipping are said to do no harm, and offsets that are small.
HARMLESS = (("scale", 0.1, "scaled to 10 %"), ("scale", 2.0, "scaled to 200 %"), ("clip", 0.5, "clipped at 50 %"))
HARMFUL = (("offset", -0.05, "moved by −5 %"), ("offset", 0.05, "moved by +5 %"))


def _accuracy(claim: str, network: str) -> Values:
    return Values.of("judged", "test_accuracy", claim=claim, network=network)


def _difference(claim: str, a: str, b: str, region: Region, why: str, fewest: int = 3, level: str = "") -> Criterion:
    """Return the criterion that one network's accuracy less another's, seed by seed, lies in a region."""
    text = f"{title(a)} − {title(b)}, points"
    return Criterion(
        text, _accuracy(claim, a), region, why, minus=_accuracy(claim, b), paired=True, fewest=fewest, level=level
    )


def _spread(claim: str, a: str, b: str, region: Region, why: str, fewest: int) -> Criterion:
    """Return the criterion on the ratio of two networks' standard deviations over seeds."""
    text = f"log of the ratio of deviations, {title(a)} over {title(b)}"
    return Criterion(text, _accuracy(claim, a), region, why, test="spread", minus=_accuracy(claim, b), fewest=fewest)


def _collapse() -> tuple[Criterion, ...]:
    never = Values.of("judged", "never", claim="C12", network="relu2")
    return (
        _difference("C12", "relu", "relu2", Above(10.0), TENFOLD),
        Criterion(
            "share of ReLU2's outputs that no training image makes active", never, Above(0.1), TENTH, test="bootstrap"
        ),
    )


def _fold() -> tuple[Criterion, ...]:
    return (
        _difference("C14", "abs2", "abs", Within(1.0), POINT),
        _difference("C14", "abs2-neg", "abs2", Below(-1.0), POINT),
        # The jackknife leaves one run out and needs a deviation of the rest.
        _spread("C14", "abs2-neg", "abs2", Above(math.log(3)), THREEFOLD, fewest=5),
    )


def _distance() -> tuple[Criterion, ...]:
    ahead = [_difference("C16", a, b, Above(0.0), AHEAD) for a in DISTANCES for b in BASELINES]
    steady = [_spread("C16", name, name.split("-")[0], Below(0.0), FACTOR, fewest=10) for name in DISTANCES]
    pairs = [(f"{name}-neg", name) for name in DISTANCES if not name.endswith("-neg")]
    closed = [_difference("C16", a, b, Within(0.3), THIRD, fewest=10) for a, b in pairs]
    return (*closed, *ahead, *steady)


def _harm() -> tuple[Criterion, ...]:
    found = []
    for network in Comparing().perturbed:
        for kinds, region, why in ((HARMLESS, Within(1.0), LEVELS), (HARMFUL, Below(-1.0), HARM)):
            for kind, level, words in kinds:
                values = Values.of("perturbed", "change", network=network, kind=kind, level=level)
                text = f"points of training accuracy, pre-activations {words}"
                found.append(Criterion(text, values, region, why, level=title(network)))
    return tuple(found)


def _judged(tables: Tables, claim: str) -> pd.DataFrame:
    table = tables["judged"]
    return table[table["claim"] == claim]


def _notes(claim: str) -> Callable[[Tables], str]:
    """Return the function that says where a claim was judged, and how many runs of each network there were."""

    def notes(tables: Tables) -> str:
        parts = []
        for setting, part in _judged(tables, claim).groupby("setting", sort=False):
            counts = part.groupby("network", sort=False).size()
            parts.append(f"{setting} ({', '.join(f'{title(str(n))}: {count}' for n, count in counts.items())})")
        return f"Runs: {'; '.join(parts)}." if parts else ""

    return notes


def _beside(claim: str) -> Callable[[Tables], tuple[Evidence, ...]]:
    """Return the function that puts each network's accuracy beside every printed one."""

    def evidence(tables: Tables) -> tuple[Evidence, ...]:
        rows = []
        for network, part in _judged(tables, claim).groupby("network", sort=False):
            theirs = printed("test_accuracy", network=str(network))
            pairs = zip(theirs["mean"], theirs["sd"], strict=True) if len(theirs) else ()
            spots = dict.fromkeys(f"{mean:.2f} ± {sd:.2f}" for mean, sd in pairs)
            label = f"{title(str(network))}: test accuracy, %, mean of {len(part)}"
            source = "S2" if spots else ""
            rows.append(Evidence(label, mean_text(part["test_accuracy"]), ", ".join(spots) or None, source))
        return tuple(rows)

    return evidence


def _collapse_evidence(tables: Tables) -> tuple[Evidence, ...]:
    judged, dead = _judged(tables, "C12"), tables["dead"]
    dead = dead[dead["setting"].isin(set(judged["setting"])) & (dead["network"] == "relu2")]
    dead = dead[(dead["layer"] == "output") & (dead["part"] == "train")]
    last = dead[dead["epoch"] == dead["epoch"].max()]
    theirs = printed("dead_output_units", network="relu2")
    words = {"never": "none", "under_1": "under 1 %", "under_5": "under 5 %"}
    rows = []
    for key, text in words.items():
        known = ", ".join(f"{mean:g}" for mean in theirs[theirs["threshold"] == key]["mean"])
        label = f"ReLU2 outputs, % active for {text} of training images"
        rows += [Evidence(label, mean_text(last[key]), known or None, "S2, notes")] if len(last) else []
    return (*_beside("C12")(tables), *rows)


def _distance_notes(tables: Tables) -> str:
    """Say how far prototypes have moved, which is another question than whether the networks do well."""
    found, places = _notes("C16")(tables), tables["places"]
    judged = set(_judged(tables, "C16")["setting"])
    own = places[places["setting"].isin(judged)] if len(places) else places
    if own.empty:
        return found
    own = own[own["output"] == own["class"]]
    return (
        f"{found} After training ‖μ‖ is {own['norm of mu'].mean():.2f} on average, where a fresh one has about "
        f"{own['fresh norm'].mean():.2f}, and class means lie {own['distance'].mean():.4g} away."
    )


def _harm_notes(tables: Tables) -> str:
    rows = tables["perturbed"]
    parts = []
    for setting, part in rows.groupby("setting", sort=False):
        counts = part.groupby("network", sort=False)["seed"].nunique()
        parts.append(f"{setting} ({', '.join(f'{title(str(n))}: {count}' for n, count in counts.items())})")
    return (
        f"Runs: {'; '.join(parts)}. Without a bias in the second layer scaling cannot change which output is largest, "
        "so that part is algebra there and evidence only with a bias."
    )


def _ends(tables: Tables) -> tuple[Evidence, ...]:
    """Return the levels between which accuracy holds, beside the printed ones."""
    theirs = printed("perturbation").set_index(["network", "kind"])
    rows = []
    for (network, kind), part in tables["ranges"].groupby(["network", "kind"], sort=False):
        known = (network, kind) in theirs.index
        there = _levels(float(theirs.loc[(network, kind), end]) for end in ("low", "high")) if known else None
        label = f"{title(str(network))}: {kind} within which accuracy holds, medians"
        ours = _levels(float(part[end].median()) for end in ("low", "high"))
        rows.append(Evidence(label, ours, there, "P" if known else ""))
    return tuple(rows)


def _levels(ends: Iterable[float]) -> str:
    texts = ["any" if math.isinf(v) or math.isnan(v) else f"{100 * v:.3g} %".replace("-", "−") for v in ends]
    return " to ".join(texts)


STATEMENTS = (
    Statement(
        "C12",
        "ReLU2 collapses, and its output units die.",
        "S2",
        _collapse(),
        notes=_notes("C12"),
        evidence=_collapse_evidence,
    ),
    Statement(
        "C13",
        "ReLU2-Neg recovers to the baseline.",
        "S2",
        (_difference("C13", "relu2-neg", "relu", Within(1.0), POINT),),
        notes=_notes("C13"),
        evidence=_beside("C13"),
    ),
    Statement(
        "C14",
        "Abs2 keeps the baseline; Abs2-Neg drops, with high variance.",
        "S2",
        _fold(),
        notes=_notes("C14"),
        evidence=_beside("C14"),
    ),
    Statement(
        "C15",
        "A bias in the second layer changes little.",
        "S2",
        tuple(_difference("C15", f"{n}-bias", n, Within(0.3), THIRD, 10, title(n)) for n in BASE),
        factor="network",
        notes=_notes("C15"),
        evidence=_beside("C15"),
    ),
    Statement(
        "C16",
        "OffsetL2 networks are best and most stable, and the gap between normal and Neg closes.",
        "S2",
        _distance(),
        notes=_distance_notes,
        evidence=_beside("C16"),
    ),
    Statement(
        "C17",
        "Scaling and clipping of pre-activations are harmless, small offsets are not.",
        "P, S2",
        _harm(),
        factor="network",
        notes=_harm_notes,
        evidence=_ends,
    ),
)
