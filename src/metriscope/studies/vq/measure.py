"""Measure every experiment of the VQ study, and what the paper does not ask: epochs, depths and Abs.

Axes: S seeds, E kept epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from metriscope.runs import Driver, Finished
from metriscope.studies.vq.digits import measure as digits
from metriscope.studies.vq.moons import measure as moons
from metriscope.studies.vq.networks.measure import Networks, aligned, ends_of, rows_by_seed, stored, trained
from metriscope.studies.vq.plan import Beyond, Course, Ranks, VQPlan
from metriscope.studies.vq.regions import measure as regions
from metriscope.studies.vq.train import sample
from metriscope.vq import VQMDS, capture

__all__ = ["BeyondResults", "VQResults", "measure"]


@dataclass(frozen=True)
class BeyondResults:
    """What was measured beyond the paper; ``turning`` and ``digits`` are by activation."""

    part: Beyond
    course: pd.DataFrame
    depths: pd.DataFrame
    turning: Mapping[str, pd.DataFrame]
    digits: Mapping[str, digits.DigitsResults]

    def course_of(self, task: str) -> tuple[Int[np.ndarray, " e"], Float[np.ndarray, "s e"]]:
        """Return the kept epochs of a task, and the alignments as seeds by epochs."""
        part = self.course[self.course["task"] == task]
        table = part.pivot(index="seed", columns="epoch", values="alignment")
        return table.columns.to_numpy(), table.to_numpy()

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The course of training, and every depth."""
        return {"course": self.course, "depths": self.depths}


@dataclass(frozen=True)
class VQResults:
    """What every experiment measured."""

    moons: moons.MoonsResults
    spheres: moons.SpheresResults
    digits: digits.DigitsResults
    lemmas: regions.LemmasResults
    beyond: BeyondResults
    explorer: regions.ExplorerResults

    @cached_property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """The tables of all experiments."""
        parts = (self.moons, self.spheres, self.digits, self.lemmas, self.beyond, self.explorer)
        return {name: table for part in parts for name, table in part.tables.items()}


def measure(plan: VQPlan, runs: Finished, driver: Driver) -> VQResults:
    """Measure the finished runs, figure by figure."""
    rotated, separated = (
        moons.measure_moons(plan.moons, runs, driver),
        moons.measure_spheres(plan.spheres, runs, driver),
    )
    compared, cut = digits.measure(plan.digits, runs, driver), regions.measure_lemmas(plan.lemmas, driver)
    part, tasks = plan.beyond, trained((*plan.beyond.moons.jobs(), *plan.beyond.digits.jobs()), runs)
    course = stored(
        driver, part.courses(), lambda spec: _course([tasks[g] for g in spec.groups], spec), "vq: during training"
    )
    depths = pd.concat([_depth(part, depth, runs, driver) for depth in part.depths], ignore_index=True)
    turning = {"relu": rotated.rows, "abs": moons.rotation_rows(part.abs_moons, runs, driver, "vq: figure 1, Abs")}
    with_abs = {"relu": compared, "abs": digits.measure(part.abs_digits, runs, driver)}
    beyond = BeyondResults(part, course, depths, turning, with_abs)
    return VQResults(rotated, separated, compared, cut, beyond, regions.measure_explorer(plan.explorer, runs, driver))


def _course(networks: Sequence[Networks], spec: Course) -> Iterator[dict[str, object]]:
    """Yield the alignment with the final network at each kept epoch, and that of two architectures with each other."""
    first = networks[0].group
    names = ["moons"] if spec.grid else [f"T{some.group.shape.depth}" for some in networks]
    for seed in first.seeds:
        points = moons.disc_points(spec.grid).float() if spec.grid else sample(first, seed, "first").test_x
        found = [[capture(some.network(seed, "first", e), points) for e in first.epochs] for some in networks]
        for place, epoch in enumerate(first.epochs):
            pairs = {name: (patterns[place], patterns[-1]) for name, patterns in zip(names, found, strict=True)}
            if len(networks) > 1:
                pairs["both"] = (found[0][place], found[1][place])
            for task, (p, q) in pairs.items():
                yield {"seed": seed, "task": task, "epoch": epoch, "alignment": aligned(p, q, spec.estimator)}


def _depth(part: Beyond, depth: int, runs: Finished, driver: Driver) -> pd.DataFrame:
    """Return one row per seed for networks of one depth."""
    deep = part.deep(depth)
    rows = moons.rotation_rows(deep, runs, driver, f"vq: figure 1 at depth {depth}")
    overlap = rows[rows["comparison"] == "back"].set_index("seed")["overlap"]
    networks = trained(deep.jobs(), runs)
    ranks = stored(driver, part.ranks(depth), rows_by_seed(networks, _ranks), f"vq: ranks at depth {depth}")
    ends = ends_of(networks.values())
    ends = ends[ends["role"] == "first"].set_index("seed")[["test", "loss"]]
    parts = [moons.by_comparison(rows, "alignment"), overlap, ranks.set_index("seed"), ends]
    size = {"depth": depth, "width": deep.shape.width, "parameters": deep.shape.parameters}
    return pd.concat(parts, axis=1).reset_index().assign(**size, network=f"{depth} × {deep.shape.width:,}")


def _ranks(networks: Networks, seed: int, spec: Ranks) -> Iterator[dict[str, object]]:
    model, own = networks.network(seed), sample(spec.group, seed, "first")
    spectrum = VQMDS(n_components=None).fit(capture(model, moons.disc_points(spec.grid).float())).eigenvalues_
    new = moons.pattern_separation(capture(model, own.test_x), own.test_y.numpy(), spec.components)
    ranks = {"rank": moons.entropy_rank(spectrum), "participation": moons.participation_ratio(spectrum)}
    yield {**ranks, "neighbor": new["neighbor"], "silhouette": new["silhouette"]}
