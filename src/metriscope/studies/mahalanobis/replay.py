"""The published runs, replayed from the author's own random numbers: published numbers beside ours, digit by digit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from metriscope.report import Prose, Section, Table, number
from metriscope.runs import Driver, Result, once
from metriscope.studies.mahalanobis.experiments import (
    CHAOTIC,
    CLOSE,
    LOOSE,
    RECORDED,
    EarlyRanks,
    ReplayedTrials,
    replay_of,
)
from metriscope.studies.mahalanobis.plan import AUTHOR_SEED, AUTHOR_THREADS, METRICS, PAPER, MahalanobisPlan
from metriscope.studies.mahalanobis.trials import TITLES
from metriscope.studies.tidy_tables import matching, published, source_of

__all__ = ["agreement", "chance_of_lowest", "compared", "early_ranks", "half_digit", "ranked", "replayed", "section"]

RECORD = "mahalanobis-record"
COLUMNS = ("activation", "trial", "train_mse", "test_mse", "mirrored", "centering", "sphericity")
# How the record computes its statistics over trials: pandas divides by their number minus one, numpy by their number.
STATISTICS: Mapping[str, Callable[[pd.Series], float]] = {
    "mean": pd.Series.mean,
    "sd": pd.Series.std,
    "variance": np.var,
    "minimum": pd.Series.min,
    "maximum": pd.Series.max,
}
RANKS = ("activation", "share", "trials", "correlation", "leader", "best")
BEST_TRIAL, BEST_RUN = "best trial", "best run"


def replayed(plan: MahalanobisPlan, trials: pd.DataFrame, driver: Driver) -> pd.DataFrame:
    """Return the replayed trials of all dimensions: those of this run if it has any, otherwise those recorded."""
    whole = {spec: matching(trials, dim=spec.task.dim, start="random") for spec in _replays(plan)}
    done = driver.perform(whole, once(lambda spec: Result({"trials": _kept(whole[spec])})), "mahalanobis: replay")
    found = [run.table("trials").assign(dim=spec.task.dim, origin="run") for spec, run in done.items()]
    some = [dim for dim in plan.sizes if plan.replayed(dim) and not plan.full_length(dim)]
    found += [_kept(matching(trials, dim=dim, start="random")).assign(dim=dim, origin="run") for dim in some]
    recorded = driver.recorded(_not_run(plan))
    found += [record.table("trials").assign(dim=spec.task.dim, origin="record") for spec, record in recorded.items()]
    columns = ["dim", *COLUMNS, "origin"]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


def _replays(plan: MahalanobisPlan) -> list[ReplayedTrials]:
    sizes = {dim: size for dim, size in plan.sizes.items() if plan.full_length(dim)}
    return [replay_of(dim, size.trials, plan.activations) for dim, size in sizes.items()]


def _not_run(plan: MahalanobisPlan) -> list[ReplayedTrials]:
    return [spec for spec in RECORDED if not plan.replayed(spec.task.dim) or spec.task.dim not in plan.sizes]


def ranked(plan: MahalanobisPlan, history: pd.DataFrame, driver: Driver) -> pd.DataFrame:
    """Return how early losses rank the trials, for complete replays of this run and for recorded ones."""
    jobs = {EarlyRanks(spec): matching(history, dim=spec.task.dim, start="random") for spec in _replays(plan)}
    work = once(lambda spec: Result({"ranks": early_ranks(jobs[spec], spec.replay.recipe.epochs, spec.shares)}))
    found = {spec: run.table("ranks") for spec, run in driver.perform(jobs, work, "mahalanobis: early ranks").items()}
    recorded = driver.recorded([EarlyRanks(spec) for spec in _not_run(plan)])
    found |= {spec: record.table("ranks") for spec, record in recorded.items()}
    tables = [table.assign(dim=spec.replay.task.dim) for spec, table in found.items()]
    columns = ["dim", *RANKS]
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)


def early_ranks(history: pd.DataFrame, epochs: int, shares: tuple[float, ...]) -> pd.DataFrame:
    """Return, per activation and share of the epochs, how the losses so far rank the trials.

    ``correlation`` is Spearman's, with the final losses; ``leader`` is the best trial so far, ``best`` the final one.

    >>> loss = [4.0, 3.0, 1.0, 2.0]
    >>> table = pd.DataFrame({"activation": "abs", "trial": [0, 1, 0, 1], "epoch": [5, 5, 9, 9], "loss": loss})
    >>> early_ranks(table, 10, (0.6,))[["correlation", "leader", "best"]].round(6).to_numpy().tolist()
    [[-1.0, 1.0, 0.0]]
    """
    from scipy.stats import spearmanr

    rows = []
    for activation, part in history.groupby("activation", sort=False):
        losses = part.pivot(index="trial", columns="epoch", values="loss")
        last = losses.iloc[:, -1]
        for share in shares if len(losses) > 1 else ():
            early = losses.loc[:, : share * epochs].iloc[:, -1]
            value = float(spearmanr(early, last).statistic)
            rows.append((activation, share, len(losses), value, early.idxmin(), last.idxmin()))
    return pd.DataFrame(rows, columns=list(RANKS))


def chance_of_lowest(count: int, ours: int, theirs: int) -> float:
    """Return the probability that the ``count`` lowest of all trials are ours, if all have the same distribution.

    >>> chance_of_lowest(1, 5, 20)
    0.2
    """
    return math.comb(ours, count) / math.comb(ours + theirs, count)


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
    whole = part["trial"].nunique() == PAPER[row["dim"]].trials
    allowed = agreement(row["dim"], row["activation"], metric, statistic) if whole else np.nan
    theirs = float(printed)
    close = max(allowed * abs(theirs), half_digit(printed)) if statistic != BEST_TRIAL else 0.0
    return {
        **{name: row[name] for name in ("dim", "activation", "metric", "statistic")},
        "published": theirs, "ours": ours, "difference": spread(ours, theirs, printed), "allowed": allowed,
        "agrees": None if np.isnan(allowed) else bool(abs(ours - theirs) <= close),
        "trials": part["trial"].nunique(), "origin": part["origin"].iloc[0],
    }  # fmt: skip


def agreement(dim: int, activation: str, metric: str, statistic: str) -> float:
    """Return the relative difference that is allowed; NaN for a number that is shown but not judged.

    New points are not the published ones, so their losses cannot agree. Where training is chaotic, the mean and the
    extremes of the training loss are compared, and which trial is best.

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
    "the same Gaussian, training points and starting weights as the published ones. Numbers agree if they differ by at "
    "most {close} of their size or half of the last printed digit. Trainings that have not converged amplify "
    "differences in rounding until they diverge. For ReLU and Sigmoid beyond 2-D, therefore, only mean and extremes of "
    "the loss and the best trial are compared, within {loose}. New points are not the published ones, so their losses "
    "are shown and not judged. Source of the published numbers: {source}."
)


