"""What the Mahalanobis study asks for: protocols as rows, one frozen job per few trials.

This module loads no tensor library, so that a bad request is refused before anything heavy loads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from tyro.conf import arg

__all__ = [
    "ACTIVATIONS",
    "DIMS",
    "EXACT",
    "GROUP",
    "NAME",
    "PAPER",
    "SHORTEST",
    "STARTS",
    "TIMES",
    "TITLE",
    "Further",
    "Options",
    "Plan",
    "Recipe",
    "Size",
    "Start",
    "Task",
    "Training",
    "plan",
]

NAME = "mahalanobis"
TITLE = "Learning the Mahalanobis distance"
TIMES = {"quick": "1 to 2 minutes on two cores", "paper": "2 days on two cores, most of it in 100-D"}
ACTIVATIONS = ("abs", "relu", "sigmoid")

# A trial has learned the distance exactly if its training loss is under this share of what theory says that one lost
# direction costs: the one meaning of the word in every table, diagnosis and verdict.
EXACT = 0.02

# Below this share of the source's epochs a trial has barely begun, and why it failed is not asked.
SHORTEST = 0.1

# Trials are computed in groups of this size, whatever the machine: a group is what is stored, and what is
# lost at most between two checkpoints.
GROUP = 4


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
    """How the hyperplanes are placed before training; no clusters: at random."""

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

STARTS = {"random": Start(), "clusters": Start(clusters=1), "clusters-2": Start(clusters=2)}

# The published results are those of one Gaussian per dimension. What holds for Gaussians at large is measured on more
# of them; 100-D has none, at hours each. In 10-D quick runs these at full length, so that there is something to judge.
PROFILE_OTHERS = {
    "paper": {2: Further(19, PAPER[2]), 10: Further(4, PAPER[10])},
    "quick": {2: Further(4, PAPER[2]), 10: Further(4, replace(PAPER[10], trials=4))},
}


@dataclass(frozen=True)
class Task:
    """One Gaussian and the training points drawn from it: its number, and how Gaussians are drawn."""

    dim: int
    samples: int
    gaussian: int = 0
    seed: int = 0
    ridge: float = 1e-3
    spread: float = 10.0


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: full-batch Adam on the mean squared error."""

    epochs: int
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-8


@dataclass(frozen=True)
class Training:
    """A few trials of every activation on one Gaussian: the unit that is computed, stored and resumed."""

    task: Task
    recipe: Recipe
    trials: tuple[int, ...]
    activations: tuple[str, ...] = ACTIVATIONS
    start: Start = Start()
    engine: int = 1  # raised when the same request would end in other numbers
    study: str = NAME


@dataclass(frozen=True)
class Plan:
    """Everything one call of the study will compute, and how far that is from the paper's protocol."""

    profile: str
    sizes: dict[int, Size]
    activations: tuple[str, ...]
    others: dict[int, Further]
    seed: int = 0
    starts: tuple[str, ...] = tuple(STARTS)

    def jobs(self) -> tuple[Training, ...]:
        """Return every training, one dimension after the other, further Gaussians last."""
        main = [job for dim in self.sizes for start in self.starts for job in self.group(dim, start)]
        further = [
            job
            for dim, more in self.others.items()
            for number in range(1, more.count + 1)
            for job in self.group(dim, "random", number)
        ]
        return (*main, *further)

    def group(self, dim: int, start: str, gaussian: int = 0) -> tuple[Training, ...]:
        """Return the trainings of one dimension, start and Gaussian, in order of their trials."""
        size = self.size(dim, gaussian)
        task, recipe = Task(dim, size.samples, gaussian, self.seed), Recipe(size.epochs)
        parts = [tuple(range(i, min(i + GROUP, size.trials))) for i in range(0, size.trials, GROUP)]
        return tuple(Training(task, recipe, part, self.activations, STARTS[start]) for part in parts)

    def size(self, dim: int, gaussian: int = 0) -> Size:
        """Return how much is run on one Gaussian."""
        return self.others[dim].size if gaussian else self.sizes[dim]

    def length(self, dim: int, gaussian: int = 0) -> float:
        """Return the share of the source's epochs that is run; of its nearest dimension, if it has not this one."""
        return self.size(dim, gaussian).epochs / PAPER[_nearest(dim)].epochs

    def protocol(self, dim: int, gaussian: int = 0) -> bool:
        """Return whether the source's own protocol is run, or more than it."""
        size, full = self.size(dim, gaussian), PAPER.get(dim)
        return full is not None and size.epochs >= full.epochs and size.samples >= full.samples

    def deviations(self) -> tuple[str, ...]:
        """Return one sentence for each way in which this plan is smaller than the paper's protocol."""
        found = []
        for dim, size in self.sizes.items():
            full = PAPER.get(dim)
            if full is None:
                found.append(f"{dim}-D is not in the paper; it runs as {_nearest(dim)}-D does.")
            elif size != full:
                names = ("samples", "epochs", "trials")
                parts = [(n, getattr(size, n), getattr(full, n)) for n in names]
                changed = [f"{ours:,} {n} in place of {paper:,}" for n, ours, paper in parts if ours != paper]
                found.append(f"{dim}-D: {', '.join(changed)}.")
        if set(self.activations) != set(ACTIVATIONS):
            found.append(f"Only {', '.join(self.activations)} of {', '.join(ACTIVATIONS)}.")
        return tuple(found)


