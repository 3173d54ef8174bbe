"""The plan of the representation study: networks by name, one frozen specification per training and measurement.

This file imports no tensor library, so that invalid options are rejected before anything slow is imported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from tyro.conf import arg

from metriscope.runs.address import added, address
from metriscope.runs.records import find
from metriscope.studies.contract import given_numbers

__all__ = [
    "BASE", "CODED", "DISTANCES", "MODELS", "NAME", "OPTIONS", "PAPER", "PERTURBED", "PIXELS", "PROFILES",
    "REPLAYS", "TABLES", "TIMES", "TITLE", "WHERE", "Inside", "Part", "RepresentationComparing",
    "RepresentationOptions", "RepresentationPlan", "RepresentationTraining", "Setting", "plan", "title",
]  # fmt: skip


@dataclass(frozen=True)
class Replay:
    """The random numbers of a published series of trainings on a GPU, all from one seed.

    ``networks`` are in the order in which they were trained, ``runs`` times each. ``draws`` are the tensors that each
    run draws, in order; a tensor that is drawn twice keeps the second values.
    """

    seed: int
    networks: tuple[str, ...]
    draws: tuple[str, ...]
    runs: int = 20


STARTS = ("author", "own")
SIX = ("relu", "abs", "relu2", "abs2", "relu2-neg", "abs2-neg")
# Both programs draw the first layer twice: PyTorch's `apply` visits it as an attribute and again inside a Sequential.
REPLAYS = {
    "oursland-2025": Replay(42484103, SIX, ("0.weight", "0.bias", "2.weight") * 2),
    "oursland-2024b": Replay(411713593, ("relu-bias", "abs-bias"), (*("0.weight", "0.bias") * 2, "2.weight", "2.bias")),
}
# The series behind the tables of Oursland 2025, and that of the perturbation experiment, which is another study's.
TABLES, PERTURBED = REPLAYS


def replays(start: str, model: str, number: int) -> tuple[str, ...]:
    """Return the starts of a run: the series from which it is replayed, or an empty string for a start of our own.

    Networks of the perturbation experiment are trained twice, with a start of our own and with the published one.

    >>> replays("author", "relu2", 19), replays("author", "relu2", 20), replays("author", "abs-bias", 0)
    (('oursland-2025',), ('',), ('', 'oursland-2024b'))
    """
    if start == "own":
        return ("",)
    known = [name for name, row in REPLAYS.items() if model in row.networks and number < row.runs]
    return tuple(known) if TABLES in known else ("", *known)


NAME, TITLE = "representation", "Distance against intensity"
TIMES = {"quick": "2 minutes on two cores", "paper": "20 hours on two cores, with full MNIST"}
PIXELS = {"raw": "raw pixels", "normalized": "normalized pixels", "unit": "pixels from 0 to 1"}
WORDS = {"relu": "ReLU", "relu2": "ReLU2", "abs": "Abs", "abs2": "Abs2", "neg": "Neg", "l2": "L2"}

PLAIN = ("abs", "relu", "abs2", "relu2", "abs2-neg", "relu2-neg")
BIASED = tuple(f"{name}-bias" for name in PLAIN)
DISTANCES = ("relu-l2", "relu-l2-neg", "abs-l2", "abs-l2-neg")
MODELS = (*PLAIN, *BIASED, *DISTANCES)
# The same as in the author's code, which weights the squared difference; trained only if asked for by name.
CODED = tuple(f"{name}-code" for name in DISTANCES)
# The six networks of table 2, baselines first, as the tables of the paper list them.
BASE = REPLAYS[TABLES].networks

SIZES = {"mnist": 60_000, "mnist-5k": 4_000}
# Networks trained together: few enough that the first runs of a long plan finish early.
WIDEST = 16
# Images times epochs that one pass may take: half an hour on two slow cores, so that passes stay short.
PASS_STEPS = 1_000_000_000
# The columns that identify a run in a table.
WHERE = ("setting", "network", "seed")


def title(name: str) -> str:
    """Return a network's name as the paper writes it.

    >>> title("abs2-neg"), title("relu-bias"), title("abs-l2")
    ('Abs2-Neg', 'ReLU + bias', 'Abs-L2')
    """
    words = "-".join(WORDS.get(word, word) for word in name.removesuffix("-bias").split("-"))
    return f"{words} + bias" if name.endswith("-bias") else words


@dataclass(frozen=True)
class Setting:
    """The conditions of a training; networks are compared only within one setting."""

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
        """The number of epochs as a share of the paper's."""
        return self.epochs / PAPER.epochs

    @property
    def shortfall(self) -> str:
        """A sentence on how this setting differs from the paper's protocol; empty if it does not."""
        if self.protocol:
            return ""
        return f"Not the paper's protocol ({PAPER.epochs:,} epochs on the raw pixels of {PAPER.train_size:,} images)."

    @property
    def closeness(self) -> tuple[bool, bool, int, int, str]:
        """The sort key of settings: the nearest to the paper's protocol is the largest."""
        return self.pixels == "raw", self.data == PAPER.data, self.train_size, self.epochs, self.pixels


