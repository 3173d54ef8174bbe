"""The MNIST study as a page of Markdown: accuracies, tests and verdicts, with where they come from."""

from __future__ import annotations

import re
from collections.abc import Mapping

from metriscope.report import Claim, Table
from metriscope.report.page import rows
from metriscope.report.tables import grid
from metriscope.studies.contract import source_of
from metriscope.studies.representation import contradictions, inside_tables, tables
from metriscope.studies.representation.analysis import Analysis, analyse
from metriscope.studies.representation.claims import verdicts
from metriscope.studies.representation.results import NAME, Results

__all__ = ["markdown", "table_text"]


def markdown(results: Results, provenance: Mapping[str, object] | None = None) -> str:
    """Return the page: what was run, every accuracy beside the printed ones, tests, contradictions and verdicts."""
    analysis = analyse(results)
    found = verdicts(analysis)
    parts = ["# Distance against intensity: MNIST", _opening(results), "## Verdicts", _overview(found)]
    parts += ["## Test accuracy", *(table_text(t) for t in _accuracies(analysis))]
    parts += ["## Tests between networks", *(table_text(t) for t in _tests(analysis))]
    more = (
        *_dead(analysis),
        inside_tables.planes(analysis),
        inside_tables.places(analysis),
        inside_tables.perturbations(analysis),
    )
    parts += ["## Inside the networks", *(table_text(t) for t in more if t is not None)]
    texts = (contradictions.pixels, contradictions.epochs, contradictions.pairing, contradictions.forms)
    parts += ["## Contradictions of the sources", *(text(analysis) for text in texts)]
    parts += ["## Verdicts with their evidence", *(_claim(claim) for claim in found)]
    if provenance:
        parts += ["## Provenance", *_provenance(provenance)]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _opening(results: Results) -> str:
    counts = [f"- {setting}: {len(results.select(setting))} runs" for setting in results.settings]
    short = "\n".join(f"- {text}" for text in results.deviations)
    texts = [
        f"Written by a program from stored runs. Published numbers: {source_of(NAME)}.",
        "\n".join(counts) or "No run is finished.",
    ]
    return "\n\n".join([*texts, f"Different from the paper's protocol:\n\n{short}"] if short else texts)


def _accuracies(analysis: Analysis) -> list[Table]:
    return [tables.accuracies(analysis, s, f"accuracies-{i}") for i, s in enumerate(analysis.results.settings)]


def _tests(analysis: Analysis) -> list[Table]:
    there = set(analysis.compared["setting"])
    settings = [s for s in analysis.results.settings if str(s) in there]
    return [*(tables.pairs(analysis, s, f"tests-{i}") for i, s in enumerate(settings)), tables.printed_tests()]


def _dead(analysis: Analysis) -> list[Table | None]:
    return [tables.dead(analysis, s, f"dead-{i}") for i, s in enumerate(analysis.results.settings)]


def table_text(table: Table) -> str:
    """Return a table as Markdown: title, note, and one line a row, headings of groups before their columns' own."""
    laid = grid(table)
    spans = [h.label for h in laid.headings for _ in range(h.span)] or [""] * len(laid.columns)
    names = [f"{span}: {c.label}" if span else c.label for span, c in zip(spans, laid.columns, strict=True)]
    marks = ["---:" if column.numeric else "---" for column in laid.columns]
    lines = ["| " + " | ".join(map(_escape, cells)) + " |" for cells in (names, marks, *laid.rows)]
    return "\n\n".join(part for part in (f"### {table.title}", table.note, "\n".join(lines)) if part)


def _escape(cell: str) -> str:
    return re.sub(r"\s+", " ", cell.replace("|", "\\|"))


def _overview(found: tuple[Claim, ...]) -> str:
    lines = ["| claim | verdict | statement |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {c.id} | {c.verdict} | {_escape(c.text)} ({c.source}) |" for c in found)])


def _claim(claim: Claim) -> str:
    lines = ["| number | ours | published |", "|---|---|---|"]
    for e in claim.evidence:
        ours, theirs = ("–" if v is None else _escape(str(v)) for v in (e.ours, e.published))
        lines.append(f"| {_escape(e.label)} | {ours} | {theirs}{f' ({e.source})' if e.source else ''} |")
    evidence = "\n".join(lines) if claim.evidence else ""
    return f"### {claim.id}: {claim.verdict}\n\n{claim.text} ({claim.source})\n\n{claim.reason}\n\n{evidence}"


def _provenance(provenance: Mapping[str, object]) -> list[str]:
    return ["\n".join(f"- {group + ' · ' if group else ''}{key}: {value}" for group, key, value in rows(provenance))]
