"""What the Mahalanobis study runs and measures: protocols as rows, and every job as a frozen dataclass.

This module loads no tensor library, so that invalid options are rejected before anything slow is imported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from tyro.conf import arg

from metriscope.runs.address import added
from metriscope.studies.contract import given_numbers

__all__ = [
    "ACTIVATIONS", "ANALYTIC_POINTS", "AUTHOR_SEED", "DIMS", "EXACT", "GROUP", "METRICS", "NAME", "OPTIONS",
    "PAPER", "PROFILES", "SHORTEST", "STARTS", "TIMES", "TITLE", "DistanceRecipe", "DistanceTraining", "Further",
    "GaussianTask", "MahalanobisOptions", "MahalanobisPlan", "Measurement", "Start", "author_task", "plan",
]  # fmt: skip

NAME = "mahalanobis"
TITLE = "Learning the Mahalanobis distance"
TIMES = {"quick": "1 to 2 minutes on two cores", "paper": "2 days on two cores, most of it in 100-D"}
ACTIVATIONS = ("abs", "relu", "sigmoid")

# A trial has learned the distance exactly if its training loss is below this share of the loss that theory predicts
# for one lost direction. Every table, diagnosis and verdict uses this definition.
EXACT = 0.02

# A trial trained for less than this share of the source's epochs has barely begun: why it failed is not investigated.
SHORTEST = 0.1

# Trials are trained and stored in groups of this size on every machine. A killed run loses at most what one group
# computed since its last checkpoint.
GROUP = 4

# New points on which the analytic network is compared with the distance computed by solving.
ANALYTIC_POINTS = 1_000


@dataclass(frozen=True)
class Size:
    """How much is run in one dimension."""

    samples: int
    epochs: int
    trials: int = 20
    test_samples: int = 1_000


@dataclass(frozen=True)
class Further:
    """How many more Gaussians are run in one dimension, and how much on each."""

    count: int
    size: Size


@dataclass(frozen=True)
class Start:
    """How the hyperplanes are placed before training: from this many clusters, or at random if None."""

    clusters: int | None = None


PAPER = {
    2: Size(samples=1_000, epochs=10_000),
    10: Size(samples=1_000, epochs=50_000),
    100: Size(samples=10_000, epochs=250_000, test_samples=10_000),
}
PROFILES = {
    "paper": PAPER,
    "quick": {
        2: PAPER[2],
        10: replace(PAPER[10], epochs=10_000, trials=8),
        100: replace(PAPER[100], epochs=100, trials=2),
    },
}
DIMS = tuple(PAPER)

# Whose Gaussian, points and starts a profile uses by default.
PROFILE_STARTS = {"paper": "author", "quick": "own"}

STARTS = {"random": Start(), "clusters": Start(clusters=1), "clusters-2": Start(clusters=2)}

# The published results are those of one Gaussian per dimension. What holds for Gaussians in general is measured on
# further ones; 100-D has none, because each would take hours. In 10-D the quick profile runs them at full length, so
# that there is something to judge.
PROFILE_OTHERS = {
    "paper": {2: Further(19, PAPER[2]), 10: Further(4, PAPER[10])},
    "quick": {2: Further(4, PAPER[2]), 10: Further(4, replace(PAPER[10], trials=4))},
}


# The seed of the published runs, and the threads of the GPU that is assumed to have drawn their numbers: 82
# multiprocessors with six blocks of 256. Only for the points in 100-D are more numbers drawn than a GPU has threads.
AUTHOR_SEED, AUTHOR_THREADS = 47, 82 * 6 * 256


@dataclass(frozen=True)
class GaussianTask:
    """One Gaussian and the training points drawn from it: its number, and how Gaussians are drawn.

    With ``author``, Gaussian, points and random starts are those of the published runs, as a GPU of ``threads`` threads
    draws them from ``seed``.
    """

    dim: int
    samples: int
    gaussian: int = 0
    seed: int = 0
    ridge: float = 1e-3
    spread: float = 10.0
    author: bool = added(False)
    threads: int | None = added(None)


@dataclass(frozen=True)
class DistanceRecipe:
    """How a network is trained: full-batch Adam on the mean squared error."""

    epochs: int
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-8


@dataclass(frozen=True)
class DistanceTraining:
    """A few trials of every activation on one Gaussian: the unit that is computed, stored and resumed."""

    task: GaussianTask
    recipe: DistanceRecipe
    trials: tuple[int, ...]
    activations: tuple[str, ...] = ACTIVATIONS
    start: Start = Start()
    engine: int = 1  # increased when the same request would give different weights
    study: str = NAME
    hidden: int | None = added(None)  # the number of units, if it is not the usual one

    @property
    def start_name(self) -> str:
        """The name of the start in ``STARTS``."""
        return next(name for name, known in STARTS.items() if known == self.start)


@dataclass(frozen=True)
class Metric:
    """One measured quantity: its column, its title for readers, and whether the published record prints it."""

    name: str
    title: str
    published: bool = True


METRICS = (
    Metric("train_mse", "MSE, training points"),
    Metric("test_mse", "MSE, new points"),
    Metric("mirrored", "mirrored pairs"),
    Metric("centering", "distance of hyperplanes to the mean"),
    Metric("sphericity", "sphericity norm"),
    Metric("eigenvalue_error", "eigenvalue error, |log10 ratio|", published=False),
    Metric("eigenvector_cosine", "eigenvector |cosine|", published=False),
    Metric("metric_error", "relative error of the Mahalanobis matrix", published=False),
    Metric("data_sphericity", "sphericity on the data side", published=False),
    Metric("rank", "rank of the metric", published=False),
    Metric("constant", "standing-in constant", published=False),
)


@dataclass(frozen=True)
class Measurement:
    """Every metric of the networks of one training.

    Two units are mirrored if their |cosine| is at least ``mirror``. A direction is lost if the metric gives it less
    than ``lost`` of its true squared length. A trial is exact if its training loss is below ``exact`` times the loss
    of one lost direction. Abs networks are rewritten with ReLU and compared on the first ``rewritten`` training points.
    """

    training: DistanceTraining
    test_samples: int
    mirror: float = 0.999
    lost: float = 0.1
    exact: float = EXACT
    rewritten: int = 200
    method: int = 2  # increased when the same request would give other numbers
    study: str = NAME


def author_task(dim: int, samples: int) -> GaussianTask:
    """Return the published Gaussian of a dimension, with this many training points."""
    return GaussianTask(dim, samples, seed=AUTHOR_SEED, author=True, threads=AUTHOR_THREADS)


@dataclass(frozen=True)
class MahalanobisPlan:
    """Everything one call of the study will compute, and how far that is from the paper's protocol.

    With ``landscape``, the population of Gaussians is computed too or, in the quick profile, looked up in the records.
    """

    profile: str
    sizes: dict[int, Size]
    activations: tuple[str, ...]
    others: dict[int, Further]
    seed: int = 0
    starts: tuple[str, ...] = tuple(STARTS)
    author: bool = False
    landscape: bool = False

    @property
    def repeats(self) -> tuple[int, ...]:
        """How many trials a network has, by dimension."""
        return tuple(size.trials for size in self.sizes.values())

    def jobs(self) -> tuple[DistanceTraining, ...]:
        """Return every training, dimension by dimension, further Gaussians last."""
        asked = [(dim, start, 0) for dim in self.sizes for start in self.starts]
        asked += [(dim, "random", i) for dim, more in self.others.items() for i in range(1, more.count + 1)]
        return tuple(job for where in asked for job in self.group(*where))

    def group(self, dim: int, start: str, gaussian: int = 0) -> tuple[DistanceTraining, ...]:
        """Return the trainings of one dimension, start and Gaussian, in order of their trials."""
        size = self.size(dim, gaussian)
        task, recipe = self.task(dim, gaussian), DistanceRecipe(size.epochs)
        parts = [tuple(range(i, min(i + GROUP, size.trials))) for i in range(0, size.trials, GROUP)]
        return tuple(DistanceTraining(task, recipe, part, self.activations, STARTS[start]) for part in parts)

    def task(self, dim: int, gaussian: int = 0) -> GaussianTask:
        """Return the Gaussian and the training points; the main one is the published one if that is replayed."""
        samples = self.size(dim, gaussian).samples
        if self.replayed(dim) and not gaussian:
            return author_task(dim, samples)
        return GaussianTask(dim, samples, gaussian, self.seed)

    def replayed(self, dim: int) -> bool:
        """Return whether the main Gaussian of a dimension is the published one."""
        return self.author and dim in PAPER

    def full_length(self, dim: int) -> bool:
        """Return whether published runs of a dimension are replayed to their end, all trials or some of them."""
        return self.replayed(dim) and replace(self.sizes[dim], trials=PAPER[dim].trials) == PAPER[dim]

    def size(self, dim: int, gaussian: int = 0) -> Size:
        """Return how much is run on one Gaussian."""
        return self.others[dim].size if gaussian else self.sizes[dim]

    def length(self, dim: int, gaussian: int = 0) -> float:
        """Return the share of the source's epochs that is run, at its nearest dimension if it lacks this one."""
        return self.size(dim, gaussian).epochs / PAPER[_nearest(dim)].epochs

    def protocol(self, dim: int, gaussian: int = 0) -> bool:
        """Return whether at least as many epochs and samples are run as the source's protocol asks for."""
        size, full = self.size(dim, gaussian), PAPER.get(dim)
        return full is not None and size.epochs >= full.epochs and size.samples >= full.samples

    def deviations(self) -> tuple[str, ...]:
        """Return one sentence for each way in which this plan differs from the paper's protocol."""
        found = []
        for dim, size in self.sizes.items():
            full = PAPER.get(dim)
            if full is None:
                found.append(f"{dim}-D is not in the paper; it runs as {_nearest(dim)}-D does.")
            elif size != full:
                parts = [(n, getattr(size, n), getattr(full, n)) for n in ("samples", "epochs", "trials")]
                changed = [f"{ours:,} {n} in place of {paper:,}" for n, ours, paper in parts if ours != paper]
                found.append(f"{dim}-D: {', '.join(changed)}.")
        if set(self.activations) != set(ACTIVATIONS):
            found.append(f"Only {', '.join(self.activations)} of {', '.join(ACTIVATIONS)}.")
        return tuple(found)