@dataclass(frozen=True)
class RepresentationTraining:
    """One network of one seed, trained to the end: what is computed, stored and resumed as a whole.

    The specification does not name the networks trained beside it, because they do not change the result.
    ``ladder`` is the largest number of epochs that a history records; at ``counts`` of them inactive units are counted.
    ``rare`` are the thresholds: units are counted that are active on less than this share of the images. ``version`` is
    increased when the same request would give other numbers. ``replay`` names the published series, a key of
    :data:`REPLAYS`, whose run ``number`` starts the network, as a GPU of ``threads`` threads draws it; empty for a
    start of our own.
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
    replay: str = added("")
    threads: int | None = added(None)

    @property
    def setting(self) -> Setting:
        """The conditions of this training."""
        return Setting(self.pixels, self.epochs, self.data, self.train_size)

    @property
    def width(self) -> int:
        """How many trainings of this size may share a pass."""
        return max(1, min(WIDEST, PASS_STEPS // (self.train_size * self.epochs)))

    @property
    def columns(self) -> dict[str, Any]:
        """Columns added to every row of this training: the run (:data:`WHERE`), and how close it is to the protocol."""
        setting = self.setting
        run = dict(zip(WHERE, (str(setting), self.model, self.number), strict=True))
        return {**run, "protocol": setting.protocol, "length": setting.length}


@dataclass(frozen=True)
class Inside:
    """What is measured inside the networks, on a sample of training images.

    ``units`` are the networks whose hidden units are shown: those units with the largest weight to the outputs of
    ``digits``, with densities drawn at ``grid`` points. An output crosses a class where images of the class lie within
    ``band`` standard deviations of the output around zero. ``images`` and ``alphas`` are the networks
    whose prototypes and alphas are shown.
    """

    units: tuple[str, ...] = ("relu", "abs", "abs2-neg")
    digits: tuple[int, ...] = (0, 3, 8)
    sample: int = 2_000
    grid: int = 160
    band: float = 0.25
    images: tuple[str, ...] = ("abs-l2-neg", "relu-l2-neg", "abs-l2")
    alphas: tuple[str, ...] = ("abs-l2", "abs-l2-neg", "relu-l2-neg")


@dataclass(frozen=True)
class RepresentationComparing:
    """How runs are compared with each other and with the paper.

    ``perturbed`` are the networks whose first layer is perturbed: those of the paper, and the same with a bias, because
    without one scaling cannot change which output is largest. Accuracy holds while it stays within ``points`` of the
    unperturbed accuracy. ``neutral`` is the level of each kind of perturbation that changes nothing. ``runs`` is the
    paper's number of runs per network. ``same_t`` is the relative difference allowed between a recomputed t and the
    printed one, whose means and deviations are rounded. ``steady`` are networks with a spread small enough for their
    mean to identify the printed column of a run. ``grid`` is the number of points at which the shape of a distribution
    is drawn, and ``reach`` how far beyond its ends, as a share of its range.
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
class RepresentationPlan:
    """Everything one call of the study will compute, and how that differs from the paper's protocol."""

    profile: str
    data: str
    train_size: int
    epochs: int
    seeds: int
    parts: tuple[Part, ...]
    seed: int = 0
    sha256: str = ""
    start: str = "own"
    retrain: bool = False
    inside: Inside = Inside()
    comparing: RepresentationComparing = RepresentationComparing()

    @property
    def repeats(self) -> tuple[int, ...]:
        """How many starts a network has."""
        return (self.seeds,)

    def asked(self) -> tuple[RepresentationTraining, ...]:
        """Return every training: one form of pixels after the other, in each all networks of the first seed first.

        With published starts, the networks of the perturbation experiment (Oursland 2024b) are trained too.
        """
        shared = (self.epochs, self.seed, self.sha256)
        return tuple(
            RepresentationTraining(model, number, self.data, self.train_size, part.pixels, *shared, replay=replay)
            for part in self.parts
            for number in range(self.seeds)
            for model in part.models
            for replay in replays(self.start, model, number)
        )

    def jobs(self) -> tuple[RepresentationTraining, ...]:
        """Return the trainings that are to be done: those without a record, unless all are to be trained again."""
        return tuple(job for job in self.asked() if self.retrain or find(NAME, address(job)) is None)

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
        if self.start != PAPER.start:
            found.append("Starts of our own for the six networks whose published starts can be computed.")
        asked = {part.pixels: part.models for part in self.parts}
        for form, models in asked.items():
            names = "all sixteen networks" if set(models) == set(MODELS) else ", ".join(models)
            found += [f"{form.capitalize()} pixels for {names}."] if form != "raw" else []
        missing = [model for model in MODELS if model not in asked.get("raw", ())]
        return (*found, f"On raw pixels, not run: {', '.join(missing)}.") if missing else tuple(found)


