"""The study's part of the report: other images, other activations, tables and sequences, and the verdicts."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from metriscope.functional import summarize
from metriscope.report import Block, Claim, Ledger, Prose, Section, Table, interval
from metriscope.studies.heads import page as contests
from metriscope.studies.tidy_tables import TidyTables, matching
from metriscope.studies.transfer import figures
from metriscope.studies.transfer.plan import BODIES, SHALLOW, TITLE, TransferPlan

__all__ = ["HIGHLIGHTS", "QUESTION", "sections"]

QUESTION = (
    "What was found on MNIST with ReLU: does it hold for clothes and photographs, for GELU, SiLU, Tanh, ELU and "
    "Softplus, for deeper networks, and for tables and sequences?"
)
HIGHLIGHTS = ("transfer-data", "transfer-activations")


def sections(plan: TransferPlan, results: TidyTables, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
    """Return the study's sections in reading order."""
    shown = "" if plan.computed else " Nothing is computed in this profile: what is shown was recorded."
    text = (
        "Networks whose outputs are constrained to distances were studied on MNIST. Here they meet other images and "
        f"other activations, and OffsetL2 meets tables and sequences.{shown}"
    )
    sequences = matching(results.tables["contests"], contest="sequences")
    return (
        Section(TITLE, (Prose(text),)),
        Section("Other images, other activations", _constrained(plan, results.tables["constrained"])),
        *contests.contest_sections(sequences, results.tables["reliability"]),
        Section("Verdicts C18 to C20", (Ledger(claims),)),
    )


def _constrained(plan: TransferPlan, table: pd.DataFrame) -> tuple[Block, ...]:
    if table.empty:
        return (Prose("No run of this experiment is recorded."),)
    job = plan.trainings[0]
    used = {one.data: one.train_size for one in plan.trainings if one.body == SHALLOW}
    sizes = ", ".join(f"{count:,} images of {Path(data).name}" for data, count in used.items())
    shallow = matching(table, body=SHALLOW)
    rates = ", ".join(
        f"{lr:.2g} on {Path(str(data)).name}" for data, lr in shallow.groupby("data", sort=False)["lr"].first().items()
    )
    text = (
        f"Networks of {job.hidden} hidden units, {job.epochs:,} epochs of full-batch gradient descent on raw pixels, "
        f"{job.starts} starts ({sizes}; the paper has 60,000 images and 5,000 epochs). Learning rates are matched by "
        "the largest curvature of the loss at the start, measured by power iteration, so that steps are comparable "
        f"on all data sets: {rates}. Of CIFAR-10 only part of the training images is used, so its results are hints."
    )
    deep = [one for one in plan.trainings if one.body != SHALLOW]
    more = (
        f"With three and five linear layers, and with two convolutions, on {deep[0].train_size:,} images of "
        f"{deep[0].data} and for {deep[0].epochs:,} epochs, at learning rates that are matched in the same way. No "
        "claim is judged by them."
    )
    bodies = figures.by_body(table)
    shown = (Prose(more), bodies) if bodies else ()
    return (Prose(text), figures.by_data(table), figures.by_activation(table), *shown, _table(table))


def _interval(values: pd.Series) -> str:
    found = summarize(values.to_numpy())
    return interval(found.low, found.high)


def _table(table: pd.DataFrame) -> Table:
    rows = []
    for (data, body, network), part in table.groupby(["data", "body", "network"], sort=False):
        rows.append(
            {
                "data": Path(str(data)).name,
                "layers": BODIES[str(body)].title,
                "network": figures.named(str(network)),
                "test accuracy, %": float(part["test_accuracy"].mean()),
                "95 % interval": _interval(part["test_accuracy"]),
                "training accuracy, %": float(part["train_accuracy"].mean()),
                "outputs never active": float(part["dead_outputs"].mean()),
            }
        )
    formats = {"test accuracy, %": ".1f", "training accuracy, %": ".1f", "outputs never active": ".0%"}
    return Table("transfer-networks", "Constrained networks", pd.DataFrame(rows), "Mean over starts.", formats)
