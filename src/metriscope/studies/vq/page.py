"""The VQ study's part of the report: an introduction, every part in turn, the verdicts, every number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metriscope.report import Details, Ledger, Prose, Section, Table
from metriscope.runs import Store
from metriscope.studies.contract import Announce, source_of
from metriscope.studies.vq import beyond, digits, explorer, lemmas, moons, spheres
from metriscope.studies.vq.claims import verdicts
from metriscope.studies.vq.experiment import digit_source, train
from metriscope.studies.vq.parts import Part
from metriscope.studies.vq.spec import NAME, Plan

__all__ = ["PARTS", "collect", "sections"]

# A part more is one row more here, and its judges in `claims.JUDGES`.
PARTS: tuple[Part, ...] = (moons.PART, spheres.PART, digits.PART, lemmas.PART, beyond.PART, explorer.PART)

Results = Sequence[tuple[Part, Any]]


def collect(plan: Plan, store: Store, announce: Announce) -> Results:
    """Train everything at once, then let every part measure its own."""
    train((*plan.groups(*digit_source(plan.images)), *explorer.groups(plan)), store, announce)
    return [(part, part.collect(plan, store, announce)) for part in PARTS]


def sections(plan: Plan, results: Results) -> tuple[Section, ...]:
    """Return the study's sections in reading order."""
    shown = [section for part, result in results for section in part.sections(result)]
    ledger = Section("Verdicts C21 to C25", (Ledger(verdicts({part.name: result for part, result in results})),))
    return (Section("VQ kernels", (Prose(_introduction(plan)),)), *shown, ledger, _numbers(results))


def _introduction(plan: Plan) -> str:
    choices = " ".join(plan.deviations(*digit_source(plan.images)))
    return (
        "A network of ReLU units cuts its input space by hyperplanes, bent from layer to layer. The VQ distance of two "
        "points counts the units that have them on different sides, and S4 reads geometry off the kernel of these "
        "distances: it is said to turn with the data, to find moons in 100 dimensions, and to be shared by networks "
        "of different depth once they are trained. Each statement is given a number here, a null to hold it against, "
        f"and intervals over seeds. Published numbers: {source_of(NAME)}.\n\n**Choices and differences.** {choices}"
    )


def _numbers(results: Results) -> Section:
    frames = {
        "vq-all-turning": ("Figure 1: every comparison", "rows", "moons"),
        "vq-all-separation": ("Figure 2: every separation", "rows", "spheres"),
        "vq-all-alignment": ("Figure 3: every alignment", "aligned", "digits"),
        "vq-all-lemmas": ("Lemmas: every random network", "networks", "lemmas"),
        "vq-all-depths": ("Depth against width: every seed", "depths", "beyond"),
    }
    known = {part.name: result for part, result in results}
    tables = tuple(
        Table(name, title, getattr(known[part], field))
        for name, (title, field, part) in frames.items()
        if part in known
    )
    return Section("Every number of the VQ study", (Details("One row a seed, or a random network", tables),))
