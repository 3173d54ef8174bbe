"""The pairs of networks that S2 compares: tests on our runs, and what the printed means should have given.

Axes: S seeds; networks of one seed start from the same first layer, so their runs are pairs.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from metriscope.functional import Moments, cohens_d, holm, moments, paired_test, student_test, welch_test
from metriscope.studies.representation.measure import printed

__all__ = ["PAIRS", "compare", "recomputed"]

BASE = ("relu", "abs", "relu2", "abs2", "relu2-neg", "abs2-neg")
# What S2 compares in words or tests: baselines, intensity, distance, bias, and the distance layer.
PAIRS: tuple[tuple[str, str], ...] = (
    ("relu", "abs"),
    ("relu2", "relu"),
    ("abs2", "abs"),
    ("relu2-neg", "relu2"),
    ("relu2-neg", "relu"),
    ("abs2-neg", "abs"),
    ("abs2-neg", "abs2"),
    *((f"{name}-bias", name) for name in BASE),
    ("relu-l2", "relu-l2-neg"),
    ("abs-l2", "abs-l2-neg"),
    ("relu-l2", "relu"),
    ("abs-l2", "abs"),
    ("relu-l2", "relu2"),
    ("abs-l2-neg", "abs2-neg"),
)
RUNS = 20


def compare(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row a setting and pair: mean difference, three tests, effect size, Holm over the setting's pairs."""
    found = []
    for setting, part in rows.groupby("setting", sort=False):
        lines = [line for a, b in PAIRS if (line := _pair(part, a, b)) is not None]
        for test in ("welch", "student", "paired"):
            adjusted = holm([float(str(line[f"{test} p"])) for line in lines])
            for line, value in zip(lines, adjusted, strict=True):
                line[f"{test} holm"] = float(value)
        found += [{"setting": setting, **line} for line in lines]
    return pd.DataFrame(found, columns=["setting", *COLUMNS])


TESTS = ("welch", "student", "paired")
COLUMNS = (
    *("network", "other", "seeds", "difference", "low", "high", "cohens d"),
    *(f"{test} {field}" for test in TESTS for field in ("t", "df", "p", "holm")),
)


def _pair(rows: pd.DataFrame, a: str, b: str) -> dict[str, object] | None:
    one, other = (rows[rows["network"] == name].set_index("seed")["test_accuracy"] for name in (a, b))
    if one.empty or other.empty:
        return None
    shared = one.index.intersection(other.index)
    pair = (moments(one), moments(other))
    welch, student = welch_test(*pair), student_test(*pair)
    line: dict[str, object] = {"network": a, "other": b, "seeds": min(len(one), len(other))}
    line |= {"difference": welch.difference, "low": welch.low, "high": welch.high, "cohens d": cohens_d(*pair)}
    line |= {f"welch {k}": getattr(welch, k) for k in ("t", "df", "p")}
    line |= {f"student {k}": getattr(student, k) for k in ("t", "df", "p")}
    if len(shared) > 1:
        paired = paired_test(one[shared], other[shared])
        return line | {f"paired {k}": float(getattr(paired, k)) for k in ("t", "df", "p")}
    return line | dict.fromkeys(("paired t", "paired df", "paired p"), math.nan)


def recomputed() -> pd.DataFrame:
    """Return each printed test beside Student's t from the printed means, of table 2 and of section 6 with the notes.

    The last is given twice: printed deviations taken with n - 1, as S2 does not say otherwise, and with n, as numpy
    computes them unless told. d from t is t sqrt(2 / n), which ties a printed d to the t it was computed from.
    """
    known = printed("test_accuracy").set_index(["column", "network"])
    later = pd.concat([known.loc["section 6"], known.loc["notes"]])
    sources = {"table 2": (known.loc["table 2"], 1.0), "section 6": (later, 1.0)}
    sources["section 6, sd of n"] = (later, math.sqrt(RUNS / (RUNS - 1)))
    rows = []
    for _, test in printed("t_test").iterrows():
        line = {"network": test["network"], "other": test["other"], "printed t": test["t"], "printed p": test["p"]}
        line |= {"printed d": test["cohens_d"], "t of printed d": test["cohens_d"] * math.sqrt(RUNS / 2)}
        for name, (table, factor) in sources.items():
            a, b = (_moments(table, test[network], factor) for network in ("network", "other"))
            line |= {f"{name} t": student_test(a, b).t, f"{name} d": abs(cohens_d(a, b))}
        rows.append(line)
    return pd.DataFrame(rows)


def _moments(table: pd.DataFrame, network: str, factor: float) -> Moments:
    mean, sd = np.asarray(table.loc[network, ["mean", "sd"]], dtype=float)
    return Moments(float(mean), float(sd) * factor, RUNS)
