"""VQ kernels: figures 1 to 4 of S4 with nulls, controls and intervals, the claims C21 to C25, and beyond."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metriscope.studies.vq.spec import Plan, plan

if TYPE_CHECKING:
    from metriscope.report import Section
    from metriscope.runs import Store
    from metriscope.studies.contract import Announce

__all__ = ["OPTIONS", "plan", "reproduce"]

OPTIONS = frozenset({"seeds", "seed"})


def reproduce(plan: Plan, store: Store, announce: Announce) -> tuple[Section, ...]:
    """Run or resume a plan and return its sections of the report."""
    from metriscope.studies.vq.page import collect, sections

    return sections(plan, collect(plan, store, announce))
