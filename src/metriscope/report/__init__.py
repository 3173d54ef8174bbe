"""Turn numbers into tables, figures and one self-contained HTML page.

Describe a page as data (``document``), draw with ``style``, ``plots`` and ``svg``, then ``write_report``.
"""

from __future__ import annotations

from metriscope.report.document import (
    STRENGTHS,
    VERDICTS,
    Block,
    Claim,
    Companion,
    Details,
    Evidence,
    Figure,
    Ledger,
    Page,
    Prose,
    Requirement,
    Section,
    Strength,
    Table,
    Verdict,
)
from metriscope.report.export import ReportError, write_report
from metriscope.report.front import Front, FrontStudy, ShownProblem
from metriscope.report.html import render
from metriscope.report.numbers import interval, mean_interval, mean_sd, mean_text, number, seconds
from metriscope.report.svg import to_svg

__all__ = [
    "STRENGTHS",
    "VERDICTS",
    "Block",
    "Claim",
    "Companion",
    "Details",
    "Evidence",
    "Figure",
    "Front",
    "FrontStudy",
    "Ledger",
    "Page",
    "Prose",
    "ReportError",
    "Requirement",
    "Section",
    "ShownProblem",
    "Strength",
    "Table",
    "Verdict",
    "interval",
    "mean_interval",
    "mean_sd",
    "mean_text",
    "number",
    "render",
    "seconds",
    "to_svg",
    "write_report",
]
