"""The claims as criteria on the tables ``offsets`` and ``contests``, fixed before the numbers are seen.

In ``contests`` the unit is the data set: the mean over starts of one classifier minus that of another. In ``offsets``
the unit is the start: networks of one start begin with the same first layer, and their values are averaged. Distances
are compared in the networks whose smallest distance wins, which are those of the paper's table 4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from metriscope.report import Evidence, mean_text, number
from metriscope.studies.evidence import Above, Within
from metriscope.studies.heads.measure import means, standing
from metriscope.studies.heads.plan import CONTESTS, HEADINGS
from metriscope.studies.tidy_tables import matching
from metriscope.studies.verdicts import Criterion, Statement, Values, finding

if TYPE_CHECKING:
    from metriscope.studies.verdicts import Tables

__all__ = ["STATEMENTS"]

SOURCE = "Oursland 2025, §6.4, table 4, arXiv:2502.02103"
FIRST = "Oursland 2024a, arXiv:2410.19352"
# Within this many points two accuracies count as the same.
SAME = 0.3
HALF, AHEAD = 0.5, 0.1
NEARER = "Closer to the mean than to where it began."
POINTS = "About two standard deviations of a network's accuracy over seeds (0.17 points in the paper)."
ORDER = "Halfway between an order that has nothing to do with the other, 0, and the same order, 1."
TENTH = "A tenth of the way from no relation to the same order: a smaller gain adds little to the simpler distance."
SIGNS = {True: "Neg networks", False: "networks without Neg"}
TARGETS = {True: "mean of its class", False: "mean of the other classes"}
# The variants with trained centers, and the same with alpha frozen, by the learning rate of the centers.
RATES = {"μ at the paper's rate": ("trained", "flat"), "μ at 100,000 times that rate": ("fast", "fast flat")}

_values = partial(Values.of, "offsets")
_on_starts = partial(Criterion, units="starts", paired=True)

# Heads that measure distances to trained prototypes; and within how many points they match a linear head.
DISTANCE_HEADS = ("offset-l2", "rbf", "mahalanobis")
MATCH, GAIN = 1.0, 0.2
MATCHING = "A tenth of a typical error rate of these classifiers, 10 %: a user who changes heads would not notice less."
WORTH = "A gain that costs a further term in the loss, or another activation, must exceed the noise of tuning."


def _contest(contest: str, entry: str, other: str) -> Callable[..., Criterion]:
    """Return a criterion on the difference in accuracy of two classifiers, paired by data set."""
    one, two = (
        Values.of("contests", "accuracy", contest=contest, per_class=0, counted=True, entry=name)
        for name in (entry, other)
    )
    text = f"points of test accuracy, {entry} less {other}"
    return partial(Criterion, text, one, minus=two, paired=True, unit="data", units="data sets", fewest=5)


def _learned(level: str, trained: str, flat: str) -> tuple[Criterion, ...]:
    """Return what must hold at one learning rate of the centers."""
    found = []
    for negated, name in SIGNS.items():
        own = partial(_values, variant=trained, negated=negated)
        frozen = _values("test_accuracy", variant="frozen", negated=negated)
        way = f"{name}, share of the way from the start of μ to the {TARGETS[negated]}"
        found += [
            _on_starts(way, own("covered"), Above(HALF), NEARER, level=level),
            _on_starts(f"{name}, points of test accuracy above those with μ frozen at its start", own("test_accuracy"),
                       Above(SAME), POINTS, minus=frozen, level=level),
        ]  # fmt: skip
    own, equal = (partial(_values, variant=variant, negated=True) for variant in (trained, flat))
    found += [
        _on_starts("points of test accuracy above those with α frozen at 1", own("test_accuracy"), Above(SAME), POINTS,
                   minus=equal("test_accuracy"), level=level),
        _on_starts("rank correlation of |α| with 1 / sd of its class along the hidden units", own("alpha rank"),
                   Above(HALF), ORDER, level=level),
        _on_starts("rank correlation of outputs with the Mahalanobis distance of their class", own("own"), Above(HALF),
                   ORDER, level=level),
        _on_starts("the same minus that with the Euclidean distance to the class mean", own("own"), Above(AHEAD), TENTH,
                   minus=own("euclid"), level=level),
        _on_starts("the same minus that with the Mahalanobis distances of the other classes", own("own"), Above(AHEAD),
                   TENTH, minus=own("other"), level=level),
    ]  # fmt: skip
    return tuple(found)


def _notes(tables: Tables) -> str:
    """Say whether training the centers changes nothing, and how far they are from their targets."""
    parts = []
    for negated, name in SIGNS.items():
        pair = (_values("test_accuracy", variant=v, negated=negated) for v in ("trained", "frozen"))
        same = finding(_on_starts("", next(pair), Within(SAME), POINTS, minus=next(pair)), tables)
        if not same.open_reason:
            word = {"holds": "is equivalent to", "fails": "is not equivalent to", "open": "may or may not equal"}
            parts.append(f"{name}: training μ at the paper's rate {word[same.state]} freezing it (±{SAME} points)")
    rows = matching(tables["offsets"], variant="trained")
    means = {name: number(float(rows[name].mean())) for name in ("norm before", "norm", "away", "alpha largest")}
    parts.append(
        f"‖μ‖ begins at {means['norm before']} and ends at {means['norm']}, {means['away']} from its target. A step "
        f"moves μ by at most the learning rate times its largest |α|, here {means['alpha largest']}: in the paper's "
        "50,000 epochs by at most 50 times that"
    )
    return f"{'; '.join(parts)}."


def _evidence(tables: Tables) -> tuple[Evidence, ...]:
    table = tables["offsets"]
    return tuple(
        Evidence(f"{network}, {variant}: test accuracy, %, mean of {len(part)}", mean_text(part["test_accuracy"]))
        for (network, variant), part in table.groupby(["network", "variant"], sort=False)
    )


def _contest_notes(contest: str) -> Callable[[Tables], str]:
    """Return a function that returns the average ranks of a contest's entries over data sets, as sentences."""

    def notes(tables: Tables) -> str:
        found = standing(tables["contests"], contest, "accuracy")
        if found is None:
            return ""
        ranking, names = found
        order = [f"{names[i]} {ranking.ranks[i]:.1f}" for i in ranking.ranks.argsort()]
        return (
            f"Average ranks by accuracy over data sets: {', '.join(order)} (differences above "
            f"{ranking.critical_difference:.1f} are significant by Nemenyi's test; Friedman's p = "
            f"{number(ranking.p_value, 2)})."
        )

    return notes


