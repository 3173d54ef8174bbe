"""Tables of every metric with its statistics, ours beside the published."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from metriscope.probes import lost_directions
from metriscope.report import Table, interval, number
from metriscope.report.numbers import MISSING
from metriscope.studies.mahalanobis.measure import Results
from metriscope.studies.mahalanobis.plan import NAME, PAPER, Plan
from metriscope.studies.mahalanobis.trials.measure import TITLES, best_trials
from metriscope.studies.mahalanobis.trials.plan import METRICS
from metriscope.studies.published import published

__all__ = ["beside", "lost", "metrics", "placement", "protocol"]

STATISTICS = ("mean", "sd", "variance", "minimum", "maximum", "low", "high")
SHORT = {"minimum": "min", "maximum": "max", "low": "95 % low", "high": "95 % high", "best": "best run"}


def protocol(plan: Plan) -> Table:
    """Return what was run beside what the paper ran."""
    names = ("samples", "epochs", "trials", "test_samples")
    rows = []
    for dim, size in plan.sizes.items():
        paper = PAPER.get(dim)
        ours = {f"{n} (ours)": getattr(size, n) for n in names}
        rows.append({"dimension": dim, **ours, **{f"{n} (published)": getattr(paper, n, None) for n in names}})
    groups = {kind: tuple(f"{n} ({kind})" for n in names) for kind in ("ours", "published")}
    labels = {f"{n} ({kind})": n.replace("_", " ") for n in names for kind in ("ours", "published")}
    frame = pd.DataFrame(rows)
    formats = dict.fromkeys(labels, ",.0f")
    return Table("protocol", "What was run", frame, groups=groups, labels=labels, formats=formats)


def metrics(plan: Plan, results: Results, dim: int) -> Table:
    """Return every metric of one dimension over all trials from random starts, ours and published."""
    table = results.tables["summary"][results.tables["summary"]["dim"] == dim]
    best = best_trials(results.select(dim=dim))
    printed = published(NAME)
    printed = printed[printed["dim"] == dim].set_index(["activation", "metric"])
    rows = []
    for metric in METRICS:
        for activation in (*plan.activations, "truth"):
            start = "none" if activation == "truth" else "random"
            key = (table["activation"] == activation) & (table["start"] == start) & (table["metric"] == metric.name)
            if key.any():
                ours = table[key].iloc[0][list(STATISTICS)].to_dict()
                top = best[(best["activation"] == activation) & (best["start"] == start)][metric.name].iloc[0]
                theirs = _printed(printed, (activation, metric.name))
                rows.append({"metric": metric.title, "network": TITLES[activation], **ours, "best": top, **theirs})
    theirs_columns = tuple(f"published {n}" for n in ("mean", "sd", "variance", "minimum", "maximum", "best"))
    frame = pd.DataFrame(rows, columns=["metric", "network", *STATISTICS, "best", *theirs_columns]).astype(
        dict.fromkeys([*STATISTICS, "best", *theirs_columns], float)
    )
    labels = {n: SHORT.get(n, n) for n in (*STATISTICS, "best")}
    labels |= {n: SHORT.get(n.split()[1], n.split()[1]) for n in theirs_columns}
    groups = {"ours": (*STATISTICS, "best"), "published": theirs_columns}
    note = f"{_length(plan, dim)} Interval: 95 % t interval of the mean. Best run: least training loss."
    return Table(f"metrics-{dim}d", f"{dim}-D, all metrics", frame, note, groups=groups, labels=labels)


def beside(plan: Plan, results: Results, dim: int) -> Table:
    """Return the metrics that S1 prints, ours beside the published: means with intervals, and best runs."""
    whole = metrics(plan, results, dim).frame
    printed = [m.title for m in METRICS if m.published]
    rows = whole[whole["metric"].isin(printed)].reset_index(drop=True)
    columns = {
        "metric": rows["metric"],
        "network": rows["network"],
        "ours mean": rows["mean"],
        "ours 95 % interval": [_interval(*ends) for ends in zip(rows["low"], rows["high"], strict=True)],
        "ours best": rows["best"],
        "published mean": rows["published mean"],
        "published best": rows["published best"],
    }
    groups = {
        "ours": ("ours mean", "ours 95 % interval", "ours best"),
        "published": ("published mean", "published best"),
    }
    labels = {
        "ours mean": "mean",
        "ours 95 % interval": "95 % interval",
        "ours best": "best run",
        "published mean": "mean",
        "published best": "best run",
    }
    note = f"{_length(plan, dim)} Best run: least training loss."
    frame = pd.DataFrame(columns)
    return Table(f"beside-{dim}d", f"{dim}-D, ours beside the published", frame, note, groups=groups, labels=labels)


def _length(plan: Plan, dim: int) -> str:
    size, paper = plan.sizes[dim], PAPER.get(dim)
    short = paper is not None and size.epochs < paper.epochs
    shortened = f" **Shortened**: the published runs have {paper.epochs:,} epochs." if short and paper else ""
    return f"{size.trials} trials from random starts, {size.epochs:,} epochs.{shortened}"


def _interval(low: float, high: float) -> str:
    return MISSING if np.isnan(low) else interval(low, high)


def _printed(printed: pd.DataFrame, key: tuple[str, str]) -> dict[str, float]:
    if key not in printed.index:
        return {}
    row: Any = printed.loc[key]
    return {f"published {n}": row[n] for n in ("mean", "sd", "variance", "minimum", "maximum", "best")}


def placement(plan: Plan, results: Results) -> Table:
    """Return where each mean loss lies in the published range and, where outside, why."""
    printed = published(NAME)
    printed = printed[printed["metric"] == "train_mse"].set_index(["dim", "activation"])
    rows = []
    for dim in plan.sizes:
        for activation in plan.activations:
            if (dim, activation) in printed.index:
                theirs = printed.loc[(dim, activation)]
                ours = results.select(dim=dim, start="random", activation=activation)["train_mse"].mean()
                low, high = theirs["minimum"], theirs["maximum"]
                inside = bool(low <= ours and (pd.isna(high) or ours <= high))
                why = "inside" if inside else _why_outside(plan, results, dim, activation, float(theirs["mean"]))
                rows.append({"dimension": dim, "network": TITLES[activation], "ours mean": ours})
                rows[-1] |= {
                    "published mean": theirs["mean"],
                    "published min": low,
                    "published max": high,
                    "place": why,
                }
    note = "The published extremes are those over 20 trials on one Gaussian, which is not printed; ours is another."
    return Table("placement", "Mean training loss in the published range", pd.DataFrame(rows), note)


def _why_outside(plan: Plan, results: Results, dim: int, activation: str, theirs: float) -> str:
    if not plan.protocol(dim):
        return "outside: shortened, fewer epochs than the protocol"
    part = results.tables["gaussians"][
        (results.tables["gaussians"]["dim"] == dim) & (results.tables["gaussians"]["activation"] == activation)
    ]["mse"]
    if part.empty:
        return "outside: another Gaussian (no further ones were run)"
    means = [*part, results.select(dim=dim, start="random", activation=activation)["train_mse"].mean()]
    span = f"{number(float(min(means)))} to {number(float(max(means)))}"
    covered = "covers" if min(means) <= theirs <= max(means) else "does not cover"
    return f"outside: the Gaussian decides; over {len(means)} of them means run from {span}: {covered} the published"


def lost(results: Results) -> Table:
    """Return the directions lost, which they were, and what theory expects of the trials that lost some."""
    rows = []
    for key, part in results.select().groupby(["dim", "start", "activation"], sort=False):
        dim, start, activation = int(part["dim"].iloc[0]), *key[1:]
        trials = part[part["lost"] > 0]
        if activation in ("abs", "relu") and dim > 1:
            typical = int(trials["lost"].median()) if len(trials) else 0
            theory = lost_directions(dim, min(typical, dim - 1))
            rows.append({
                "dimension": dim, "start": start, "network": TITLES[activation], "trials": len(part),
                "trials that lost": len(trials), "directions lost": trials["lost"].mean(),
                "smallest variance": (trials["lost_axis"] == dim - 1).mean() if len(trials) else np.nan,
                "constant": trials["constant"].mean(), "constant, theory": theory.constant if typical else np.nan,
                "MSE new points": trials["test_mse"].mean(), "MSE, theory": theory.loss if typical else np.nan,
                "sphericity": trials["sphericity"].mean(),
                "sphericity, theory": theory.sphericity if typical and activation == "abs" else np.nan,
            })  # fmt: skip
    note = (
        "Means over the trials that lost a direction: the learned metric, in which each unit counts as often as it is "
        "on, gives it under a tenth of its squared length. "
        "“Smallest variance”: the share of them whose last direction lies mostly on the principal axis of least "
        "variance. Theory: white in the others, the best constant in place of as many as the median trial lost."
    )
    formats = {"smallest variance": ".0%"}
    return Table("lost-directions", "Lost directions and what stands in for them", pd.DataFrame(rows), note, formats)
