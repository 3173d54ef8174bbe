"""The study's part of the report: accuracies, tests, units, prototypes, contradictions, verdicts, and every number."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Claim, Details, Ledger, Prose, Section, Table
from metriscope.studies.published import source_of
from metriscope.studies.representation.accuracy import page as accuracy
from metriscope.studies.representation.accuracy.measure import last_epochs
from metriscope.studies.representation.centers import page as centers
from metriscope.studies.representation.collapse import page as collapse
from metriscope.studies.representation.measure import RepresentationResults
from metriscope.studies.representation.perturbations import page as perturbations
from metriscope.studies.representation.plan import NAME, TITLE, RepresentationPlan
from metriscope.studies.representation.prototypes import page as prototypes
from metriscope.studies.representation.starts import page as starts
from metriscope.studies.representation.units import page as units

__all__ = ["HIGHLIGHTS", "QUESTION", "sections"]

QUESTION = (
    "Does a classifier measure how far an input is from a class, or how strongly it shows a feature? Sixteen "
    "networks on MNIST, with outputs forced to be positive or negative, and with units that are scaled, clipped and "
    "shifted, tell the two readings apart."
)
HIGHLIGHTS = ("recorded-accuracy-0", "replayed-levels")


def sections(
    plan: RepresentationPlan | None, results: RepresentationResults, claims: tuple[Claim, ...]
) -> tuple[Section, ...]:
    """Return the study's sections in reading order; a sentence stands for each part that could not be measured."""
    replayed = perturbations.sections(results.tables)
    if not results.settings:
        opening = Prose(_introduction(results) + ("" if replayed else "\n\nNo run is finished."))
        verdicts = (Section("Verdicts", (Ledger(claims),)),) if replayed else ()
        return (Section(TITLE, (opening,)), *replayed, *verdicts)
    return (
        Section(TITLE, (Prose(_introduction(results)), *accuracy.blocks(results))),
        accuracy.tests(results),
        units.dying(results),
        collapse.section(results.tables),
        units.hyperplanes(results),
        centers.section(results.tables),
        prototypes.section(results),
        units.perturbations(results),
        *replayed,
        accuracy.contradictions(results),
        *starts.sections(results),
        Section("Verdicts C12 to C17, C26 and C27", (Ledger(claims),)),
        Section("Every number of the MNIST study", (Details("One row per run", _everything(results)),)),
    )


def _introduction(results: RepresentationResults) -> str:
    short = " ".join(results.deviations)
    more = f"\n\n**Different from the paper's protocol.** {short}" if short else ""
    return (
        "Networks of 784, 128 and 10 units learn MNIST by full-batch gradient descent under constraints on what their "
        "outputs may mean. A second activation makes the outputs non-negative, so that cross-entropy asks for "
        "intensities; a negation after it makes them distances, small for the right class. OffsetL2 directly measures "
        "the distance to one learned prototype per class. Oursland (2025) reads the differences as a preference for "
        f"distances. Published numbers: {source_of(NAME)}.{more}"
    )


def _everything(results: RepresentationResults) -> tuple[Table, ...]:
    """Return the tidy tables behind the page."""
    named = {
        "all-runs": ("Every run", _informative(results.tables["runs"])),
        "all-dead": ("Inactive units of every run at its end", last_epochs(results.tables["dead"])),
        "all-perturbed": ("Every perturbation", results.tables["perturbed"]),
        "all-alpha": ("Every output's alpha", results.tables["weighing"]),
    }
    return tuple(Table(f"representation-{name}", text, frame) for name, (text, frame) in named.items() if len(frame))


def _informative(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of runs without the columns on their start and origin that say the same of all of them."""
    return rows.drop(columns=[name for name in ("start", "origin") if rows[name].nunique() < 2])
