"""The sketch's part of the report."""

from __future__ import annotations

from metriscope.report import Claim, Ledger, Section, Table
from studies.sketch import figures
from studies.sketch.measure import Results
from studies.sketch.plan import TITLE, Plan


def sections(plan: Plan, results: Results, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
    """Return one section."""
    table = Table("coins", "Coins", results.tables["coins"])
    return (Section(TITLE, (table, figures.coins(results), Ledger(claims))),)
