"""The study's part of the report: heads, few points, penalties, mixtures, OffsetL2, and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from metriscope.report import Block, Claim, Details, Ledger, Prose, Section, Table
from metriscope.studies.heads import figures, offsets
from metriscope.studies.heads.measure import means
from metriscope.studies.heads.plan import CONTESTS, TITLE, HeadContest, HeadsPlan
from metriscope.studies.tidy_tables import TidyTables, matching

__all__ = ["HIGHLIGHTS", "QUESTION", "contest_sections", "overview", "sections"]

QUESTION = (
    "Which last layer would you choose: a linear one, or one that measures distances to prototypes? Twelve heads on "
    "twelve data sets, with the same backbone and the same tuning, compared by accuracy, calibration and how well "
    "they notice strange inputs."
)
HIGHLIGHTS = ("contest-heads-ranks", "contest-reliability")

# Scores that tables show: their headings, digits, and whether more is better.
SHOWN_SCORES: Mapping[str, tuple[str, int, bool]] = {
    "accuracy": ("accuracy, %", 1, True),
    "log_loss": ("log-loss", 3, False),
    "ece": ("calibration error", 3, False),
    "scaled_log_loss": ("log-loss, scaled", 3, False),
    "scaled_ece": ("calibration error, scaled", 3, False),
    "auroc": ("OOD inputs, AUROC", 3, True),
    "fpr95": ("OOD inputs, FPR at 95 %", 3, False),
    "sure_auroc": ("OOD inputs by probability, AUROC", 3, True),
    "noisy_accuracy": ("accuracy with noise, %", 1, True),
}
# The same for what is measured of the hidden layer, where penalties act.
LAYER: Mapping[str, tuple[str, int, bool]] = {
    "axes": ("cosine with principal axes", 2, True),
    "directions": ("directions kept", 2, True),
}
TEXTS: Mapping[str, str] = {
    "heads": (
        "Ten heads on the same encoder, one hidden layer of {hidden} ReLU units. Each head gives one logit per class "
        "and is trained with cross-entropy by Adam for {epochs} epochs. Learning rates ({rates}) are tried on a "
        "validation part, a fifth of at most {most:,} training points, which also gives the temperature of scaled "
        "probabilities. Out-of-distribution (OOD) inputs are detected by the largest logit, which for a distance head "
        "is minus the distance to the nearest prototype, or by the largest probability. They are points of "
        "another data set (digits against clothes), of classes that were left out (letter-unseen), or the data set's "
        "own points with exchanged columns."
    ),
    "few": "The same with 5, 20 or 100 training points per class.",
    "sequences": "Linear and OffsetL2 behind a one-dimensional convolutional and a recurrent encoder (GRU).",
    "penalties": (
        "A term in the loss rewards orthogonal directions, whitened activations or spread hyperplanes of the hidden "
        "layer. Its strength is tuned together with the learning rate, so a penalty may try more settings than "
        "no penalty does; no penalty is not among its settings. Two columns describe the hidden layer: the mean "
        "absolute cosine between units and the principal axes that they are matched to, and the share of directions "
        "that are not lost, of all that this number of units can measure."
    ),
    "mixtures": (
        "Hidden layers in which part of the units are Abs and the rest ReLU. With {hidden} units each they have the "
        "same number of parameters and of hyperplanes. As an Abs unit equals two mirrored ReLU units, Abs with half of "
        "the units and ReLU with twice as many are shown too, and networks of Abs that are rewritten as ReLU halfway."
    ),
}


def contest_sections(table: pd.DataFrame, bins: pd.DataFrame) -> tuple[Section, ...]:
    """Return one section per contest that was run or recorded; ``bins`` are those of a reliability diagram."""
    found = [name for name in CONTESTS if len(matching(table, contest=name))]
    drawn = {"heads": figures.reliability_diagram(bins)}
    return tuple(
        Section(CONTESTS[name].title, (*_blocks(table, name), *([own] if (own := drawn.get(name)) else [])))
        for name in found
    )


def overview(table: pd.DataFrame, contest: str) -> pd.DataFrame:
    """Return the mean of each score over data sets, one row per entry; a score that is NaN somewhere is left out."""
    counted = table[table["counted"]]
    counts = sorted(set(matching(counted, contest=contest)["per_class"]))
    rows = []
    for per_class in counts:
        shown = {**SHOWN_SCORES, **LAYER} if contest == "penalties" and set(LAYER) <= set(table) else SHOWN_SCORES
        parts = {name: means(counted, contest, name, per_class) for name in shown}
        for entry in parts["accuracy"].columns:
            found = {
                shown[n][0]: wide[entry].mean(skipna=False) if entry in wide else None for n, wide in parts.items()
            }
            rows.append(
                {"entry": figures.named(entry), **({"points per class": per_class} if per_class else {}), **found}
            )
    return pd.DataFrame(rows)


def _blocks(table: pd.DataFrame, contest: str) -> tuple[Block, ...]:
    job, first = HeadContest("", "", ()), CONTESTS[contest].entries[0]
    text = TEXTS[contest].format(
        hidden=first.hidden, epochs=job.epochs, rates=", ".join(f"{rate:g}" for rate in job.rates), most=job.sizes[0]
    )
    count = len(set(matching(table, contest=contest, counted=True)["data"]))
    note = f"Mean over {count} data sets and {job.starts} starts."
    if matching(table, contest=contest)["accuracy"].count() > matching(table, contest=contest)["ece"].count():
        note += " A dash: a distance was undefined somewhere, because a weight of a square had become negative."
    frame = overview(table, contest)
    known = {heading: f".{digits}f" for heading, digits, _ in {**SHOWN_SCORES, **LAYER}.values()}
    formats = {heading: form for heading, form in known.items() if heading in frame}
    shown = Table(f"contest-{contest}", f"{CONTESTS[contest].title}: every score", frame, note, formats)
    drawn = [figures.few_points(table)] if contest == "few" else [figures.ranks(table, contest)]
    drawn += [figures.shares(table)] if contest == "mixtures" else []
    return (Prose(text), *(one for one in drawn if one), shown, _by_data(table, contest))


def _by_data(table: pd.DataFrame, contest: str) -> Details:
    """Return the accuracies by data set, mean and standard deviation over starts."""
    rows = matching(table, contest=contest)
    tables = []
    for per_class, part in rows.groupby("per_class", sort=True):
        grouped = part.groupby(["data", "entry"], sort=False)["accuracy"]
        text = grouped.mean().map("{:.1f}".format) + " ± " + grouped.std().map("{:.1f}".format)
        wide = text.unstack("data").reset_index()
        wide["entry"] = wide["entry"].map(figures.named)
        size = f", {per_class!s} points per class" if per_class else ""
        tables.append(
            Table(f"contest-{contest}-{per_class}-sets", f"Test accuracy, %{size}: mean ± sd of starts", wide)
        )
    return Details("By data set", tuple(tables))


def sections(plan: HeadsPlan, results: TidyTables, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
    """Return the study's sections in reading order."""
    asked = plan.offsets
    text = (
        f"Networks of 784, 128 and 10 units on {asked.train_size:,} images of {asked.data} ({asked.pixels} pixels), "
        f"{asked.epochs:,} epochs of full-batch gradient descent, {asked.seeds} starts. The paper has 60,000 images, "
        "5,000 or 50,000 epochs and 20 runs."
    )
    shown = "" if plan.computed else "Nothing is computed in this profile: what is shown was recorded."
    return (
        Section(TITLE, (Prose(f"Which last layer, and which activation, would you choose? {shown}".strip()),)),
        *contest_sections(results.tables["contests"], results.tables["reliability"]),
        Section("Centers and weights of OffsetL2", (Prose(text), *offsets.blocks(results.tables["offsets"]))),
        Section("Verdicts C09 to C11, C28", (Ledger(claims),)),
    )
