"""The study's part of the report: how units are read, what each reading predicts, and the verdict."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Block, Claim, Ledger, Prose, Section, Table
from metriscope.studies.reading import figures
from metriscope.studies.reading.plan import ACTIVATIONS, MEASURES, READINGS, TITLE, ReadingPlan
from metriscope.studies.tidy_tables import TidyTables

__all__ = ["HIGHLIGHTS", "QUESTION", "sections"]

QUESTION = (
    "If a unit measures a distance, the inputs nearest its zero set should describe it better than the inputs that "
    "activate it most. Do they?"
)
HIGHLIGHTS = ("reading-gaps",)


def sections(plan: ReadingPlan, results: TidyTables, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
    """Return the study's sections in reading order."""
    shown = "" if plan.computed else " Nothing is computed in this profile: what is shown was recorded."
    text = (
        "A unit is usually explained by the inputs that activate it most. If units measure distances, the inputs "
        f"nearest to its zero set explain it better (Oursland 2024a, open question 1).{shown}"
    )
    return (
        Section(TITLE, (Prose(text),)),
        Section("What readings predict", _blocks(plan, results.tables["readings"])),
        Section("Verdict C32", (Ledger(claims),)),
    )


def _blocks(plan: ReadingPlan, table: pd.DataFrame) -> tuple[Block, ...]:
    if table.empty:
        return (Prose("No run of this experiment is recorded."),)
    job = plan.networks[0]
    accuracy = ", ".join(
        f"{data} {value:.1f} %" for data, value in table.groupby("data", sort=False)["accuracy"].mean().items()
    )
    text = (
        f"Networks with one or two hidden layers of {job.hidden} units, {job.steps:,} steps of Adam, {job.starts} "
        f"starts each. A unit is read by {job.read} training points. The reading names the class that is most "
        f"over-represented among them, and is tested on {job.held:,} or fewer held-out points: do the held-out points "
        "chosen in the same way have this class; is it the class that loses most log-odds when the unit's activation "
        "is replaced by its mean; and does over-representation, class by class, correlate with these losses? Units "
        f"that are constant on the training points are left out. Mean test accuracy: {accuracy}."
    )
    return (Prose(text), figures.differences(table), _table(table, "activation"), _table(table, "data"))


def _table(table: pd.DataFrame, by: str) -> Table:
    means = table.groupby([by, "reading"], sort=False)[list(MEASURES)].mean().reset_index()
    named = means.assign(reading=means["reading"].map(READINGS)).replace({by: dict(ACTIVATIONS)})
    formats = {word: ".2f" if measure == "ablation_profile" else ".1f" for measure, word in MEASURES.items()}
    caption = "Means over networks, layers and starts."
    return Table(f"reading-by-{by}", f"Readings by {by}", named.rename(columns=dict(MEASURES)), caption, formats)
