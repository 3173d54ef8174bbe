"""What the study of heads asks for; each experiment is a subpackage. This module loads no tensor library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from metriscope.studies.heads.contests.plan import HeadContest, HeadContests
from metriscope.studies.heads.offsets.plan import STUDY, Offsets, OffsetTraining

__all__ = ["NAME", "OPTIONS", "TIMES", "TITLE", "HeadsOptions", "HeadsPlan", "plan"]

NAME, TITLE = STUDY, "Heads that measure distances"
TIMES = {"quick": "a second: shows recorded runs", "paper": "an hour and a half on one core"}

# Its other contest, of sequences, belongs to the study of transfer.
CONTESTED = ("heads", "few", "penalties", "mixtures")


@dataclass(frozen=True)
class HeadsPlan:
    """Every experiment on heads; the quick profile computes none of them and shows their records."""

    profile: str
    offsets: Offsets
    contests: HeadContests

    @property
    def computed(self) -> bool:
        """Whether experiments are computed."""
        return self.profile != "quick"

    def jobs(self) -> tuple[OffsetTraining, ...]:
        """Return the trainings: none where the record is shown."""
        return self.offsets.jobs() if self.computed else ()


@dataclass(frozen=True)
class HeadsOptions:
    """Options of the study of heads; the contests of heads always have the same number of epochs."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: nothing, and show recorded runs, or all experiments."""
    seeds: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 5)")] = None
    """Starts of each network."""
    epochs: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 1,000)")] = None
    """Full-batch steps of gradient descent in the experiment on OffsetL2."""
    seed: int = 0
    """Root of all random streams."""


OPTIONS = HeadsOptions


def plan(options: HeadsOptions) -> HeadsPlan:
    """Return the plan of a profile, changed by whatever other options are given.

    >>> len(plan(HeadsOptions("paper", seeds=2)).jobs()), len(plan(HeadsOptions("quick")).jobs())
    (20, 0)
    """
    if options.profile not in TIMES:
        raise ValueError(f"unknown profile {options.profile!r}: there are {', '.join(TIMES)}")
    given = {name: value for name in ("seeds", "epochs") if (value := getattr(options, name)) is not None}
    for name, value in given.items():
        if value < 1:
            raise ValueError(f"--{name} must be at least 1, not {value}")

    # This reads no file, but imports numpy, which a bad request need not wait for.
    from metriscope.data import digest

    offsets = Offsets(seed=options.seed, sha256=digest(Offsets.data), **given)
    shape = HeadContest("", "", (), starts=given.get("seeds", HeadContest.starts), seed=options.seed)
    return HeadsPlan(options.profile, offsets, HeadContests(shape, CONTESTED))
