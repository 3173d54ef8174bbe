"""Tables of means over seeds, as every experiment shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from metriscope.report import Table, mean_text
from metriscope.report.numbers import MISSING

__all__ = ["DIGITS", "summary_table"]

# Values that agree in all seeds have no interval; they are shown with this many decimals.
DIGITS = 6


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
            line[column] = MISSING if np.isnan(values).any() else mean_text(values, DIGITS)
        lines.append(line)
    return Table(name, title, pd.DataFrame(lines), f"{note} Mean [95 % t interval].".strip(), labels=dict(measures))
