"""Tables of the results of runs: accuracies, curves, tests between networks, and the rows that claims are judged by.

Axes: S seeds, T observed epochs. Accuracies are shares in the runs' histories and per cent from here on.
With our own starts, networks of one seed share their first layer, so their runs are paired; replayed starts share
nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from metriscope.functional import Moments, cohens_d, holm, moments, paired_test, student_test, summarize, welch_test
from metriscope.report import Block, Prose, Section, mean_text
from metriscope.report.plots import FEW
from metriscope.studies.representation.experiments import FEWEST, LOOKS
from metriscope.studies.representation.plan import (
    BASE,
    CODED,
    DISTANCES,
    NAME,
    WHERE,
    RepresentationComparing,
    Setting,
    title,
)
from metriscope.studies.representation.train import HISTORY, TrainedNetwork, tagged
from metriscope.studies.tidy_tables import joined, matching, published

__all__ = [
    "NEEDED", "Curves", "Density", "accuracies", "by_seed", "columns_compared", "compare", "density",
    "epoch_reached", "follow", "histories", "judged", "last_epochs", "networks_of", "over_seeds", "pixels_compared",
    "placements", "printed", "recomputed", "section_of", "shapes", "summary",
]  # fmt: skip

# The points of a density and its values; the points of curves and their values (seeds by points).
Density = tuple[Float[np.ndarray, " g"], Float[np.ndarray, " g"]]
Curves = tuple[Float[np.ndarray, " t"], Float[np.ndarray, "s t"]]

COLUMNS = ("table 2", "table 3", "section 6", "notes", "table 5")
# What the paper compares in words or tests: baselines, intensity, distance, bias, and the distance layer.
PAIRS: tuple[tuple[str, str], ...] = (
    ("relu", "abs"), ("relu2", "relu"), ("abs2", "abs"),
    ("relu2-neg", "relu2"), ("relu2-neg", "relu"), ("abs2-neg", "abs"), ("abs2-neg", "abs2"),
    *((f"{name}-bias", name) for name in BASE),
    ("relu-l2", "relu-l2-neg"), ("abs-l2", "abs-l2-neg"), ("relu-l2", "relu"), ("abs-l2", "abs"),
    ("relu-l2", "relu2"), ("abs-l2-neg", "abs2-neg"), *zip(CODED, DISTANCES, strict=True),
)  # fmt: skip
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
    return matching(published(NAME), metric=metric, **where).dropna(axis=1, how="all").reset_index(drop=True)


def networks_of(table: pd.DataFrame, setting: Setting) -> tuple[str, ...]:
    """Return the networks of a setting, in the order of the table."""
    return tuple(dict.fromkeys(matching(table, setting=str(setting))["network"]))


def last_epochs(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each run's last epoch."""
    return table[table["epoch"] == table.groupby(list(WHERE))["epoch"].transform("max")]


def by_seed(table: pd.DataFrame, along: str, column: str) -> Curves:
    """Return the values of ``along``, and an array of ``column``, seeds by these values; NaN where one is missing."""
    wide = table.pivot(index="seed", columns=along, values=column)
    return wide.columns.to_numpy(dtype=np.float64), wide.to_numpy(dtype=np.float64)


def accuracies(runs: Sequence[TrainedNetwork]) -> pd.DataFrame:
    """Return one row per run: its setting, and loss and accuracy (per cent) at the last epoch observed.

    ``start`` is "author" or "own", ``origin`` "run" or "record".
    """
    factors = {f"{part}_{what}": n for what, n in (("accuracy", 100), ("loss", 1)) for part in ("train", "test")}
    rows = []
    for run in runs:
        last = run.history.sort_values("epoch").iloc[-1]
        scores = {name: factor * float(last[name]) for name, factor in factors.items()}
        known = {"pixels": run.job.pixels, "start": "author" if run.job.replay else "own", "origin": run.origin}
        rows.append({**run.job.columns, **known, **scores})
    return pd.DataFrame(rows, columns=[*WHERE, "pixels", "protocol", "length", "start", "origin", *factors])


