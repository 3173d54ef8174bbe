"""The MNIST study's tables of what was reached: accuracies beside every printed column, tests, inactive units."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from metriscope.report import Table, interval
from metriscope.report.numbers import MISSING
from metriscope.studies.representation.analysis import Analysis
from metriscope.studies.representation.comparisons import recomputed
from metriscope.studies.representation.measure import WHERE, mean_text, printed
from metriscope.studies.representation.results import Setting, title

__all__ = ["accuracies", "dead", "everything", "half_dead", "pairs", "printed_tests", "reached"]

HEADINGS = {"section 6": "§6", "notes": "notes"}
SOURCES = {"table 2 t": "table 2", "section 6 t": "§6 and notes", "section 6, sd of n t": "these, sd with n"}
LABELS = {"theirs": "mean ± sd", "difference": "Δ", "where": "where"}
INACTIVE = {"never": "never", "under_1": "under 1 %", "under_5": "under 5 %"}


def shortened(setting: Setting) -> str:
    """Return the sentence every table carries: the setting, and what it lacks."""
    return f"{setting}. " + (f"**{setting.shortfall}**" if setting.shortfall else "The paper's protocol.")


# Which printed columns stand side by side: the tables have no network in common but for table 5, which repeats table 2.
PRINTED = {"published in tables": ("table 2", "table 3", "table 5"), "published in text": ("section 6", "notes")}


def accuracies(analysis: Analysis, setting: Setting, name: str) -> Table:
    """Return one row a network: our test accuracy beside every printed column that has it."""
    rows = analysis.summary[analysis.summary["setting"] == str(setting)].reset_index(drop=True)
    frame = rows[["network", "count", "mean", "sd"]].rename(columns={"count": "seeds"})
    frame["network"] = rows["network"].map(title)
    ends = zip(rows["low"], rows["high"], strict=True)
    frame["95 % interval"] = [MISSING if math.isnan(low) else interval(low, high) for low, high in ends]
    frame["min"], frame["max"] = rows["minimum"], rows["maximum"]
    groups: dict[str, tuple[str, ...]] = {"ours": ("seeds", "mean", "sd", "95 % interval", "min", "max")}
    labels: dict[str, str] = {}
    for heading, columns in PRINTED.items():
        beside = pd.DataFrame([_beside(row, columns) for _, row in rows.iterrows()])
        if beside["difference"].notna().any():
            kept = beside if heading.endswith("tables") else beside.drop(columns="where")
            names = {c: f"{heading} {c}" for c in kept.columns}
            frame = pd.concat([frame, kept.rename(columns=names)], axis=1)
            groups[heading] = tuple(names.values())
            labels |= {column: LABELS[c] for c, column in names.items()}
    formats = dict.fromkeys(("mean", "sd", "min", "max"), ".2f")
    formats |= {c: "+.2f" for c in frame.columns if c.endswith("difference")}
    note = (
        f"{shortened(setting)} Per cent of test images. Interval: 95 % t interval of the mean. Δ: ours less the "
        "printed mean. Where: the tables that print it. In text: §6, and the author's notes for ReLU and Abs. Tables "
        "2 and 3, §6 and the notes are captioned 5,000 epochs, table 5 50,000; 20 runs each."
    )
    return Table(name, f"Test accuracy: {setting}", frame, note, formats, groups, labels)


def _beside(row: pd.Series, columns: tuple[str, ...]) -> dict[str, object]:
    known = [c for c in columns if not math.isnan(row[f"{c} mean"])]
    if not known:
        return {"theirs": MISSING, "difference": math.nan, "where": MISSING}
    first = known[0]
    same = [HEADINGS.get(c, c) for c in known if row[f"{c} mean"] == row[f"{first} mean"]]
    text = f"{row[f'{first} mean']:.2f} ± {row[f'{first} sd']:.2f}"
    return {"theirs": text, "difference": row[f"{first} difference"], "where": ", ".join(same).replace("table ", "")}


def pairs(analysis: Analysis, setting: Setting, name: str, whole: bool = False) -> Table:
    """Return every pair that S2 compares: difference, interval, effect, and tests with Holm's correction.

    ``whole`` adds Student's test, degrees of freedom and p-values without the correction.
    """
    rows = analysis.compared[analysis.compared["setting"] == str(setting)].reset_index(drop=True)
    ends = zip(rows["low"], rows["high"], strict=True)
    frame = pd.DataFrame({
        "pair": [f"{title(a)} − {title(b)}" for a, b in zip(rows["network"], rows["other"], strict=True)],
        "seeds": rows["seeds"], "difference": rows["difference"],
        "95 % interval": [MISSING if math.isnan(low) else interval(low, high) for low, high in ends],
        "Cohen's d": rows["cohens d"],
    })  # fmt: skip
    fields = ("t", "df", "p", "holm") if whole else ("t", "holm")
    groups = {t.capitalize(): tuple(f"{t} {f}" for f in fields) for t in ("welch", "student", "paired")}
    if not whole:
        del groups["Student"]
    for column in (c for columns in groups.values() for c in columns):
        frame[column] = rows[column].astype(float)
    labels = {c: c.split(" ")[1].replace("holm", "p (Holm)") for columns in groups.values() for c in columns}
    note = (
        f"{shortened(setting)} Points of test accuracy. The interval goes with Welch's test, d with the pooled "
        "deviation. Paired: networks of one seed start from the same first layer. Holm's correction is over the pairs "
        "of this table."
    )
    kind = "Tests, every number" if whole else "Tests"
    return Table(name, f"{kind}: {setting}", frame, note, {"difference": "+.2f"}, groups, labels)


def printed_tests() -> Table:
    """Return S2's tests as printed, beside what its own printed means and deviations give."""
    rows = recomputed()
    pairs = [f"{title(a)} − {title(b)}" for a, b in zip(rows["network"], rows["other"], strict=True)]
    frame = rows.drop(columns=["network", "other"])
    frame.insert(0, "pair", pairs)
    frame = frame.drop(
        columns=[c for c in frame.columns if c.endswith(" d") and c not in ("printed d", "t of printed d")]
    )
    groups = {"published": ("printed t", "printed p", "printed d"), "t from the printed means of": tuple(SOURCES)}
    labels = {"printed t": "t", "printed p": "p", "printed d": "d", **SOURCES}
    formats = dict.fromkeys(("t of printed d", *SOURCES), ".2f")
    note = (
        "Student's unpaired t, t(38), from 20 + 20 runs. “t of printed d”: d √10, the t that the printed d was "
        "computed from. “sd with n”: the printed deviations read as divided by n, not n − 1."
    )
    return Table("printed-tests", "S2's tests, recomputed from S2's means", frame, note, formats, groups, labels)


