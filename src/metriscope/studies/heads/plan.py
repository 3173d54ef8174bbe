"""What the study of heads asks for; each experiment is a subpackage. This module loads no tensor library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from metriscope.studies.heads.centers.plan import STUDY, Centers, CenterTraining

__all__ = ["NAME", "OPTIONS", "TIMES", "TITLE", "HeadsOptions", "HeadsPlan", "plan"]

NAME, TITLE = STUDY, "Heads that measure distances"
TIMES = {"quick": "a second: shows recorded runs", "paper": "half an hour on one core"}
MOST = 4_000


@dataclass(frozen=True)
class HeadsPlan:
    """Every experiment on heads; ``computed`` if it is run, otherwise its record is shown."""

    profile: str
    centers: Centers
    computed: bool

    def jobs(self) -> tuple[CenterTraining, ...]:
        """Return the trainings: none where the record is shown."""
        return self.centers.jobs() if self.computed else ()


@dataclass(frozen=True)
class HeadsOptions:
    """Options of the study of heads."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: nothing, and show recorded runs, or all experiments."""
    seeds: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 5)")] = None
    """Starts of each network."""
    epochs: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 1,000)")] = None
    """Full-batch steps of gradient descent."""
    train_size: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 4,000)")] = None
    """Training images of mnist-5k."""
    seed: int = 0
    """Root of all random streams."""


OPTIONS = HeadsOptions


def plan(options: HeadsOptions) -> HeadsPlan:
    """Return the plan of a profile, changed by whatever other options are given.

    >>> len(plan(HeadsOptions("paper", seeds=2)).jobs()), len(plan(HeadsOptions("quick")).jobs())
    (26, 0)
    """
    if options.profile not in TIMES:
        raise ValueError(f"unknown profile {options.profile!r}: there are {', '.join(TIMES)}")
    names = {"seeds": 1, "epochs": 1, "train_size": 2}
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    for name, value in given.items():
        if value < names[name]:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {names[name]}, not {value}")
    if given.get("train_size", 0) > MOST:
        raise ValueError(f"--train-size must be at most {MOST:,}, not {given['train_size']:,}")

    # This reads no file, but imports numpy, which a bad request need not wait for.
    from metriscope.data import digest

    centers = Centers(seed=options.seed, sha256=digest(Centers.data), **given)
    return HeadsPlan(options.profile, centers, computed=options.profile == "paper")