def _contest_evidence(contest: str) -> Callable[[Tables], tuple[Evidence, ...]]:
    """Return a function that gives each entry's mean accuracy over data sets."""

    def evidence(tables: Tables) -> tuple[Evidence, ...]:
        if not len(tables["contests"]):
            return ()
        wide = means(tables["contests"], contest, "accuracy")
        return tuple(
            Evidence(
                f"{name}: test accuracy, %, mean of {wide[name].count()} data sets", mean_text(wide[name].dropna())
            )
            for name in wide
        )

    return evidence


STATEMENTS = (
    Statement(
        "C09",
        "A distance output layer matches softmax on clustered data.",
        FIRST,
        tuple(
            _contest("heads", name, "linear")(region=Above(-MATCH), why=MATCHING, level=HEADINGS[name])
            for name in DISTANCE_HEADS
        ),
        factor="head",
        notes=_contest_notes("heads"),
        evidence=_contest_evidence("heads"),
    ),
    Statement(
        "C10",
        "Encouraging orthogonal or whitening weights helps generalization (open question 2).",
        FIRST,
        tuple(
            _contest("penalties", entry.name, "none")(region=Above(GAIN), why=WORTH, level=entry.name)
            for entry in CONTESTS["penalties"].entries
            if entry.penalty
        ),
        factor="penalty",
        notes=_contest_notes("penalties"),
        evidence=_contest_evidence("penalties"),
    ),
    Statement(
        "C11",
        "Abs and ReLU are interchangeable, and hybrids help (open question 3).",
        FIRST,
        (
            _contest("mixtures", "100% Abs", "0% Abs")(region=Within(MATCH), why=MATCHING, level="interchangeable"),
            _contest("mixtures", "50% Abs", "0% Abs")(region=Above(GAIN), why=WORTH, level="hybrids help"),
            _contest("mixtures", "50% Abs", "100% Abs")(region=Above(GAIN), why=WORTH, level="hybrids help"),
        ),
        factor="part of the claim",
        notes=_contest_notes("mixtures"),
        evidence=_contest_evidence("mixtures"),
    ),
    Statement(
        "C28",
        "OffsetL2 learns the ideal prototype of each class (mu) and its scaling (alpha); Linear + OffsetL2 is a "
        "PCA-based Mahalanobis distance.",
        SOURCE,
        tuple(c for level, names in RATES.items() for c in _learned(level, *names)),
        factor="learning rate of μ",
        notes=_notes,
        evidence=_evidence,
    ),
)