_TRIALS = arg(help_behavior_hint="(default: 20; quick: 20 / 8 / 2, further Gaussians 20 / 4)")
_QUICK_EPOCHS = "quick: 10,000 / 10,000 / 100, further Gaussians 10,000 / 50,000"
_EPOCHS = arg(help_behavior_hint=f"(default: 10,000 / 50,000 / 250,000; {_QUICK_EPOCHS})")
_SAMPLES = arg(help_behavior_hint="(default: 1,000 / 1,000 / 10,000)")


@dataclass(frozen=True)
class MahalanobisOptions:
    """Options of the Mahalanobis study."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run."""
    dims: tuple[int, ...] = DIMS
    """Dimensions of the Gaussians; one that is not in the paper runs as the nearest that is, in log scale."""
    trials: Annotated[int | None, _TRIALS] = None
    """Trainings of each network on each Gaussian, in 2-D / 10-D / 100-D."""
    epochs: Annotated[int | None, _EPOCHS] = None
    """Full-batch steps of Adam, in 2-D / 10-D / 100-D."""
    samples: Annotated[int | None, _SAMPLES] = None
    """Training points, in 2-D / 10-D / 100-D."""
    activations: tuple[str, ...] = ACTIVATIONS
    """Which networks to train."""
    start: Annotated[
        Literal["author", "own"] | None, arg(metavar="author|own", help_behavior_hint="(default: author, quick: own)")
    ] = None
    """The main Gaussian, its points and the starts: those of the published runs, or our own."""
    seed: int = 0
    """Root of all random streams of our own."""


