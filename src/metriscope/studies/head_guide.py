"""Which head to choose, from records of contests: ``python -m metriscope.studies.head_guide PAGE`` writes the page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from metriscope.functional import summarize
from metriscope.report import Prose, Section, Table
from metriscope.report.markdown import markdown
from metriscope.runs.records import Record, read, shipped
from metriscope.studies.heads.figures import named
from metriscope.studies.heads.measure import means, standing
from metriscope.studies.heads.page import overview
from metriscope.studies.heads.plan import CONTESTS, SETS, STUDY, HeadContest
from metriscope.studies.tidy_tables import matching

__all__ = ["QUESTIONS", "Question", "answer", "caution", "main", "page", "scores"]

BASE = "linear"


@dataclass(frozen=True)
class Question:
    """What matters to somebody who chooses a head: a score, its unit, and whether a smaller value is better."""

    text: str
    score: str
    unit: str
    digits: int
    smaller: bool = False
    per_class: int = 0


QUESTIONS = (
    Question("Accuracy", "accuracy", " %", 1),
    Question("Log-loss as trained", "log_loss", "", 3, smaller=True),
    Question("Calibration error as trained", "ece", "", 3, smaller=True),
    Question("Calibration error after temperature scaling", "scaled_ece", "", 3, smaller=True),
    Question("Detecting out-of-distribution inputs by largest logit (AUROC)", "auroc", "", 3),
    Question("Detecting out-of-distribution inputs by largest probability (AUROC)", "sure_auroc", "", 3),
    Question("Accuracy on noisy inputs", "noisy_accuracy", " %", 1),
    Question("Accuracy with 5 training points per class", "accuracy", " %", 1, per_class=5),
)


def scores(records: Sequence[Record]) -> pd.DataFrame:
    """Return the scores of all recorded contests, one row per data set, entry and start."""
    rows = [
        record.table("scores").assign(
            contest=record.spec["contest"],
            data=record.spec["data"],
            per_class=record.spec["per_class"],
            counted=SETS[record.spec["data"]].data == record.spec["data"],
        )
        for record in records
        if record.kind == HeadContest.__name__
    ]
    if not rows:
        raise ValueError("no contest of heads is recorded")
    return pd.concat(rows, ignore_index=True)


def answer(table: pd.DataFrame, asked: Question) -> str:
    """Return a sentence: which head is best on average over data sets, and how far it is from the linear head."""
    contest = "few" if asked.per_class else "heads"
    rows = matching(table[table["counted"]], per_class=asked.per_class)
    wide = means(rows, contest, asked.score, asked.per_class).dropna(axis=1)
    averages = wide.mean()
    best = str(averages.idxmin() if asked.smaller else averages.idxmax())
    text, base = f"{averages[best]:.{asked.digits}f}{asked.unit}", f"{averages[BASE]:.{asked.digits}f}{asked.unit}"
    if best == BASE:
        second = averages.drop(BASE)
        other = str(second.idxmin() if asked.smaller else second.idxmax())
        return (
            f"**{asked.text}:** the linear head is best, {base} on average over {len(wide)} data sets; next is "
            f"{named(other)} with {second[other]:.{asked.digits}f}{asked.unit}."
        )
    difference = (wide[best] - wide[BASE]) * (-1 if asked.smaller else 1)
    spread = summarize(difference.to_numpy())
    sure = "significant" if spread.low > 0 else "not significant"
    return (
        f"**{asked.text}:** {named(best)} is best, {text} on average over {len(wide)} data sets, against {base} for "
        f"the linear head. It is better on {int((difference > 0).sum())} of them; the mean difference is {sure} at "
        f"the 5 % level (t interval {spread.low:.{asked.digits}f} to {spread.high:.{asked.digits}f}, without "
        "correction for choosing the best)."
    )


def caution(table: pd.DataFrame) -> str:
    """Return a sentence on heads whose largest logit is larger out of distribution; empty if there are none."""
    rows = matching(table[table["counted"]], per_class=0)
    wide = means(rows, "heads", "auroc") if "auroc" in rows else pd.DataFrame()
    worse = wide.mean()[wide.mean() < 0.5]
    if worse.empty:
        return ""
    names = ", ".join(f"{named(str(name))} ({value:.2f})" for name, value in worse.items())
    return (
        "**Do not use the distance to the nearest prototype as a novelty score** with prototypes that were trained by "
        f"cross-entropy: out-of-distribution points are then nearer to prototypes (AUROC below 0.5): {names}. "
        "Use the largest probability instead, or prototypes that are class means."
    )


def _by_data(table: pd.DataFrame) -> Table:
    """Return the accuracy of every head on every data set, mean and half of its 95 % interval over starts."""
    rows, columns = matching(table, contest="heads"), {}
    for data, part in rows.groupby("data", sort=False):
        cells = {}
        for entry, own in part.groupby("entry", sort=False):
            found = summarize(own["accuracy"].to_numpy())
            cells[named(str(entry))] = f"{found.mean:.1f} ± {(found.high - found.low) / 2:.1f}"
        columns[str(data)] = cells
    frame = pd.DataFrame(columns).rename_axis("head").reset_index()
    note = "Test accuracy in per cent: mean over starts ± half of its 95 % interval."
    return Table("heads-by-data", "Accuracy by data set", frame, note)


def _ranks(table: pd.DataFrame) -> Table:
    """Return average ranks over data sets by several scores, with critical differences in the last row."""
    columns, distances = {}, {}
    for asked in (one for one in QUESTIONS if not one.per_class):
        found = standing(table, "heads", asked.score, asked.smaller)
        if found is not None:
            ranking, names = found
            columns[asked.text] = {named(name): float(rank) for name, rank in zip(names, ranking.ranks, strict=True)}
            distances[asked.text] = ranking.critical_difference
    frame = pd.DataFrame(columns).sort_values(QUESTIONS[0].text)
    frame.loc["critical difference"] = pd.Series(distances)
    note = (
        "Average rank over data sets, 1 is best. Two heads whose ranks differ by more than the critical difference are "
        "significantly different by Nemenyi's test at the 5 % level."
    )
    formats = dict.fromkeys(columns, ".1f")
    return Table("heads-ranks", "Ranks", frame.rename_axis("head").reset_index(), note, formats)


def _few(table: pd.DataFrame) -> Table:
    frame = overview(table, "few")[["entry", "points per class", "accuracy, %", "calibration error"]]
    wide = frame.pivot_table(index="entry", columns="points per class", values="accuracy, %", sort=False)
    wide.columns = [f"{count} per class" for count in wide.columns]
    note = f"Test accuracy in per cent, mean over {', '.join(CONTESTS['few'].data)}."
    return Table("heads-few", "Few training points", wide.reset_index(), note, dict.fromkeys(wide.columns, ".1f"))


def page(records: Sequence[Record] | None = None) -> str:
    """Return the page as Markdown, from the records that come with the package by default."""
    table = scores(read(shipped(STUDY)) if records is None else records)
    shape = HeadContest("", "", ())
    opening = (
        "Written by a program from records of `metriscope reproduce heads --profile paper`. Every head is on the "
        f"same encoder (one hidden layer of {CONTESTS['heads'].entries[0].hidden} ReLU units), has the same budget for "
        f"tuning ({len(shape.rates)} learning rates), and is trained from {shape.starts} starts. Heads are plain "
        "modules: `ms.nn.build_head(name, features, classes)`."
    )
    questions = [q for q in QUESTIONS if len(matching(table, per_class=q.per_class))]
    answers = "\n".join(f"- {text}" for text in (*(answer(table, q) for q in questions), caution(table)) if text)
    whole = overview(table, "heads")
    formats = {c: ".1f" if "%" in c and "FPR" not in c else ".3f" for c in whole.columns if c != "entry"}
    count = matching(table, contest="heads", counted=True)["data"].nunique()
    averages = Table("heads-overview", "Every score", whole, f"Mean over {count} data sets and all starts.", formats)
    tables = [averages, _by_data(table), _ranks(table)]
    tables += [_few(table)] if len(matching(table, contest="few")) else []
    return markdown(
        "Choosing a head",
        opening,
        (Section("Which would you choose, and when?", (Prose(answers),)), Section("The numbers", tuple(tables))),
    )


def main(arguments: Sequence[str]) -> None:
    """Write the page to the file named in the arguments."""
    Path(arguments[0]).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
