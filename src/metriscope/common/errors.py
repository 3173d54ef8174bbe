"""The errors of a store of runs, and file errors in plain words."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

__all__ = ["Damage", "StoreError", "Unfinished", "explained", "first_line", "printable", "reason", "shown", "unknown"]

_REASONS = {
    "ENOSPC": "the disk is full",
    "EDQUOT": "the disk quota is used up",
    "EFBIG": "the file is larger than the system allows",
    "EROFS": "the file system is read-only",
    "EACCES": "no permission",
    "EPERM": "no permission",
    "ENOTDIR": "there is a file where a folder should be",
    "EEXIST": "there is a file where a folder should be",
    "EIO": "the disk reports an error",
}


class StoreError(RuntimeError):
    """Raised when a store cannot do what was asked; the message says what, where and why.

    It is not an ``OSError``, so code that handles ordinary file errors does not catch it by accident.
    """


class Damage(Exception):
    """Raised when a file is missing, truncated or changed; the message says what is wrong with it."""


class Unfinished(Exception):
    """Raised when a requested run is missing because the time budget ended before it was computed."""


def reason(error: OSError) -> str:
    """Return the cause of a file error in plain words.

    >>> reason(OSError(errno.ENOSPC, "No space left on device"))
    'the disk is full'
    """
    known = _REASONS.get(errno.errorcode.get(error.errno or 0, ""))
    return known or error.strerror or type(error).__name__


def first_line(error: BaseException) -> str:
    r"""Return the first line of an error's message that is not blank.

    >>> first_line(ValueError("\n no such layer\nmore"))
    'no such layer'
    """
    try:
        said = str(error)
    except Exception:
        # An exception of the user's code whose message cannot be computed.
        said = ""
    return next((line.strip() for line in said.splitlines() if line.strip()), "")


def printable(text: str) -> str:
    r"""Return text that a terminal can show: control characters, and whatever cannot be encoded, as escapes.

    >>> print(printable("red \x1b[31m"))
    red \x1b[31m
    """
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def shown(message: str, most: int = 2000) -> str:
    r"""Return an error's message as one line for a terminal, cut off after ``most`` characters.

    >>> shown("no such file\nor folder", most=12)
    'no such file...'
    """
    line = printable(" ".join(message.splitlines()))
    return line if len(line) <= most else f"{line[:most]}..."


def unknown(kind: str, word: str, known: Sequence[str]) -> str:
    """Return a sentence about an unknown word, with the most similar known one if there is one.

    >>> unknown("data set", "mnits", ["mnist", "wine"])
    "unknown data set 'mnits': did you mean mnist?"
    """
    similar = get_close_matches(word, known, n=1, cutoff=0.7)
    there = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(known) or 'none'}"
    return f"unknown {kind} {word!r}: {there}"


@contextmanager
def explained(task: str) -> Iterator[None]:
    """Convert an ``OSError`` or ``Damage`` inside the block into ``StoreError("cannot <task>: <reason>")``."""
    try:
        yield
    except OSError as error:
        raise StoreError(printable(f"cannot {task}: {reason(error)}")) from error
    except Damage as damage:
        raise StoreError(printable(f"cannot {task}: {damage}")) from damage