@dataclass(frozen=True)
class Options:
    """Options of the Mahalanobis study."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run."""
    dims: tuple[int, ...] = DIMS
    """Dimensions of the Gaussians; one that is not in the paper runs as the nearest that is, in log scale."""
    trials: Annotated[
        int | None, arg(help_behavior_hint="(default: 20; quick: 20 / 8 / 2, further Gaussians 20 / 4)")
    ] = None
    """Trainings of each network on each Gaussian, in 2-D / 10-D / 100-D."""
    epochs: Annotated[
        int | None,
        arg(
            help_behavior_hint="(default: 10,000 / 50,000 / 250,000; "
            "quick: 10,000 / 10,000 / 100, further Gaussians 10,000 / 50,000)"
        ),
    ] = None
    """Full-batch steps of Adam, in 2-D / 10-D / 100-D."""
    samples: Annotated[int | None, arg(help_behavior_hint="(default: 1,000 / 1,000 / 10,000)")] = None
    """Training points, in 2-D / 10-D / 100-D."""
    activations: tuple[str, ...] = ACTIVATIONS
    """Which networks to train."""
    seed: int = 0
    """Root of all random streams."""


def plan(options: Options) -> Plan:
    """Return the plan of a profile, scaled by ``trials``, ``epochs`` and ``samples`` where given.

    >>> plan(Options("paper", dims=(2,), trials=5)).sizes[2]
    Size(samples=1000, epochs=10000, trials=5, test_samples=1000)
    """
    _check(options)
    names = ("trials", "epochs", "samples")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    rows = PROFILES[options.profile]
    sizes = {d: replace(rows[_nearest(d)], **given) for d in dict.fromkeys(options.dims)}
    chosen = tuple(a for a in ACTIVATIONS if a in options.activations)
    more = {d: row for d, row in PROFILE_OTHERS[options.profile].items() if d in sizes}
    others = {d: replace(row, size=replace(row.size, **given)) for d, row in more.items()}
    return Plan(options.profile, sizes, chosen, others, options.seed)


def _nearest(dim: int) -> int:
    # In log scale, as the paper's dimensions are spaced: 11-D is far more like 10-D than like 100-D.
    return min(DIMS, key=lambda known: abs(math.log(known / dim)))


def _check(options: Options) -> None:
    if options.profile not in PROFILES:
        raise ValueError(f"unknown profile {options.profile!r}: there are {', '.join(PROFILES)}")
    for name, least in {"trials": 1, "epochs": 1, "samples": 2}.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} must be at least {least}, not {value}")
    if not options.dims or not options.activations:
        raise ValueError("--dims and --activations need at least one value each")
    for dim in options.dims:
        if dim < 1:
            raise ValueError(f"--dims must be 1 or more, not {dim}")
    for activation in options.activations:
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}: there are {', '.join(ACTIVATIONS)}")
