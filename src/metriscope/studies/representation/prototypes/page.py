"""Where prototypes lie, what alpha goes with, and what both forms of the layer give."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Block, Prose, Section, Table, mean_text
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.plan import title
from metriscope.studies.representation.prototypes import figures

__all__ = ["forms", "places", "section", "weighing"]


def section(results: Results) -> Section:
    """Return the section on prototypes."""
    text = (
        "OffsetL2 was made to learn one prototype μ a class, and weights α that say which hidden units count. A "
        "prototype's gradient is never longer than its largest |α|, so in T epochs at a learning rate of 10⁻³ it "
        "cannot travel farther than about T / 1,000, while raw pixels put class means hundreds away: how far it got "
        "is in the table."
    )
    shown: list[Block | None] = [places(results), figures.prototypes(results), figures.weights(results)]
    kept = tuple(block for block in (*shown, weighing(results)) if block is not None)
    missing = Prose("No trained network with an OffsetL2 head is at hand.")
    return Section("Prototypes of OffsetL2", (Prose(text), *(kept or (missing,))))


def places(results: Results) -> Table | None:
    """Return where prototypes lie, over seeds."""
    table = results.tables["places"]
    if table.empty:
        return None
    rows = []
    for network, part in table.groupby("network", sort=False):
        seeds = _by_seed(part)
        rows.append({"network": title(str(network)), "seeds": len(seeds), **{k: mean_text(seeds[k]) for k in seeds}})
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
    return Table("prototype-places", "Where the prototypes lie", pd.DataFrame(rows), note, {}, groups, labels)


def _by_seed(part: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for _, one in part.groupby("seed", sort=False):
        own, rest = one[one["output"] == one["class"]].set_index("class"), one[one["output"] != one["class"]]
        others = rest.groupby("class")["weighted"]
        rows.append({
            "mu": own["norm of mu"].mean(), "mean": own["norm of mean"].mean(), "own": own["weighted"].mean(),
            "others": rest["weighted"].mean(), "own nearest": float((own["weighted"] < others.min()).mean()),
            "own farthest": float((own["weighted"] > others.max()).mean()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def weighing(results: Results) -> Table | None:
    """Return what alpha goes with, over seeds."""
    table = results.tables["weighing"]
    if table.empty:
        return None
    names = {
        "compact": "with 1 / sd within the class", "quiet": "with 1 / sd over all", "own": "with the class's mean",
        "mean alpha": "mean", "sd alpha": "sd", "negative": "share below 0",
    }  # fmt: skip
    rows = []
    for network, part in table.groupby("network", sort=False):
        seeds = part.groupby("seed")[list(names)].mean()
        line: dict[str, object] = {"network": title(str(network)), "seeds": len(seeds)}
        line |= {k: mean_text(seeds[k]) for k in ("compact", "quiet", "own")}
        rows.append(line | {k: float(seeds[k].mean()) for k in ("mean alpha", "sd alpha", "negative")})
    groups = {"rank correlation of α": ("compact", "quiet", "own"), "α": ("mean alpha", "sd alpha", "negative")}
    note = "Over hidden units, mean over classes; mean [95 % t interval] over seeds. α starts at 1."
    return Table("alpha-weighs", "What alpha weighs", pd.DataFrame(rows), note, {}, groups, names)


def forms(results: Results) -> Table | None:
    """Return what both forms of OffsetL2 give on the same weights."""
    table = results.tables["forms"]
    if table.empty:
        return None
    means = table.groupby("network", sort=False)
    frame = means[["agree", "undefined", "rewritten"]].mean().reset_index()
    frame.insert(1, "seeds", means.size().to_numpy())
    frame["network"] = frame["network"].map(title)
    labels = {"agree": "same class by both forms", "undefined": "distances without a real root"}
    labels["rewritten"] = "largest difference after squaring α"
    note = "Training images; prototypes and weights as trained; means over seeds."
    formats = {"agree": ".1%", "undefined": ".1%"}
    return Table("offset-forms", "Two forms, one set of weights", frame, note, formats, labels=labels)
