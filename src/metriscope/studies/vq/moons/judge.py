"""C21: the eigenvectors of the VQ kernel turn with the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from metriscope.report import Evidence, mean_text
from metriscope.studies.evidence import Above, Within
from metriscope.studies.judging import Criterion, Statement, Values
from metriscope.studies.vq.moons.plan import COMPARISONS, MEASURES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TURNING"]

QUARTER = 0.25


def _criteria(measure: str, title: str) -> Iterator[Criterion]:
    yield Criterion(
        "turned back − not turned back",
        Values.of("turning", measure, comparison="back"),
        Above(0.0),
        "A kernel that stays where it is agrees no better when it is turned back.",
        units="seeds",
        minus=Values.of("turning", measure, comparison="still"),
        paired=True,
        level=title,
    )
    yield Criterion(
        "(turned back − another start on the same data) / worth of turning back",
        Values.of("turning gaps", "share", measure=measure),
        Within(QUARTER),
        "If only the data mattered, turned back would agree as far as two starts on the same data do; a difference of "
        "more than a quarter of what turning back is worth says that something else does.",
        units="seeds",
        level=title,
    )


def _difference(tables: Mapping[str, pd.DataFrame], measure: str, one: str, other: str) -> str:
    table = tables["turning"].pivot(index="seed", columns="comparison", values=measure)
    return mean_text(table[one] - table[other], 3) if {one, other} <= set(table) else "–"


def _notes(tables: Mapping[str, pd.DataFrame]) -> str:
    if "turning" not in tables:
        return ""
    rows = tables["turning"]
    before = {m: _difference(tables, m, "start back", "start") for m in ("alignment", "overlap")}
    untrained = rows[rows["comparison"] == "start"]["alignment"]
    return (
        f"Before training, turning back changes the alignment by {before['alignment']} and the eigenspace overlap by "
        f"{before['overlap']}; kernels of untrained networks are {mean_text(untrained, 3)} aligned."
    )


def _evidence(tables: Mapping[str, pd.DataFrame]) -> Iterator[Evidence]:
    if "turning" not in tables:
        return
    rows = tables["turning"]
    for measure, title in MEASURES.items():
        yield Evidence(f"worth of turning back, paired: {title}", _difference(tables, measure, "back", "still"))
    for name, title in COMPARISONS.items():
        values = rows[rows["comparison"] == name]["alignment"]
        yield Evidence(f"{title}: {MEASURES['alignment']}", mean_text(values, 3))


TURNING = Statement(
    "C21",
    "The eigenvectors of the VQ kernel turn with the data.",
    "S4 fig. 1",
    tuple(criterion for measure, title in MEASURES.items() for criterion in _criteria(measure, title)),
    factor="measure",
    notes=_notes,
    evidence=lambda tables: tuple(_evidence(tables)),
)
