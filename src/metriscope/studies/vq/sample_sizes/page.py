"""The section on the number of training points."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Prose, Section, Table, mean_text
from metriscope.studies.vq.moons.plan import DISTANCES, PLACES, SEPARATION_MEASURES
from metriscope.studies.vq.sample_sizes.figures import separation
from metriscope.studies.vq.sample_sizes.measure import SampleSizesResults, needed_text

__all__ = ["section"]

TITLE = "Moons in 100 dimensions: how many points are enough?"


def section(results: SampleSizesResults) -> Section:
    """Return what was asked, the figure and the table; without rows, that nothing was run."""
    part = results.part
    counts = part.counts if results.rows.empty else tuple(results.rows["count"].unique())
    text = (
        "A network that only memorizes the labels of 150 points separates them and not new ones. Do more points help? "
        f"Here the same network is trained on {min(counts):,} to {max(counts):,} points, {part.seeds} seeds "
        f"each, and measured on at most {part.crowds()[0].points:,} training points and as many new ones."
    )
    if results.rows.empty:
        return Section(TITLE, (Prose(f"{text}\n\nNot run in this profile, and there is no record of it."),))
    return Section(TITLE, (Prose(f"{text}\n\n{needed_text(results.tables)}"), separation(results), _table(results)))


def _table(results: SampleSizesResults) -> Table:
    lines = []
    for (count, points, distance), rows in results.rows.groupby(["count", "points", "distance"], sort=False):
        measures = {title: mean_text(rows[m]) for m, title in SEPARATION_MEASURES.items() if m != "participation"}
        network = {"loss": mean_text(rows["loss"], 4), "accuracy of the network, new points": mean_text(rows["test"])}
        own = network if distance == "first" else dict.fromkeys(network, "–")
        lines.append(
            {"n": count, "points": PLACES[str(points)], "distance": DISTANCES[str(distance)], **measures, **own}
        )
    note = f"Mean [95 % t interval] over {results.part.seeds} seeds."
    return Table("vq-sample-sizes", "Separation by number of training points", pd.DataFrame(lines), note)
