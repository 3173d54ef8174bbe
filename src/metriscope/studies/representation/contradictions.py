"""The four contradictions of the sources, each with what our runs and S2's own numbers say about it.

Axes: S seeds. Every paragraph says what was measured, or that it was not and what would settle it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from metriscope.functional import summarize
from metriscope.report import Table, number
from metriscope.studies.representation.analysis import Analysis
from metriscope.studies.representation.comparisons import recomputed
from metriscope.studies.representation.measure import curve, mean_text, printed
from metriscope.studies.representation.results import PAPER_EPOCHS, Results, Setting, title

__all__ = ["distances_to_columns", "epochs", "forms", "pairing", "pixels", "pixels_compared", "pixels_table"]

# ReLU2 spreads over tens of points, so its mean says little about which column a run belongs to.
STEADY = ("relu", "abs", "relu2-neg", "abs2", "abs2-neg")
# A printed t is that of some printed means if it is met within the rounding of means and deviations to two digits.
SAME_T = 0.05


def pixels_compared(results: Results) -> pd.DataFrame:
    """Return raw pixels beside each other form at equal epochs and data: accuracies in per cent, paired by seed."""
    rows = []
    for raw in (s for s in results.settings if s.pixels == "raw"):
        for other in results.settings:
            if other.pixels != "raw" and (other.data, other.train_size) == (raw.data, raw.train_size):
                shared = {r.network for r in results.select(raw)} & {r.network for r in results.select(other)}
                names = [n for n in results.networks if n in shared]
                rows += [line for n in names if (line := _at_equal_epochs(results, raw, other, n)) is not None]
    names = ["network", "data", "train_size", "epochs", "raw", "other", "form", "difference", "seeds"]
    return pd.DataFrame(rows, columns=names)


def _at_equal_epochs(results: Results, raw: Setting, other: Setting, network: str) -> dict[str, object] | None:
    found = [curve(results, setting, network, "test_accuracy") for setting in (raw, other)]
    shared = np.intersect1d(found[0][0], found[1][0])
    if not len(shared) or shared[-1] == 0:
        return None
    at = [100 * values[:, list(epochs).index(shared[-1])] for epochs, values in found]
    seeds = [[run.seed for run in results.select(setting, (network,))] for setting in (raw, other)]
    both = sorted(set(seeds[0]) & set(seeds[1]))
    gaps = [float(at[0][seeds[0].index(s)] - at[1][seeds[1].index(s)]) for s in both]
    return {
        "network": network, "data": raw.data, "train_size": raw.train_size, "epochs": int(shared[-1]),
        "raw": float(np.nanmean(at[0])), "other": float(np.nanmean(at[1])), "form": other.pixels,
        "difference": mean_text(gaps), "seeds": len(both),
    }  # fmt: skip


def pixels(analysis: Analysis) -> str:
    """Return the paragraph on raw against normalised pixels."""
    text = (
        "**1. Pixels.** S2's text says that the images are normalised; the author's public code builds the "
        "normalisation but trains on the raw bytes. "
    )
    table = pixels_compared(analysis.results)
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
        f"of {len(first)} networks: pixels enter a step twice, so bytes up to 255 move the outputs thousands of times "
        "as far at one learning rate. "
    )
    return text + _which_pixels(first)


def pixels_table(analysis: Analysis) -> Table | None:
    """Return raw pixels beside each other form at equal epochs."""
    table = pixels_compared(analysis.results)
    if table.empty:
        return None
    labels = {"train_size": "images", "raw": "raw, %", "other": "other form, %", "difference": "raw less other, paired"}
    note = "Test accuracy at the last epoch that both have a record of: mean, and paired difference [95 % t interval]."
    frame = table.assign(network=table["network"].map(title))
    formats = {"raw": ".2f", "other": ".2f"}
    return Table("pixels", "Raw against other pixels at equal epochs", frame, note, formats, labels=labels)


def _which_pixels(table: pd.DataFrame) -> str:
    full = table[(table["data"] == "mnist") & (table["epochs"] >= PAPER_EPOCHS) & table["network"].isin(STEADY)]
    if full.empty:
        return (
            f"Which of the two the printed means come from is for {PAPER_EPOCHS:,} epochs on the full MNIST to say: "
            "these runs are shorter."
        )
    theirs = printed("test_accuracy")
    theirs = theirs[theirs["epochs"] == PAPER_EPOCHS].groupby("network")["mean"]
    misses = {
        name: float(np.mean([_miss(getattr(r, name), theirs.get_group(r.network)) for r in full.itertuples()]))
        for name in ("raw", "other")
    }
    nearer = "raw" if misses["raw"] < misses["other"] else str(full["form"].iloc[0])
    return (
        f"The printed means are {misses['raw']:.2f} points away with raw pixels and {misses['other']:.2f} with "
        f"{full['form'].iloc[0]} ones (mean over {len(full)} steady networks, nearest printed column): they are from "
        f"{nearer} pixels."
    )


def _miss(ours: float, theirs: pd.Series) -> float:
    return float(np.abs(theirs.to_numpy() - ours).min())


def distances_to_columns(analysis: Analysis, setting: Setting) -> dict[str, float]:
    """Return how far our means lie from table 2 and from §6 with the notes: mean distance over steady networks."""
    theirs = printed("test_accuracy").set_index(["column", "network"])["mean"]
    groups = {"table 2": ("table 2",), "section 6 and notes": ("section 6", "notes")}
    found = {}
    for name, columns in groups.items():
        gaps = [
            abs(float(analysis.accuracy(setting, n).mean()) - float(theirs[c, n]))
            for n in STEADY
            for c in columns
            if (c, n) in theirs.index and n in analysis.networks(setting)
        ]
        if gaps:
            found[name] = float(np.mean(gaps))
    return found


def epochs(analysis: Analysis) -> str:
    """Return the paragraph on which epochs table 2 stands for."""
    tests = recomputed()
    met = {name: _met(tests, name) for name in ("table 2", "section 6, sd of n")}
    text = (
        "**2. Epochs.** Table 2 (5,000 epochs) prints the same numbers as table 5 (50,000), table 5 labels them "
        f"“Bias”, and §6 quotes a third set. S2's own tests tell them apart: of its {len(tests)} printed t, "
        f"{met['table 2']} follow from the means of table 2 and {met['section 6, sd of n']} from those of §6 and the "
        "author's notes, if deviations are divided by n. So the tests belong to the set that §6 quotes, and "
        "not to table 2. "
    )
    full = [s for s in analysis.results.settings if s.paper and s.pixels == "raw"]
    for setting in full:
        gaps = distances_to_columns(analysis, setting)
        parts = [f"{gap:.2f} points from {name}" for name, gap in gaps.items()]
        text += (
            f"Our means at {setting.epochs:,} epochs lie {' and '.join(parts)} (mean over steady networks). "
            if parts
            else ""
        )
    placed = analysis.placed[analysis.placed["network"].isin(STEADY)]
    return text + (_placed(placed) if len(placed) else "No network of table 2 was run here.")


def _met(tests: pd.DataFrame, column: str) -> int:
    # A t of the opposite order has the opposite sign; d ties a test to its t where the printed t was copied amiss.
    wanted = np.minimum(
        np.abs(np.abs(tests[f"{column} t"]) / np.abs(tests["printed t"]) - 1),
        np.abs(np.abs(tests[f"{column} t"]) / tests["t of printed d"] - 1),
    )
    return int((wanted < SAME_T).sum())


def _placed(placed: pd.DataFrame) -> str:
    if not placed["our epoch"].notna().any():
        return "Our own curves reach none of the printed means: these runs are too short or too small."
    parts = []
    for column, part in placed.groupby("column", sort=False):
        there = part.dropna(subset="our epoch")
        spots = zip(there["network"], there["our epoch"], strict=True)
        met = ", ".join(f"{title(name)} at {epoch:,.0f}" for name, epoch in spots)
        parts.append(f"{column}: {met or 'none'} ({len(there)} of {len(part)})")
    return f"Epochs at which our own mean curves take the printed means: {'; '.join(parts)}."


def _signed(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def pairing(analysis: Analysis) -> str:
    """Return the paragraph on paired against unpaired tests."""
    tests = recomputed().set_index(["network", "other"])
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
    rows = analysis.compared[analysis.compared["seeds"] > 1]
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


def forms(analysis: Analysis) -> str:
    """Return the paragraph on the two forms of OffsetL2."""
    text = (
        "**4. OffsetL2.** S2's formula weighs the difference, ‖α ⊙ (x − μ)‖; the author's code weighs its square, √Σ "
        "α (x − μ)². With α squared the second is the first, so both can compute the same distances; they differ in "
        "how they get there (at α = 1 the formula's gradient is twice as large) and where α falls below zero, where "
        "the second has no real root. "
    )
    trained = _trained_forms(analysis)
    if trained:
        return text + trained
    if analysis.forms.empty:
        return text + "Not compared here: no trained network with an OffsetL2 head is at hand."
    table = analysis.forms
    return text + (
        f"No network was trained with the other form here. On the weights trained with the formula ({len(table)} "
        f"networks) both forms give the same class to {table['agree'].min():.1%} to {table['agree'].max():.1%} of "
        f"training images; {table['undefined'].max():.1%} of distances at most have no real root; after squaring α the "
        f"two differ by {number(float(table['rewritten'].max()), 1)} at most (relative). Training both forms would "
        "settle what the choice does to accuracy."
    )


def _trained_forms(analysis: Analysis) -> str:
    parts = []
    mark = " (squared weights)"
    for other in (n for n in dict.fromkeys(analysis.rows["network"]) if n.endswith(mark)):
        name = other.removesuffix(mark)
        setting = analysis.setting((name, other))
        if setting is not None:
            means = [summarize(analysis.accuracy(setting, n)).mean for n in (name, other)]
            parts.append(
                f"{title(name)} {means[0]:.2f} with the formula and {means[1]:.2f} with squared weights ({setting})"
            )
    return f"Test accuracy in per cent: {'; '.join(parts)}." if parts else ""
