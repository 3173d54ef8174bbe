"""Inactive units at the end, beside the printed shares."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Block, Details, Prose, Section, Table, mean_text
from metriscope.report.numbers import MISSING
from metriscope.studies.representation.accuracy.measure import printed
from metriscope.studies.representation.accuracy.page import shortened
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.plan import Setting, title
from metriscope.studies.representation.units import figures
from metriscope.studies.representation.units.measure import half_dead, last_epochs

__all__ = ["dead", "section"]

INACTIVE = {"never": "never", "under_1": "under 1 %", "under_5": "under 5 %"}


def section(results: Results) -> Section:
    """Return the section on units that die."""
    first = results.settings[0]
    shown: list[Block | None] = [figures.dying(results, first, "dying"), dead(results, first, "dead")]
    every = [dead(results, setting, f"dead-{i}", whole=True) for i, setting in enumerate(results.settings)]
    if found := tuple(table for table in every if table is not None):
        shown.append(Details("Every layer and setting, training and test images", found))
    text = (
        "S2 explains the fall of ReLU2 by output units that no image makes active: 33 % in its text, 22 % in the "
        "author's notes, and 53.5 % rarely active, which is under 5 % of inputs in the text and under 1 % in the code."
    )
    kept = tuple(block for block in shown if block is not None)
    missing = Prose("No record of inactive units is at hand.")
    return Section("Units that die", (Prose(text), *(kept or (missing,))))


def dead(results: Results, setting: Setting, name: str, whole: bool = False) -> Table | None:
    """Return the share of inactive units at the end, over seeds, beside the printed shares.

    Unless the ``whole`` is asked for: on training images only, and without layers in which no unit is inactive.
    """
    rows = results.tables["dead"]
    rows = rows[rows["setting"] == str(setting)]
    rows = rows if whole else rows[rows["part"] == "train"]
    lines = []
    for network in results.networks(setting):
        for (layer, part), held in rows[rows["network"] == network].groupby(["layer", "part"], sort=False):
            if whole or (held[list(INACTIVE)] > 0).any(axis=None):
                lines.append({"network": title(network), "layer": layer, "images": part, **_inactive(network, held)})
    if not lines:
        return None
    frame = pd.DataFrame(lines) if whole else pd.DataFrame(lines).drop(columns=["images"])
    labels = {**INACTIVE, **{f"published {k}": text for k, text in INACTIVE.items()}}
    groups = {"ours": (*INACTIVE, "half dead at"), "published": tuple(f"published {k}" for k in INACTIVE)}
    listed = " Training images; layers not listed never had a unit under 5 %. Printed: §6 first, then notes."
    note = (
        f"{shortened(results, setting)} Per cent of the layer's units at the last epoch that are active "
        "(|activation| > 10⁻⁶) never, for under 1 % and for under 5 % of the images: mean [95 % t interval]. "
        "“Half dead at”: the recorded epoch by which, in the median seed, half of the units that end as never "
        "active had become so." + ("" if whole else listed)
    )
    kind = "Inactive units, every layer" if whole else "Inactive units"
    return Table(name, f"{kind}: {setting}", frame, note, {"half dead at": ",.0f"}, groups, labels)


def _inactive(network: str, held: pd.DataFrame) -> dict[str, object]:
    """Return one line: what is inactive at the end of each run, and what is printed for outputs on training images."""
    last = last_epochs(held)
    shown = (last[["layer", "part"]] == ["output", "train"]).all(axis=None)
    theirs = printed("dead_output_units", network=network) if shown else pd.DataFrame()
    counts = {"units": last["units"].iloc[0], "seeds": last["seed"].nunique()}
    ours = {k: mean_text(last[k]) for k in INACTIVE}
    return {**counts, **ours, "half dead at": half_dead(held)} | {
        f"published {k}": _printed_share(theirs, k) for k in INACTIVE
    }


def _printed_share(table: pd.DataFrame, threshold: str) -> str:
    if table.empty:
        return MISSING
    rows = table[table["threshold"] == threshold]
    return ", ".join(f"{mean:g}" for mean in rows["mean"]) or MISSING
