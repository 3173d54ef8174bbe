"""Accuracies beside every printed column, tests between networks, and four contradictions of the sources.

Every paragraph on a contradiction says what was measured, or that it was not and what would settle it.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from metriscope.report import Block, Details, Prose, Section, Table, interval
from metriscope.report.numbers import MISSING
from metriscope.studies.representation import figures
from metriscope.studies.representation.accuracy import over_seeds, printed
from metriscope.studies.representation.measure import RepresentationResults
from metriscope.studies.representation.plan import CODED, PAPER, Setting, title
from metriscope.studies.tidy_tables import matching

__all__ = ["blocks", "contradictions", "pairs", "shortened", "tests"]

HEADINGS = {"section 6": "§6", "notes": "notes"}
SOURCES = {"table 2 t": "table 2", "section 6 t": "§6 and notes", "section 6, sd of n t": "these, sd with n"}
LABELS = {"theirs": "mean ± sd", "difference": "Δ", "where": "where"}
# Which printed columns share a group: tables 2 and 3 have no network in common, and table 5 repeats table 2.
PRINTED = {"published in tables": ("table 2", "table 3", "table 5"), "published in text": ("section 6", "notes")}


def shortened(results: RepresentationResults, setting: Setting) -> str:
    """Return the sentence of every table: its setting, and how that and the number of runs differ from the paper's."""
    if setting.shortfall:
        return f"{setting}. **{setting.shortfall}**"
    counts, asked = sorted({len(results.accuracy(setting, n)) for n in results.networks(setting)}), PAPER.seeds
    if counts[0] >= asked:
        return f"{setting}. The paper's protocol."
    runs = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"{setting}. **Not the paper's protocol: {runs} of {asked} runs of each network.**"


def blocks(results: RepresentationResults, prefix: str = "") -> tuple[Block, ...]:
    """Return the setting nearest to the paper's in full view, the others folded; names begin with the prefix."""
    found: list[Block] = []
    for i, setting in enumerate(results.settings):
        shown = (
            _accuracies(results, setting, f"{prefix}accuracies-{i}"),
            figures.accuracies(results, setting, f"{prefix}accuracy-{i}"),
            figures.curves(results, setting, f"{prefix}learning-{i}"),
        )
        found += shown if i == 0 else (Details(f"The same at {setting}", shown),)
    return tuple(found)


def _intervals(rows: pd.DataFrame) -> list[str]:
    ends = zip(rows["low"], rows["high"], strict=True)
    return [MISSING if math.isnan(low) else interval(low, high) for low, high in ends]


def _accuracies(results: RepresentationResults, setting: Setting, name: str) -> Table:
    """Return one row per network: our test accuracy beside every printed column that has it."""
    rows = matching(results.tables["summary"], setting=str(setting)).reset_index(drop=True)
    frame = rows[["network", "count", "mean", "sd"]].rename(columns={"count": "seeds"})
    frame["network"], frame["95 % interval"] = rows["network"].map(title), _intervals(rows)
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
        "minus the printed mean. Where: the tables that print it. In text: §6, and the author's notes for ReLU and "
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


def tests(results: RepresentationResults) -> Section:
    """Return the section on tests between networks."""
    there = set(results.tables["compared"]["setting"])
    settings = [s for s in results.settings if str(s) in there]
    every = tuple(pairs(results, s, f"tests-{i}", whole=True) for i, s in enumerate(settings))
    summary = "Every setting; Student's test, degrees of freedom, uncorrected p-values"
    found: tuple[Block, ...] = (pairs(results, settings[0], "tests"), Details(summary, every)) if every else ()
    text = "Every pair of networks that Oursland (2025) compares, by unpaired and by paired tests."
    missing = Prose("No pair that the paper compares was run in one setting.")
    return Section("Tests between networks", (Prose(text), *(found or (missing,)), _printed_tests(results)))


def _names(rows: pd.DataFrame) -> list[str]:
    return [f"{title(a)} − {title(b)}" for a, b in zip(rows["network"], rows["other"], strict=True)]


def pairs(results: RepresentationResults, setting: Setting, name: str, whole: bool = False) -> Table:
    """Return every pair that the paper compares: difference, interval, effect, and tests with Holm's correction.

    ``whole`` adds Student's test, degrees of freedom and p-values without the correction.
    """
    rows = matching(results.tables["compared"], setting=str(setting)).reset_index(drop=True)
    frame = pd.DataFrame({
        "pair": _names(rows), "seeds": rows["seeds"], "difference": rows["difference"],
        "95 % interval": _intervals(rows), "Cohen's d": rows["cohens d"],
    })  # fmt: skip
    shown = ("welch", "student", "paired") if whole else ("welch", "paired")
    fields = ("t", "df", "p", "holm") if whole else ("t", "holm")
    groups = {test.capitalize(): tuple(f"{test} {field}" for field in fields) for test in shown}
    columns = [column for members in groups.values() for column in members]
    frame[columns] = rows[columns].astype(float)
    labels = {column: column.split(" ")[1].replace("holm", "p (Holm)") for column in columns}
    note = (
        f"{shortened(results, setting)} Points of test accuracy. The interval belongs to Welch's test, d to the "
        "pooled deviation. Paired: networks of one seed that start from the same first layer, which replayed starts "
        "do not. Holm's correction is over the pairs of this table."
    )
    kind = "Tests, every number" if whole else "Tests"
    return Table(name, f"{kind}: {setting}", frame, note, {"difference": "+.2f"}, groups, labels)


