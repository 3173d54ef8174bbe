"""The section on centers: how far the hyperplanes of each network's outputs are from z_c and from not-z_c."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from metriscope.report import Section, Table, interval
from metriscope.studies.representation.accuracy.page import over_seeds, section_of

__all__ = ["section"]

Tables = Mapping[str, pd.DataFrame]


def section(tables: Tables) -> Section:
    """Return the section."""
    text = (
        "Oursland (2025, §6.1) defines for each class an optimal center z_c, near its own class and far from the "
        "others, and its opposite not-z_c. Here both are points on the axis of the class's output, its "
        "pre-activation: z_c has the least ratio of the mean distance to its own class over the mean distance to the "
        "others, not-z_c the largest. A hyperplane (zero) that represents a distance should pass through z_c, one "
        "that represents an intensity through not-z_c. Zero of an OffsetL2 output is its prototype."
    )
    missing = "No trained network with its images is available."
    return section_of("Hyperplanes and optimal centers", text, missing, _distances(tables), _decorrelation(tables))


def _distances(tables: Tables) -> Table | None:
    table = tables["centers"]
    if table.empty:
        return None
    numbers = table.assign(place=table["center"] / table["own sd"], opposite=table["anticenter"] / table["others sd"])
    labels = {
        "to center": "z_c, own sd", "to anticenter": "not-z_c, others' sd", "nearer": "share nearer to z_c",
        "place": "z_c", "opposite": "not-z_c",
    }  # fmt: skip
    seeds = numbers.groupby(["network", "seed"], sort=False)[list(labels)].mean().reset_index()
    columns = tuple(labels)
    groups = {"distance of the hyperplane from": columns[:2], "where they lie (hyperplane at 0)": columns[3:]}
    note = (
        f"{table['setting'].iloc[0]}. Mean over outputs, then mean [95 % t interval] over seeds, in standard "
        "deviations along the output: of the class for z_c, of the other classes for not-z_c."
    )
    frame = over_seeds(seeds, columns)
    return Table("centers", "Hyperplanes and optimal centers", frame, note, {}, groups, labels)


def _decorrelation(tables: Tables) -> Table | None:
    table = tables["decorrelation"]
    if table.empty:
        return None
    ends = [interval(low, high) for low, high in zip(table["low"], table["high"], strict=True)]
    frame = table.drop(columns=["low", "high"]).assign(**{"95 % interval": ends})
    note = (
        "Oursland (2025, §6.2) rests ReLU2-Neg's accuracy on classes that are decorrelated across projections. "
        "Spearman's correlation, over networks, of test accuracy with the mean |correlation| between the "
        "pre-activations of hidden units or of outputs (means over seeds; percentile bootstrap over networks). If "
        "decorrelation predicted accuracy it would be negative."
    )
    return Table("decorrelation", "Does decorrelation predict accuracy?", frame, note, {"rank correlation": ".2f"})
