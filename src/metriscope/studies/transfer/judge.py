"""The claims C18 to C20 as criteria, fixed before the numbers are seen.

The unit is the start where networks are compared on one data set: networks of one start begin with the same first
layer. It is the data set where heads are compared.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from metriscope.report import Evidence, mean_text
from metriscope.studies.evidence import Above, Below, Within
from metriscope.studies.transfer.plan import ACTIVATIONS, IMAGES, REFERENCE, SHALLOW
from metriscope.studies.verdicts import Criterion, Statement, Values

if TYPE_CHECKING:
    from metriscope.studies.verdicts import Tables

__all__ = ["STATEMENTS"]

SOURCE = "Oursland 2025, future work, arXiv:2502.02103"
COLLAPSE, RECOVERY, SAME, DROP = 10.0, 5.0, 1.0, 1.0
LOST = "A class that is never predicted costs ten points."
HALF = "Half of the least collapse."
POINT = "The margin by which the paper calls networks comparable."
TABLES = ("adult", "covertype", "letter", "spambase")

_on_starts = partial(Criterion, units="starts", paired=True)


def _gap(text: str, one: str, two: str, data: str) -> partial[Criterion]:
    pair = [Values.of("constrained", "test_accuracy", network=name, data=data, body=SHALLOW) for name in (one, two)]
    return partial(_on_starts, f"points of test accuracy, {text}", pair[0], minus=pair[1])


def _pattern(data: str) -> tuple[Criterion, ...]:
    """Return what the paper found on MNIST, as criteria on another data set."""
    return (
        _gap("ReLU less ReLU2", "relu", "relu2", data)(region=Above(COLLAPSE), why=LOST, level=data),
        _gap("ReLU2-Neg less ReLU2", "relu2-neg", "relu2", data)(region=Above(RECOVERY), why=HALF, level=data),
        _gap("Abs2 less Abs", "abs2", "abs", data)(region=Within(SAME), why=POINT, level=data),
        _gap("Abs2-Neg less Abs2", "abs2-neg", "abs2", data)(region=Below(-DROP), why=POINT, level=data),
    )


def _smooth(name: str, title: str) -> tuple[Criterion, ...]:
    return (
        _gap(f"{title} less {title}2", name, f"{name}2", REFERENCE)(region=Above(COLLAPSE), why=LOST, level=title),
        _gap(f"{title}2-Neg less {title}2", f"{name}2-neg", f"{name}2", REFERENCE)(
            region=Above(RECOVERY), why=HALF, level=title
        ),
    )


def _heads(contest: str, one: str, two: str, data: str, level: str) -> Criterion:
    """Return the criterion that OffsetL2 is at least as good as a linear head on one data set, paired by start."""
    pair = [Values.of("contests", "accuracy", contest=contest, entry=name, data=data) for name in (one, two)]
    text = f"{data}: points of test accuracy, OffsetL2 minus Linear"
    return _on_starts(text, pair[0], Above(-SAME), POINT, unit="start", minus=pair[1], level=level)


def _evidence(tables: Tables) -> tuple[Evidence, ...]:
    table = tables["constrained"]
    return tuple(
        Evidence(f"{network} on {data}: test accuracy, %, mean of {len(part)}", mean_text(part["test_accuracy"]))
        for (network, data), part in table[table["body"] == SHALLOW].groupby(["network", "data"], sort=False)
    )


STATEMENTS = (
    Statement(
        "C18",
        "The pattern holds on Fashion-MNIST and CIFAR-10.",
        SOURCE,
        tuple(criterion for data in IMAGES for criterion in _pattern(data)),
        factor="data",
        evidence=_evidence,
    ),
    Statement(
        "C19",
        "GELU and SiLU behave under the constraints as ReLU does.",
        SOURCE,
        tuple(
            criterion for name, title in {"relu": "ReLU", **ACTIVATIONS}.items() for criterion in _smooth(name, title)
        ),
        factor="activation",
        evidence=_evidence,
    ),
    Statement(
        "C20",
        "OffsetL2 generalizes to tables and sequences.",
        SOURCE,
        (
            *(_heads("heads", "offset-l2", "linear", data, "tables") for data in TABLES),
            *(
                _heads("sequences", f"offset-l2, {encoder}", f"linear, {encoder}", data, f"{encoder} encoder")
                for encoder in ("convolution", "recurrent")
                for data in ("ecg5000", "fsdd")
            ),
        ),
        factor="data",
    ),
)
