"""Write a report to a folder: its page, companions, and tables as CSV and Parquet, each written atomically."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from metriscope.common.errors import Damage, reason
from metriscope.common.files import replaced, sha256
from metriscope.report.front import APPENDIX, render_front
from metriscope.report.html import csv_text, render, visible
from metriscope.runs.codec import from_json, to_json

if TYPE_CHECKING:
    from metriscope.report.document import Page, Table
    from metriscope.report.front import Front

__all__ = ["INDEX", "ReportError", "tables_folder", "write_report"]

# What a page wrote, in the folder of its tables: each file beside the page with its SHA-256.
INDEX = "index.json"
_FORMAT = "metriscope report 1"
_PAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.html")


class ReportError(RuntimeError):
    """A report could not be written; the message says which file and why."""


def write_report(page: Page, out: Path, name: str = "report.html", front: Front | None = None) -> Path:
    """Write ``page`` as ``out/<name>`` with its tables as CSV and Parquet and its companions; return its path.

    With ``front``, that first page takes the name, and ``page`` is its appendix, ``appendix.html``.

    The tables of ``report.html`` are in ``out/tables/``, those of any other page in its own folder there, such as
    ``out/tables/inspect/`` for ``inspect.html``. Files that an earlier page of the same name wrote and this one does
    not are removed, unless they were changed since. The page is written last, so its other files exist whenever it
    does.
    """
    out, tables = Path(out), tables_folder(name)
    _check_apart(page, name)
    files = {f"{tables}/{file}": data for table in page.tables for file, data in table_files(table).items()}
    files |= {companion.name: visible(companion.html).encode() for companion in page.companions}
    if front is not None:
        files[APPENDIX] = render(page, tables).encode()
    index = out / tables / INDEX
    written, earlier = {file: sha256(data) for file, data in files.items()}, _read_index(index)
    if earlier | written:
        # Both are listed while this one is written, so that nothing is forgotten if it is never finished.
        _write_or_explain(index, _index(earlier | written))
    for file, data in files.items():
        _write_or_explain(out / file, data)
    _write_or_explain(out / name, (render(page, tables) if front is None else render_front(front, tables)).encode())
    if stale := {file: digest for file, digest in earlier.items() if file not in written}:
        _remove_unchanged(out, tables, stale)
        _write_or_explain(index, _index(written))
    return out / name


def tables_folder(name: str) -> str:
    """Return the folder of a page's tables, relative to the page.

    >>> tables_folder("report.html"), tables_folder("inspect.html")
    ('tables', 'tables/inspect')
    """
    if not _PAGE.fullmatch(name):
        raise ValueError(f"a page needs a file name such as report.html, got {name!r}")
    return "tables" if name == "report.html" else f"tables/{name.removesuffix('.html')}"


def _check_apart(page: Page, name: str) -> None:
    if name in (companion.name for companion in page.companions):
        raise ValueError(f"a companion of {name} must not have the file name of the page itself")


def _index(files: Mapping[str, str]) -> bytes:
    return to_json({"format": _FORMAT, "files": dict(files)}, INDEX)


def _read_index(path: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that the last page wrote; empty if the index cannot be read."""
    try:
        found = from_json(path.read_bytes())
    except (OSError, Damage):
        return {}
    files = found.get("files") if isinstance(found, dict) and found.get("format") == _FORMAT else None
    if not isinstance(files, dict):
        return {}
    return {file: digest for file, digest in files.items() if isinstance(digest, str)}


def _remove_unchanged(out: Path, tables: str, files: Mapping[str, str]) -> None:
    """Remove files that are still, byte for byte, what the page wrote; files that were changed are kept."""
    for file, digest in files.items():
        path = out / file
        # An index may have been edited by hand: no other folder may be changed.
        if path.parent not in (out, out / tables):
            continue
        with suppress(OSError):
            if sha256(path) == digest:
                path.unlink()


def table_files(table: Table) -> dict[str, bytes]:
    """Return the contents of both files of ``table``, by file name."""
    return {f"{table.name}.csv": csv_text(table).encode(), f"{table.name}.parquet": _parquet(table)}


def _parquet(table: Table) -> bytes:
    buffer = io.BytesIO()
    try:
        table.frame.to_parquet(buffer, engine="pyarrow", index=False)
    except (TypeError, ValueError) as error:
        raise ReportError(f"table {table.name!r} has a column that Parquet cannot hold: {error}") from error
    return buffer.getvalue()


def _write_or_explain(path: Path, data: bytes) -> None:
    try:
        with replaced(path) as file:
            file.write(data)
    except OSError as error:
        raise ReportError(f"cannot write {path}: {reason(error)}") from error
    except ValueError:
        raise ReportError(f"cannot write {path}: not a name that a file can have") from None
