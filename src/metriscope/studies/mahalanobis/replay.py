"""The published runs, replayed from the author's own random numbers: published beside ours, digit by digit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from metriscope.report import Prose, Section, Table, number
from metriscope.runs import Driver, Result, once
from metriscope.studies.mahalanobis.experiments import CHAOTIC, CLOSE, LOOSE, replay_of
from metriscope.studies.mahalanobis.plan import AUTHOR_SEED, METRICS, PAPER, MahalanobisPlan
from metriscope.studies.mahalanobis.trials import TITLES
from metriscope.studies.tidy_tables import matching, published, source_of

__all__ = ["agreement", "compared", "half_digit", "replayed", "section"]

RECORD = "mahalanobis-record"
COLUMNS = ("activation", "trial", "train_mse", "test_mse", "mirrored", "centering", "sphericity")
# How the record computes its statistics over trials: pandas divides by one less than their number, numpy by it.
STATISTICS: Mapping[str, Callable[[pd.Series], float]] = {
    "mean": pd.Series.mean,
    "sd": pd.Series.std,
    "variance": np.var,
    "minimum": pd.Series.min,
    "maximum": pd.Series.max,
}
BEST_TRIAL, BEST_RUN = "best trial", "best run"


def replayed(plan: MahalanobisPlan, trials: pd.DataFrame, driver: Driver) -> pd.DataFrame:
    """Return the replayed trials of all dimensions: of this run where it replays, otherwise those recorded."""
    whole = {replay_of(dim): matching(trials, dim=dim, start="random") for dim in plan.sizes if plan.complete(dim)}
    done = driver.perform(whole, once(lambda spec: Result({"trials": _kept(whole[spec])})), "mahalanobis: replay")
    found = [run.table("trials").assign(dim=spec.task.dim, origin="run") for spec, run in done.items()]
    some = [dim for dim in plan.sizes if plan.replayed(dim) and not plan.complete(dim)]
    found += [_kept(matching(trials, dim=dim, start="random")).assign(dim=dim, origin="run") for dim in some]
    others = [replay_of(dim) for dim in PAPER if not plan.replayed(dim) or dim not in plan.sizes]
    recorded = driver.recorded(others)
    found += [record.table("trials").assign(dim=spec.task.dim, origin="record") for spec, record in recorded.items()]
    columns = ["dim", *COLUMNS, "origin"]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


def _kept(trials: pd.DataFrame) -> pd.DataFrame:
    return trials[list(COLUMNS)].sort_values(["activation", "trial"], ignore_index=True)


def compared(trials: pd.DataFrame) -> pd.DataFrame:
    """Return one row per printed number: published and ours, their difference, and whether they agree."""
    rows = []
    for row in published(RECORD).to_dict("records"):
        part = matching(trials, dim=row["dim"], activation=row["activation"])
        if len(part):
            rows.append(_compared(row, part))
    columns = ["dim", "activation", "metric", "statistic", "published", "ours", "difference", "allowed", "agrees"]
    return pd.DataFrame(rows, columns=[*columns, "trials", "origin"])


def _compared(row: Mapping[Any, Any], part: pd.DataFrame) -> dict[str, object]:
    metric, statistic, printed = (str(row[name]) for name in ("metric", "statistic", "printed"))
    best = part.iloc[int(part["train_mse"].to_numpy().argmin())]
    if statistic == BEST_TRIAL:
        ours = float(best["trial"])
    else:
        ours = float(best[metric] if statistic == BEST_RUN else STATISTICS[statistic](part[metric]))
    allowed = agreement(row["dim"], row["activation"], metric, statistic)
    theirs = float(printed)
    close = max(allowed * abs(theirs), half_digit(printed)) if statistic != BEST_TRIAL else 0.0
    return {
        **{name: row[name] for name in ("dim", "activation", "metric", "statistic")},
        "published": theirs, "ours": ours, "difference": spread(ours, theirs, printed), "allowed": allowed,
        "agrees": None if np.isnan(allowed) else bool(abs(ours - theirs) <= close),
        "trials": part["trial"].nunique(), "origin": part["origin"].iloc[0],
    }  # fmt: skip


def agreement(dim: int, activation: str, metric: str, statistic: str) -> float:
    """Return the relative difference that is allowed; NaN where a number is shown and not judged.

    New points are drawn afresh, so their losses cannot agree. Where training is chaotic, the mean and the extremes of
    the training loss are compared, and which trial is best.

    >>> agreement(2, "relu", "centering", "mean"), agreement(10, "relu", "train_mse", "mean")
    (0.001, 0.02)
    """
    if metric == "test_mse":
        return np.nan
    if (dim, activation) not in CHAOTIC:
        return CLOSE
    return LOOSE if metric == "train_mse" and statistic != "variance" else np.nan


def half_digit(printed: str) -> float:
    """Return half of the last digit of a printed number.

    >>> half_digit("0.4571"), half_digit("2e-6")
    (5e-05, 5e-07)
    """
    return 0.5 * 10.0 ** int(Decimal(printed).as_tuple().exponent)


def spread(ours: float, theirs: float, printed: str) -> float:
    """Return the relative difference; zero where ours rounds to what is printed.

    >>> spread(0.45708, 0.4571, "0.4571"), spread(1.001, 1.0, "1.0000")
    (0.0, 0.001)
    """
    apart = abs(ours - theirs)
    if apart <= half_digit(printed):
        return 0.0
    return round(apart / abs(theirs), 12) if theirs else np.inf


INTRODUCTION = (
    "The author trained on a GPU from the seed {seed}. PyTorch's CUDA generator, Philox4x32-10, computes each number "
    "from a counter, so its numbers can be computed on any machine (`metriscope.rng.cuda_normal`). The runs below use "
    "the very Gaussian, training points and starting weights of the published ones. Numbers agree if they differ by at "
    "most {close} of their size or half of the last printed digit. Trainings that have not converged amplify "
    "differences in rounding until they part. For ReLU and Sigmoid beyond 2-D, therefore, only mean and extremes of "
    "the loss and the best trial are compared, within {loose}. New points are drawn afresh, so their losses are shown "
    "and not judged. Source of the published numbers: {source}."
)


def section(rows: pd.DataFrame) -> tuple[Section, ...]:
    """Return the section, or nothing where no trial was replayed or recorded."""
    if rows.empty:
        return ()
    text = INTRODUCTION.format(seed=AUTHOR_SEED, close=f"{CLOSE:.1%}", loose=f"{LOOSE:.0%}", source=source_of(RECORD))
    blocks = (Prose(f"{text}\n\n{_summary(rows)}"), _overview(rows), _table(rows))
    return (Section("Replay of the published runs", blocks),)


def _summary(rows: pd.DataFrame) -> str:
    """Say how many numbers agree in each dimension, and which do not."""
    sentences = []
    for dim, part in rows.groupby("dim", sort=False):
        judged = part[part["agrees"].notna()]
        apart = judged[judged["agrees"] == False]  # noqa: E712  the column also holds None
        names = ", ".join(
            f"{TITLES[r.activation]} {r.statistic} of {r.metric} ({number(r.ours, 4)} for {number(r.published, 4)})"
            for r in apart.itertuples()
        )
        count = int(part["trials"].iloc[0])
        short = (
            "" if count == PAPER[int(str(dim))].trials else f" (only {count} of {PAPER[int(str(dim))].trials} trials)"
        )
        rest = f" Not: {names}." if names else ""
        sentences.append(f"**{dim}-D**{short}: {len(judged) - len(apart)} of {len(judged)} numbers agree.{rest}")
    return " ".join(sentences)


def _overview(rows: pd.DataFrame) -> Table:
    """Return the largest relative difference of each network and metric, and whether the best trial is the same."""
    found = []
    for (dim, activation), part in rows.groupby(["dim", "activation"], sort=False):
        largest = {
            metric.title: part[(part["metric"] == metric.name) & (part["statistic"].isin(("mean", "sd", "maximum")))][
                "difference"
            ].max()
            for metric in METRICS
            if metric.published and metric.name != "test_mse"
        }
        best = part[part["statistic"] == "best trial"].iloc[0]
        trial = f"{best['ours']:.0f} ({best['published']:.0f})"
        found.append({"dimension": dim, "network": TITLES[str(activation)], **largest, "best trial (published)": trial})
    frame = pd.DataFrame(found).replace(np.inf, np.nan)
    note = (
        "Largest relative difference of mean, standard deviation and maximum; 0 where ours rounds to what is printed."
    )
    return Table("replay-largest", "How far the replayed runs are from the published ones", frame, note)


def _table(rows: pd.DataFrame) -> Table:
    frame = rows.assign(agrees=rows["agrees"].map({True: "yes", False: "no"}).fillna("not judged"))
    note = "`difference` and `allowed` are relative; a difference is 0 where ours rounds to what is printed."
    formats = {"ours": 6, "published": 6, "difference": 2}
    here = bool((rows["origin"] == "run").any())
    return Table("replay", "The author's record beside the replayed runs", frame, note, formats, terminal=here)