def histories(runs: Sequence[TrainedNetwork]) -> pd.DataFrame:
    """Return every history, one row per run and observed epoch, accuracies as shares."""
    return tagged(((r.job, r.history) for r in runs), ("epoch", *HISTORY)).drop(columns=["protocol", "length"])


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per setting and network: statistics of test accuracy, beside every printed column."""
    found = []
    theirs = printed("test_accuracy").pivot(index="network", columns="column", values=["mean", "sd"])
    for (setting, network), part in rows.groupby(["setting", "network"], sort=False):
        ours = summarize(part["test_accuracy"])
        line: dict[str, object] = {"setting": setting, "network": network}
        line |= {k: getattr(ours, k) for k in ("count", "mean", "sd", "low", "high", "minimum", "maximum")}
        for column in COLUMNS:
            mean, sd = (float(theirs[k, column].get(network, math.nan)) for k in ("mean", "sd"))
            line |= {f"{column} mean": mean, f"{column} sd": sd, f"{column} difference": ours.mean - mean}
        found.append(line)
    return pd.DataFrame(found)


def density(values: Float[np.ndarray, " n"], x: Float[np.ndarray, " g"]) -> Float[np.ndarray, " g"] | None:
    """Return a kernel estimate of a distribution at some points; None for fewer than five values, or all equal."""
    from scipy.stats import gaussian_kde

    return gaussian_kde(values)(x) if len(values) >= FEW and np.ptp(values) >= 1e-9 else None


def shapes(rows: pd.DataFrame, asked: RepresentationComparing) -> dict[tuple[str, str], Density]:
    """Return the distribution of accuracies by setting and network, where defined, with 1 as its largest value."""
    found = {}
    for (setting, network), part in rows.groupby(["setting", "network"], sort=False):
        values = part["test_accuracy"].to_numpy(dtype=np.float64)
        reach = np.ptp(values) * asked.reach
        x = np.linspace(values.min() - reach, values.max() + reach, asked.grid)
        if (heights := density(values, x)) is not None:
            found[str(setting), str(network)] = (x, heights / heights.max())
    return found


def compare(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per setting and pair: mean difference, three tests, effect size, Holm over the setting's pairs."""
    numbers = [f"{test} {name}" for test in TESTS for name in ("t", "df", "p", "holm")]
    names = ["setting", "network", "other", "seeds", "difference", "low", "high", "cohens d", *numbers]
    found = []
    for setting, part in rows.groupby("setting", sort=False):
        if lines := [line for a, b in PAIRS if (line := _pair(part, a, b))]:
            pairs = pd.DataFrame(lines).assign(setting=setting)
            found.append(pairs.assign(**{f"{test} holm": holm(pairs[f"{test} p"]) for test in TESTS})[names])
    return joined(found, names)


def _pair(rows: pd.DataFrame, a: str, b: str) -> dict[str, object] | None:
    parts = [matching(rows, network=name).set_index("seed") for name in (a, b)]
    one, other = (part["test_accuracy"] for part in parts)
    if one.empty or other.empty:
        return None
    # Only starts of our own share their first layer.
    first, second = (part.index[part["start"] == "own"] for part in parts)
    shared = first.intersection(second)
    pair = (moments(one), moments(other))
    welch = welch_test(*pair)
    paired = paired_test(one[shared], other[shared]) if len(shared) > 1 else None
    tests = zip(TESTS, (welch, student_test(*pair), paired), strict=True)
    line: dict[str, object] = {"network": a, "other": b, "seeds": min(len(one), len(other))}
    line |= {"difference": welch.difference, "low": welch.low, "high": welch.high, "cohens d": cohens_d(*pair)}
    return line | {f"{name} {k}": getattr(test, k, math.nan) for name, test in tests for k in ("t", "df", "p")}


