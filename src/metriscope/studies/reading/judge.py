"""The claim C32 as criteria, fixed before the numbers were seen.

The unit is the data set: starts, depths and layers are averaged, because a claim about units in general must hold
for any data set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metriscope.report import Evidence, mean_text
from metriscope.studies.evidence import Above
from metriscope.studies.reading.plan import ACTIVATIONS, MEASURES, READINGS
from metriscope.studies.tidy_tables import matching
from metriscope.studies.verdicts import Criterion, Statement, Values

if TYPE_CHECKING:
    from metriscope.studies.verdicts import Tables

__all__ = ["STATEMENTS"]

SOURCE = "Oursland 2024a, arXiv:2410.19352, open question 1"
TWENTIETH = "One unit in twenty; less would not change how a reader should look at units."
MARGINS = {
    "class_precision": (5.0, TWENTIETH),
    "ablation_hit": (5.0, TWENTIETH),
    "ablation_profile": (0.05, "A twentieth of the range of a correlation from none to perfect."),
}


def _better(measure: str, activation: str) -> Criterion:
    pair = [Values.of("readings", measure, reading=reading, activation=activation) for reading in ("near", "top")]
    margin, why = MARGINS[measure]
    text = f"{MEASURES[measure]}: nearest points minus most activating ones,"
    level = ACTIVATIONS[activation]
    return Criterion(text, pair[0], Above(margin), why, "data", "data sets", minus=pair[1], paired=True, level=level)


def _evidence(tables: Tables) -> tuple[Evidence, ...]:
    found = []
    for measure, word in MEASURES.items():
        for activation, title in ACTIVATIONS.items():
            for reading, how in READINGS.items():
                rows = matching(tables["readings"], activation=activation, reading=reading)
                if len(rows):
                    text = f"{word}, {title}, points {how}"
                    found.append(Evidence(text, mean_text(rows.groupby("data")[measure].mean())))
    return tuple(found)


STATEMENTS = (
    Statement(
        "C32",
        "A unit is better read by the points nearest its zero set than by those that activate it most.",
        SOURCE,
        tuple(_better(measure, activation) for activation in ACTIVATIONS for measure in MEASURES),
        factor="activation",
        evidence=_evidence,
    ),
)