PROFILES = {
    "paper": RepresentationPlan("paper", "mnist", SIZES["mnist"], 5_000, 20, (Part(MODELS),), start="author"),
    "quick": RepresentationPlan(
        "quick", "mnist-5k", SIZES["mnist-5k"], 300, 3, (Part(MODELS), Part(PLAIN, "normalized"))
    ),
}
PAPER = PROFILES["paper"]


@dataclass(frozen=True)
class RepresentationOptions:
    """Options of the representation study."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: a short training on embedded data, or the paper's protocol on full MNIST."""
    models: tuple[str, ...] = MODELS
    """Networks by name; OffsetL2 networks also with `-code`, in the form of the author's code."""
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
    start: Annotated[
        Literal["author", "own"] | None,
        arg(metavar="author|own", help_behavior_hint="(default: own, paper author)"),
    ] = None
    """Initial weights: the random numbers of the published runs where they can be computed, or our own."""
    retrain: bool = False
    """Train also what is recorded; without it, runs that come with the package as records are shown, not repeated."""
    seed: int = 0
    """Root of all random streams."""


# The name under which the command line finds the options of a study.
OPTIONS = RepresentationOptions


def plan(options: RepresentationOptions) -> RepresentationPlan:
    """Return the plan of a profile, changed by whatever other options are given.

    >>> plan(RepresentationOptions(models=("abs", "relu-l2"), seeds=2)).jobs()[2].number
    1
    """
    given = given_numbers(options, PROFILES, {"seeds": 1, "epochs": 1, "train_size": 2})
    row = PROFILES[options.profile]
    if given.get("train_size", 0) > (most := SIZES[row.data]):
        raise ValueError(f"--train-size must be at most the {most:,} images of {row.data}, not {given['train_size']:,}")
    start = options.start or row.start
    if start not in STARTS:
        raise ValueError(f"unknown start {start!r}: there are {', '.join(STARTS)}")
    fields = {"seed": options.seed, "start": start, "retrain": options.retrain, **given}
    chosen = replace(row, parts=_parts(row.parts, options), **fields)

    # Imported here, because they import numpy: invalid options should be rejected before that.
    from metriscope.data import available, digest

    if not available(row.data):
        raise ValueError(
            f"the {row.profile} profile needs full MNIST: `metriscope data fetch {row.data}` downloads it, or "
            "--data-dir names a folder that holds it; the quick profile needs no download"
        )
    return replace(chosen, sha256=digest(row.data))


def _parts(parts: tuple[Part, ...], options: RepresentationOptions) -> tuple[Part, ...]:
    models, pixels = options.models, options.pixels
    parts = (replace(parts[0], models=(*parts[0].models, *CODED)), *parts[1:])
    for model in models:
        if model not in parts[0].models:
            raise ValueError(f"unknown model {model!r}: there are {', '.join(parts[0].models)}")
    if pixels is not None and pixels not in PIXELS:
        raise ValueError(f"unknown form of pixels {pixels!r}: there are {', '.join(PIXELS)}")
    if not models:
        raise ValueError("--models needs at least one name, got none")
    if pixels is not None:
        parts = (Part(parts[0].models, pixels),)
    chosen = [replace(part, models=tuple(m for m in part.models if m in models)) for part in parts]
    return tuple(part for part in chosen if part.models)
