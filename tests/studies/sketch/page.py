"""The sketch's part of the report."""

from __future__ import annotations

from metriscope.report import Claim, Ledger, Section, Table
from studies.sketch import figures
from studies.sketch.measure import SketchResults
from studies.sketch.plan import TITLE, SketchPlan

QUESTION = "Is the coin fair?"
HIGHLIGHTS = ("coins",)


def sections(plan: SketchPlan, results: SketchResults, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
    """Return one section."""
    table = Table("coins", "Coins", results.tables["coins"])
    return (Section(TITLE, (table, figures.coins(results), Ledger(claims))),)
