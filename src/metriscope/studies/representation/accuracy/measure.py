"""Tables of what the runs reached: accuracies, curves, tests between networks, and what is judged.

Axes: S seeds, T observed epochs. Accuracies are shares in the runs' histories and per cent from here on.
Networks of one seed start from the same first layer, so their runs are pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from metriscope.functional import Moments, cohens_d, holm, moments, paired_test, student_test, summarize, welch_test
from metriscope.studies.published import published
from metriscope.studies.representation.plan import BASE, DISTANCES, NAME, Comparing, Setting
from metriscope.studies.representation.train import HISTORY, Trained

__all__ = [
    "WHERE",
    "Shape",
    "accuracies",
    "compare",
    "curve",
    "histories",
    "judged",
    "printed",
    "recomputed",
    "shapes",
    "summary",
]

WHERE = ("setting", "network", "seed")
COLUMNS = ("table 2", "table 3", "section 6", "notes", "table 5")
# What the paper compares in words or tests: baselines, intensity, distance, bias, and the distance layer.
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
TESTS = ("welch", "student", "paired")
# Networks that a claim compares; each group is judged in the setting nearest to the paper's that has all of it.
NEEDED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "C12": (("relu", "relu2"),),
    "C13": (("relu", "relu2-neg"),),
    "C14": (("abs", "abs2", "abs2-neg"),),
    "C15": tuple((name, f"{name}-bias") for name in BASE),
}


def printed(metric: str, **where: str) -> pd.DataFrame:
    """Return the printed numbers of one metric that match."""
    table = published(NAME)
    mask = np.logical_and.reduce([table["metric"] == metric, *(table[k] == v for k, v in where.items())])
    return table[mask].dropna(axis=1, how="all").reset_index(drop=True)


def accuracies(runs: Sequence[Trained]) -> pd.DataFrame:
    """Return one row per run: its setting, and loss and accuracy (per cent) at the last epoch observed."""
    rows = []
    for run in runs:
        last = run.history.sort_values("epoch").iloc[-1]
        scores = {f"{p}_accuracy": 100 * float(last[f"{p}_accuracy"]) for p in ("train", "test")}
        losses = {f"{p}_loss": float(last[f"{p}_loss"]) for p in ("train", "test")}
        setting = run.job.setting
        fields = {"pixels": setting.pixels, "protocol": setting.protocol, "length": setting.length}
        rows.append({**run.where, **fields, **scores, **losses})
    names = [*WHERE, "pixels", "protocol", "length", "train_accuracy", "test_accuracy", "train_loss", "test_loss"]
    return pd.DataFrame(rows, columns=names)


def histories(runs: Sequence[Trained]) -> pd.DataFrame:
    """Return every history, one row per run and observed epoch, accuracies as shares."""
    parts = [run.history.assign(**run.where) for run in runs]
    names = [*WHERE, "epoch", *HISTORY]
    return pd.concat(parts, ignore_index=True)[names] if parts else pd.DataFrame(columns=names)


def curve(
    table: pd.DataFrame, setting: Setting, network: str, column: str
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, "s t"]]:
    """Return the observed epochs, and a column of the histories as seeds by epochs; NaN where one is missing."""
    part = table[(table["setting"] == str(setting)) & (table["network"] == network)]
    wide = part.pivot(index="seed", columns="epoch", values=column)
    return wide.columns.to_numpy(dtype=np.float64), wide.to_numpy(dtype=np.float64)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per setting and network: statistics of test accuracy, beside every printed column."""
    found = []
    theirs = printed("test_accuracy").set_index(["network", "column"])
    for key, part in rows.groupby(["setting", "network"], sort=False):
        line: dict[str, object] = dict(zip(("setting", "network"), key, strict=True))
        ours = summarize(part["test_accuracy"])
        line |= {k: getattr(ours, k) for k in ("count", "mean", "sd", "low", "high", "minimum", "maximum")}
        for column in COLUMNS:
            known = (line["network"], column) in theirs.index
            values = theirs.loc[(line["network"], column)] if known else {"mean": math.nan, "sd": math.nan}
            line |= {f"{column} {k}": float(values[k]) for k in ("mean", "sd")}
            line[f"{column} difference"] = ours.mean - float(values["mean"])
        found.append(line)
    return pd.DataFrame(found)


@dataclass(frozen=True, eq=False)
class Shape:
    """The distribution of a network's test accuracies in one setting, as a kernel estimate; its largest value is 1."""

    setting: str
    network: str
    x: Float[np.ndarray, " g"]
    density: Float[np.ndarray, " g"]


