"""Turn numbers into tables, figures and one self-contained HTML page.

Describe a page as data (``blocks``), draw with ``style``, ``plots`` and ``svg``, then ``write_report``.
"""

from __future__ import annotations

from metriscope.report.blocks import (
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
    Section,
    Table,
    Verdict,
)
from metriscope.report.export import ReportError, write_report
from metriscope.report.intervals import mean_interval
from metriscope.report.numbers import interval, mean_sd, number, seconds
from metriscope.report.page import render
from metriscope.report.svg import to_svg

__all__ = [
    "VERDICTS",
    "Block",
    "Claim",
    "Companion",
    "Details",
    "Evidence",
    "Figure",
    "Ledger",
    "Page",
    "Prose",
    "ReportError",
    "Section",
    "Table",
    "Verdict",
    "interval",
    "mean_interval",
    "mean_sd",
    "number",
    "render",
    "seconds",
    "to_svg",
    "write_report",
]
