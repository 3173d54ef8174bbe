"""What a part of the VQ study is, and how what it measures is stored and summed up over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from metriscope.functional import summarize
from metriscope.report import Evidence, Section, Table, Verdict
from metriscope.report.numbers import MISSING
from metriscope.runs import Store
from metriscope.studies.contract import Announce
from metriscope.studies.vq.spec import NAME, Group, Plan

__all__ = ["Judgement", "Measured", "Part", "mean_text", "measured", "summary_table"]

# A spread below this is rounding: the values are one and the same.
SAME = 1e-9


@dataclass(frozen=True)
class Judgement:
    """What one claim's function returns."""

    verdict: Verdict
    reason: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Part:
    """One part of the study: what it collects, and how that is shown."""

    name: str
    collect: Callable[[Plan, Store, Announce], Any]
    sections: Callable[[Any], tuple[Section, ...]]


@dataclass(frozen=True)
class Measured:
    """A table measured on some groups of networks: asked for after training, stored beside them."""

    what: str
    groups: tuple[Group, ...]
    grid: int = 0
    method: int = 1  # raised when the same networks would be measured otherwise


def measured(store: Store, spec: Measured, rows: Callable[[], Iterable[Mapping[str, object]]]) -> pd.DataFrame:
    """Return the table at ``spec``: from the store if it is there, else of the given rows."""
    if (run := store.get(spec)) is None:
        run = store.put(spec, {}, {"study": NAME}, {"rows": pd.DataFrame(list(rows()))})
    return run.table("rows")


def mean_text(values: Iterable[float]) -> str:
    """Return a mean with its 95 % interval, all with the decimals that show two digits of the interval's width.

    >>> mean_text([1.0, 2.0, 3.0]), mean_text([0.001, 0.002, -0.004]), mean_text([1.0, 1.0])
    ('2.0 [−0.5, 4.5]', '0.000 [−0.008, 0.008]', '1')
    """
    found = summarize(values)
    if math.isnan(found.low):
        return MISSING
    width = found.high - found.low
    if width <= SAME * max(abs(found.mean), SAME):
        return f"{found.mean:.6g}"
    decimals = max(0, 1 - math.floor(math.log10(width)))
    mean, low, high = (f"{round(value, decimals) + 0.0:.{decimals}f}" for value in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]".replace("-", "−")


def summary_table(
    name: str, title: str, rows: pd.DataFrame, keys: Sequence[str], measures: Mapping[str, str], note: str = ""
) -> Table:
    """Return one line for each combination of ``keys``: mean and 95 % interval over seeds of each measure.

    ``measures`` maps a column to what people read. A measure that a line has no values of is a dash.
    """
    lines = []
    for key, part in rows.groupby(list(keys), sort=False):
        line: dict[str, object] = dict(zip(keys, key, strict=True))
        line["seeds"] = len(part)
        for column in measures:
            values = part[column].to_numpy(dtype=float)
            line[column] = MISSING if np.isnan(values).any() else mean_text(values)
        lines.append(line)
    return Table(name, title, pd.DataFrame(lines), f"{note} Mean [95 % t interval].".strip(), labels=dict(measures))
