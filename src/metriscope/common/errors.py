"""The two ways a store fails: it cannot do what was asked, or what it holds is damaged."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Damage", "StoreError", "Unfinished", "explained", "reason"]

_REASONS = {
    "ENOSPC": "the disk is full",
    "EDQUOT": "the disk quota is used up",
    "EFBIG": "the file is larger than the system allows",
    "EROFS": "the file system is read-only",
    "EACCES": "no permission",
    "EPERM": "no permission",
    "ENOTDIR": "a file stands where a folder should be",
    "EEXIST": "a file stands where a folder should be",
    "EIO": "the disk reports an error",
}


class StoreError(RuntimeError):
    """One sentence about what the store could not do, where, and why.

    It is no ``OSError``, so that code which handles plain file errors never takes it for one of its own.
    """


class Damage(Exception):
    """What is wrong with a file that the store should be able to read."""


class Unfinished(Exception):
    """A run that was asked for is not there, because the budget ended before it was computed."""


def reason(error: OSError) -> str:
    """Return the cause of a file error in plain words.

    >>> reason(OSError(errno.ENOSPC, "No space left on device"))
    'the disk is full'
    """
    known = _REASONS.get(errno.errorcode.get(error.errno or 0, ""))
    return known or error.strerror or type(error).__name__


@contextmanager
def explained(task: str) -> Iterator[None]:
    """Turn a file error or damage inside the block into ``StoreError("cannot <task>: <reason>")``."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {task}: {reason(error)}") from error
    except Damage as damage:
        raise StoreError(f"cannot {task}: {damage}") from damage
