"""What happens during training, what depth does, and what Abs changes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from metriscope.nn import ACTIVATIONS
from metriscope.report import Block, Details, Prose, Section, Table, mean_text, number
from metriscope.studies.vq.beyond import figures
from metriscope.studies.vq.beyond.figures import TASKS
from metriscope.studies.vq.beyond.measure import Results
from metriscope.studies.vq.digits.plan import FORMS, INITIAL, PAIRS, TRAINED, name_of
from metriscope.studies.vq.moons.plan import COMPARISONS, MEASURES
from metriscope.studies.vq.networks.page import summary_table

__all__ = ["sections"]

DEPTH_ALIKE = {
    "back": "alignment, turned back",
    "ceiling": "alignment, another start",
    "still": "alignment, not turned back",
}
DEPTH_SHAPE = {
    "rank": "rank, entropy",
    "participation": "rank, participation",
    "neighbor": "nearest neighbor, new points",
    "test": "accuracy, new points",
}


def sections(results: Results) -> tuple[Section, ...]:
    """Return what happens during training, what depth does, and what Abs changes."""
    blocks: tuple[Block, ...] = (
        Prose(_course_text(results)),
        figures.course(results),
        Details("Every kept epoch", (_course_table(results),)),
        Prose(_depth_text(results)),
        figures.depth(results),
        *_depth_tables(results),
        Prose(_abs_text(results)),
        _abs_turning(results),
        _abs_digits(results),
    )
    return (Section("Beyond the paper: training, depth, Abs", blocks),)


def _course_text(results: Results) -> str:
    parts = []
    for task in ("moons", "T4", "T6"):
        epochs, values = results.course_of(task)
        half = (values[:, :1] + 1) / 2
        reached = epochs[(values >= half).argmax(1)]
        parts.append(
            f"{TASKS[task]}: from {mean_text(values[:, 0])}, half of the way by epoch {np.median(reached):.0f}"
        )
    epochs, both = results.course_of("both")
    return (
        "**During training.** How far is the kernel from what it will be? Centered alignment with the same network at "
        f"the end of training: {'; '.join(parts)}. The two architectures, compared with each other at the same epoch, "
        f"go from {mean_text(both[:, 0])} to {mean_text(both[:, -1])}; their largest mean is at epoch "
        f"{epochs[both.mean(0).argmax()]}."
    )


def _course_table(results: Results) -> Table:
    order = pd.Categorical(results.course["task"], list(TASKS), ordered=True)
    rows = results.course.assign(network=results.course["task"].map(TASKS), order=order)
    rows = rows.sort_values(["order", "epoch"])
    return summary_table(
        "vq-course", "Alignment during training", rows, ["network", "epoch"], {"alignment": "alignment"}
    )


def _depth_text(results: Results) -> str:
    shapes, budget = results.depths.drop_duplicates("depth"), results.part.budget
    sizes = ", ".join(f"{r.depth} × {r.width:,} ({r.parameters:,})" for r in shapes.itertuples())
    far = (shapes["parameters"] / budget - 1).abs().max()
    ranks = [f"{d}: {mean_text(p['rank'])}" for d, p in results.depths.groupby("depth")]
    return (
        f"**Depth at equal size.** Networks on the moons with as many parameters as depth allows, {budget:,} within "
        f"{far:.1%}: {sizes}. Effective rank of the kernel on the disc by depth: {'; '.join(ranks)}."
    )


def _depth_tables(results: Results) -> tuple[Table, Table]:
    grid, keys = results.part.deep(1).grid, ["network", "parameters"]
    note = f"Kernels on the disc of a {grid} × {grid} grid, compared as in figure 1."
    alike = summary_table("vq-depth-alike", "Depth: how alike kernels are", results.depths, keys, DEPTH_ALIKE, note)
    note = "Effective rank of the kernel on the disc; leave-one-out nearest neighbor in the VQ distance."
    shape = summary_table("vq-depth-shape", "Depth: rank and accuracy", results.depths, keys, DEPTH_SHAPE, note)
    return alike, shape


def _worth(rows: pd.DataFrame) -> pd.Series:
    table = rows.pivot(index="seed", columns="comparison", values="alignment")
    return table["back"] - table["still"]


def _abs_text(results: Results) -> str:
    gains = {a: _worth(rows) for a, rows in results.turning.items()}
    grown = {a: d.alignments(TRAINED) - d.alignments(INITIAL) for a, d in results.digits.items()}
    accuracy = {a: d.ends[d.ends["role"] == "first"].groupby("depth")["test"].mean() for a, d in results.digits.items()}
    reached = "; ".join(f"{ACTIVATIONS[a].title} {number(v[4])} and {number(v[6])}" for a, v in accuracy.items())
    return (
        "**Abs in place of ReLU.** The same starts, data and epochs. Turning back is worth "
        f"{mean_text(gains['relu'])} of alignment with ReLU and {mean_text(gains['abs'])} with Abs. Training on digits "
        f"changes the alignment of 4 and 6 layers by {mean_text(grown['relu'])} with ReLU and "
        f"{mean_text(grown['abs'])} with Abs. Test accuracy of 4 and 6 layers: {reached}."
    )


def _abs_turning(results: Results) -> Table:
    rows = pd.concat(
        [rows.assign(network=ACTIVATIONS[a].title) for a, rows in results.turning.items()], ignore_index=True
    )
    rows = rows.assign(comparison=rows["comparison"].map(COMPARISONS))
    keys = ["comparison", "network"]
    order = {text: place for place, text in enumerate(COMPARISONS.values())}
    rows = rows.sort_values("comparison", key=lambda c: c.map(order), kind="stable")
    return summary_table("vq-abs-turning", "Figure 1's numbers, ReLU and Abs", rows, keys, MEASURES)


def _abs_digits(results: Results) -> Table:
    best = results.digits["relu"].nearest
    parts = []
    for activation, found in results.digits.items():
        for pair in PAIRS:
            cosines = found.curve(pair, best.form)[:, best.index]
            values = pd.DataFrame({"alignment": found.alignments(pair), "cosine": cosines})
            parts.append(values.assign(pair=name_of(pair), network=ACTIVATIONS[activation].title))
    places = {name_of(pair): place for place, pair in enumerate(PAIRS)}
    frame = pd.concat(parts).sort_values("pair", key=lambda column: column.map(places), kind="stable")
    measures = {
        "alignment": "centered alignment",
        "cosine": f"cosine, {FORMS[best.form]}, σ² = {number(best.scale, 2)}",
    }
    return summary_table("vq-abs-digits", "Figure 3's numbers, ReLU and Abs", frame, ["pair", "network"], measures)
