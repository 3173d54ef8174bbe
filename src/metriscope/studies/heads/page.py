"""The study's part of the report: each experiment, and the verdicts."""

from __future__ import annotations

from metriscope.report import Claim, Ledger, Prose, Section
from metriscope.studies.heads.contests import page as contests
from metriscope.studies.heads.measure import HeadsResults
from metriscope.studies.heads.offsets import page as offsets
from metriscope.studies.heads.plan import TITLE, HeadsPlan

__all__ = ["HIGHLIGHTS", "QUESTION", "sections"]

QUESTION = (
    "Which last layer would you choose: a linear one, or one that measures distances to prototypes? Twelve heads on "
    "twelve data sets, with the same backbone and the same tuning, compared by accuracy, calibration and how well "
    "they notice strange inputs."
)
HIGHLIGHTS = ("contest-heads-ranks", "contest-reliability")


def sections(plan: HeadsPlan, results: HeadsResults, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
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
        *contests.sections(results.tables["contests"], results.tables["reliability"]),
        Section("Centers and weights of OffsetL2", (Prose(text), *offsets.blocks(results.tables["offsets"]))),
        Section("Verdicts C09 to C11, C28", (Ledger(claims),)),
    )
