"""Accuracies beside every printed column, and tests between networks."""

from __future__ import annotations

import math

import pandas as pd

from metriscope.report import Block, Details, Prose, Section, Table, interval
from metriscope.report.numbers import MISSING
from metriscope.studies.representation.accuracy import figures
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.plan import PAPER, Setting, title

__all__ = ["accuracies", "blocks", "pairs", "printed_tests", "shortened", "tests"]

HEADINGS = {"section 6": "§6", "notes": "notes"}
SOURCES = {"table 2 t": "table 2", "section 6 t": "§6 and notes", "section 6, sd of n t": "these, sd with n"}
LABELS = {"theirs": "mean ± sd", "difference": "Δ", "where": "where"}
# Which printed columns stand side by side: the tables have no network in common but for table 5, which repeats table 2.
PRINTED = {"published in tables": ("table 2", "table 3", "table 5"), "published in text": ("section 6", "notes")}


def shortened(results: Results, setting: Setting) -> str:
    """Return the sentence every table carries: the setting, and what it lacks; too few runs are lacking too."""
    if setting.shortfall:
        return f"{setting}. **{setting.shortfall}**"
    counts, asked = sorted({len(results.accuracy(setting, n)) for n in results.networks(setting)}), PAPER.seeds
    if counts[0] >= asked:
        return f"{setting}. The paper's protocol."
    runs = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"{setting}. **Not the paper's protocol: {runs} of {asked} runs of each network.**"


def blocks(results: Results) -> tuple[Block, ...]:
    """Return the setting nearest to the paper's in full view, the others to be opened."""
    found: list[Block] = []
    for i, setting in enumerate(results.settings):
        shown = (
            accuracies(results, setting, f"accuracies-{i}"),
            figures.accuracies(results, setting, f"accuracy-{i}"),
            figures.curves(results, setting, f"learning-{i}"),
        )
        found += shown if i == 0 else (Details(f"The same at {setting}", shown),)
    return tuple(found)


def accuracies(results: Results, setting: Setting, name: str) -> Table:
    """Return one row per network: our test accuracy beside every printed column that has it."""
    summary = results.tables["summary"]
    rows = summary[summary["setting"] == str(setting)].reset_index(drop=True)
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
        f"{shortened(results, setting)} Per cent of test images. Interval: 95 % t interval of the mean. Δ: ours "
        "less the printed mean. Where: the tables that print it. In text: §6, and the author's notes for ReLU and "
        "Abs. Tables 2 and 3, §6 and the notes are captioned 5,000 epochs, table 5 50,000; 20 runs each."
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


def tests(results: Results) -> Section:
    """Return the section on tests between networks."""
    there = set(results.tables["compared"]["setting"])
    settings = [s for s in results.settings if str(s) in there]
    shown = [pairs(results, s, "tests") for s in settings[:1]]
    every = tuple(pairs(results, s, f"tests-{i}", whole=True) for i, s in enumerate(settings))
    summary = "Every setting; Student's test, degrees of freedom, p-values as they are"
    found: tuple[Block, ...] = (*shown, Details(summary, every)) if every else ()
    text = (
        "Every pair that S2 compares. A seed's networks start from the same first layer, so that runs are pairs; S2 "
        "announces paired tests and prints t(38), which is unpaired. Both are given."
    )
    missing = Prose("No pair that S2 compares was run in one setting.")
    return Section("Tests between networks", (Prose(text), *(found or (missing,)), printed_tests(results)))


def pairs(results: Results, setting: Setting, name: str, whole: bool = False) -> Table:
    """Return every pair that the paper compares: difference, interval, effect, and tests with Holm's correction.

    ``whole`` adds Student's test, degrees of freedom and p-values without the correction.
    """
    compared = results.tables["compared"]
    rows = compared[compared["setting"] == str(setting)].reset_index(drop=True)
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
        f"{shortened(results, setting)} Points of test accuracy. The interval goes with Welch's test, d with the "
        "pooled deviation. Paired: networks of one seed start from the same first layer. Holm's correction is "
        "over the pairs of this table."
    )
    kind = "Tests, every number" if whole else "Tests"
    return Table(name, f"{kind}: {setting}", frame, note, {"difference": "+.2f"}, groups, labels)


def printed_tests(results: Results) -> Table:
    """Return the paper's tests as printed, beside what its own printed means and deviations give."""
    rows = results.tables["printed tests"]
    names = [f"{title(a)} − {title(b)}" for a, b in zip(rows["network"], rows["other"], strict=True)]
    frame = rows.drop(columns=["network", "other"])
    frame.insert(0, "pair", names)
    kept = ("printed d", "t of printed d")
    frame = frame.drop(columns=[c for c in frame.columns if c.endswith(" d") and c not in kept])
    groups = {"published": ("printed t", "printed p", "printed d"), "t from the printed means of": tuple(SOURCES)}
    labels = {"printed t": "t", "printed p": "p", "printed d": "d", **SOURCES}
    formats = dict.fromkeys(("t of printed d", *SOURCES), ".2f")
    note = (
        "Student's unpaired t, t(38), from 20 + 20 runs. “t of printed d”: d √10, the t that the printed d was "
        "computed from. “sd with n”: the printed deviations read as divided by n, not n − 1."
    )
    return Table("printed-tests", "S2's tests, recomputed from S2's means", frame, note, formats, groups, labels)
