"""The claims C01 to C08 as criteria."""

from __future__ import annotations

from metriscope.studies.judging import Statement

__all__ = ["STATEMENTS"]

STATEMENTS: tuple[Statement, ...] = ()