def _printed_tests(results: RepresentationResults) -> Table:
    """Return the paper's tests as printed, beside those computed from its own printed means and deviations."""
    rows = results.tables["printed tests"]
    published = {"printed t": "t", "printed p": "p", "printed d": "d"}
    frame = rows[[*published, "t of printed d", *SOURCES]]
    frame.insert(0, "pair", _names(rows))
    groups = {"published": tuple(published), "t from the printed means of": tuple(SOURCES)}
    formats = dict.fromkeys(("t of printed d", *SOURCES), ".2f")
    note = (
        "Student's unpaired t, t(38), from 20 + 20 runs. “t of printed d”: d √10, the t that the printed d was "
        "computed from. “sd with n”: the printed deviations read as divided by n, not n − 1."
    )
    heading = "The paper's tests, recomputed from its printed means"
    return Table("printed-tests", heading, frame, note, formats, groups, {**published, **SOURCES})


def contradictions(results: RepresentationResults) -> Section:
    """Return the section on contradictions."""
    found = (*_pixels(results), *_epochs(results), Prose(_pairing(results)), *_forms(results))
    return Section("Four contradictions of the sources", found)


def _pixels(results: RepresentationResults) -> tuple[Block, ...]:
    """Return the paragraph on raw against normalized pixels, and both at equal epochs."""
    text = (
        "**1. Pixels.** The text of Oursland (2025) says that the images are normalized; the author's public code "
        "builds the normalization but trains on the raw bytes. "
    )
    table = results.tables["pixels"]
    if table.empty:
        wanted = "Not run here: the same networks on both forms, `--pixels normalized` beside raw, would settle it."
        return (Prose(text + wanted),)
    first = matching(table, form=table["form"].iloc[0])
    span = f"{int(first['epochs'].min()):,}" + ("" if first["epochs"].nunique() == 1 else " and more")
    ahead = int((first["raw"] > first["other"]).sum())
    text += (
        f"At equal epochs ({span}, {int(first['train_size'].iloc[0]):,} images of {first['data'].iloc[0]}), raw pixels "
        f"are ahead of {first['form'].iloc[0]} ones in {ahead} of {len(first)} networks. Pixels enter a step twice, so "
        "at one learning rate bytes up to 255 move the outputs thousands of times as far. "
    )
    labels = {"train_size": "images", "raw": "raw, %", "other": "other form, %", "difference": "raw less other, paired"}
    note = "Test accuracy at the last epoch that both have recorded: mean, and paired difference [95 % t interval]."
    frame, formats = table.assign(network=table["network"].map(title)), {"raw": ".2f", "other": ".2f"}
    shown = Table("pixels", "Raw against other pixels at equal epochs", frame, note, formats, labels=labels)
    return Prose(text + _which_pixels(results, first)), shown


def _which_pixels(results: RepresentationResults, table: pd.DataFrame) -> str:
    steady = table["network"].isin(results.comparing.steady)
    full = table[(table["data"] == PAPER.data) & (table["epochs"] >= PAPER.epochs) & steady]
    if full.empty:
        return (
            f"Only {PAPER.epochs:,} epochs on the full MNIST can tell which of the two the printed means come from: "
            "these runs are shorter."
        )
    theirs = matching(printed("test_accuracy"), epochs=PAPER.epochs).groupby("network")["mean"]
    near = {n: theirs.get_group(n).to_numpy() for n in full["network"]}
    gaps = {k: [np.abs(near[r.network] - getattr(r, k)).min() for r in full.itertuples()] for k in ("raw", "other")}
    misses = {kind: float(np.mean(values)) for kind, values in gaps.items()}
    form = str(full["form"].iloc[0])
    return (
        f"The printed means are {misses['raw']:.2f} points away with raw pixels and {misses['other']:.2f} with "
        f"{form} ones (mean over {len(full)} steady networks, nearest printed column): nearer to "
        f"{'raw' if misses['raw'] < misses['other'] else form} pixels."
    )


def _epochs(results: RepresentationResults) -> tuple[Block, ...]:
    """Return the paragraph on the number of epochs behind table 2, and where each printed mean lies on our curves."""
    follow, count = results.tables["follow"].set_index("column")["follow"], len(results.tables["printed tests"])
    text = (
        "**2. Epochs.** Table 2 (5,000 epochs) prints the same numbers as table 5 (50,000), table 5 labels them "
        f"“Bias”, and §6 quotes a third set. The paper's own tests distinguish them: of its {count} printed t, "
        f"{follow['table 2']} follow from the means of table 2 and {follow['section 6, sd of n']} from those of §6 "
        "and the author's notes, if deviations are divided by n. "
    )
    for length, gaps in results.tables["columns"].groupby("epochs"):
        parts = [f"{gap:.2f} points from {name}" for name, gap in zip(gaps["column"], gaps["distance"], strict=True)]
        text += f"Our means at {length:,} epochs lie {' and '.join(parts)} (mean over steady networks). "
    placed = results.tables["placed"]
    steady = placed[placed["network"].isin(results.comparing.steady)].groupby("column", sort=False)["our epoch"]
    reached = ", ".join(f"{part.count()} of {len(part)} in {column}" for column, part in steady)
    text += f"Of the printed means of steady networks, our own mean curves reach {reached or 'none: none was run'}."
    return Prose(text), Details("Every printed mean on our curves", (_reached(placed),))


