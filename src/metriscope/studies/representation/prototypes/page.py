"""Where prototypes lie, what they look like, and what alpha goes with."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Section, Table
from metriscope.studies.representation import figures
from metriscope.studies.representation.accuracy.page import over_seeds, section_of
from metriscope.studies.representation.measure import RepresentationResults

__all__ = ["section"]


def section(results: RepresentationResults) -> Section:
    """Return the section on prototypes."""
    text = (
        "OffsetL2 is meant to learn one prototype μ per class, and weights α that say which hidden units count. A "
        "prototype's gradient is never longer than its largest |α|, so in T epochs at a learning rate of 10⁻³ it "
        "cannot move farther than about T / 1,000, while raw pixels put class means hundreds away. The table shows how "
        "far it moved."
    )
    missing = "No trained network with an OffsetL2 head is available."
    drawn = (figures.prototypes(results), figures.weights(results))
    return section_of("Prototypes of OffsetL2", text, missing, _places(results), *drawn, _weighing(results))


def _places(results: RepresentationResults) -> Table | None:
    """Return where prototypes lie, over seeds."""
    table = results.tables["places"]
    if table.empty:
        return None
    rows = []
    for (network, _), one in table.groupby(["network", "seed"], sort=False):
        own, rest = one[one["output"] == one["class"]].set_index("class"), one[one["output"] != one["class"]]
        others = rest.groupby("class")["weighted"]
        rows.append({
            "network": network, "mu": own["norm of mu"].mean(), "mean": own["norm of mean"].mean(),
            "own": own["weighted"].mean(), "others": rest["weighted"].mean(),
            "own nearest": float((own["weighted"] < others.min()).mean()),
            "own farthest": float((own["weighted"] > others.max()).mean()),
        })  # fmt: skip
    seeds = pd.DataFrame(rows)
    labels = {"mu": "‖μ‖", "mean": "‖class mean‖", "own nearest": "nearest", "own farthest": "farthest"}
    groups = {
        "distance of μ from class means": ("own", "others"),
        "own prototype is": ("own nearest", "own farthest"),
    }
    note = (
        "In the space of hidden activations, as the network measures it, alpha included. A prototype starts as N(0, "
        "0.1), which has a norm of about 1.13 with 128 units. Last: shares of class means to which, of all "
        "prototypes, their own is the nearest (what a distance needs) or the farthest (what an intensity needs). Mean "
        "[95 % t interval] over seeds."
    )
    frame = over_seeds(seeds, seeds.columns[1:])
    return Table("prototype-places", "Where the prototypes lie", frame, note, {}, groups, labels)


def _weighing(results: RepresentationResults) -> Table | None:
    """Return what alpha goes with, over seeds."""
    table = results.tables["weighing"]
    if table.empty:
        return None
    ranks = {
        "compact": "with 1 / sd within the class", "quiet": "with 1 / sd over all", "own": "with the class's mean",
    }  # fmt: skip
    moments = {"mean alpha": "mean", "sd alpha": "sd", "negative": "share below 0"}
    seeds = table.groupby(["network", "seed"], sort=False)[[*ranks, *moments]].mean().reset_index()
    groups = {"rank correlation of α": tuple(ranks), "α": tuple(moments)}
    note = "Over hidden units, mean over classes; mean [95 % t interval] over seeds. α starts at 1."
    frame = over_seeds(seeds, ranks, moments)
    return Table("alpha-weighs", "What alpha weighs", frame, note, {}, groups, {**ranks, **moments})
