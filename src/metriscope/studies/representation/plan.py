"""What the representation study asks for: networks by name, one frozen specification per training and measurement.

This file imports no tensor library, so that a bad request is refused before anything heavy loads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from tyro.conf import arg

__all__ = [
    "BASE",
    "DISTANCES",
    "MODELS",
    "NAME",
    "TIMES",
    "TITLE",
    "WIDTH",
    "Comparing",
    "Inside",
    "Options",
    "Part",
    "Perturbing",
    "Plan",
    "Prototypes",
    "Setting",
    "Training",
    "plan",
    "title",
]

NAME, TITLE = "representation", "Distance against intensity"
TIMES = {"quick": "2 minutes on two cores", "paper": "20 hours on two cores, with full MNIST"}
PIXELS = {"raw": "raw pixels", "normalized": "normalized pixels", "unit": "pixels from 0 to 1"}
WORDS = {"relu": "ReLU", "relu2": "ReLU2", "abs": "Abs", "abs2": "Abs2", "neg": "Neg", "l2": "L2"}

PLAIN = ("abs", "relu", "abs2", "relu2", "abs2-neg", "relu2-neg")
BIASED = tuple(f"{name}-bias" for name in PLAIN)
DISTANCES = ("relu-l2", "relu-l2-neg", "abs-l2", "abs-l2-neg")
MODELS = (*PLAIN, *BIASED, *DISTANCES)
# The six networks of table 2, baselines first, as the tables of the paper list them.
BASE = ("relu", "abs", "relu2", "abs2", "relu2-neg", "abs2-neg")

SIZES = {"mnist": 60_000, "mnist-5k": 4_000}
# Trainings that go side by side: few enough that the first runs of a long plan are finished early.
WIDTH = 16


def title(name: str) -> str:
    """Return a network's name as the paper writes it.

    >>> title("abs2-neg"), title("relu-bias"), title("abs-l2")
    ('Abs2-Neg', 'ReLU + bias', 'Abs-L2')
    """
    words = "-".join(WORDS.get(word, word) for word in name.removesuffix("-bias").split("-"))
    return f"{words} + bias" if name.endswith("-bias") else words


@dataclass(frozen=True)
class Setting:
    """Under what a network was trained: networks are compared within one setting only."""

    pixels: str
    epochs: int
    data: str
    train_size: int

    def __str__(self) -> str:
        form = PIXELS.get(self.pixels, self.pixels)
        return f"{self.epochs:,} epochs, {form}, {self.train_size:,} images of {self.data}"

    @property
    def protocol(self) -> bool:
        """Whether this is the paper's protocol, or longer: raw pixels, all of MNIST, 5,000 epochs."""
        whole = self.data == PAPER.data and self.train_size >= PAPER.train_size
        return whole and self.pixels == "raw" and self.epochs >= PAPER.epochs

    @property
    def length(self) -> float:
        """The share of the paper's epochs."""
        return self.epochs / PAPER.epochs

    @property
    def shortfall(self) -> str:
        """A sentence on what the protocol has and this setting lacks; empty where it lacks nothing."""
        if self.protocol:
            return ""
        return f"Not the paper's protocol ({PAPER.epochs:,} epochs on the raw pixels of {PAPER.train_size:,} images)."

    @property
    def closeness(self) -> tuple[bool, bool, int, int, str]:
        """What settings are ordered by, the nearest to the paper's protocol last."""
        return self.pixels == "raw", self.data == PAPER.data, self.train_size, self.epochs, self.pixels


@dataclass(frozen=True)
class Training:
    """One network of one seed, trained to the end: the unit that is computed, stored and resumed.

    Nothing here says what else was trained beside it, because a network learns the same in any company. ``ladder``
    and ``counts`` are how many epochs a history has at most, and at how many of them inactive units are counted:
    those active on less than the ``rare`` shares of the images. ``version`` is raised when the same request would
    end in other numbers.
    """

    model: str
    number: int
    data: str
    train_size: int
    pixels: str
    epochs: int
    seed: int = 0
    sha256: str = ""
    lr: float = 1e-3
    features: int = 784
    hidden: int = 128
    classes: int = 10
    ladder: int = 100
    counts: int = 13
    rare: tuple[tuple[str, float], ...] = (("never", 0.0), ("under_1", 0.01), ("under_5", 0.05))
    version: int = 1
    study: str = NAME

    @property
    def setting(self) -> Setting:
        """What the network is trained under."""
        return Setting(self.pixels, self.epochs, self.data, self.train_size)


