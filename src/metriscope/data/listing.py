"""Data sets as text for people: a line each."""

from __future__ import annotations

from pathlib import Path

from metriscope.data.files import find, places
from metriscope.data.registry import ROWS, Row

__all__ = ["lines", "whereabouts"]

_HEADER = ("name", "kind", "train + test", "where", "size")


def lines(data_dir: str | Path | None = None) -> list[str]:
    """Return every data set with its kind, its examples, where it is, and the size of its files."""
    table = [_HEADER, *(_cells(name, row, data_dir) for name, row in ROWS.items())]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(_HEADER))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(c, widths, strict=True)).rstrip() for c in table]


def whereabouts(row: Row, data_dir: str | Path | None = None) -> str:
    """Return where the files of a data set are: each folder that holds some of them, or that none does."""
    if not row.files:
        return "embedded"
    found = [where[0] for file in row.files if (where := find(file, places(data_dir)))]
    if not found:
        return "not here"
    # Each place once, in the order in which it was looked at.
    texts = ["cache" if place.label == "cache" else f"found in {place.folder}" for place in dict.fromkeys(found)]
    part = "" if len(found) == len(row.files) else f" ({len(found)} of {len(row.files)} files)"
    return " and ".join(texts) + part


def _cells(name: str, row: Row, data_dir: str | Path | None) -> tuple[str, ...]:
    size = f"{row.size / 1e6:.1f} MB" if row.files else "-"
    return name, row.kind, f"{row.train:,} + {row.test:,}", whereabouts(row, data_dir), size