def dead(analysis: Analysis, setting: Setting, name: str, whole: bool = False) -> Table | None:
    """Return the share of inactive units at the end, over seeds, beside the printed shares.

    Unless the ``whole`` is asked for: on training images only, and without layers in which no unit is inactive.
    """
    rows = analysis.dead[analysis.dead["setting"] == str(setting)]
    rows = rows if whole else rows[rows["part"] == "train"]
    lines = []
    for network in analysis.networks(setting):
        for (layer, part), held in rows[rows["network"] == network].groupby(["layer", "part"], sort=False):
            if whole or (held[list(INACTIVE)] > 0).any(axis=None):
                lines.append({"network": title(network), "layer": layer, "images": part, **_inactive(network, held)})
    if not lines:
        return None
    frame = pd.DataFrame(lines) if whole else pd.DataFrame(lines).drop(columns=["images"])
    labels = {**INACTIVE, **{f"published {k}": text for k, text in INACTIVE.items()}}
    groups = {"ours": (*INACTIVE, "half dead at"), "published": tuple(f"published {k}" for k in INACTIVE)}
    note = (
        f"{shortened(setting)} Per cent of the layer's units at the last epoch that are active (|activation| > 10⁻⁶) "
        "never, for under 1 % and for under 5 % of the images: mean [95 % t interval]. “Half dead at”: the recorded "
        "epoch by which, in the median seed, half of the units that end as never active had become so."
        + (
            ""
            if whole
            else " Training images; layers not listed never had a unit under 5 %. Printed: §6 first, then notes."
        )
    )
    kind = "Inactive units, every layer" if whole else "Inactive units"
    return Table(name, f"{kind}: {setting}", frame, note, {"half dead at": ",.0f"}, groups, labels)