@dataclass(frozen=True)
class Perturbing:
    """The accuracy of a trained network at every level of every kind of perturbation of its first layer.

    Ranges and accuracies are taken over all training images, or over a ``sample`` of so many.
    """

    training: Training
    levels: tuple[tuple[str, tuple[float, ...]], ...]
    sample: int | None = None
    version: int = 1
    study: str = NAME


@dataclass(frozen=True)
class Prototypes:
    """What the distance layer of a trained network has learned, on a sample of training images.

    ``drawn`` asks for the prototypes as images too. ``start`` is the deviation that their entries began with.
    """

    training: Training
    drawn: bool = False
    sample: int = 2_000
    start: float = 0.1
    fewest: int = 3
    version: int = 1
    study: str = NAME


@dataclass(frozen=True)
class Inside:
    """What is looked at inside the networks, on a sample of training images.

    ``units``: networks whose hidden units are shown, those with the largest weight to the outputs of ``digits``;
    their densities are drawn at ``grid`` places. A class is crossed where its images lie within ``band`` standard
    deviations of the output around zero. ``images`` and ``alphas``: networks whose prototypes and alphas are shown.
    """

    units: tuple[str, ...] = ("relu", "abs", "abs2-neg")
    digits: tuple[int, ...] = (0, 3, 8)
    sample: int = 2_000
    grid: int = 160
    band: float = 0.25
    images: tuple[str, ...] = ("abs-l2-neg", "relu-l2-neg", "abs-l2")
    alphas: tuple[str, ...] = ("abs-l2", "abs-l2-neg", "relu-l2-neg")


@dataclass(frozen=True)
class Comparing:
    """How runs are compared with each other and with the paper.

    ``perturbed``: networks whose first layer is perturbed, those of the paper and the same with a bias, without
    which scaling cannot change which output is largest; accuracy holds within ``points`` of the unperturbed.
    ``neutral``: the level of each kind of perturbation that changes nothing.
    ``runs``: how many the paper has of each network. ``same_t``: the share by which a recomputed t may differ from
    the printed one, whose means and deviations are rounded. ``steady``: networks whose spread is small enough that
    their mean says which printed column a run belongs to. ``grid`` and ``reach``: places at which the shape of a
    distribution is drawn, and how far beyond its ends, as a share of its range.
    """

    perturbed: tuple[str, ...] = ("relu", "abs", "relu-bias", "abs-bias")
    points: float = 1.0
    neutral: tuple[tuple[str, float], ...] = (("scale", 1.0), ("offset", 0.0), ("clip", math.inf))
    runs: int = 20
    same_t: float = 0.05
    steady: tuple[str, ...] = ("relu", "abs", "relu2-neg", "abs2", "abs2-neg")
    grid: int = 120
    reach: float = 0.35


@dataclass(frozen=True)
class Part:
    """Some networks on one form of the pixels."""

    models: tuple[str, ...]
    pixels: str = "raw"


@dataclass(frozen=True)
class Plan:
    """Everything one call of the study will compute, and how far that is from the paper's protocol."""

    profile: str
    data: str
    train_size: int
    epochs: int
    seeds: int
    parts: tuple[Part, ...]
    seed: int = 0
    sha256: str = ""
    inside: Inside = Inside()
    comparing: Comparing = Comparing()

    def jobs(self) -> tuple[Training, ...]:
        """Return every training: a form of pixels after the other, and in each all networks of the first seed first."""
        return tuple(
            Training(model, number, self.data, self.train_size, part.pixels, self.epochs, self.seed, self.sha256)
            for part in self.parts
            for number in range(self.seeds)
            for model in part.models
        )

    def deviations(self) -> tuple[str, ...]:
        """Return one sentence for each way in which this plan differs from the paper's protocol."""
        found = []
        if self.data != PAPER.data:
            found.append(f"{self.train_size:,} training images of `{self.data}` in place of MNIST's 60,000.")
        elif self.train_size != PAPER.train_size:
            found.append(f"{self.train_size:,} of MNIST's 60,000 training images.")
        if self.epochs != PAPER.epochs:
            found.append(f"{self.epochs:,} epochs in place of {PAPER.epochs:,} (table 5 of the paper: 50,000).")
        if self.seeds != PAPER.seeds:
            found.append(f"{self.seeds} seeds in place of {PAPER.seeds}.")
        return (*found, *self._pixel_deviations())

    def _pixel_deviations(self) -> tuple[str, ...]:
        asked = {part.pixels: part.models for part in self.parts}
        found = [f"{form} pixels for {_some(models)}." for form, models in asked.items() if form != "raw"]
        missing = [model for model in MODELS if model not in asked.get("raw", ())]
        if missing:
            found.append(f"On raw pixels, not run: {', '.join(missing)}.")
        return tuple(text[0].upper() + text[1:] for text in found)


