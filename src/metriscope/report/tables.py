"""Lay a Table out as text: headings with their spans, cells with their kinds, ready for a template."""

from __future__ import annotations

import re
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from metriscope.report.numbers import MISSING, as_printed, number, p_value, power_of_ten, seconds

if TYPE_CHECKING:
    from metriscope.report.document import FormatSpec, Table

__all__ = ["Column", "Grid", "Heading", "cell", "grid"]

_EXPONENT = re.compile(r"e([+-]\d+)$")
# A cell that is aligned as a number, "96.62 ± 0.17" and "3 min 05 s" included.
_NUMERIC = re.compile(r"[\d\s.,:/±×%<>≤≥≈∞+−–\[\]()⁻⁰¹²³⁴-⁹]+( ?(µs|ms|s|min|h)\b[\d ]*)*")
_NAMED = {"seconds": seconds, "as printed": as_printed, "p": p_value}
_P_VALUE = re.compile(r"(.* )?(p|holm)\b( \(.*|, .*)?", re.IGNORECASE)
_ORIGINS = ("published", "ours")


@dataclass(frozen=True)
class Heading:
    """A heading over ``span`` columns; ``origin`` is "ours", "published" or nothing."""

    label: str
    span: int
    origin: str


@dataclass(frozen=True)
class Column:
    """A column: its heading, whose numbers it holds, whether it is aligned as numbers, and its cells."""

    label: str
    origin: str
    numeric: bool
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table as text, column by column."""

    headings: tuple[Heading, ...]
    columns: tuple[Column, ...]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells row by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


def cell(value: Any, spec: FormatSpec | None = None) -> str:
    """Return one value as text.

    >>> cell(0.12345), cell(0.12345, 2), cell(0.12345, ".1%"), cell(2e-6, ".1e"), cell(True), cell(None)
    ('0.123', '0.12', '12.3%', '2.0 × 10⁻⁶', 'yes', '–')
    """
    import pandas as pd

    if value is None or pd.isna(value) is True:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Real):
        return _real(value, spec)
    return str(value)


def grid(table: Table) -> Grid:
    """Return ``table`` laid out as text."""
    headings = _headings(table)
    origins = [heading.origin for heading in headings for _ in range(heading.span)]
    names = list(table.frame.columns)
    columns = tuple(_column(table, name, origin) for name, origin in zip(names, origins, strict=True))
    return Grid(headings if table.groups else (), columns)


def _real(value: Any, spec: FormatSpec | None) -> str:
    if spec is None or isinstance(spec, int):
        return number(value, spec or 3)
    if spec in _NAMED:
        return _NAMED[spec](value)
    text = _EXPONENT.sub(lambda found: f" × {power_of_ten(int(found[1]))}", format(value, spec))
    return text.replace("-", "−")


def _origin(*texts: str) -> str:
    words = re.findall(r"[a-z]+", " ".join(texts).lower())
    return next((origin for origin in _ORIGINS if origin in words), "")


def _headings(table: Table) -> tuple[Heading, ...]:
    """Return the upper row of headings; columns without a heading get an empty one."""
    owner = {column: heading for heading, members in table.groups.items() for column in members}
    headings = []
    for column in table.frame.columns:
        heading = owner.get(column)
        if heading is None:
            headings.append(Heading("", 1, ""))
        elif column == table.groups[heading][0]:
            headings.append(Heading(heading, len(table.groups[heading]), _origin(heading)))
    return tuple(headings)


def _column(table: Table, name: str, origin: str) -> Column:
    label = table.labels.get(name, name)
    origin = origin or _origin(name, label)
    usual = "as printed" if origin == "published" else "p" if _P_VALUE.fullmatch(label) else None
    spec = table.formats.get(name, usual)
    cells = tuple(cell(value, spec) for value in table.frame[name].tolist())
    numeric = any(text != MISSING for text in cells) and all(_NUMERIC.fullmatch(text) for text in cells)
    return Column(label, origin, numeric, cells)
