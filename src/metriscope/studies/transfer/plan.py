"""What the study of transfer runs: constrained networks on other images and with other activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from metriscope.studies.contract import given_numbers
from metriscope.studies.heads.plan import HeadContest, HeadContests

__all__ = [
    "ACTIVATIONS", "BODIES", "IMAGES", "NAME", "OPTIONS", "PAPER", "REFERENCE", "SHALLOW", "SUFFIXES", "TIMES",
    "TITLE", "TransferOptions", "TransferPlan", "TransferTraining", "plan",
]  # fmt: skip

NAME, TITLE = "transfer", "Beyond MNIST"
TIMES = {"quick": "a second: shows recorded runs", "paper": "half an hour on two cores"}
REFERENCE = "mnist-5k"
# Data sets, each with the number of its training images that is used.
IMAGES: Mapping[str, int] = {REFERENCE: 4_000, "fashion-mnist": 4_000, "cifar-10": 1_000}
# Training images of a folder that a user names, at most.
FOLDER = 4_000
ACTIVATIONS: Mapping[str, str] = {"gelu": "GELU", "silu": "SiLU", "tanh": "Tanh", "elu": "ELU", "softplus": "Softplus"}
SUFFIXES = ("", "2", "2-neg")
PAPER = tuple(f"{activation}{suffix}" for activation in ("relu", "abs") for suffix in SUFFIXES)


@dataclass(frozen=True)
class Body:
    """The layers before the constrained last layer: further linear layers, or convolutions with these channels."""

    title: str
    layers: int = 1
    channels: tuple[int, ...] = ()


SHALLOW = "shallow"
BODIES: Mapping[str, Body] = {
    SHALLOW: Body("two layers, as in the paper"),
    "3-layers": Body("three layers", layers=2),
    "5-layers": Body("five layers", layers=4),
    "cnn": Body("two convolutions and a linear layer", channels=(8, 16)),
}


@dataclass(frozen=True)
class TransferTraining:
    """One network from several starts, trained by full-batch gradient descent.

    The learning rate is ``lr`` times a ratio of curvatures: the largest curvature of the loss of the paper's ReLU
    network on the reference data, divided by that of a ReLU network with the same ``body`` on the data. Both are
    measured at the start, by ``steps`` power iterations on ``sample`` images. For two layers on the reference data the
    learning rate is that of the paper.
    """

    model: str
    data: str
    train_size: int
    epochs: int
    starts: int
    body: str = SHALLOW
    sha256: tuple[str, str] = ("", "")  # of the data and of the reference
    pixels: str = "raw"
    lr: float = 1e-3
    hidden: int = 128
    steps: int = 20
    sample: int = 1_000
    seed: int = 0
    version: int = 1  # increased when the same request would give other numbers
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
    images: tuple[str, ...] = ()
    """Further images: names of data sets, or folders with one subfolder of images per class."""
    seed: int = 0
    """Root of all random streams."""


OPTIONS = TransferOptions


def plan(options: TransferOptions) -> TransferPlan:
    """Return the plan of a profile, changed by whatever other options are given.

    >>> len(plan(TransferOptions("paper")).jobs()), len(plan(TransferOptions("quick")).jobs())
    (51, 0)
    """
    given = given_numbers(options, TIMES, {"seeds": 1, "epochs": 1})

    # Imported here, because it imports numpy: invalid options should be rejected before that.
    from metriscope.data import digest

    starts, epochs = given.get("seeds", HeadContest.starts), given.get("epochs", 1_000)
    sizes = {**IMAGES, **dict.fromkeys(options.images, FOLDER)}
    asked = [(name, data, SHALLOW, sizes[data], epochs) for data in sizes for name in PAPER]
    asked += [(f"{act}{s}", REFERENCE, SHALLOW, sizes[REFERENCE], epochs) for act in ACTIVATIONS for s in SUFFIXES]
    # Autograd is slower: fewer images and steps.
    asked += [
        (name, REFERENCE, body, sizes[REFERENCE] // 4, epochs // 2)
        for body in BODIES
        if body != SHALLOW
        for name in PAPER
    ]
    trainings = tuple(
        TransferTraining(name, data, size, steps, starts, body, (digest(data), digest(REFERENCE)), seed=options.seed)
        for name, data, body, size, steps in asked
    )
    shape = HeadContest("", "", (), starts=starts, seed=options.seed)
    return TransferPlan(options.profile, trainings, HeadContests(shape, ("heads", "sequences")))