def _some(models: tuple[str, ...]) -> str:
    return "all sixteen networks" if set(models) == set(MODELS) else ", ".join(models)


PROFILES = {
    "paper": Plan("paper", "mnist", SIZES["mnist"], 5_000, 20, (Part(MODELS),)),
    "quick": Plan("quick", "mnist-5k", SIZES["mnist-5k"], 300, 3, (Part(MODELS), Part(PLAIN, "normalized"))),
}
PAPER = PROFILES["paper"]


@dataclass(frozen=True)
class Options:
    """Options of the representation study."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: a short training on embedded data, or the paper's protocol on full MNIST."""
    models: tuple[str, ...] = MODELS
    """Networks by name."""
    seeds: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 3, paper 20)")] = None
    """Repetitions of each network."""
    epochs: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 300, paper 5,000)")] = None
    """Full-batch steps of gradient descent."""
    train_size: Annotated[
        int | None, arg(metavar="INT", help_behavior_hint="(default: 4,000 of mnist-5k, paper 60,000 of mnist)")
    ] = None
    """Training images."""
    pixels: Annotated[
        Literal["raw", "normalized", "unit"] | None,
        arg(metavar="raw|normalized|unit", help_behavior_hint="(default: raw, quick six networks on normalized too)"),
    ] = None
    """Form of the pixels: bytes, mean 0 and deviation 1, or 0 to 1."""
    seed: int = 0
    """Root of all random streams."""


OPTIONS = Options


def plan(options: Options) -> Plan:
    """Return the plan of a profile, scaled by whatever else is given.

    >>> plan(Options(models=("abs", "relu-l2"), seeds=2)).jobs()[2].number
    1
    """
    if options.profile not in PROFILES:
        raise ValueError(f"unknown profile {options.profile!r}: there are {', '.join(PROFILES)}")
    row = PROFILES[options.profile]
    names = ("seeds", "epochs", "train_size")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    _check(given, row)
    chosen = replace(row, parts=_parts(row.parts, options), seed=options.seed, **given)

    # They read nothing, but bring numpy along, which a bad request need not wait for.
    from metriscope.data import available, digest

    if not available(row.data):
        raise ValueError(
            f"the {row.profile} profile needs full MNIST: `metriscope data fetch {row.data}` downloads it, or "
            "--data-dir names a folder that holds it; the quick profile needs no download"
        )
    return replace(chosen, sha256=digest(row.data))


def _parts(parts: tuple[Part, ...], options: Options) -> tuple[Part, ...]:
    models, pixels = options.models, options.pixels
    for model in models:
        if model not in MODELS:
            raise ValueError(f"unknown model {model!r}: there are {', '.join(MODELS)}")
    if pixels is not None and pixels not in PIXELS:
        raise ValueError(f"unknown form of pixels {pixels!r}: there are {', '.join(PIXELS)}")
    if not models:
        raise ValueError("--models needs at least one name, got none")
    if pixels is not None:
        parts = (Part(parts[0].models, pixels),)
    chosen = [replace(part, models=tuple(m for m in part.models if m in models)) for part in parts]
    return tuple(part for part in chosen if part.models)


def _check(given: Mapping[str, int], row: Plan) -> None:
    least, most = {"seeds": 1, "epochs": 1, "train_size": 2}, SIZES[row.data]
    for name, value in given.items():
        if value < least[name]:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least[name]}, not {value}")
    if given.get("train_size", 0) > most:
        raise ValueError(f"--train-size must be at most the {most:,} images of {row.data}, not {given['train_size']:,}")
