"""The claim C27 as criteria on the distances of hyperplanes from the centers of their classes."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from metriscope.report import Evidence, interval, mean_text, number
from metriscope.studies.evidence import Above, Below, Region
from metriscope.studies.judging import Criterion, Statement, Values
from metriscope.studies.representation.plan import title

__all__ = ["STATEMENT"]

THROUGH = "Through a class means through its bulk: within one standard deviation of its center."
CHANCE = "Half of the outputs would be nearer to either center by chance."


def _criteria(network: str, distance: bool) -> tuple[Criterion, Criterion]:
    own = "its own class's center" if distance else "the other classes' center"
    side = Above(0.5) if distance else Below(0.5)

    def of(text: str, column: str, region: Region, why: str) -> Criterion:
        return Criterion(text, Values.of("centers", column, network=network), region, why, level=title(network))

    return (
        of(f"deviations from a hyperplane to {own}", "to center" if distance else "to anticenter", Below(1.0), THROUGH),
        of("share of hyperplanes nearer to their own class's center", "nearer", side, CHANCE),
    )


def _notes(tables: Mapping[str, pd.DataFrame]) -> str:
    """Say whether decorrelated projections go with accuracy."""
    parts = [
        f"{row['projections']} projections {number(row['rank correlation'])} {interval(row['low'], row['high'])} "
        f"({row['networks']} networks; {row['setting']})"
        for _, row in tables["decorrelation"].iterrows()
    ]
    text = "Rank correlation of accuracy with the mean |correlation| between projections, over networks [95 % interval]"
    return f"{text}: {'; '.join(parts)}." if parts else ""


def _evidence(tables: Mapping[str, pd.DataFrame]) -> tuple[Evidence, ...]:
    columns = {"to center": "deviations to its own center", "to anticenter": "deviations to the others' center"}
    found = []
    for network, part in tables["centers"].groupby("network", sort=False):
        means = part.groupby("seed")[list(columns)].mean()
        for column, text in columns.items():
            label = f"{title(str(network))}: {text}, mean of {len(means)} runs"
            found.append(Evidence(label, mean_text(means[column])))
    return tuple(found)


STATEMENT = Statement(
    "C27",
    "Where distance is learned (ReLU2-Neg, Abs2-Neg) output hyperplanes pass through their own class; where intensity "
    "is learned (Abs2), through the other classes.",
    "Oursland 2025, §6.1–6.3",
    (*_criteria("relu2-neg", True), *_criteria("abs2-neg", True), *_criteria("abs2", False)),
    factor="network",
    notes=_notes,
    evidence=_evidence,
)