def recomputed(asked: RepresentationComparing) -> pd.DataFrame:
    """Return each printed test beside Student's t from the printed means, of table 2 and of section 6 with the notes.

    The last is given twice: assuming that printed deviations were divided by n - 1, since the paper does not say
    otherwise, and by n, numpy's default. Cohen's d follows from t as t sqrt(2 / n), so a printed d shows from which t
    it was computed.
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
            means = (table.loc[test[network], ["mean", "sd"]].astype(float) for network in ("network", "other"))
            a, b = (Moments(float(m["mean"]), float(m["sd"]) * factor, asked.runs) for m in means)
            line |= {f"{name} t": student_test(a, b).t, f"{name} d": abs(cohens_d(a, b))}
        rows.append(line)
    return pd.DataFrame(rows)


def judged(rows: pd.DataFrame, dead: pd.DataFrame, settings: Sequence[Setting]) -> pd.DataFrame:
    """Return the runs that each claim is judged by: one row per claim, network and seed.

    They are the runs of the setting nearest to the paper's protocol that has enough finished runs of the networks that
    a claim compares. ``never`` is the share of a run's outputs that no training image activates at the end.
    """
    counts = {s: Counter(map(str, matching(rows, setting=str(s))["network"])) for s in settings}
    ends = last_epochs(matching(dead, layer="output", part="train"))
    whole = rows.merge(ends.assign(never=ends["never"] / 100)[[*WHERE, "never"]], on=list(WHERE), how="left")
    parts = []
    for claim, setting, names in _chosen(counts):
        part = matching(whole, setting=str(setting))
        parts.append(part[part["network"].isin(names)].assign(claim=claim))
    columns = ["claim", *WHERE, "test_accuracy", "never", "protocol", "length", "origin"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _chosen(counts: Mapping[Setting, Counter[str]]) -> Iterator[tuple[str, Setting, tuple[str, ...]]]:
    """Yield each claim with the setting in which it is judged, and the networks that it compares there."""
    for claim, groups in NEEDED.items():
        for names in groups:
            fitting = [setting for setting, found in counts.items() if set(found) >= set(names)]
            yield from ((claim, setting, names) for setting in _nearest(fitting, counts, names))
    # Networks with a distance layer are compared with the baselines of the same setting, if these were run.
    names = ("relu", "abs", *DISTANCES)
    either = [s for s, found in counts.items() if found.keys() & {"relu", "abs"} and found.keys() & set(DISTANCES)]
    yield from (("C16", setting, names) for setting in _nearest(either, counts, names))


def _nearest(
    fitting: Sequence[Setting], counts: Mapping[Setting, Counter[str]], names: Sequence[str]
) -> Sequence[Setting]:
    """Return the setting nearest to the paper's with enough runs of each network; otherwise the one with most runs."""
    needed = {s: LOOKS[0][0] if s.protocol else FEWEST for s in fitting}
    enough = [s for s in fitting if all(counts[s][name] >= needed[s] for name in names)]
    most = sorted(fitting, key=lambda s: sum(counts[s][name] for name in names), reverse=True)
    return (enough or most)[:1]


def epoch_reached(epochs: np.ndarray, values: np.ndarray, goal: float) -> float:
    """Return the epoch at which a curve first reaches the value ``goal``; NaN where it never does.

    Between observed epochs the curve is assumed to be linear in the logarithm of epoch + 1.

    >>> round(epoch_reached(np.array([0.0, 9.0, 99.0]), np.array([0.0, 0.0, 1.0]), 0.5), 1)
    30.6
    """
    reached = np.flatnonzero(values >= goal)
    if not len(reached):
        return math.nan
    i = int(reached[0])
    if i == 0:
        return float(epochs[0])
    share = (goal - values[i - 1]) / (values[i] - values[i - 1])
    ends = np.log1p(epochs[i - 1 : i + 1])
    return float(np.expm1(ends[0] + share * (ends[1] - ends[0])))


def placements(table: pd.DataFrame, settings: Sequence[Setting]) -> pd.DataFrame:
    """Return where each printed mean lies on our mean curve of test accuracy, in the setting nearest to the paper's.

    ``table`` holds the histories.
    """
    there = {str(setting): networks_of(table, setting) for setting in settings}
    rows = []
    for row in printed("test_accuracy").itertuples():
        setting = next((s for s, names in there.items() if row.network in names), None)
        if setting is None:
            continue
        epochs, values = by_seed(matching(table, setting=setting, network=row.network), "epoch", "test_accuracy")
        mean, goal = 100 * np.nanmean(values, axis=0), float(str(row.mean))
        rows.append({
            "setting": setting, "network": row.network, "column": row.column, "printed": goal,
            "printed epochs": row.epochs, "our epoch": epoch_reached(epochs, mean, goal),
            "our last": float(mean[-1]), "our best": float(mean.max()), "seeds": len(values),
        })  # fmt: skip
    names = ["setting", "network", "column", "printed", "printed epochs", "our epoch", "our last", "our best", "seeds"]
    return pd.DataFrame(rows, columns=names)


