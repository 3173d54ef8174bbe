"""What a command prints: its result to standard output, as text or as JSON, and its progress to standard error."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Manner", "announce", "asked", "cut", "deliver", "in_manner", "note", "show", "tell"]


@dataclass(frozen=True)
class Manner:
    """How to print: results as JSON, without progress, whether to open a page; and the ``command`` as it was typed."""

    json: bool = False
    quiet: bool = False
    open: bool = False
    command: str = ""


_manners = [Manner()]


@contextmanager
def in_manner(manner: Manner) -> Iterator[None]:
    """Use this way of printing while the block runs."""
    from metriscope.common.progress import bars_hidden

    _manners.append(manner)
    try:
        with bars_hidden(manner.quiet):
            yield
    finally:
        _manners.pop()


def asked() -> Manner:
    """Return how the user asked to print."""
    return _manners[-1]


def tell(line: str) -> None:
    """Print what is being done, to standard error, whether or not that is a terminal."""
    if not asked().quiet:
        print(f"{line} ...", file=sys.stderr, flush=True)


def note(sentence: str, always: bool = False) -> None:
    """Print what the user should know about the result, to standard error, unless all is quiet; or ``always``."""
    if always or not asked().quiet:
        print(f"metriscope: {sentence}", file=sys.stderr, flush=True)


def announce(line: str) -> None:
    """Print what a long computation has done: to standard output, or to standard error if the result is JSON."""
    if not asked().quiet:
        print(line, file=sys.stderr if asked().json else sys.stdout, flush=True)


def deliver(text: str, found: Any) -> None:
    """Print the result: ``text``, or ``found`` as JSON."""
    print(json.dumps(_plain(found), indent=2, ensure_ascii=False) if asked().json else text, flush=True)


def show(page: Path) -> None:
    """Open a page in the browser, if the user asked for it."""
    if not asked().open:
        return
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        print(f"metriscope: no browser could be opened to show {page}", file=sys.stderr)


def cut(lines: Sequence[str]) -> list[str]:
    """Return the lines, cut to the terminal's width if they are printed to one."""
    if not sys.stdout.isatty():
        return list(lines)
    width = shutil.get_terminal_size().columns
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent: undefined numbers become null, paths and other objects text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
