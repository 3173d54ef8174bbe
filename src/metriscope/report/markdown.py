"""Blocks of a page as Markdown: prose, tables and claims with their evidence; drawings are left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from metriscope.report.document import Block, Claim, Details, Ledger, Prose, Section, Table
from metriscope.report.html import rows
from metriscope.report.numbers import MISSING
from metriscope.report.tables import cell, grid

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["claim_text", "markdown", "table_text", "verdicts_text"]


def markdown(
    title: str, opening: str, sections: Iterable[Section], provenance: Mapping[str, object] | None = None
) -> str:
    """Return a page: title, opening paragraph, sections, and provenance if given."""
    parts = [f"# {title}", opening]
    for section in sections:
        parts += [f"## {section.title}", *_blocks(section.blocks)]
    if provenance:
        parts += ["## Provenance", _provenance(provenance)]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _blocks(blocks: Sequence[Block]) -> list[str]:
    parts: list[str] = []
    for block in blocks:
        if isinstance(block, Prose):
            parts.append(block.text)
        elif isinstance(block, Table):
            parts.append(table_text(block))
        elif isinstance(block, Ledger):
            parts += [claim_text(claim) for claim in block.claims]
        elif isinstance(block, Details) and (inner := _blocks(block.blocks)):
            parts += [f"**{block.summary}**", *inner]
    return parts


def table_text(table: Table) -> str:
    """Return a table as Markdown: title, note, and one line per row, headings of groups before their columns' own."""
    laid = grid(table)
    spans = [h.label for h in laid.headings for _ in range(h.span)] or [""] * len(laid.columns)
    names = [f"{span}: {c.label}" if span else c.label for span, c in zip(spans, laid.columns, strict=True)]
    marks = ["---:" if column.numeric else "---" for column in laid.columns]
    lines = [_line(cells) for cells in (names, marks, *laid.rows)]
    return "\n\n".join(part for part in (f"### {table.title}", table.note, "\n".join(lines)) if part)


def verdicts_text(claims: Iterable[Claim]) -> str:
    """Return one line per claim: its verdict, how strong it is, and the statement."""
    lines = [_line((c.id, c.verdict, c.strength, f"{c.text} ({c.source})")) for c in claims]
    return "\n".join([_line(("claim", "verdict", "strength", "statement")), _line(["---"] * 4), *lines])


def claim_text(claim: Claim) -> str:
    """Return a claim with its verdict, its reason, its requirements, and our numbers next to the published ones."""
    parts = [f"### {claim.id}: {claim.verdict} ({claim.strength})", f"{claim.text} ({claim.source})", claim.reason]
    if claim.requirements:
        lines = [_line((each.state, each.text, each.why)) for each in claim.requirements]
        parts.append(
            "\n".join([_line(("state", "required and measured", "why this margin")), _line(["---"] * 3), *lines])
        )
    if claim.evidence:
        lines = []
        for each in claim.evidence:
            ours, theirs = (MISSING if v is None else cell(v) for v in (each.ours, each.published))
            lines.append(_line((each.label, ours, f"{theirs} ({each.source})" if each.source else theirs)))
        parts.append("\n".join([_line(("number", "ours", "published")), _line(["---"] * 3), *lines]))
    return "\n\n".join(parts)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(re.sub(r"\s+", " ", text.replace("|", "\\|")) for text in cells) + " |"


def _provenance(provenance: Mapping[str, object]) -> str:
    return "\n".join(f"- {group + ' · ' if group else ''}{key}: {value}" for group, key, value in rows(provenance))
