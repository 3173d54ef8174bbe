"""What the study of transfer asks for: constrained networks on other images and with other activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from metriscope.studies.heads.contests.plan import HeadContest, HeadContests

__all__ = [
    "ACTIVATIONS",
    "IMAGES",
    "NAME",
    "OPTIONS",
    "REFERENCE",
    "TIMES",
    "TITLE",
    "TransferOptions",
    "TransferPlan",
    "TransferTraining",
    "plan",
]

NAME, TITLE = "transfer", "Beyond MNIST"
TIMES = {"quick": "a second: shows recorded runs", "paper": "half an hour on two cores"}
REFERENCE = "mnist-5k"
# Data sets, each with the number of its training images that is used.
IMAGES: Mapping[str, int] = {REFERENCE: 4_000, "fashion-mnist": 4_000, "cifar-10": 1_000}
ACTIVATIONS: Mapping[str, str] = {"gelu": "GELU", "silu": "SiLU", "tanh": "Tanh", "elu": "ELU", "softplus": "Softplus"}
SUFFIXES = ("", "2", "2-neg")


@dataclass(frozen=True)
class TransferTraining:
    """One network from several starts, trained by full-batch gradient descent.

    The learning rate is ``lr`` times the largest curvature of the loss on the reference data over that on the data,
    both at the start of a ReLU network, found by ``steps`` power iterations on ``sample`` images. On the reference
    data it is that of the paper.
    """

    model: str
    data: str
    train_size: int
    epochs: int
    starts: int
    sha256: tuple[str, str] = ("", "")  # of the data and of the reference
    pixels: str = "raw"
    lr: float = 1e-3
    hidden: int = 128
    steps: int = 20
    sample: int = 1_000
    seed: int = 0
    version: int = 1  # raised when the same request would end in other numbers
    study: str = NAME


@dataclass(frozen=True)
class TransferPlan:
    """Every training of the study; the quick profile computes none and shows their records."""

    profile: str
    trainings: tuple[TransferTraining, ...]
    contests: HeadContests

    @property
    def computed(self) -> bool:
        """Whether experiments are computed."""
        return self.profile != "quick"

    def jobs(self) -> tuple[TransferTraining, ...]:
        """Return the trainings: none where the record is shown."""
        return self.trainings if self.computed else ()


@dataclass(frozen=True)
class TransferOptions:
    """Options of the study of transfer."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: nothing, and show recorded runs, or all experiments."""
    seeds: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 5)")] = None
    """Starts of each network."""
    epochs: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 1,000)")] = None
    """Full-batch steps of gradient descent."""
    seed: int = 0
    """Root of all random streams."""


OPTIONS = TransferOptions


def plan(options: TransferOptions) -> TransferPlan:
    """Return the plan of a profile, changed by whatever other options are given.

    >>> len(plan(TransferOptions("paper")).jobs()), len(plan(TransferOptions("quick")).jobs())
    (33, 0)
    """
    if options.profile not in TIMES:
        raise ValueError(f"unknown profile {options.profile!r}: there are {', '.join(TIMES)}")
    for name in ("seeds", "epochs"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, not {value}")

    # This reads no file, but imports numpy, which a bad request need not wait for.
    from metriscope.data import digest

    asked = [(name, data) for data in IMAGES for name in (f"{act}{s}" for act in ("relu", "abs") for s in SUFFIXES)]
    asked += [(f"{act}{suffix}", REFERENCE) for act in ACTIVATIONS for suffix in SUFFIXES]
    starts, epochs = options.seeds or HeadContest.starts, options.epochs or 1_000
    trainings = tuple(
        TransferTraining(name, data, IMAGES[data], epochs, starts, (digest(data), digest(REFERENCE)), seed=options.seed)
        for name, data in asked
    )
    shape = HeadContest("", "", (), starts=starts, seed=options.seed)
    return TransferPlan(options.profile, trainings, HeadContests(shape, ("heads", "sequences")))
