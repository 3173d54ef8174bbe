"""The one way data fail: a sentence that names the file or the set, and what is wrong with it."""

from __future__ import annotations

__all__ = ["DataError"]


class DataError(RuntimeError):
    """One sentence about data that are not there, or not what they should be."""
