"""What the Mahalanobis study asks for: protocols as rows, one frozen specification a group of trials.

This file imports no tensor library, so that a bad request is refused before anything heavy loads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["ACTIVATIONS", "DIMS", "GROUP", "STARTS", "Group", "Plan", "Size", "Start", "plan"]

NAME = "mahalanobis"
ACTIVATIONS = ("abs", "relu", "sigmoid")

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
        10: replace(PAPER[10], epochs=10_000),
        100: replace(PAPER[100], epochs=100, trials=4),
    },
}
DIMS = tuple(PAPER)

STARTS = {"random": Start(), "clusters": Start(clusters=1), "clusters-2": Start(clusters=2)}
PROFILE_STARTS = {"paper": ("random", "clusters", "clusters-2"), "quick": ("random", "clusters")}

# S1 prints results for one Gaussian a dimension, and not the Gaussian. How much depends on it is measured on
# this many more; 100-D has none, at hours each.
PROFILE_OTHERS = {"paper": {2: 19, 10: 4}, "quick": {2: 4}}


@dataclass(frozen=True)
class Group:
    """A few trials of every activation in one dimension: the unit that is computed, stored and resumed."""

    dim: int
    samples: int
    epochs: int
    start: Start
    trials: tuple[int, ...]
    activations: tuple[str, ...]
    seed: int = 0
    gaussian: int = 0
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    engine: int = 1  # raised when the same request would end in other numbers


@dataclass(frozen=True)
class Plan:
    """Everything one call of the study will compute, and how far that is from the paper's protocol."""

    profile: str
    sizes: dict[int, Size]
    activations: tuple[str, ...]
    starts: tuple[str, ...]
    others: dict[int, int]
    seed: int = 0

    def groups(self, dim: int, start: str, gaussian: int = 0) -> tuple[Group, ...]:
        """Return the groups of one dimension, start and Gaussian, in order of their trials."""
        size = self.sizes[dim]
        parts = [tuple(range(i, min(i + GROUP, size.trials))) for i in range(0, size.trials, GROUP)]
        rest = (self.activations, self.seed, gaussian)
        return tuple(Group(dim, size.samples, size.epochs, STARTS[start], part, *rest) for part in parts)

    def deviations(self) -> tuple[str, ...]:
        """Return one sentence for each way in which this plan is smaller than the paper's protocol."""
        found = []
        for dim, size in self.sizes.items():
            full = PAPER.get(dim)
            if full is None:
                found.append(f"{dim}-D is not in the paper; it runs as its nearest dimension does.")
            elif size != full:
                names = ("samples", "epochs", "trials")
                parts = [(n, getattr(size, n), getattr(full, n)) for n in names]
                changed = [f"{ours:,} {n} in place of {paper:,}" for n, ours, paper in parts if ours != paper]
                found.append(f"{dim}-D: {', '.join(changed)}.")
        if set(self.activations) != set(ACTIVATIONS):
            found.append(f"Only {', '.join(self.activations)} of {', '.join(ACTIVATIONS)}.")
        return tuple(found)


def plan(
    profile: str = "quick",
    dims: tuple[int, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    seed: int = 0,
    **scale: int | None,
) -> Plan:
    """Return the plan of a profile, scaled by ``trials``, ``epochs`` and ``samples`` where given.

    >>> plan("paper", dims=(2,), trials=5).sizes[2]
    Size(samples=1000, epochs=10000, trials=5, test_samples=1000)
    """
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}: there are {', '.join(PROFILES)}")
    given = {name: value for name, value in scale.items() if value is not None}
    _check(dims, activations, given)
    rows = PROFILES[profile]
    sizes = {d: replace(rows[_nearest(d)], **given) for d in dict.fromkeys(dims or DIMS)}
    chosen = tuple(a for a in ACTIVATIONS if a in (activations or ACTIVATIONS))
    others = {d: n for d, n in PROFILE_OTHERS[profile].items() if d in sizes}
    return Plan(profile, sizes, chosen, PROFILE_STARTS[profile], others, seed)


def _nearest(dim: int) -> int:
    return next((d for d in DIMS if d >= dim), DIMS[-1])


def _check(dims: tuple[int, ...] | None, activations: tuple[str, ...] | None, scale: dict[str, int]) -> None:
    least = {"trials": 1, "epochs": 1, "samples": 2}
    for name, value in scale.items():
        if name not in least:
            raise ValueError(f"the {NAME} study has no option {name!r}: it takes {', '.join(least)}")
        if value < least[name]:
            raise ValueError(f"--{name} must be at least {least[name]}, not {value}")
    for dim in dims or DIMS:
        if dim < 1:
            raise ValueError(f"--dims must be 1 or more, not {dim}")
    for activation in activations or ACTIVATIONS:
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}: there are {', '.join(ACTIVATIONS)}")