def _inactive(network: str, held: pd.DataFrame) -> dict[str, object]:
    """Return one line: what is inactive at the end of each run, and what is printed for outputs on training images."""
    last = held[held["epoch"] == held.groupby("seed")["epoch"].transform("max")]
    shown = (last[["layer", "part"]] == ["output", "train"]).all(axis=None)
    theirs = printed("dead_output_units", network=network) if shown else pd.DataFrame()
    counts = {"units": last["units"].iloc[0], "seeds": last["seed"].nunique()}
    ours = {k: mean_text(last[k]) for k in INACTIVE}
    return {**counts, **ours, "half dead at": half_dead(held)} | {
        f"published {k}": _printed_share(theirs, k) for k in INACTIVE
    }


def half_dead(held: pd.DataFrame) -> float:
    """Return the median over seeds of the epoch at which half of the finally dead units are dead; NaN if none die."""
    epochs = []
    for _, run in held.sort_values("epoch").groupby("seed"):
        final = run["never"].iloc[-1]
        if final > 0:
            epochs.append(float(run[run["never"] >= final / 2]["epoch"].iloc[0]))
    return float(np.median(epochs)) if epochs else math.nan


def _printed_share(table: pd.DataFrame, threshold: str) -> str:
    if table.empty:
        return MISSING
    rows = table[table["threshold"] == threshold]
    return ", ".join(f"{mean:g}" for mean in rows["mean"]) or MISSING


def reached(analysis: Analysis) -> Table | None:
    """Return where each printed mean lies on our curves."""
    if analysis.placed.empty:
        return None
    frame = analysis.placed.assign(network=analysis.placed["network"].map(title)).drop(columns="setting")
    frame["column"] = frame["column"].replace(HEADINGS)
    frame["our epoch"] = [
        f"{e:,.0f}" if not math.isnan(e) else "not reached" for e in frame["our epoch"].to_numpy(dtype=float)
    ]
    labels = {
        "printed": "published mean",
        "printed epochs": "published epochs",
        "our epoch": "epoch at which ours is there",
    }
    labels |= {"our last": "ours at the end", "our best": "ours at best"}
    formats = {"our last": ".2f", "our best": ".2f", "printed epochs": ",.0f", "printed": ".2f"}
    note = (
        f"{'; '.join(dict.fromkeys(analysis.placed['setting']))}. Mean test accuracy over seeds; between recorded "
        "epochs the curve is linear in the logarithm of the epoch."
    )
    return Table("reached", "Where the printed means lie on our curves", frame, note, formats, labels=labels)


def everything(analysis: Analysis) -> tuple[Table, ...]:
    """Return the tidy tables behind the page."""
    last = analysis.dead[analysis.dead["epoch"] == analysis.dead.groupby(list(WHERE))["epoch"].transform("max")]
    named = {
        "all-runs": ("Every run", analysis.rows),
        "all-dead": ("Inactive units of every run at its end", last),
        "all-perturbed": ("Every perturbation", analysis.perturbed),
        "all-alpha": ("Every output's alpha", analysis.weighing),
    }
    return tuple(Table(f"representation-{name}", text, frame) for name, (text, frame) in named.items() if len(frame))
