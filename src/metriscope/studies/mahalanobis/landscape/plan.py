"""The population of Gaussians: what is trained on how many of them, as jobs of several Gaussians each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from metriscope.studies.mahalanobis.plan import (
    NAME,
    PAPER,
    STARTS,
    DistanceRecipe,
    DistanceTraining,
    GaussianTask,
    MahalanobisPlan,
    Start,
)

__all__ = ["POPULATIONS", "UNITS", "LandscapeRule", "Population", "PopulationTraining", "jobs"]

# Units per dimension that a network has unless it is asked for more or fewer.
UNITS = {"abs": 1, "relu": 2, "sigmoid": 2}


@dataclass(frozen=True)
class Population:
    """How many Gaussians are drawn in one dimension, and what is trained on them.

    ``shard`` Gaussians make a job. On the first ``clustered`` of them networks also start from clusters, with
    ``resamples`` trials each, ``together`` Gaussians in a job; on the first ``widened``, networks of ``widths`` units
    are trained.
    """

    gaussians: int
    shard: int
    clustered: int
    resamples: int
    together: int
    widened: int
    widths: tuple[int, ...]
    trials: int = 4


POPULATIONS = {
    2: Population(200, 50, clustered=50, resamples=2, together=50, widened=40, widths=(2, 3, 4, 5, 6)),
    10: Population(50, 5, clustered=50, resamples=1, together=25, widened=12, widths=(10, 12, 15, 20, 30)),
}


@dataclass(frozen=True)
class PopulationTraining:
    """Networks of one activation, start and width on several Gaussians: trained and measured; no weights are kept.

    ``gaussians``: the first of them, and the number after the last. ``hidden``: the number of units, if not the usual.
    ``digits``: significant digits that are kept of every number.
    """

    task: GaussianTask
    gaussians: tuple[int, int]
    recipe: DistanceRecipe
    trials: int
    activation: str
    start: Start = STARTS["random"]
    hidden: int | None = None
    test_samples: int = 1_000
    digits: int = 5
    engine: int = 1  # raised when the same request would give different weights
    method: int = 1  # raised when the same request would give other numbers
    study: str = NAME

    @property
    def units(self) -> int:
        """The number of units of each network."""
        return self.hidden or self.task.dim * UNITS[self.activation]

    @property
    def usual(self) -> bool:
        """Whether networks have the usual width and start at random: those that every metric is kept of."""
        return self.hidden is None and self.start == STARTS["random"]

    def trainings(self) -> tuple[DistanceTraining, ...]:
        """Return one training per Gaussian."""
        every, only = tuple(range(self.trials)), (self.activation,)
        return tuple(
            DistanceTraining(replace(self.task, gaussian=i), self.recipe, every, only, self.start, hidden=self.hidden)
            for i in range(*self.gaussians)
        )


@dataclass(frozen=True)
class LandscapeRule:
    """How the tables of the landscape are computed.

    Intervals are percentile intervals of ``draws`` bootstrap samples of Gaussians, of level ``confidence``. Logistic
    models have the ridge penalty ``penalty``; that of lost axes is fitted in ``steps`` Newton steps, on at least
    ``groups`` Gaussians. A model that predicts is fitted on Gaussians with odd numbers and tested on the others, and is
    scored if both halves have at least ``fewest`` trials of either kind. Predictions are shown in ``bins`` groups of
    equal size.
    """

    draws: int = 1_000
    confidence: float = 0.95
    penalty: float = 1.0
    steps: int = 20
    fewest: int = 5
    groups: int = 10
    bins: int = 5


def jobs(plan: MahalanobisPlan) -> tuple[PopulationTraining, ...]:
    """Return the jobs of a plan; none without Abs, which the landscape is about. What more depends on comes first."""
    found: list[PopulationTraining] = []
    for dim, rows in POPULATIONS.items():
        if plan.landscape and "abs" in plan.activations and dim in plan.sizes:
            found += [job for job in _dimension(dim, rows, plan.seed) if job.activation in plan.activations]
    return tuple(found)


def _dimension(dim: int, rows: Population, seed: int) -> Iterator[PopulationTraining]:
    size = PAPER[dim]
    task, recipe = GaussianTask(dim, size.samples, seed=seed), DistanceRecipe(size.epochs)

    def shards(activation: str, many: int, step: int) -> Iterator[PopulationTraining]:
        for first in range(1, many + 1, step):
            here = (first, min(first + step, many + 1))
            yield PopulationTraining(task, here, recipe, rows.trials, activation, test_samples=size.test_samples)

    abs_, relu, sigmoid = (shards(activation, rows.gaussians, rows.shard) for activation in UNITS)

    yield from abs_
    yield next(sigmoid)
    for activation, start in product(("abs", "relu"), ("clusters", "clusters-2")):
        for job in shards(activation, rows.clustered, rows.together):
            yield replace(job, trials=rows.resamples, start=STARTS[start])
    yield from relu
    (whole,) = shards("abs", rows.widened, rows.widened)
    for activation, units in product(("abs", "relu"), rows.widths):
        if units != dim * UNITS[activation]:
            yield replace(whole, activation=activation, hidden=units)
    yield from sigmoid
