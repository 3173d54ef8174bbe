"""Figure 1 of S4: does the VQ kernel of a network turn with its training data? A number for it, and what it is worth.

Axes: N points of the unit disc, K components. Every comparison has its two networks on points that correspond, so
that nothing is resampled: the network of the turned data is evaluated on turned points ("turned back"), or on the
same ones ("not turned back").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from metriscope.data import turn
from metriscope.report import Block, Details, Prose, Section, number
from metriscope.runs import Store
from metriscope.studies.contract import Announce
from metriscope.studies.vq import moon_figures
from metriscope.studies.vq.experiment import Networks, train
from metriscope.studies.vq.measures import compare, disc
from metriscope.studies.vq.parts import Measured, Part, mean_text, measured, summary_table
from metriscope.studies.vq.spec import ANGLE, CONVERGED, Plan
from metriscope.vq import Patterns, capture

__all__ = ["COMPARISONS", "MEASURES", "PART", "Moons", "collect", "comparisons", "turn_rows"]

# Each comparison is between the first network and another, at the end or at the start of training.
COMPARISONS = {
    "back": "turned data, turned back",
    "ceiling": "same data, another start",
    "still": "turned data, not turned back",
    "start back": "before training, turned back",
    "start": "before training, not turned back",
}
MEASURES = {
    "overlap": "eigenspace overlap",
    "cosine": "eigenvector |cosine|",
    "alignment": "centred alignment",
}


@dataclass(frozen=True)
class Moons:
    """What figure 1 yields: one row for each seed and comparison, and the networks behind it."""

    plan: Plan
    rows: pd.DataFrame
    ends: pd.DataFrame
    networks: tuple[Networks, ...]

    def values(self, comparison: str, measure: str) -> np.ndarray:
        """Return one value a seed, in the order of seeds."""
        part = self.rows[self.rows["comparison"] == comparison].sort_values("seed")
        return part[measure].to_numpy(dtype=float)


def patterns(model: nn.Module, points: Tensor) -> Patterns:
    """Return the sign patterns of points in float32, as the network was trained."""
    return capture(model, points.float())


def comparisons(networks: Networks, number: int, grid: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each comparison of one seed with its measures."""
    points = torch.from_numpy(disc(grid)[0])
    turned = turn(points, ANGLE)
    last = networks.group.recipe.epochs
    for epoch, prefix in ((last, ""), (0, "start ")):
        one = patterns(networks.network(number, "first", epoch), points)
        other = networks.network(number, "turned", epoch)
        yield f"{prefix}back", compare(one, patterns(other, turned))
        yield f"{prefix}still".replace("start still", "start"), compare(one, patterns(other, points))
        if epoch:
            yield "ceiling", compare(one, patterns(networks.network(number, "second", epoch), points))


def turn_rows(networks: Sequence[Networks], store: Store, grid: int) -> pd.DataFrame:
    """Return every comparison of every seed, measured or from the store."""

    def rows(some: Networks) -> Iterator[dict[str, object]]:
        for seed in some.group.seeds:
            for name, found in comparisons(some, seed, grid):
                yield {"seed": seed, "comparison": name, **found}

    tables = [measured(store, Measured("turn", (n.group,), grid), partial(rows, n)) for n in networks]
    return pd.concat(tables, ignore_index=True)


def collect(plan: Plan, store: Store, announce: Announce) -> Moons:
    """Train and compare the networks of figure 1."""
    networks = train(plan.moon_groups(), store)
    rows = turn_rows(networks, store, plan.grid)
    announce(f"figure 1: {len(rows)} comparisons over {plan.seeds} seeds")
    return Moons(plan, rows, pd.concat([n.history() for n in networks], ignore_index=True), networks)


def sections(moons: Moons) -> tuple[Section, ...]:
    """Return figure 1, its numbers, and how the networks ended."""
    places = {name: place for place, name in enumerate(COMPARISONS)}
    rows = moons.rows.sort_values("comparison", key=lambda names: names.map(places), kind="stable")
    rows = rows.assign(comparison=rows["comparison"].map(COMPARISONS))
    note = (
        f"Kernels on the {len(disc(moons.plan.grid)[0]):,} cells of the unit disc. The overlap is the mean squared "
        "canonical correlation of the two spaces of three leading eigenvectors; |cosine| is the mean over the "
        "three, each with its partner."
    )
    table = summary_table("vq-turning", "Does the kernel turn with the data?", rows, ["comparison"], MEASURES, note)
    single = {f"cosine{k}": f"eigenvector {k}" for k in (1, 2, 3)}
    note = "Matched |cosine| of single eigenvectors, in the order of the first network's eigenvalues."
    each = summary_table("vq-eigenvectors", "Eigenvector by eigenvector", rows, ["comparison"], single, note)
    blocks: tuple[Block, ...] = (Prose(_text(moons)), moon_figures.eigenvectors(moons), moon_figures.turning(moons))
    return (Section("VQ kernels turn with the data", (*blocks, table, Details("Each eigenvector", (each,)))),)


def _text(moons: Moons) -> str:
    worst, first = moons.ends["loss"].max(), moons.ends[moons.ends["role"] == "first"]
    reached = "All networks converged" if worst < CONVERGED else "Not all networks converged"
    return (
        "The VQ distance of two points is the number of units that have them on different sides. S4 trains one network "
        "on two moons and one, from another start, on the same moons turned by π/6, and shows that the leading "
        "eigenvectors of the kernel turn too. Here the second network is evaluated on turned points: what turns with "
        "the data must then agree, point by point, with the first network. How far any two networks agree is said by "
        "a second start on the same data; what the turn is worth, by leaving it out; what training is worth, by the "
        "same networks before it.\n\n"
        "Some of it is no discovery. Turning the data and the first layer's weights together changes nothing, so with "
        "an optimiser and a distribution of starts that know no axes the turned problem is the same problem. Adam and "
        "uniform weights do know axes; that they matter little is what the gap between the first two rows says.\n\n"
        f"{reached}: largest mean loss {number(worst, 2)} against the bound of {CONVERGED:g}; lowest accuracy on "
        f"training points {number(moons.ends['train'].min())}, on new points {mean_text(first['test'])}."
    )


PART = Part("moons", collect, sections)
