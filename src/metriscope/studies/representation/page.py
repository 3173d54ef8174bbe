"""The study's part of the report: what was run, what came out, what lies inside, contradictions, verdicts."""

from __future__ import annotations

from metriscope.report import Claim, Details, Ledger, Prose, Section, Table
from metriscope.studies.published import source_of
from metriscope.studies.representation.accuracy import page as accuracy
from metriscope.studies.representation.contradictions import page as contradictions
from metriscope.studies.representation.hyperplanes import page as hyperplanes
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.perturbation import page as perturbation
from metriscope.studies.representation.plan import NAME, TITLE, Plan
from metriscope.studies.representation.prototypes import page as prototypes
from metriscope.studies.representation.units import page as units
from metriscope.studies.representation.units.measure import last_epochs

__all__ = ["sections"]


def sections(plan: Plan | None, results: Results, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
    """Return the study's sections in reading order; parts that could not be measured are left out with a sentence."""
    if not results.settings:
        return (Section(TITLE, (Prose(_introduction(results) + "\n\nNo run is finished."),)),)
    return (
        Section(TITLE, (Prose(_introduction(results)), *accuracy.blocks(results))),
        accuracy.tests(results),
        units.section(results),
        hyperplanes.section(results),
        prototypes.section(results),
        perturbation.section(results),
        contradictions.section(results),
        Section("Verdicts C12 to C17", (Ledger(claims),)),
        Section("Every number of the MNIST study", (Details("One row a run", _everything(results)),)),
    )


def _introduction(results: Results) -> str:
    short = " ".join(results.deviations)
    more = f"\n\n**Different from the paper's protocol.** {short}" if short else ""
    return (
        "Networks of 784, 128 and 10 units learn MNIST by full-batch gradient descent under constraints on what their "
        "outputs may mean. A second activation makes them non-negative, so that cross-entropy asks for intensities; a "
        "negation behind it makes them distances, small for the right class. OffsetL2 measures the distance to one "
        "learned prototype a class outright. S2 reads the differences as a preference for distances. Published "
        f"numbers: {source_of(NAME)}.{more}"
    )


def _everything(results: Results) -> tuple[Table, ...]:
    """Return the tidy tables behind the page."""
    named = {
        "all-runs": ("Every run", results.tables["runs"]),
        "all-dead": ("Inactive units of every run at its end", last_epochs(results.tables["dead"])),
        "all-perturbed": ("Every perturbation", results.tables["perturbed"]),
        "all-alpha": ("Every output's alpha", results.tables["weighing"]),
    }
    return tuple(Table(f"representation-{name}", text, frame) for name, (text, frame) in named.items() if len(frame))
