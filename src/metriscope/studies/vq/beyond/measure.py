"""Kernels during training, at other depths and with Abs.

Axes: S seeds, E kept epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from metriscope.runs import Driver, Finished
from metriscope.studies.vq.beyond.plan import Beyond, Course, Ranks
from metriscope.studies.vq.digits import measure as digits
from metriscope.studies.vq.moons import measure as moons
from metriscope.studies.vq.moons.measure import disc, turn_rows
from metriscope.studies.vq.networks.measure import ends_of, stored, trained
from metriscope.studies.vq.networks.plan import Group
from metriscope.studies.vq.spheres.measure import entropy_rank, participation_ratio, pattern_separation
from metriscope.studies.vq.train import Networks, sample
from metriscope.vq import VQMDS, Patterns
from metriscope.vq.capture import capture
from metriscope.vq.measures import alignment

__all__ = ["Results", "measure"]

ACTIVATIONS = ("relu", "abs")


@dataclass(frozen=True)
class Results:
    """What was measured beyond the paper."""

    part: Beyond
    course: pd.DataFrame
    depths: pd.DataFrame
    turning: Mapping[str, pd.DataFrame]
    digits: Mapping[str, digits.Results]

    def course_of(self, task: str) -> tuple[Int[np.ndarray, " e"], Float[np.ndarray, "s e"]]:
        """Return the kept epochs of a task, and the alignments as seeds by epochs."""
        part = self.course[self.course["task"] == task]
        table = part.pivot(index="seed", columns="epoch", values="alignment")
        return table.columns.to_numpy(), table.to_numpy()

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The course of training, and every depth."""
        return {"course": self.course, "depths": self.depths}


def measure(part: Beyond, runs: Finished, driver: Driver, plain: digits.Results, turned: moons.Results) -> Results:
    """Measure what S4 does not ask; what it asks of ReLU networks was measured before."""
    course = _course(part, runs, driver)
    depths = pd.concat([_depth(part, depth, runs, driver) for depth in part.depths], ignore_index=True)
    with_abs = turn_rows(part.abs_moons, runs, driver, "vq: figure 1, Abs")
    compared = digits.measure(part.abs_digits, runs, driver)
    turning = dict(zip(ACTIVATIONS, (turned.rows, with_abs), strict=True))
    return Results(part, course, depths, turning, dict(zip(ACTIVATIONS, (plain, compared), strict=True)))


def _aligned(p: Patterns, q: Patterns, estimator: str) -> float:
    return float(np.asarray(alignment(p, q, estimator).value))


def _course(part: Beyond, runs: Finished, driver: Driver) -> pd.DataFrame:
    """Return the alignment with the final network at each kept epoch, and of both architectures with each other."""
    networks = trained((*part.moons.jobs(), *part.digits.jobs()), runs)

    def rows(spec: Course) -> Iterator[dict[str, object]]:
        own = [networks[group] for group in spec.groups]
        return _moon_course(own[0], spec) if spec.grid else _digit_course(own, spec)

    return stored(driver, part.courses(), rows, "vq: during training")


def _captured(networks: Networks, number: int, points: torch.Tensor) -> list[Patterns]:
    return [capture(networks.network(number, "first", epoch), points) for epoch in networks.group.epochs]


def _moon_course(networks: Networks, spec: Course) -> Iterator[dict[str, object]]:
    points = torch.from_numpy(disc(spec.grid)[0]).float()
    for seed in networks.group.seeds:
        found = _captured(networks, seed, points)
        for epoch, patterns in zip(networks.group.epochs, found, strict=True):
            aligned = _aligned(patterns, found[-1], spec.estimator)
            yield {"seed": seed, "task": "moons", "epoch": epoch, "alignment": aligned}


def _digit_course(pair: list[Networks], spec: Course) -> Iterator[dict[str, object]]:
    for seed in pair[0].group.seeds:
        images = sample(pair[0].group, seed, "first").test_x
        both = [_captured(some, seed, images) for some in pair]
        for place, epoch in enumerate(pair[0].group.epochs):
            four, six = (found[place] for found in both)
            values = {"T4": (four, both[0][-1]), "T6": (six, both[1][-1]), "both": (four, six)}
            for task, (p, q) in values.items():
                yield {"seed": seed, "task": task, "epoch": epoch, "alignment": _aligned(p, q, spec.estimator)}


def _depth(part: Beyond, depth: int, runs: Finished, driver: Driver) -> pd.DataFrame:
    """Return one row per seed for networks of one depth."""
    deep = part.deep(depth)
    rows = turn_rows(deep, runs, driver, f"vq: figure 1 at depth {depth}")
    turned = rows.pivot(index="seed", columns="comparison", values="alignment")
    overlap = rows[rows["comparison"] == "back"].set_index("seed")["overlap"]
    networks = trained(deep.jobs(), runs)
    ranks = stored(driver, part.ranks(depth), lambda spec: _ranks(networks, spec), f"vq: ranks at depth {depth}")
    ends = ends_of(networks.values())
    ends = ends[ends["role"] == "first"].set_index("seed")[["test", "loss"]]
    found = pd.concat([turned, overlap, ranks.set_index("seed"), ends], axis=1).reset_index()
    size = {"depth": depth, "width": deep.shape.width, "parameters": deep.shape.parameters}
    return found.assign(**size, network=f"{depth} × {deep.shape.width:,}")


def _ranks(networks: Mapping[Group, Networks], spec: Ranks) -> Iterator[dict[str, object]]:
    points = torch.from_numpy(disc(spec.grid)[0]).float()
    for seed in spec.group.seeds:
        model, own = networks[spec.group].network(seed), sample(spec.group, seed, "first")
        spectrum = VQMDS(n_components=None).fit(capture(model, points)).eigenvalues_
        new = pattern_separation(capture(model, own.test_x), own.test_y.numpy(), spec.components)
        ranks = {"rank": entropy_rank(spectrum), "participation": participation_ratio(spectrum)}
        yield {"seed": seed, **ranks, "neighbor": new["neighbor"], "silhouette": new["silhouette"]}
