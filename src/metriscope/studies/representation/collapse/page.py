"""The section on the collapse of ReLU2: cells, effects of the factors, and the learning rates."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from metriscope.report import Details, Prose, Section, Table, interval, mean_text
from metriscope.studies.representation.accuracy.page import section_of
from metriscope.studies.representation.collapse import figures
from metriscope.studies.representation.collapse.plan import BALANCE, RATES, WARM, CollapseCell
from metriscope.studies.representation.plan import PIXELS, title

__all__ = ["section"]

Tables = Mapping[str, pd.DataFrame]
HEADING = "Why ReLU2 collapses"


def section(tables: Tables) -> Section:
    """Return the section."""
    cell = CollapseCell("relu2", "raw", RATES["raw"])
    text = (
        "Oursland (2025, §6.2) explains the collapse by imbalance: nine of ten images push an output down, so outputs "
        f"die. A factorial experiment ({cell.setting}, {len(cell.starts)} starts) asks which of four factors saves "
        f"ReLU2: a learning rate that rises linearly over the first 1/{WARM} of training; pixels from 0 to 1; the "
        f"gradient of each target times {BALANCE:g}; a bias in the second layer that starts at one standard deviation "
        f"of the output pre-activations. Learning rates: {RATES['raw']:g} on raw pixels as in the paper, and "
        f"{RATES['unit']:g} on unit pixels, after which the training loss of ReLU is nearest to that on raw pixels."
    )
    drawn = (figures.cells(tables), _cells(tables), _effects(tables), _pushes(tables), figures.deaths(tables))
    more = (*drawn, _controls(tables))
    return section_of(HEADING, text, "No record of this experiment is available.", *more)


def _rows(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    rows = []
    for key, part in table.groupby(keys, sort=False):
        line = dict(zip(keys, key, strict=True)) | {"starts": len(part)}
        line |= {"accuracy": mean_text(part["test_accuracy"]), "dead": mean_text(10 * part["dead"])}
        early = part["early"].dropna()
        line |= {
            "early": f"{early.median():.1%}" if len(early) else "none die",
            "diverged": int(part["diverged"].sum()),
        }
        rows.append(line | {"loss": float(part["train_loss"].median())})
    frame = pd.DataFrame(rows)
    return frame.assign(network=frame["network"].map(title), pixels=frame["pixels"].map(PIXELS))


LABELS = {
    "accuracy": "test accuracy, %", "dead": "dead outputs of ten", "early": "half dead after",
    "loss": "training loss, median",
}  # fmt: skip
NOTE = (
    "Mean [95 % t interval] over starts. “Half dead after”: the share of training after which half of the outputs that "
    "are dead at the end are dead, in the median start. Diverged: starts whose loss is no longer finite at the end; "
    "they answer nothing, and their outputs are counted while the loss was finite."
)


def _cells(tables: Tables) -> Table | None:
    table = tables["collapse"]
    if table.empty:
        return None
    frame = _rows(table, ["network", "pixels", "factors"])
    return Table("collapse-cells-table", "Every cell of the experiment", frame, NOTE, {"loss": ".3g"}, labels=LABELS)


def _effects(tables: Tables) -> Table | None:
    table = tables["collapse effects"]
    if table.empty:
        return None
    wide = []
    for (cells, factor, other), part in table.groupby(["cells", "factor", "with"], sort=False):
        line = {"cells": cells, "effect of": factor, "larger with": other or "–"}
        for _, row in part.iterrows():
            scale = 10 if row["outcome"] == "dead" else 1
            ends = interval(scale * row["low"], scale * row["high"])
            line[row["outcome"]] = f"{scale * row['mean']:+.2f} {ends}".replace("-", "−")
            line[f"{row['outcome']} p"] = row["holm"]
        wide.append(line)
    labels = {"test_accuracy": "points of accuracy", "dead": "dead outputs of ten"}
    labels |= {"test_accuracy p": "p (Holm)", "dead p": "p (Holm)"}
    note = (
        "Mean of the cells with the factor on, less that with it off, within each start; “larger with”: how much "
        "larger that difference is where the other factor is on too. [95 % t interval] over starts; Holm's correction "
        "over the effects on one outcome. Gradients with targets times nine can diverge, so the effects of the other "
        "three factors are shown without those cells as well."
    )
    return Table("collapse-effects", "Effects of the factors", pd.DataFrame(wide), note, labels=labels)


def _pushes(tables: Tables) -> Prose | None:
    """Say how unequal the pushes are before the first step."""
    table = tables["collapse pushes"]
    first = table[(table["epoch"] == 0) & (table["factors"] == "none")]
    if first.empty:
        return None
    ratios = first.assign(ratio=first["down"] / first["up"]).groupby("pixels", sort=False)["ratio"]
    parts = [f"{mean_text(part)} times the pushes up on {PIXELS[str(pixels)]}" for pixels, part in ratios]
    balanced = tables["collapse"][tables["collapse"]["balanced"].astype(bool)]
    ends = f" ({int(balanced['diverged'].sum())} of {len(balanced)} trainings diverged)" if len(balanced) else ""
    return Prose(
        "Cross-entropy has no imbalance of its own: for every image, the target's output is pushed up by 1 − p and the "
        "nine others are together pushed down by 1 − p. Only a ReLU on the outputs makes pushes unequal, because it "
        "blocks those of inactive outputs, and on an image's own output that is the push up. At the start the pushes "
        f"down are {' and '.join(parts)} (mean [95 % t interval] over starts). Nine times the target's gradient pushes "
        f"the outputs of every image up nine times as much as down, so that they can grow without bound{ends}. The "
        "claim is therefore judged by cells with evened pushes: at every step and for every output, the factor on its "
        "targets that makes both pushes equal."
    )


def _controls(tables: Tables) -> Details | None:
    table = tables["collapse controls"]
    if table.empty:
        return None
    frame = _rows(table, ["network", "pixels", "factors", "rate"])
    note = f"{NOTE} ReLU from a start that no cell uses: the rates that were tried for unit pixels."
    shown = Table("collapse-controls", "Evened pushes, smaller rates", frame, note, {"loss": ".3g"}, labels=LABELS)
    return Details(
        "Controls: evened pushes, smaller learning rates, and how the rate on unit pixels was chosen", (shown,)
    )