def section(rows: pd.DataFrame, trials: pd.DataFrame, ranks: pd.DataFrame) -> tuple[Section, ...]:
    """Return the section, or nothing if no trial was replayed or recorded."""
    if rows.empty:
        return ()
    text = INTRODUCTION.format(seed=AUTHOR_SEED, close=f"{CLOSE:.1%}", loose=f"{LOOSE:.0%}", source=source_of(RECORD))
    blocks = (Prose(f"{text}\n\n{_summary(rows)}"), *_overview(rows), *_grid(trials, ranks), _table(rows))
    return (Section("Replay of the published runs", blocks),)


GRID = (
    "**Which GPU, in 100-D?** The points in 100-D are more numbers than a GPU has threads, so they depend on how many "
    "it has, which is not printed. Here it is assumed to have {threads:,}. Of our {ours} Abs trials, {count} end below "
    "{least}, the least of the published {theirs}. If ours and the published ones were alike, the {count} lowest would "
    "all be ours with probability {chance}. {conclusion}"
)
OTHER = (
    "So the published points were probably different: this GPU is not identified. The table shows how long runs would "
    "have to be to choose another number of threads by which trial leads."
)
SAME = "That does not distinguish this number of threads from others."
# Below this probability, the published trials count as drawn from other points.
UNLIKELY = 0.01


def _grid(trials: pd.DataFrame, ranks: pd.DataFrame) -> tuple[Prose | Table, ...]:
    """Say whether the trials in 100-D are like the published ones, and how far early losses rank trials."""
    blocks: list[Prose | Table] = []
    where = {"dim": 100, "activation": "abs"}
    losses = matching(trials, **where)["train_mse"]
    printed = matching(published(RECORD), **where, metric="train_mse", statistic="minimum")["printed"].iloc[0]
    if count := int((losses < float(printed)).sum()):
        ours, theirs = len(losses), PAPER[100].trials
        chance = chance_of_lowest(count, ours, theirs)
        numbers = {"threads": AUTHOR_THREADS, "count": count, "ours": ours, "theirs": theirs, "least": printed}
        conclusion = OTHER if chance < UNLIKELY else SAME
        blocks.append(Prose(GRID.format(**numbers, chance=number(chance, 2), conclusion=conclusion)))
    if len(ranks):
        shown = ranks.assign(activation=ranks["activation"].map(TITLES), share=ranks["share"].map("{:.0%}".format))
        note = (
            "`correlation` is the rank correlation (Spearman) of the losses after this share of the epochs with the "
            "final losses; `leader` is the best trial so far, `best` the final one."
        )
        blocks.append(Table("replay-early-ranks", "Early losses rank trials", shown, note, {"correlation": 2}))
    return tuple(blocks)


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
        count, whole = int(part["trials"].iloc[0]), PAPER[int(str(dim))].trials
        if count != whole:
            sentences.append(f"**{dim}-D**: only {count} of {whole} trials, so numbers are shown and not judged.")
            continue
        rest = f" Not: {names}." if names else ""
        sentences.append(f"**{dim}-D**: {len(judged) - len(apart)} of {len(judged)} numbers agree.{rest}")
    return " ".join(sentences)


def _overview(rows: pd.DataFrame) -> tuple[Table, ...]:
    """Return the largest relative difference of each network and metric, and whether the best trial is the same."""
    found = []
    whole = rows[rows["trials"] == rows["dim"].map({dim: size.trials for dim, size in PAPER.items()})]
    for (dim, activation), part in whole.groupby(["dim", "activation"], sort=False):
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
    if not found:
        return ()
    frame = pd.DataFrame(found).replace(np.inf, np.nan)
    note = (
        "Largest relative difference of mean, standard deviation and maximum; 0 where ours rounds to what is printed."
    )
    return (Table("replay-largest", "How far the replayed runs are from the published ones", frame, note),)


def _table(rows: pd.DataFrame) -> Table:
    frame = rows.assign(agrees=rows["agrees"].map({True: "yes", False: "no"}).fillna("not judged"))
    note = "`difference` and `allowed` are relative; a difference is 0 where ours rounds to what is printed."
    formats = {"ours": 6, "published": 6, "difference": 2}
    here = bool((rows["origin"] == "run").any())
    return Table("replay", "The author's record beside the replayed runs", frame, note, formats, terminal=here)
