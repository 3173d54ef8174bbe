"""Distance against intensity: the networks of S2 on MNIST, trained by the paper's protocol, and what lies inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metriscope.studies.representation.spec import OPTIONS, Plan, plan

if TYPE_CHECKING:
    from metriscope.report import Section
    from metriscope.runs import Store
    from metriscope.studies.contract import Announce

__all__ = ["OPTIONS", "plan", "reproduce"]


def reproduce(plan: Plan, store: Store, announce: Announce) -> tuple[Section, ...]:
    """Run or resume a plan and return its sections of the report."""
    from metriscope.studies.representation.collect import collect
    from metriscope.studies.representation.page import sections

    return sections(collect(plan, store, announce))
