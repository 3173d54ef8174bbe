"""Specifications of the experiments around the trainings: diagnosis, chance, replay, many Gaussians, two layers.

This module loads no tensor library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from metriscope.studies.mahalanobis.plan import (
    ACTIVATIONS,
    EXACT,
    NAME,
    PAPER,
    STARTS,
    DistanceRecipe,
    DistanceTraining,
    GaussianTask,
    MahalanobisPlan,
    Start,
    author_task,
)

__all__ = [
    "CHAOTIC", "CLOSE", "DATA", "FIRST", "HEADS", "LOOSE", "OUTCOMES", "POPULATIONS", "RECORDED", "UNITS", "Chance",
    "Clusters", "Diagnosis", "EarlyRanks", "LandscapeRule", "PopulationTraining", "SecondLayer", "SecondLayers",
    "population_jobs", "replay_of",
]  # fmt: skip

OUTCOMES = {
    "exact": "learned the distance",
    "reaches exact": "was still descending; a second optimizer that continues from there learns the distance",
    "descends elsewhere": "was still descending; a second optimizer reaches another stationary point, not exact either",
    "true minimum": "is at a local minimum: every direction curves up or is a symmetry",
    "saddle": "is at a saddle that neither optimizer left",
    "stationary": "is at a stationary point whose curvature was not computed (too many parameters)",
    "not converged": "has too large a gradient, even after the second optimizer's iterations, to tell where it ends",
}


@dataclass(frozen=True)
class Diagnosis:
    """Why each trial of a training ended as it did.

    A loss below ``exact`` times the loss of one lost direction counts as learned. At a stationary point no component of
    the gradient exceeds ``gradient``, in whitened coordinates. A trial counts as still descending if the second
    optimizer lowers its loss by the share ``descent``. A curvature counts as downward if it is below minus ``downward``
    times the largest one, since symmetries cause eigenvalues of exactly zero. Networks of more than ``large``
    parameters get fewer iterations, and their Hessian is not computed.
    """

    training: DistanceTraining
    exact: float = EXACT
    gradient: float = 1e-6
    descent: float = 0.1
    downward: float = 1e-5
    difference: float = 1e-5
    iterations: int = 2_000
    memory: int = 30
    large: int = 1_000
    large_iterations: int = 60
    lost: float = 0.1
    method: int = 2  # increased when the same request would give other outcomes
    study: str = NAME


@dataclass(frozen=True)
class Chance:
    """How well randomly rotated whitenings of one Gaussian recover its principal axes: the null distribution of C07.

    ``draws`` rotations are drawn. Their mean over as many rotations as there are trials is drawn ``means`` times;
    ``high`` is the upper quantile of these means that is reported.
    """

    task: GaussianTask
    draws: int = 400
    means: int = 2_000
    high: float = 0.975
    method: int = 1  # increased when the same request would give other numbers
    study: str = NAME


# The relative difference that is allowed in addition to half of the last printed digit.
CLOSE = 1e-3
# Where differences in rounding grow until trials diverge, only the losses are compared, with a larger tolerance.
CHAOTIC, LOOSE = ((10, "relu"), (10, "sigmoid"), (100, "abs"), (100, "relu"), (100, "sigmoid")), 0.02


@dataclass(frozen=True)
class ReplayedTrials:
    """The trials of the published runs in one dimension, with the metrics that the author's record prints."""

    task: GaussianTask
    recipe: DistanceRecipe
    trials: int
    activations: tuple[str, ...] = ACTIVATIONS
    method: int = 1  # increased when the same request would give other numbers
    study: str = NAME


def replay_of(dim: int, trials: int | None = None, activations: tuple[str, ...] = ACTIVATIONS) -> ReplayedTrials:
    """Return the replay of one of the paper's dimensions, or of its first trials."""
    size = PAPER[dim]
    task = author_task(dim, size.samples)
    return ReplayedTrials(task, DistanceRecipe(size.epochs), trials or size.trials, activations)


# The replays whose records come with the package: 100-D takes hours, so only five trials of Abs were run.
RECORDED = (replay_of(2), replay_of(10), replay_of(100, 5, ("abs",)))


@dataclass(frozen=True)
class EarlyRanks:
    """Whether short runs, of these shares of the epochs, would rank the trials of a replay as the whole run does."""

    replay: ReplayedTrials
    shares: tuple[float, ...] = (0.01, 0.04, 0.1, 0.2, 0.5)
    method: int = 1  # increased when the same request would give other numbers
    study: str = NAME


# Units per dimension, unless another number is asked for.
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

    ``gaussians`` is the number of the first Gaussian and the number after the last. ``hidden`` is the number of units
    if it is not the usual one. ``digits`` is the number of significant digits that are kept.
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
    engine: int = 1  # increased when the same request would give different weights
    method: int = 1  # increased when the same request would give other numbers
    study: str = NAME

    @property
    def units(self) -> int:
        """The number of units of each network."""
        return self.hidden or self.task.dim * UNITS[self.activation]

    @property
    def usual(self) -> bool:
        """Whether networks have the usual width and start at random; only for these is every metric kept."""
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


def population_jobs(plan: MahalanobisPlan) -> tuple[PopulationTraining, ...]:
    """Return the jobs of a plan, those that others depend on first; none without Abs, which the landscape is about."""
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


@dataclass(frozen=True)
class Clusters:
    """Data of several clusters: a mixture of Gaussians, or the classes of a named data set.

    Each Gaussian of a mixture has a mean uniform in a cube of half width ``spread``, a random covariance whose largest
    eigenvalue is 1, and ``points`` points to train on and as many new ones. The first layer has ``units`` units for
    each cluster.
    """

    count: int
    dim: int
    units: int
    name: str = "mixture"
    sha256: str = ""
    points: int = 200
    spread: float = 5.0


DATA = {
    "2-D mixture": tuple(Clusters(count, 2, 2) for count in (3, 4, 5)),
    "10-D mixture": tuple(Clusters(count, 10, 10) for count in (3, 4, 5)),
    "digits": (Clusters(10, 64, 6, "digits"),),
}
# How the first layer is obtained: set to measure distances and kept, or trained with the second.
FIRST = {"clusters": "first layer set from clusters", "random": "both layers trained from a random start"}
# What follows the second layer: nothing but softmax, or Abs with a negation, so that it measures distances again.
HEADS = {"abs-bias": "softmax", "abs2-neg-bias": "Abs, Neg, softmax"}


@dataclass(frozen=True)
class SecondLayer:
    """Networks from several starts, each on points of its own, and what is measured on them.

    The columns of the second layer's weights are clustered by k-means with ``tries`` starts; its agreement with the
    clusters of the units is compared with ``permutations`` random assignments, of which ``high`` is the quantile shown.
    """

    data: Clusters
    first: str
    head: str
    starts: int = 10
    epochs: int = 1_000
    lr: float = 1e-2
    tries: int = 10
    permutations: int = 199
    high: float = 0.95
    seed: int = 0
    method: int = 1  # increased when the same request would give other numbers
    study: str = "mahalanobis"


@dataclass(frozen=True)
class SecondLayers:
    """The experiment: every data set, first layer and head."""

    starts: int = 10
    epochs: int = 1_000
    seed: int = 0
    data: tuple[tuple[str, tuple[Clusters, ...]], ...] = tuple(DATA.items())

    def jobs(self) -> dict[SecondLayer, str]:
        """Return every job with the name of its kind of data, those of the judged head first."""
        return {
            SecondLayer(clusters, first, head, self.starts, self.epochs, seed=self.seed): name
            for head in HEADS
            for name, some in self.data
            for clusters in some
            for first in FIRST
        }
