"""The section on the replayed runs: published beside ours, digit by digit."""

from __future__ import annotations

import numpy as np
import pandas as pd

from metriscope.report import Prose, Section, Table, number
from metriscope.studies.mahalanobis.measure import MahalanobisResults
from metriscope.studies.mahalanobis.plan import AUTHOR_SEED, METRICS, PAPER
from metriscope.studies.mahalanobis.replay.measure import RECORD
from metriscope.studies.mahalanobis.replay.plan import CLOSE, LOOSE
from metriscope.studies.mahalanobis.trials.measure import TITLES
from metriscope.studies.published import source_of

__all__ = ["section"]

INTRODUCTION = (
    "The author trained on a GPU from the seed {seed}. PyTorch's CUDA generator, Philox4x32-10, computes each number "
    "from a counter, so its numbers can be computed on any machine (`metriscope.rng.cuda_normal`). The runs below use "
    "the very Gaussian, training points and starting weights of the published ones. Numbers agree if they differ by at "
    "most {close} of their size or half of the last printed digit. Trainings that have not converged amplify "
    "differences in rounding until they part. For ReLU and Sigmoid beyond 2-D, therefore, only mean and extremes of "
    "the loss and the best trial are compared, within {loose}. New points are drawn afresh, so their losses are shown "
    "and not judged. Source of the published numbers: {source}."
)


def section(results: MahalanobisResults) -> tuple[Section, ...]:
    """Return the section, or nothing where no trial was replayed or recorded."""
    rows = results.tables["replay"]
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
