"""The section on all starts of the networks on digits, where they are recorded."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Prose, Section, Table, mean_text, number
from metriscope.studies.vq.digits.figures import starts
from metriscope.studies.vq.digits.measure import StartsResults
from metriscope.studies.vq.digits.plan import PAIRS, TWINS, name_of

__all__ = ["section"]


def section(results: StartsResults) -> Section:
    """Return the recorded starts with the paper's own images."""
    part = results.spec.digits
    text = (
        f"The same experiment with {part.images.train:,} and {part.images.test:,} images of full MNIST, as in the "
        f"paper, and {part.seeds} starts. These runs are recorded; the verdict on C23 is reached on them."
    )
    return Section(
        f"Networks of 4 and 6 layers on digits: {part.seeds} starts", (Prose(text), starts(results), _table(results))
    )


def _table(results: StartsResults) -> Table:
    rows, lines = results.tables["alignment"], []
    for pair in map(name_of, (*PAIRS, *TWINS)):
        own = rows[rows["pair"] == pair]
        alike = {column: mean_text(own[column], 3) for column in ("alignment", "biased", "null")}
        lines.append({"pair": pair, "starts": len(own), **alike, "p": number(own["p_value"].max(), 2)})
    note = (
        "Centered alignment on the test images, debiased and biased, mean [95 % t interval]; null: mean with the "
        "images shuffled; p: the largest permutation p-value of any start."
    )
    labels = {"biased": "alignment, biased"}
    return Table("vq-starts", "Centered alignment, all starts", pd.DataFrame(lines), note, labels=labels)
