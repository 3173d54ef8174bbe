"""The section on the second layer."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Prose, Section, Table, mean_text
from metriscope.studies.mahalanobis.second_layer import figures
from metriscope.studies.mahalanobis.second_layer.plan import FIRST, HEADS

__all__ = ["section"]

TEXT = (
    "Oursland (2024a) lets a second linear layer cluster the distances that the first one measures. Here the data have "
    "known clusters. The first layer (Linear + Abs) is set from clusters by `init_from_clusters_` and kept, or trained "
    "with the second from a random start; labels are the clusters. A unit belongs to the cluster through whose mean "
    "its hyperplane passes most nearly, in deviations of that cluster along the unit. If the second layer clusters "
    "what the first found, units of one cluster get similar weights, and the clusters of new points end farther apart."
)


def section(table: pd.DataFrame) -> Section:
    """Return the section, or a sentence where nothing was measured."""
    heading = "What a second layer does with distances"
    if table.empty:
        return Section(heading, (Prose(f"{TEXT}\n\nNo run of this experiment is recorded with these options."),))
    rows = []
    for (data, first, head), part in table.groupby(["data", "first", "head"], sort=False):
        starts = part.groupby("start").mean(numeric_only=True)
        where = {"data": data, "first layer from": FIRST[str(first)], "head": HEADS[str(head)], "starts": len(starts)}
        names = ("accuracy", "agreement", "high", *figures.SPACES)
        rows.append({**where, **{name: mean_text(starts[name]) for name in names}})
    labels = {"accuracy": "accuracy, %", "high": "95 % of permutations", **figures.SPACES}
    groups = {"agreement of groups of units": ("agreement", "high"), "silhouette of new points": tuple(figures.SPACES)}
    note = (
        "Mean [95 % t interval] over starts; mixtures of 3, 4 and 5 clusters together. Agreement: adjusted Rand index."
    )
    shown = Table(
        "second-layer", "Two layers on clustered data", pd.DataFrame(rows), note, groups=groups, labels=labels
    )
    return Section(heading, (Prose(TEXT), shown, figures.layers(table)))
