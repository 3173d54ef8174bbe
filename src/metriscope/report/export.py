"""Write a report to a folder: its page, companions, and tables as CSV and Parquet, each whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from metriscope.report.page import render
from metriscope.runs.disk import temporary, write
from metriscope.runs.errors import reason

if TYPE_CHECKING:
    from metriscope.report.blocks import Page, Table

__all__ = ["ReportError", "write_report"]


class ReportError(RuntimeError):
    """A report could not be written; the message says which file and why."""


def write_report(page: Page, out: Path) -> Path:
    """Write ``out/report.html``, its tables as ``out/tables/<name>.csv`` and ``.parquet``, and its companions.

    The page is written last, so that a page that is there has the others beside it; its path is returned.
    """
    out = Path(out)
    contents = {out / "tables" / name: data for table in page.tables for name, data in table_files(table).items()}
    contents |= {out / companion.name: companion.html.encode() for companion in page.companions}
    contents[out / "report.html"] = render(page).encode()
    for path, data in contents.items():
        _write_or_explain(path, data)
    return out / "report.html"


def table_files(table: Table) -> dict[str, bytes]:
    """Return the contents of both files of ``table``, by file name."""
    return {f"{table.name}.csv": _csv(table), f"{table.name}.parquet": _parquet(table)}


def _csv(table: Table) -> bytes:
    return table.frame.to_csv(index=False, lineterminator="\n").encode()


def _parquet(table: Table) -> bytes:
    buffer = io.BytesIO()
    try:
        table.frame.to_parquet(buffer, engine="pyarrow", index=False)
    except (TypeError, ValueError) as error:
        raise ReportError(f"table {table.name!r} has a column that Parquet cannot hold: {error}") from error
    return buffer.getvalue()


def _write_or_explain(path: Path, data: bytes) -> None:
    """Write ``data`` beside ``path`` and rename it into place once it is on the disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary(path.parent) as draft:
            write(draft, data)
            draft.replace(path)
    except OSError as error:
        raise ReportError(f"cannot write {path}: {reason(error)}") from error