def pixels_compared(runs: Sequence[TrainedNetwork], settings: Sequence[Setting]) -> pd.DataFrame:
    """Return raw pixels beside each other form of pixels, at equal epochs and data: accuracies in per cent by start."""
    rows = []
    for start in dict.fromkeys(run.job.replay for run in runs if run.job.pixels != "raw"):
        table = histories([run for run in runs if run.job.replay == start])
        for raw in (s for s in settings if s.pixels == "raw"):
            for other in settings:
                if other.pixels != "raw" and (other.data, other.train_size) == (raw.data, raw.train_size):
                    shared = set(networks_of(table, other))
                    names = [n for n in networks_of(table, raw) if n in shared]
                    rows += [line for n in names if (line := _at_equal_epochs(table, raw, other, n))]
    names = ["network", "data", "train_size", "epochs", "raw", "other", "form", "difference", "seeds"]
    return pd.DataFrame(rows, columns=names)


def _at_equal_epochs(table: pd.DataFrame, raw: Setting, other: Setting, network: str) -> dict[str, object] | None:
    parts = [matching(table, setting=str(s), network=network) for s in (raw, other)]
    last = max(set(parts[0]["epoch"]) & set(parts[1]["epoch"]), default=0)
    if last == 0:
        return None
    at = [100 * matching(part, epoch=last).set_index("seed")["test_accuracy"] for part in parts]
    gaps = (at[0] - at[1]).dropna()
    return {
        "network": network, "data": raw.data, "train_size": raw.train_size, "epochs": int(last),
        "raw": float(at[0].mean()), "other": float(at[1].mean()), "form": other.pixels,
        "difference": mean_text(gaps), "seeds": len(gaps),
    }  # fmt: skip


def columns_compared(rows: pd.DataFrame, settings: Sequence[Setting], asked: RepresentationComparing) -> pd.DataFrame:
    """Return how far our means by the paper's protocol are from table 2, and from §6 with the notes."""
    theirs = printed("test_accuracy").set_index(["column", "network"])["mean"]
    groups = {"table 2": ("table 2",), "section 6 and notes": ("section 6", "notes")}
    found = []
    for setting in (s for s in settings if s.protocol):
        ours = matching(rows, setting=str(setting)).groupby("network")["test_accuracy"].mean()
        for name, columns in groups.items():
            pairs = [(c, n) for n in asked.steady for c in columns if (c, n) in theirs.index and n in ours.index]
            gaps = [abs(float(ours[n]) - float(theirs[c, n])) for c, n in pairs]
            if gaps:
                found.append({"epochs": setting.epochs, "column": name, "distance": float(np.mean(gaps))})
    return pd.DataFrame(found, columns=["epochs", "column", "distance"])


def follow(tests: pd.DataFrame, asked: RepresentationComparing) -> pd.DataFrame:
    """Return how many printed t values follow from the printed means of each column."""
    rows = []
    for column in ("table 2", "section 6", "section 6, sd of n"):
        # Reversed order reverses the sign of t; d gives the t that was computed where the printed t was miscopied.
        ours = np.abs(tests[f"{column} t"])
        miss = np.minimum(np.abs(ours / np.abs(tests["printed t"]) - 1), np.abs(ours / tests["t of printed d"] - 1))
        rows.append({"column": column, "tests": len(tests), "follow": int((miss < asked.same_t).sum())})
    return pd.DataFrame(rows)


def section_of(heading: str, text: str, missing: str, *found: Block | None) -> Section:
    """Return a section with the blocks that are not None or, if there are none, with a sentence on what is missing."""
    kept = tuple(block for block in found if block is not None)
    return Section(heading, (Prose(text), *(kept or (Prose(missing),))))


def over_seeds(table: pd.DataFrame, measures: Iterable[str], plain: Iterable[str] = ()) -> pd.DataFrame:
    """Return one row per network: its number of seeds, each measure's mean [interval], and the plain ones' mean."""
    rows = []
    for network, part in table.groupby("network", sort=False):
        line: dict[str, object] = {"network": title(str(network)), "seeds": len(part)}
        line |= {name: mean_text(part[name]) for name in measures}
        rows.append(line | {name: float(part[name].mean()) for name in plain})
    return pd.DataFrame(rows)
