"""Beyond S4: when in training the kernel takes its shape, what depth does at equal size, and Abs in place of ReLU.

Axes: S seeds, E kept epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch

from metriscope.report import Block, Details, Figure, Prose, Section, Table, number, to_svg
from metriscope.report.plots import band, strip
from metriscope.report.style import CYCLE, figure, legend
from metriscope.runs import Store
from metriscope.studies.contract import Announce
from metriscope.studies.vq import digits, moons
from metriscope.studies.vq.experiment import Networks, digit_source, sample, train
from metriscope.studies.vq.heat import FORMS
from metriscope.studies.vq.measures import disc, entropy_rank, participation_ratio, pattern_separation
from metriscope.studies.vq.parts import Measured, Part, mean_text, measured, summary_table
from metriscope.studies.vq.spec import BUDGET, DEPTHS, DIGIT_DEPTHS, Plan
from metriscope.vq import VQMDS, Patterns, alignment, capture

__all__ = ["PART", "Beyond", "collect", "sections"]

TASKS = {"moons": "moons, 3 × 96", "T4": "digits, 4 × 16", "T6": "digits, 6 × 16", "both": "digits, 4 × 16 with 6 × 16"}
TASK_COLOURS = dict(zip(TASKS, (CYCLE[2], CYCLE[0], CYCLE[1], CYCLE[5]), strict=True))
DEPTH_ALIKE = {
    "back": "alignment, turned back",
    "ceiling": "alignment, another start",
    "still": "alignment, not turned back",
}
DEPTH_SHAPE = {
    "rank": "rank, entropy",
    "participation": "rank, participation",
    "neighbour": "nearest neighbour, new points",
    "test": "accuracy, new points",
}


@dataclass(frozen=True)
class Beyond:
    """What was measured beyond the paper."""

    plan: Plan
    course: pd.DataFrame
    depths: pd.DataFrame
    moons: dict[str, moons.Moons]
    digits: dict[str, digits.Digits]


def collect(plan: Plan, store: Store, announce: Announce) -> Beyond:
    """Train and measure what S4 does not ask."""
    course = _course(plan, store)
    depths = pd.concat([_depth(plan, depth, store) for depth in DEPTHS], ignore_index=True)
    turned, compared = {}, {}
    for activation in ("relu", "abs"):
        networks = train(plan.moon_groups(activation), store)
        rows = moons.turn_rows(networks, store, plan.grid)
        ends = pd.concat([n.history() for n in networks], ignore_index=True)
        turned[activation] = moons.Moons(plan, rows, ends, networks)
        compared[activation] = digits.collect(plan, store, _silent, activation)
    announce(f"beyond the paper: training, depths {', '.join(map(str, DEPTHS))}, Abs, over {plan.seeds} seeds")
    return Beyond(plan, course, depths, turned, compared)


def _silent(_: str) -> None:
    return None


def _aligned(p: Patterns, q: Patterns) -> float:
    return float(np.asarray(alignment(p, q).value))


def _course(plan: Plan, store: Store) -> pd.DataFrame:
    """Return the alignment with the final network at each kept epoch, and of both architectures with each other."""
    points = torch.from_numpy(disc(plan.grid // 2)[0]).float()
    tables = [
        measured(store, Measured("course", (some.group,), plan.grid // 2), partial(_moon_course, some, points))
        for some in train(plan.moon_groups(), store)
    ]
    source = digit_source(plan.images)
    both = [train(plan.digit_groups(depth, *source), store) for depth in DIGIT_DEPTHS]
    for pair in zip(*both, strict=True):
        groups = tuple(some.group for some in pair)
        tables.append(measured(store, Measured("course", groups), partial(_digit_course, pair)))
    return pd.concat(tables, ignore_index=True)


def _captured(networks: Networks, number: int, points: torch.Tensor) -> list[Patterns]:
    return [capture(networks.network(number, "first", epoch), points) for epoch in networks.epochs]


def _moon_course(networks: Networks, points: torch.Tensor) -> Iterator[dict[str, object]]:
    for seed in networks.group.seeds:
        found = _captured(networks, seed, points)
        for epoch, patterns in zip(networks.epochs, found, strict=True):
            yield {"seed": seed, "task": "moons", "epoch": epoch, "alignment": _aligned(patterns, found[-1])}


def _digit_course(pair: tuple[Networks, ...]) -> Iterator[dict[str, object]]:
    for seed in pair[0].group.seeds:
        images = sample(pair[0].group, seed, "first").test_x
        both = [_captured(some, seed, images) for some in pair]
        for place, epoch in enumerate(pair[0].epochs):
            four, six = (found[place] for found in both)
            values = {"T4": (four, both[0][-1]), "T6": (six, both[1][-1]), "both": (four, six)}
            for task, (p, q) in values.items():
                yield {"seed": seed, "task": task, "epoch": epoch, "alignment": _aligned(p, q)}


def _depth(plan: Plan, depth: int, store: Store) -> pd.DataFrame:
    """Return one row a seed for networks of one depth."""
    grid = plan.grid // 3
    networks = train(plan.depth_groups(depth), store)
    rows = moons.turn_rows(networks, store, grid)
    turned = rows.pivot(index="seed", columns="comparison", values="alignment")
    overlap = rows.query("comparison == 'back'").set_index("seed")["overlap"]
    tables = [measured(store, Measured("depth", (n.group,), grid), partial(_ranks, n, grid)) for n in networks]
    ranks = pd.concat(tables, ignore_index=True).set_index("seed")
    ends = pd.concat([n.history() for n in networks], ignore_index=True).query("role == 'first'").set_index("seed")
    shape = networks[0].group.shape
    found = pd.concat([turned, overlap, ranks, ends[["test", "loss"]]], axis=1).reset_index()
    size = {"depth": depth, "width": shape.width, "parameters": shape.parameters}
    return found.assign(**size, network=f"{depth} × {shape.width:,}")


def _ranks(networks: Networks, grid: int) -> Iterator[dict[str, object]]:
    points = torch.from_numpy(disc(grid)[0]).float()
    for seed in networks.group.seeds:
        model, own = networks.network(seed), sample(networks.group, seed, "first")
        spectrum = VQMDS(n_components=None).fit(capture(model, points)).eigenvalues_
        new = pattern_separation(capture(model, own.test_x), own.test_y.numpy())
        ranks = {"rank": entropy_rank(spectrum), "participation": participation_ratio(spectrum)}
        yield {"seed": seed, **ranks, "neighbour": new["neighbour"], "silhouette": new["silhouette"]}


def sections(beyond: Beyond) -> tuple[Section, ...]:
    """Return what happens during training, what depth does, and what Abs changes."""
    blocks: tuple[Block, ...] = (
        Prose(_course_text(beyond)),
        _course_figure(beyond),
        Details("Every kept epoch", (_course_table(beyond),)),
        Prose(_depth_text(beyond)),
        _depth_figure(beyond),
        *_depth_tables(beyond),
        Prose(_abs_text(beyond)),
        _abs_turning(beyond),
        _abs_digits(beyond),
    )
    return (Section("Beyond the paper: training, depth, Abs", blocks),)


def _course_of(beyond: Beyond, task: str) -> tuple[np.ndarray, np.ndarray]:
    part = beyond.course[beyond.course["task"] == task]
    table = part.pivot(index="seed", columns="epoch", values="alignment")
    return table.columns.to_numpy(), table.to_numpy()


def _course_text(beyond: Beyond) -> str:
    parts = []
    for task in ("moons", "T4", "T6"):
        epochs, values = _course_of(beyond, task)
        half = (values[:, :1] + 1) / 2
        reached = epochs[(values >= half).argmax(1)]
        parts.append(
            f"{TASKS[task]}: from {mean_text(values[:, 0])}, half of the way by epoch {np.median(reached):.0f}"
        )
    _, both = _course_of(beyond, "both")
    return (
        "**During training.** How far is the kernel from what it will be? Centred alignment with the same network at "
        f"the end of training: {'; '.join(parts)}. The two architectures, compared with each other at the same epoch, "
        f"go from {mean_text(both[:, 0])} to {mean_text(both[:, -1])}; their largest mean is at epoch "
        f"{_course_of(beyond, 'both')[0][both.mean(0).argmax()]}."
    )


def _course_figure(beyond: Beyond) -> Figure:
    drawing, axes = figure(9.2, 3.0, 1, 2)
    for ax, tasks in zip(axes[0], (("moons",), ("T4", "T6", "both")), strict=True):
        for task in tasks:
            epochs, values = _course_of(beyond, task)
            band(ax, epochs, values, TASKS[task], TASK_COLOURS[task])
        ax.set(xlabel="epoch", ylabel="centred alignment", ylim=(0, 1.03))
        # Epoch 0 belongs on the axis: linear up to the first kept epoch, logarithmic behind it.
        ax.set_xscale("symlog", linthresh=float(epochs[1]))
        ticks = [e for e in (0, 1, 3, 10, 30, 100, 300, 1_000) if e <= epochs[-1]]
        ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        ax.minorticks_off()
        ax.set_xlim(0, epochs[-1])
        legend(ax, "lower right" if ax is axes[0, 0] else "upper left")
    axes[0, 0].set_title("Moons: with the final network")
    axes[0, 1].set_title("Digits: with the final network, and with each other")
    caption = "Median over seeds, the band of the middle 80 %, extremes as thin lines."
    return Figure("vq-course", "When the kernel takes its shape", to_svg(drawing, "vq-course"), caption)


def _course_table(beyond: Beyond) -> Table:
    order = pd.Categorical(beyond.course["task"], list(TASKS), ordered=True)
    rows = beyond.course.assign(network=beyond.course["task"].map(TASKS), order=order).sort_values(["order", "epoch"])
    return summary_table(
        "vq-course", "Alignment during training", rows, ["network", "epoch"], {"alignment": "alignment"}
    )


def _depth_text(beyond: Beyond) -> str:
    shapes = beyond.depths.drop_duplicates("depth")
    sizes = ", ".join(f"{r.depth} × {r.width:,} ({r.parameters:,})" for r in shapes.itertuples())
    far = (shapes["parameters"] / BUDGET - 1).abs().max()
    ranks = [f"{d}: {mean_text(p['rank'])}" for d, p in beyond.depths.groupby("depth")]
    return (
        f"**Depth at equal size.** Networks on the moons with as many parameters as depth allows, {BUDGET:,} within "
        f"{far:.1%}: {sizes}. Effective rank of the kernel on the disc by depth: {'; '.join(ranks)}."
    )


def _depth_figure(beyond: Beyond) -> Figure:
    shown = {"back": "Alignment, turned back", "still": "Alignment, not turned back", "rank": "Effective rank"}
    drawing, axes = figure(9.2, 2.3, 1, len(shown))
    for ax, (column, title) in zip(axes[0], shown.items(), strict=True):
        strip(ax, {str(name): part[column].to_numpy() for name, part in beyond.depths.groupby("network", sort=False)})
        ax.set_title(title)
        if ax is not axes[0, 0]:
            ax.set_yticklabels([])
    caption = "Depth × width at about equal parameters. Each dot is a seed; the large dot the mean with its interval."
    return Figure("vq-depth", "Depth against width", to_svg(drawing, "vq-depth"), caption)


def _depth_tables(beyond: Beyond) -> tuple[Table, Table]:
    grid, keys = beyond.plan.grid // 3, ["network", "parameters"]
    note = f"Kernels on the disc of a {grid} × {grid} grid, compared as in figure 1."
    alike = summary_table("vq-depth-alike", "Depth: how alike kernels are", beyond.depths, keys, DEPTH_ALIKE, note)
    note = "Effective rank of the kernel on the disc; leave-one-out nearest neighbour in the VQ distance."
    shape = summary_table("vq-depth-shape", "Depth: rank and accuracy", beyond.depths, keys, DEPTH_SHAPE, note)
    return alike, shape


def _abs_text(beyond: Beyond) -> str:
    gains = {a: m.values("back", "alignment") - m.values("still", "alignment") for a, m in beyond.moons.items()}
    grown = {a: d.alignments(("T4", "T6")) - d.alignments(("I4", "I6")) for a, d in beyond.digits.items()}
    accuracy = {a: d.ends[d.ends["role"] == "first"].groupby("depth")["test"].mean() for a, d in beyond.digits.items()}
    reached = "; ".join(f"{COLUMNS[a]} {number(v[4])} and {number(v[6])}" for a, v in accuracy.items())
    return (
        "**Abs in place of ReLU.** The same starts, data and epochs. Turning back is worth "
        f"{mean_text(gains['relu'])} of alignment with ReLU and {mean_text(gains['abs'])} with Abs. Training on digits "
        f"brings 4 and 6 layers nearer by {mean_text(grown['relu'])} with ReLU and {mean_text(grown['abs'])} with Abs. "
        f"Test accuracy of 4 and 6 layers: {reached}."
    )


COLUMNS = {"relu": "ReLU", "abs": "Abs"}


def _abs_turning(beyond: Beyond) -> Table:
    parts = [m.rows.assign(network=COLUMNS[a]) for a, m in beyond.moons.items()]
    rows = pd.concat(parts, ignore_index=True)
    rows = rows.assign(comparison=rows["comparison"].map(moons.COMPARISONS))
    keys = ["comparison", "network"]
    order = {text: place for place, text in enumerate(moons.COMPARISONS.values())}
    rows = rows.sort_values("comparison", key=lambda c: c.map(order), kind="stable")
    return summary_table("vq-abs-turning", "Figure 1's numbers, ReLU and Abs", rows, keys, moons.MEASURES)


def _abs_digits(beyond: Beyond) -> Table:
    best = beyond.digits["relu"].nearest()
    parts = []
    for activation, found in beyond.digits.items():
        for pair in digits.PAIRS:
            cosines = found.curve(pair, best.form)[:, best.index]
            values = pd.DataFrame({"alignment": found.alignments(pair), "cosine": cosines})
            parts.append(values.assign(pair=digits.name_of(pair), network=COLUMNS[activation]))
    frame = pd.concat(parts).sort_values("pair", key=_pair_order, kind="stable")
    measures = {"alignment": "centred alignment", "cosine": f"cosine, {FORMS[best.form]}, σ² = {number(best.scale, 2)}"}
    return summary_table("vq-abs-digits", "Figure 3's numbers, ReLU and Abs", frame, ["pair", "network"], measures)


def _pair_order(column: pd.Series) -> pd.Series:
    return column.map({digits.name_of(pair): place for place, pair in enumerate(digits.PAIRS)})


PART = Part("beyond", collect, sections)
