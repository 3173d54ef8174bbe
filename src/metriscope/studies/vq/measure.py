"""Measure every experiment of the VQ study, and questions beyond the paper: epochs, depths and Abs.

Axes: S seeds, E kept epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from metriscope.runs import Driver, Finished
from metriscope.studies.vq import moons
from metriscope.studies.vq.digits import DigitsResults, StartsResults, measure_digits, measure_starts
from metriscope.studies.vq.distillation import DistillationResults, measure_distillation
from metriscope.studies.vq.moons import MoonsResults, SpheresResults
from metriscope.studies.vq.networks import Group
from metriscope.studies.vq.plan import Beyond, Course, Ranks, VQPlan
from metriscope.studies.vq.prediction import PredictionResults, measure_prediction
from metriscope.studies.vq.regions import ExplorerResults, LemmasResults, measure_explorer, measure_lemmas
from metriscope.studies.vq.sample_sizes import SampleSizesResults, measure_sample_sizes
from metriscope.studies.vq.train import Networks, aligned, ends_of, rows_by_seed, sample, stored, trained
from metriscope.vq import VQMDS, capture

__all__ = ["BeyondResults", "VQResults", "measure"]


@dataclass(frozen=True)
class BeyondResults:
    """What was measured beyond the paper; ``turning`` and ``digits`` are by activation."""

    part: Beyond
    course: pd.DataFrame
    depths: pd.DataFrame
    turning: Mapping[str, pd.DataFrame]
    digits: Mapping[str, DigitsResults]

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
    """The results of every experiment."""

    moons: MoonsResults
    spheres: SpheresResults
    digits: DigitsResults
    lemmas: LemmasResults
    beyond: BeyondResults
    explorer: ExplorerResults
    prediction: PredictionResults
    distillation: DistillationResults
    sample_sizes: SampleSizesResults
    starts: StartsResults

    @cached_property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """The tables of all experiments; on digits, those of all starts if these were run or recorded."""
        figures = (self.moons, self.spheres, self.digits, self.lemmas, self.beyond, self.explorer)
        parts = (*figures, self.prediction, self.distillation, self.sample_sizes, self.starts)
        return {name: table for part in parts for name, table in part.tables.items()}


def measure(plan: VQPlan, runs: Finished, driver: Driver) -> VQResults:
    """Measure the finished runs, figure by figure."""
    rotated = moons.measure_moons(plan.moons, runs, driver)
    separated = moons.measure_spheres(plan.spheres, runs, driver)
    compared, cut = measure_digits(plan.digits, runs, driver), measure_lemmas(plan.lemmas, driver)
    beyond = _beyond(plan.beyond, runs, driver, rotated, compared)
    explored, predicted = measure_explorer(plan.explorer, runs, driver), measure_prediction(plan.prediction, driver)
    taught, sizes = measure_distillation(plan.distillation, driver), measure_sample_sizes(plan.sample_sizes, driver)
    starts = measure_starts(plan.starts, compared, driver)
    return VQResults(rotated, separated, compared, cut, beyond, explored, predicted, taught, sizes, starts)


def _beyond(
    part: Beyond, runs: Finished, driver: Driver, rotated: MoonsResults, compared: DigitsResults
) -> BeyondResults:
    """Measure what goes beyond the paper; its own figures with ReLU networks are already measured."""
    networks = trained((*part.moons.jobs(), *part.digits.jobs()), runs)
    course = stored(driver, part.courses(), lambda spec: _course(networks, spec), "vq: during training")
    depths = pd.concat([_depth(part, depth, runs, driver) for depth in part.depths], ignore_index=True)
    turning = {"relu": rotated.rows, "abs": moons.rotation_rows(part.abs_moons, runs, driver, "vq: figure 1, Abs")}
    with_abs = {"relu": compared, "abs": measure_digits(part.abs_digits, runs, driver)}
    return BeyondResults(part, course, depths, turning, with_abs)


def _course(networks: Mapping[Group, Networks], spec: Course) -> Iterator[dict[str, object]]:
    """Yield the alignment with the final network at each kept epoch, and that of two architectures with each other."""
    first = spec.groups[0]
    names = ["moons"] if spec.grid else [f"T{group.shape.depth}" for group in spec.groups]
    for seed in first.seeds:
        points = moons.disc_points(spec.grid).float() if spec.grid else sample(first, seed, "first").test_x
        found = [[capture(networks[g].network(seed, "first", e), points) for e in g.epochs] for g in spec.groups]
        for place, epoch in enumerate(first.epochs):
            pairs = {name: (patterns[place], patterns[-1]) for name, patterns in zip(names, found, strict=True)}
            if len(found) > 1:
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
