"""Tidy tables: selecting and joining rows, and the numbers that the sources print, one JSON file per study."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TidyTables", "joined", "matching", "published", "source_of"]


@dataclass(frozen=True, eq=False)
class TidyTables:
    """The results of a study that consist of tidy tables only; a table without rows was not measured."""

    tables: Mapping[str, pd.DataFrame]


def joined(parts: Iterable[pd.DataFrame], columns: Iterable[str] = ()) -> pd.DataFrame:
    """Return the concatenation of tables; if there are none, an empty table with these columns.

    >>> list(joined([], ["network", "seed"]))
    ['network', 'seed']
    """
    import pandas as pd

    rows = list(parts)
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=list(columns))


def matching(table: pd.DataFrame, /, **where: object) -> pd.DataFrame:
    """Return the rows of a table in which the named columns have the given values.

    >>> matching(published("mahalanobis"), dim=2, activation="abs")["metric"].tolist()
    ['train_mse', 'test_mse', 'centering', 'sphericity']
    """
    import numpy as np

    masks = [(table[name] == value).to_numpy() for name, value in where.items()]
    return table[np.logical_and.reduce(masks)] if masks else table


@cache
def _read(study: str) -> Any:
    folder = files("metriscope.studies") / "published"
    return json.loads((folder / f"{study}.json").read_text(encoding="utf-8"))


def published(study: str) -> pd.DataFrame:
    """Return the numbers that a study's source prints, as a tidy table.

    >>> table = published("mahalanobis")
    >>> float(table.query("dim == 2 and activation == 'abs' and metric == 'train_mse'")["mean"].iloc[0])
    0.122
    """
    import pandas as pd

    return pd.DataFrame(_read(study)["values"])


def source_of(study: str) -> str:
    """Return where a study's printed numbers come from."""
    return str(_read(study)["source"])
