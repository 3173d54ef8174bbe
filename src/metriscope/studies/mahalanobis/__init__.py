"""Learning the Mahalanobis distance: the whole experiment of S1, the claims C01 to C08, and what they hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metriscope.studies.mahalanobis.spec import Plan, plan

if TYPE_CHECKING:
    from metriscope.report import Section
    from metriscope.runs import Store
    from metriscope.studies.contract import Announce

__all__ = ["OPTIONS", "plan", "reproduce"]

OPTIONS = frozenset({"dims", "trials", "epochs", "samples", "activations", "seed"})


def reproduce(plan: Plan, store: Store, announce: Announce) -> tuple[Section, ...]:
    """Run or resume a plan and return its sections of the report."""
    from metriscope.studies.mahalanobis.page import sections
    from metriscope.studies.mahalanobis.results import collect

    return sections(collect(plan, store, announce))