def shapes(rows: pd.DataFrame, asked: Comparing) -> tuple[Shape, ...]:
    """Return the shape of every network's distribution that has one: three runs or more that do not all agree."""
    from scipy.stats import gaussian_kde

    found = []
    for (setting, network), part in rows.groupby(["setting", "network"], sort=False):
        values = part["test_accuracy"].to_numpy(dtype=np.float64)
        if len(values) < 3 or np.ptp(values) < 1e-9:
            continue
        reach = np.ptp(values) * asked.reach
        x = np.linspace(values.min() - reach, values.max() + reach, asked.grid)
        density = gaussian_kde(values)(x)
        found.append(Shape(str(setting), str(network), x, density / density.max()))
    return tuple(found)


def compare(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per setting and pair: mean difference, three tests, effect size, Holm over the setting's pairs."""
    found = []
    for setting, part in rows.groupby("setting", sort=False):
        lines = [line for a, b in PAIRS if (line := _pair(part, a, b)) is not None]
        for test in TESTS:
            adjusted = holm([float(str(line[f"{test} p"])) for line in lines])
            for line, value in zip(lines, adjusted, strict=True):
                line[f"{test} holm"] = float(value)
        found += [{"setting": setting, **line} for line in lines]
    numbers = [f"{test} {name}" for test in TESTS for name in ("t", "df", "p", "holm")]
    names = ["setting", "network", "other", "seeds", "difference", "low", "high", "cohens d", *numbers]
    return pd.DataFrame(found, columns=names)


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


def recomputed(asked: Comparing) -> pd.DataFrame:
    """Return each printed test beside Student's t from the printed means, of table 2 and of section 6 with the notes.

    The last is given twice: printed deviations taken with n - 1, as the paper does not say otherwise, and with n, as
    numpy computes them unless told. d from t is t sqrt(2 / n), which ties a printed d to the t it was computed from.
    """
    known = printed("test_accuracy").set_index(["column", "network"])
    later = pd.concat([known.loc["section 6"], known.loc["notes"]])
    sources = {"table 2": (known.loc["table 2"], 1.0), "section 6": (later, 1.0)}
    sources["section 6, sd of n"] = (later, math.sqrt(asked.runs / (asked.runs - 1)))
    rows = []
    for _, test in printed("t_test").iterrows():
        line = {"network": test["network"], "other": test["other"], "printed t": test["t"], "printed p": test["p"]}
        line |= {"printed d": test["cohens_d"], "t of printed d": test["cohens_d"] * math.sqrt(asked.runs / 2)}
        for name, (table, factor) in sources.items():
            a, b = (_moments(table, test[network], factor, asked.runs) for network in ("network", "other"))
            line |= {f"{name} t": student_test(a, b).t, f"{name} d": abs(cohens_d(a, b))}
        rows.append(line)
    return pd.DataFrame(rows)


def _moments(table: pd.DataFrame, network: str, factor: float, runs: int) -> Moments:
    mean, sd = np.asarray(table.loc[network, ["mean", "sd"]], dtype=float)
    return Moments(float(mean), float(sd) * factor, runs)


def judged(rows: pd.DataFrame, dead: pd.DataFrame, settings: Sequence[Setting]) -> pd.DataFrame:
    """Return the runs that each claim is judged by: one row per claim, network and seed.

    They are those of the setting nearest to the paper's protocol in which the networks that a claim compares were
    run. ``never`` is the share of a run's outputs that no training image makes active at the end.
    """
    there = {str(s): set(rows[rows["setting"] == str(s)]["network"]) for s in settings}
    ends = dead[(dead["layer"] == "output") & (dead["part"] == "train")]
    ends = ends[ends["epoch"] == ends.groupby(list(WHERE))["epoch"].transform("max")]
    whole = rows.merge(ends.assign(never=ends["never"] / 100)[[*WHERE, "never"]], on=list(WHERE), how="left")
    parts = []
    for claim, setting, names in _chosen(there):
        part = whole[(whole["setting"] == setting) & whole["network"].isin(names)]
        parts.append(part.assign(claim=claim))
    columns = ["claim", *WHERE, "test_accuracy", "never", "protocol", "length"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _chosen(there: Mapping[str, set[str]]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield each claim with the first setting that has the networks it compares, and these networks."""
    for claim, groups in NEEDED.items():
        for names in groups:
            fitting = [setting for setting, found in there.items() if found >= set(names)]
            yield from ((claim, setting, names) for setting in fitting[:1])
    # Every network with a distance layer is held against the baselines beside it, whichever of them were run.
    either = [s for s, found in there.items() if found & {"relu", "abs"} and found & set(DISTANCES)]
    yield from (("C16", setting, ("relu", "abs", *DISTANCES)) for setting in either[:1])
