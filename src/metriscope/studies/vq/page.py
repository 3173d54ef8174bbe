"""The VQ study's part of the report: an introduction, every experiment in turn, the verdicts, every number."""

from __future__ import annotations

from metriscope.report import Claim, Details, Ledger, Prose, Section, Table
from metriscope.studies.published import source_of
from metriscope.studies.vq.beyond import page as beyond
from metriscope.studies.vq.digits import page as digits
from metriscope.studies.vq.explorer import page as explorer
from metriscope.studies.vq.lemmas import page as lemmas
from metriscope.studies.vq.measure import Results
from metriscope.studies.vq.moons import page as moons
from metriscope.studies.vq.networks.plan import STUDY
from metriscope.studies.vq.plan import TITLE, Plan
from metriscope.studies.vq.spheres import page as spheres

__all__ = ["sections"]


def sections(plan: Plan, results: Results, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
    """Return the study's sections in reading order."""
    return (
        Section(TITLE, (Prose(_introduction(plan)),)),
        *moons.sections(results.moons),
        *spheres.sections(results.spheres),
        *digits.sections(results.digits),
        *lemmas.sections(results.lemmas),
        *beyond.sections(results.beyond),
        *explorer.sections(results.explorer),
        Section("Verdicts C21 to C25", (Ledger(claims),)),
        _numbers(results),
    )


def _introduction(plan: Plan) -> str:
    return (
        "A network of ReLU units cuts its input space by hyperplanes, bent from layer to layer. The VQ distance of two "
        "points counts the units that have them on different sides, and S4 reads geometry off the kernel of these "
        "distances: it is said to turn with the data, to find moons in 100 dimensions, and to be shared by networks "
        "of different depth once they are trained. Each statement is given a number here, a null to hold it against, "
        f"and intervals over seeds. Published numbers: {source_of(STUDY)}.\n\n**Choices and differences.** "
        f"{' '.join(plan.deviations())}"
    )


def _numbers(results: Results) -> Section:
    tables = (
        Table("vq-all-turning", "Figure 1: every comparison", results.moons.rows),
        Table("vq-all-separation", "Figure 2: every separation", results.spheres.rows),
        Table("vq-all-alignment", "Figure 3: every alignment", results.digits.aligned),
        Table("vq-all-lemmas", "Lemmas: every random network", results.lemmas.networks),
        Table("vq-all-depths", "Depth against width: every seed", results.beyond.depths),
    )
    return Section("Every number of the VQ study", (Details("One row per seed, or per random network", tables),))
