"""Claim C31 with its criteria, two for each data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import pandas as pd

from metriscope.report import Evidence, mean_text, number
from metriscope.studies.evidence import Above
from metriscope.studies.judging import Criterion, Statement, Values
from metriscope.studies.vq.distillation.plan import DATA, MATCHED, METHODS, WORTH

__all__ = ["STATEMENT", "gain_text"]

Tables = Mapping[str, pd.DataFrame]


def _criteria(name: str) -> Iterator[Criterion]:
    criterion = partial(Criterion, units="seeds", level=name, paired=True, fewest=5)
    values = {m: {c: Values.of("lessons", c, data=name, method=m) for c in ("test", "alignment")} for m in METHODS}
    yield criterion(
        "test accuracy of the student in percentage points, logits and VQ kernel − logits",
        values["signs"]["test"],
        Above(WORTH),
        f"{WORTH:g} points are the least gain that is worth another loss term, a teacher's hidden layers and a weight "
        "to tune.",
        minus=values["logits"]["test"],
    )
    yield criterion(
        "alignment of the student's VQ kernel with the teacher's, logits and VQ kernel − logits",
        values["signs"]["alignment"],
        Above(0.0),
        "If the kernels are not more alike, the surrogate did not match them, and the accuracies tell nothing.",
        minus=values["logits"]["alignment"],
    )


def gain_text(rows: pd.DataFrame, one: str, other: str, column: str = "test") -> str:
    """Return the paired difference of two methods as mean and interval."""
    table = rows.pivot(index="seed", columns="method", values=column)
    return mean_text(table[one] - table[other])


def _notes(tables: Tables) -> str:
    if "lessons" not in tables:
        return ""
    return " ".join(_note(str(name), rows) for name, rows in tables["lessons"].groupby("data", sort=False))


def _note(name: str, rows: pd.DataFrame) -> str:
    gain = partial(gain_text, rows)
    weights = rows.groupby("method")["weight"].first()
    tuned = ", ".join(f"{METHODS[m].title} {number(weights[m], 2)}" for m in MATCHED)
    return (
        f"{name}, in percentage points: teacher − student on labels {gain('teacher', 'labels')}, logits − labels "
        f"{gain('logits', 'labels')}, VQ kernel − kernel of activations {gain('signs', 'activations')}, labels and VQ "
        f"kernel − labels {gain('signs alone', 'labels')}; weights chosen on validation examples: {tuned}."
    )


def _evidence(tables: Tables) -> list[Evidence]:
    if "lessons" not in tables:
        return []
    titles = {"teacher": "teacher", **{name: method.title for name, method in METHODS.items()}}
    return [
        Evidence(f"{name}, {titles[str(method)]}: test accuracy, %", mean_text(rows["test"]))
        for (name, method), rows in tables["lessons"].groupby(["data", "method"], sort=False)
    ]


STATEMENT = Statement(
    "C31",
    "Matching VQ kernels distills a network into another.",
    "Roddenberry et al., future work",
    tuple(criterion for name in DATA for criterion in _criteria(name)),
    "data set",
    _notes,
    _evidence,
)