def _reached(placed: pd.DataFrame) -> Table:
    """Return where each printed mean lies on our curves."""
    epochs = [f"{e:,.0f}" if not math.isnan(e) else "not reached" for e in placed["our epoch"].astype(float)]
    frame = placed.assign(network=placed["network"].map(title)).drop(columns="setting")
    frame = frame.assign(**{"column": frame["column"].replace(HEADINGS), "our epoch": epochs})
    labels = {
        "printed": "published mean", "printed epochs": "published epochs", "our epoch": "epoch at which ours is there",
        "our last": "ours at the end", "our best": "ours at best",
    }  # fmt: skip
    formats = {"our last": ".2f", "our best": ".2f", "printed epochs": ",.0f", "printed": ".2f"}
    note = (
        f"{'; '.join(dict.fromkeys(placed['setting']))}. Mean test accuracy over seeds; between recorded "
        "epochs the curve is linear in the logarithm of the epoch."
    )
    return Table("reached", "Where the printed means lie on our curves", frame, note, formats, labels=labels)


def _signed(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _pairing(results: RepresentationResults) -> str:
    """Return the paragraph on paired against unpaired tests."""
    printed_tests = results.tables["printed tests"].set_index(["network", "other"])
    first, neg = printed_tests.loc[("relu", "abs")], printed_tests.loc[("relu2-neg", "relu")]
    copied = printed_tests.loc[("relu2", "relu")]
    text = (
        "**3. Tests.** The paper announces paired t-tests but prints t(38), the unpaired test of 20 + 20 runs. ReLU "
        f"against Abs is called not significant with t = {_signed(first['printed t'])}; its printed means give t = "
        f"{first['table 2 t']:.2f} (table 2) or {first['section 6, sd of n t']:.2f} (notes), d = "
        f"{first['table 2 d']:.2f}. ReLU2-Neg is called comparable to ReLU with t = {_signed(neg['printed t'])}, p < "
        "0.001: a significant difference at any usual level. ReLU2 against ReLU and against ReLU2-Neg print the same "
        f"t, {_signed(copied['printed t'])}; the printed d of the first belongs to t = {copied['t of printed d']:.2f}. "
    )
    compared = results.tables["compared"]
    rows = compared[compared["seeds"] > 1]
    if rows.empty:
        return text + "No pair has two seeds here, so there is no test of our own."
    setting = rows["setting"].iloc[0]
    rows = matching(rows, setting=setting)
    counts = {test: int((rows[f"{test} holm"] < 0.05).sum()) for test in ("welch", "paired")}
    return text + (
        f"Of our {len(rows)} pairs ({setting}; {int(rows['seeds'].max())} seeds), {counts['welch']} differ at 5 % by "
        f"Welch's test and {counts['paired']} by the paired test, both after Holm's correction."
    )


def _forms(results: RepresentationResults) -> tuple[Block, ...]:
    """Return the paragraph on the two forms of OffsetL2, and what both give on the same weights."""
    text = (
        "**4. OffsetL2.** The paper's formula weights the difference, ‖α ⊙ (x − μ)‖; the author's code weights its "
        "square, √Σ α (x − μ)². With α squared the second is the first, so both can compute the same distances. They "
        "differ in how they are learned (at α = 1 the formula's gradient is twice as large), and where α falls below "
        "zero the second has no real root. "
    )
    table, compared = results.tables["forms"], results.tables["compared"]
    trained = compared[compared["network"].isin(CODED)]
    if len(trained):
        gaps = [f"{pair} {gap:+.2f} points" for pair, gap in zip(_names(trained), trained["difference"], strict=True)]
        text += f"Trained in both forms: {', '.join(gaps)} (see *Tests between networks*). "
    if table.empty:
        return (Prose(text + "Not compared here: no trained network with an OffsetL2 head is available."),)
    text += "The table compares both on weights trained with the formula. "
    if trained.empty:
        text += (
            "No network was trained with the other form here: `--models` with `abs-l2-code` and its like would settle "
            "what the choice does to accuracy."
        )
    labels = {"agree": "same class by both forms", "undefined": "distances without a real root"}
    labels["rewritten"] = "largest relative difference after squaring α"
    note = "Training images; prototypes and weights as trained; means over seeds."
    frame, formats = over_seeds(table, (), labels), {"agree": ".1%", "undefined": ".1%"}
    return Prose(text), Table("offset-forms", "Two forms, one set of weights", frame, note, formats, labels=labels)
