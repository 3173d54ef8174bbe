"""What the study of reading runs: networks of several data sets, activations and depths, read in three ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from metriscope.studies.contract import given_numbers

__all__ = [
    "ACTIVATIONS", "MEASURES", "NAME", "OPTIONS", "READINGS", "TIMES", "TITLE", "ReadNetworks", "ReadingOptions",
    "ReadingPlan", "plan",
]  # fmt: skip

NAME, TITLE = "reading", "Reading units by their zero sets"
TIMES = {"quick": "a second: shows recorded runs", "paper": "5 minutes on one core"}
DATA = ("mnist-5k", "digits", "letter", "wine", "spambase")
ACTIVATIONS: Mapping[str, str] = {"relu": "ReLU", "abs": "Abs", "gelu": "GELU"}
DEPTHS = (1, 2)
READINGS: Mapping[str, str] = {
    "near": "nearest to the zero set", "top": "most activating", "random": "drawn at random",
}  # fmt: skip
MEASURES: Mapping[str, str] = {
    "class_precision": "held-out points read in the same way that have the class, %",
    "ablation_hit": "units whose ablation harms the class most, %",
    "ablation_profile": "correlation with what ablation does to each class",
}


@dataclass(frozen=True)
class ReadNetworks:
    """One architecture on one data set, from several starts, and how its units are read.

    A unit is read by the ``read`` training points nearest to its zero set, by those with the largest activation, or by
    as many random ones. Networks are trained with Adam on at most ``points`` training points, and the readings are
    tested on at most ``held`` points of the test set.
    """

    data: str
    activation: str
    depth: int
    starts: int
    steps: int
    sha256: str = ""
    hidden: int = 64
    batch: int = 64
    lr: float = 1e-3
    points: int = 4_000
    held: int = 1_000
    read: int = 10
    seed: int = 0
    version: int = 1  # increased when the same request would give other numbers
    study: str = NAME


@dataclass(frozen=True)
class ReadingPlan:
    """Every network of the study; the quick profile trains none and shows their records."""

    profile: str
    networks: tuple[ReadNetworks, ...]

    @property
    def computed(self) -> bool:
        """Whether networks are trained."""
        return self.profile != "quick"

    def jobs(self) -> tuple[ReadNetworks, ...]:
        """Return the networks: none where the record is shown."""
        return self.networks if self.computed else ()


@dataclass(frozen=True)
class ReadingOptions:
    """Options of the study of reading."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: nothing, and show recorded runs, or all experiments."""
    seeds: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 3)")] = None
    """Starts of each network."""
    epochs: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 1,500)")] = None
    """Steps of Adam."""
    seed: int = 0
    """Root of all random streams."""


OPTIONS = ReadingOptions


def plan(options: ReadingOptions) -> ReadingPlan:
    """Return the plan of a profile, changed by whatever other options are given.

    >>> len(plan(ReadingOptions("paper")).jobs()), len(plan(ReadingOptions("quick")).jobs())
    (30, 0)
    """
    given = given_numbers(options, TIMES, {"seeds": 1, "epochs": 1})

    # Imported here, because it imports numpy: invalid options should be rejected before that.
    from metriscope.data import digest

    starts, steps = given.get("seeds", 3), given.get("epochs", 1_500)
    return ReadingPlan(
        options.profile,
        tuple(
            ReadNetworks(data, activation, depth, starts, steps, digest(data), seed=options.seed)
            for data in DATA
            for activation in ACTIVATIONS
            for depth in DEPTHS
        ),
    )
