"""The four contradictions of the sources, each with what our runs and the printed numbers say about it.

Every paragraph says what was measured, or that it was not and what would settle it.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from metriscope.report import Block, Details, Prose, Section, Table, number
from metriscope.studies.representation.accuracy.measure import printed
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.plan import PAPER, title
from metriscope.studies.representation.prototypes.page import forms as forms_table

__all__ = ["epochs", "forms", "pairing", "pixels", "pixels_table", "reached", "section"]

HEADINGS = {"section 6": "§6", "notes": "notes"}


def section(results: Results) -> Section:
    """Return the section on contradictions."""
    placed = reached(results)
    parts: tuple[tuple[str, Block | None], ...] = (
        (pixels(results), pixels_table(results)),
        (epochs(results), Details("Every printed mean on our curves", (placed,)) if placed else None),
        (pairing(results), None),
        (forms(results), forms_table(results)),
    )
    found = tuple(block for text, table in parts for block in (Prose(text), table) if block is not None)
    return Section("Four contradictions of the sources", found)


def pixels(results: Results) -> str:
    """Return the paragraph on raw against normalized pixels."""
    text = (
        "**1. Pixels.** S2's text says that the images are normalized; the author's public code builds the "
        "normalization but trains on the raw bytes. "
    )
    table = results.tables["pixels"]
    if table.empty:
        return (
            text + "Not run here: the same networks on both forms, `--pixels normalized` beside raw, would settle it."
        )
    first = table[table["form"] == table["form"].iloc[0]]
    parts = [f"{title(r.network)} {r.raw:.1f} against {r.other:.1f}" for r in first.itertuples()]
    span = f"{int(first['epochs'].min()):,}" + ("" if first["epochs"].nunique() == 1 else " and more")
    ahead = int((first["raw"] > first["other"]).sum())
    text += (
        f"At equal epochs ({span}, {int(first['train_size'].iloc[0]):,} images of {first['data'].iloc[0]}), raw pixels "
        f"against {first['form'].iloc[0]} ones, test accuracy in per cent: {', '.join(parts)}. Raw is ahead in {ahead} "
        f"of {len(first)} networks. Pixels enter a step twice, so at one learning rate bytes up to 255 move the "
        "outputs thousands of times as far. "
    )
    return text + _which_pixels(results, first)


def pixels_table(results: Results) -> Table | None:
    """Return raw pixels beside each other form at equal epochs."""
    table = results.tables["pixels"]
    if table.empty:
        return None
    labels = {"train_size": "images", "raw": "raw, %", "other": "other form, %", "difference": "raw less other, paired"}
    note = "Test accuracy at the last epoch that both have a record of: mean, and paired difference [95 % t interval]."
    frame = table.assign(network=table["network"].map(title))
    formats = {"raw": ".2f", "other": ".2f"}
    return Table("pixels", "Raw against other pixels at equal epochs", frame, note, formats, labels=labels)


def _which_pixels(results: Results, table: pd.DataFrame) -> str:
    steady = table["network"].isin(results.comparing.steady)
    full = table[(table["data"] == PAPER.data) & (table["epochs"] >= PAPER.epochs) & steady]
    if full.empty:
        return (
            f"Which of the two the printed means come from is for {PAPER.epochs:,} epochs on the full MNIST to say: "
            "these runs are shorter."
        )
    theirs = printed("test_accuracy")
    theirs = theirs[theirs["epochs"] == PAPER.epochs].groupby("network")["mean"]
    misses = {
        name: float(np.mean([_miss(getattr(r, name), theirs.get_group(r.network)) for r in full.itertuples()]))
        for name in ("raw", "other")
    }
    nearer = "raw" if misses["raw"] < misses["other"] else str(full["form"].iloc[0])
    return (
        f"The printed means are {misses['raw']:.2f} points away with raw pixels and {misses['other']:.2f} with "
        f"{full['form'].iloc[0]} ones (mean over {len(full)} steady networks, nearest printed column): nearer to "
        f"{nearer} pixels."
    )


def _miss(ours: float, theirs: pd.Series) -> float:
    return float(np.abs(theirs.to_numpy() - ours).min())


def epochs(results: Results) -> str:
    """Return the paragraph on which epochs table 2 stands for."""
    follow, count = results.tables["follow"].set_index("column")["follow"], len(results.tables["printed tests"])
    text = (
        "**2. Epochs.** Table 2 (5,000 epochs) prints the same numbers as table 5 (50,000), table 5 labels them "
        f"“Bias”, and §6 quotes a third set. S2's own tests tell them apart: of its {count} printed t, "
        f"{follow['table 2']} follow from the means of table 2 and {follow['section 6, sd of n']} from those of §6 "
        "and the author's notes, if deviations are divided by n. "
    )
    for length, gaps in results.tables["columns"].groupby("epochs"):
        parts = [f"{gap:.2f} points from {name}" for name, gap in zip(gaps["column"], gaps["distance"], strict=True)]
        text += f"Our means at {length:,} epochs lie {' and '.join(parts)} (mean over steady networks). "
    placed = results.tables["placed"]
    placed = placed[placed["network"].isin(results.comparing.steady)]
    return text + (_placed(placed) if len(placed) else "No network of table 2 was run here.")


def _placed(placed: pd.DataFrame) -> str:
    if not placed["our epoch"].notna().any():
        return "Our own curves reach none of the printed means."
    parts = []
    for column, part in placed.groupby("column", sort=False):
        there = part.dropna(subset="our epoch")
        spots = zip(there["network"], there["our epoch"], strict=True)
        found = ", ".join(f"{title(name)} at {epoch:,.0f}" for name, epoch in spots)
        parts.append(f"{column}: {found or 'none'} ({len(there)} of {len(part)})")
    return f"Epochs at which our own mean curves take the printed means: {'; '.join(parts)}."


def _signed(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def pairing(results: Results) -> str:
    """Return the paragraph on paired against unpaired tests."""
    tests = results.tables["printed tests"].set_index(["network", "other"])
    first, neg = tests.loc[("relu", "abs")], tests.loc[("relu2-neg", "relu")]
    copied = tests.loc[("relu2", "relu")]
    text = (
        "**3. Tests.** S2 announces paired t-tests but prints t(38), which is the unpaired test of 20 + 20 runs. ReLU "
        f"against Abs is called not significant with t = {_signed(first['printed t'])}; its printed means give t = "
        f"{first['table 2 t']:.2f} (table 2) or {first['section 6, sd of n t']:.2f} (notes), d = "
        f"{first['table 2 d']:.2f}. ReLU2-Neg is called comparable to ReLU with t = {_signed(neg['printed t'])}, p < "
        "0.001: a significant difference by any level. ReLU2 against ReLU and against ReLU2-Neg print the same t, "
        f"{_signed(copied['printed t'])}; the first one's printed d belongs to t = {copied['t of printed d']:.2f}. "
    )
    compared = results.tables["compared"]
    rows = compared[compared["seeds"] > 1]
    if rows.empty:
        return text + "No pair has two seeds here, so no test of our own."
    setting = rows["setting"].iloc[0]
    rows = rows[rows["setting"] == setting]
    counts = {test: int((rows[f"{test} holm"] < 0.05).sum()) for test in ("welch", "paired")}
    own = rows[(rows["network"] == "relu") & (rows["other"] == "abs")]
    between = "".join(
        f" ReLU − Abs: {_signed(round(r['difference'], 2))} points, Welch p = {number(r['welch p'], 2)}, paired p = "
        f"{number(r['paired p'], 2)}."
        for _, r in own.iterrows()
    )
    return text + (
        f"Of our {len(rows)} pairs ({setting}; {int(rows['seeds'].max())} seeds), {counts['welch']} differ at 5 % by "
        f"Welch's test and {counts['paired']} by the paired test, both after Holm's correction.{between}"
    )


def forms(results: Results) -> str:
    """Return the paragraph on the two forms of OffsetL2."""
    text = (
        "**4. OffsetL2.** S2's formula weighs the difference, ‖α ⊙ (x − μ)‖; the author's code weighs its square, √Σ "
        "α (x − μ)². With α squared the second is the first, so both can compute the same distances; they differ in "
        "how they get there (at α = 1 the formula's gradient is twice as large) and where α falls below zero, where "
        "the second has no real root. "
    )
    table = results.tables["forms"]
    if table.empty:
        return text + "Not compared here: no trained network with an OffsetL2 head is at hand."
    return text + (
        f"No network was trained with the other form here. On the weights trained with the formula ({len(table)} "
        f"networks) both forms give the same class to {table['agree'].min():.1%} to {table['agree'].max():.1%} of "
        f"training images; {table['undefined'].max():.1%} of distances at most have no real root; after squaring α the "
        f"two differ by {number(float(table['rewritten'].max()), 1)} at most (relative). Training both forms would "
        "settle what the choice does to accuracy."
    )


def reached(results: Results) -> Table | None:
    """Return where each printed mean lies on our curves."""
    placed = results.tables["placed"]
    if placed.empty:
        return None
    frame = placed.assign(network=placed["network"].map(title)).drop(columns="setting")
    frame["column"] = frame["column"].replace(HEADINGS)
    epochs_there = frame["our epoch"].to_numpy(dtype=float)
    frame["our epoch"] = [f"{e:,.0f}" if not math.isnan(e) else "not reached" for e in epochs_there]
    labels = {
        "printed": "published mean",
        "printed epochs": "published epochs",
        "our epoch": "epoch at which ours is there",
    }
    labels |= {"our last": "ours at the end", "our best": "ours at best"}
    formats = {"our last": ".2f", "our best": ".2f", "printed epochs": ",.0f", "printed": ".2f"}
    note = (
        f"{'; '.join(dict.fromkeys(placed['setting']))}. Mean test accuracy over seeds; between recorded "
        "epochs the curve is linear in the logarithm of the epoch."
    )
    return Table("reached", "Where the printed means lie on our curves", frame, note, formats, labels=labels)