OPTIONS = MahalanobisOptions


def plan(options: MahalanobisOptions) -> MahalanobisPlan:
    """Return the plan of a profile, scaled by ``trials``, ``epochs`` and ``samples`` where given.

    >>> plan(MahalanobisOptions("paper", dims=(2,), trials=5)).sizes[2]
    Size(samples=1000, epochs=10000, trials=5, test_samples=1000)
    """
    given = given_numbers(options, PROFILES, {"trials": 1, "epochs": 1, "samples": 2})
    _check(options)
    rows = PROFILES[options.profile]
    sizes = {d: replace(rows[_nearest(d)], **given) for d in dict.fromkeys(options.dims)}
    chosen = tuple(a for a in ACTIVATIONS if a in options.activations)
    # The population is run as a whole or not at all, and has more Gaussians than a profile would run without it.
    known = {} if options.profile == "paper" and not given else PROFILE_OTHERS[options.profile]
    more = {d: row for d, row in known.items() if d in sizes}
    others = {d: replace(row, size=replace(row.size, **given)) for d, row in more.items()}
    author = (options.start or PROFILE_STARTS[options.profile]) == "author"
    return MahalanobisPlan(options.profile, sizes, chosen, others, options.seed, author=author, landscape=not given)


def _nearest(dim: int) -> int:
    # In log scale, as the paper's dimensions are spaced: 11-D is far more like 10-D than like 100-D.
    return min(DIMS, key=lambda known: abs(math.log(known / dim)))


def _check(options: MahalanobisOptions) -> None:
    if options.start not in (None, "author", "own"):
        raise ValueError(f"--start must be author or own, not {options.start!r}")
    if not options.dims or not options.activations:
        raise ValueError("--dims and --activations need at least one value each")
    if min(options.dims) < 1:
        raise ValueError(f"--dims must be 1 or more, not {min(options.dims)}")
    for activation in options.activations:
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}: there are {', '.join(ACTIVATIONS)}")
