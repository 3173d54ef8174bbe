"""What the command line asks of a study, and the two data files every study shares: ledger and printed numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas as pd

    from metriscope.report import Section
    from metriscope.runs import Store

__all__ = ["Announce", "Study", "claims", "published", "source_of"]

Announce = Callable[[str], None]


class Study(Protocol):
    """A study is a module with these names."""

    OPTIONS: frozenset[str]

    def plan(self, profile: str, **options: Any) -> Any:
        """Return what would be run, or raise ValueError with one clear sentence; loads nothing heavy."""

    def reproduce(self, plan: Any, store: Store, announce: Announce) -> tuple[Section, ...]:
        """Run or resume the plan and return its part of the report."""


@dataclass(frozen=True)
class LedgerEntry:
    """A claim as the sources make it, before any verdict."""

    id: str
    text: str
    source: str


@cache
def _read(name: str) -> Any:
    return json.loads(files("metriscope.studies").joinpath(name).read_text(encoding="utf-8"))


def claims(study: str) -> tuple[LedgerEntry, ...]:
    """Return the claims that a study judges, in the ledger's order.

    >>> [entry.id for entry in claims("mahalanobis")][:2]
    ['C01', 'C02']
    """
    rows: Mapping[str, Mapping[str, str]] = _read("ledger.json")
    found = {k: v for k, v in rows.items() if v["study"] == study}
    return tuple(LedgerEntry(k, v["text"], v["source"]) for k, v in found.items())


def published(study: str) -> pd.DataFrame:
    """Return the numbers a study's source printed: one row a dimension, activation and metric.

    >>> table = published("mahalanobis")
    >>> float(table.query("dim == 2 and activation == 'abs' and metric == 'train_mse'")["mean"].iloc[0])
    0.122
    """
    import pandas as pd

    return pd.DataFrame(_read(f"published/{study}.json")["values"])


def source_of(study: str) -> str:
    """Return where a study's printed numbers come from."""
    return str(_read(f"published/{study}.json")["source"])
