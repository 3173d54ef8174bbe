"""Specifications of what is measured on trained networks, and of the experiments on collapse and perturbations.

This module loads no tensor library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from metriscope.studies.representation.plan import (
    NAME,
    PAPER,
    PERTURBED,
    PIXELS,
    REPLAYS,
    RepresentationTraining,
    title,
)

__all__ = [
    "ALL", "BALANCE", "DRAWS", "EVENED", "FACTORS", "FEWEST", "LOOKS", "NETWORKS", "PROGRAM", "RATES", "TEXT", "WARM",
    "Centers", "CollapseCell", "Identifying", "Perturbing", "Prototypes", "PublishedLevels", "SingleUnits",
    "baselines", "cells", "controls", "judged_levels", "per_cent", "published_runs", "tuning",
]  # fmt: skip


@dataclass(frozen=True)
class Perturbing:
    """The accuracy of a trained network at every level of every kind of perturbation of its first layer.

    Ranges and accuracies are taken over all training images, or over ``sample`` of them.
    """

    training: RepresentationTraining
    levels: tuple[tuple[str, tuple[float, ...]], ...]
    sample: int | None = None
    version: int = 1
    study: str = NAME


@dataclass(frozen=True)
class Prototypes:
    """What the distance layer of a trained network has learned, on a sample of training images.

    With ``drawn``, the prototypes are also computed as images. ``start`` is the standard deviation of their initial
    entries; ``fewest`` is the smallest number of units for which a rank correlation is computed.
    """

    training: RepresentationTraining
    drawn: bool = False
    sample: int = 2_000
    start: float = 0.1
    fewest: int = 3
    version: int = 1
    study: str = NAME


# Looks at a growing number of runs by the paper's protocol: how many runs of each network, and the level of the tests.
# The levels add up to 0.05, so that three looks together make an error no more often than a single test at level 0.05.
LOOKS = ((5, 0.005), (10, 0.015), (20, 0.03))
# The smallest number of runs by another protocol, which are tested once: with two, the spread is hardly known.
FEWEST = 3


# Resamples of networks for the interval of a rank correlation.
DRAWS = 2_000


@dataclass(frozen=True)
class Centers:
    """Where the outputs of a trained network have their centers, on a sample of training images."""

    training: RepresentationTraining
    sample: int = 2_000
    version: int = 1
    study: str = NAME


@dataclass(frozen=True)
class Identifying:
    """How replayed starts are shown to be the published ones, on one network whose runs differ much.

    Sets with the same number of runs are drawn ``draws`` times from runs with our own starts, or from the replayed
    runs if there are fewer than ``fewest`` of our own. The starts are identified if sets as close to the printed
    numbers as the replayed one have a probability below ``alpha``; ``parts`` of the images on which dead outputs may
    have been counted share it. With fewer than ``least`` replayed runs there is no comparison. Printed numbers are
    multiples of ``rounding``.
    """

    network: str = "relu2"
    column: str = "section 6"
    fewest: int = 20
    draws: int = 9_999
    alpha: float = 0.01
    parts: tuple[str, ...] = ("train", "test")
    least: int = 3
    rounding: float = 0.01


NETWORKS = REPLAYS[PERTURBED].networks
# The definitions of Oursland 2024b, whose text and program differ: names in `metriscope.probes.DEFINITIONS`.
PROGRAM, TEXT = "post-activation-kept", "post-activation"

# Every printed level, and scaling to 200 %, of which the text says that it changes nothing.
_SCALES = (0.01, 0.05, 0.1, 0.25, 2.0)
_CLIPS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75)
_BELOW = (-2.0, -1.0, -0.75, -0.5, -0.25, -0.1, -0.05, -0.03, -0.02, -0.01)
_ABOVE = (0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0)
# Levels that C17 is judged by.
_JUDGED = (
    ("scale", (0.1, 2.0)), ("clip", (0.5,)),
    ("offset", (-0.1, -0.05, -0.03, -0.02, -0.01, 0.01, 0.02, 0.03, 0.1)),
)  # fmt: skip


@dataclass(frozen=True)
class PublishedLevels:
    """The training accuracy of a network at every printed level, and on the paper's fine grid of levels.

    Printed ``levels`` are measured by all ``definitions``, the grid by the first of them. Scales and ceilings of the
    grid run from ``first`` to ``last`` in ``steps`` logarithmic steps; offsets run along ``offsets``: from, to, and
    the number of levels. Without steps there is no grid.
    """

    training: RepresentationTraining
    levels: tuple[tuple[str, tuple[float, ...]], ...] = (
        ("scale", _SCALES), ("clip", _CLIPS), ("offset", (*_BELOW, *_ABOVE)),
    )  # fmt: skip
    definitions: tuple[str, ...] = (PROGRAM, TEXT, "pre-activation-kept", "pre-activation")
    first: float = 0.01
    last: float = 10.0
    steps: int = 99
    offsets: tuple[tuple[float, float, int], ...] = ((-2.0, -0.5, 16), (-0.4, 0.4, 81), (0.5, 1.0, 6))
    sample: int | None = None
    version: int = 1
    study: str = NAME

    def grid(self) -> dict[str, tuple[float, ...]]:
        """Return the fine grid of levels by kind; empty without steps.

        >>> grid = PublishedLevels(RepresentationTraining("abs-bias", 0, "mnist", 60_000, "raw", 5_000)).grid()
        >>> [(kind, len(levels), levels[0], levels[-1]) for kind, levels in grid.items()]
        [('scale', 100, 0.01, 10.0), ('clip', 100, 0.01, 10.0), ('offset', 103, -2.0, 1.0)]
        """
        if not self.steps:
            return {}
        ratio = self.last / self.first
        shares = tuple(round(self.first * ratio ** (i / self.steps), 5) for i in range(self.steps + 1))
        moved = (round(a + (b - a) * i / (n - 1), 5) for a, b, n in self.offsets for i in range(n))
        return {"scale": shares, "clip": shares, "offset": tuple(moved)}


# Stands for all units where a table has one row per unit.
ALL = -1


@dataclass(frozen=True)
class SingleUnits:
    """How many images a network classifies correctly with each hidden unit perturbed alone, and with all of them."""

    training: RepresentationTraining
    levels: tuple[tuple[str, tuple[float, ...]], ...] = (
        ("scale", (*_SCALES[:-1], 0.5, 1.0, 2.0, 5.0, 10.0)), ("clip", (*_CLIPS, 1.0)),
        ("offset", (*_BELOW[1:], 0.0, *_ABOVE)),
    )  # fmt: skip
    definition: str = PROGRAM
    sample: int | None = None
    study: str = NAME


def per_cent(level: float) -> str:
    """Return a level in per cent.

    >>> per_cent(-0.05), per_cent(0.1)
    ('−5 %', '10 %')
    """
    return f"{100 * level:.4g} %".replace("-", "−")


def judged_levels(training: RepresentationTraining) -> PublishedLevels:
    """Return the measurement that C17 needs of a network that was not replayed."""
    return PublishedLevels(training, _JUDGED, definitions=(PROGRAM,), steps=0, offsets=())


def published_runs(models: Iterable[str], sha256: str) -> tuple[PublishedLevels, ...]:
    """Return the measurements of the paper's own runs, for those of its networks that are asked for."""
    asked, shared = set(models), (PAPER.data, PAPER.train_size, "raw", PAPER.epochs, PAPER.seed, sha256)
    return tuple(
        PublishedLevels(RepresentationTraining(model, number, *shared, replay=PERTURBED))
        for model in NETWORKS
        if model in asked
        for number in range(REPLAYS[PERTURBED].runs)
    )


# With all factors off this is the paper's protocol: a constant rate, raw pixels, plain cross-entropy, no bias in the
# second layer.
FACTORS = {"warm": "warm-up", "unit": "unit pixels", "balanced": "target × 9", "lifted": "positive bias"}
EVENED = "evened pushes"
# One label in ten belongs to each output: with this factor its gradient weighs as much as those of the nine others.
BALANCE = 9.0
# The paper's rate on raw pixels. On unit pixels, of the rates tried, the one after which ReLU's training loss is
# nearest to that on raw pixels (see ``tuning``): both forms then train the baseline equally far.
RATES = {"raw": 1e-3, "unit": 1.0}
TRIED = (0.03, 0.1, 0.3, 1.0)
# The number of a start that no cell uses.
TUNED = 5
# Warm-up: the rate rises linearly over the first tenth of training.
WARM = 10


@dataclass(frozen=True)
class CollapseCell:
    """One cell: the same network from several starts, trained in the same way.

    The rate rises linearly over the first ``warmup`` epochs. ``target`` multiplies the derivative of a point's loss by
    the output of its own class; with ``evened`` that factor is chosen at every step, for every output, so that its
    targets push it up exactly as much as all other images push it down. With ``lift`` the second layer has a bias,
    which starts at ``lift`` standard deviations of all output pre-activations at the start. Dead outputs are counted at
    about ``counts`` epochs, and what pushes the outputs up and down is measured up to epoch ``pushed``.
    """

    model: str
    pixels: str
    lr: float
    warmup: int = 0
    target: float = 1.0
    lift: float = 0.0
    evened: bool = False
    starts: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int = 1_000
    data: str = "mnist-5k"
    train_size: int = 4_000
    seed: int = 0
    sha256: str = ""
    counts: int = 40
    pushed: int = 10
    version: int = 1
    study: str = NAME

    @property
    def on(self) -> dict[str, bool]:
        """Whether each factor is on."""
        return {
            "warm": self.warmup > 0,
            "unit": self.pixels == "unit",
            "balanced": self.target != 1,
            "lifted": self.lift > 0,
        }

    @property
    def control(self) -> bool:
        """Whether the cell is not one of the factorial experiment or its baselines."""
        return self.evened or self.lr != RATES[self.pixels] or TUNED in self.starts

    @property
    def factors(self) -> str:
        """The factors that are on, without the pixels, in words.

        >>> CollapseCell("relu2", "raw", 1e-3, target=9.0, lift=1.0).factors
        'target × 9, positive bias'
        """
        words = [FACTORS[name] for name, on in self.on.items() if on and name != "unit"]
        return ", ".join([*words, *([EVENED] if self.evened else [])]) or "none"

    @property
    def setting(self) -> str:
        """The conditions that all cells share, in words."""
        return f"{self.epochs:,} epochs, {self.train_size:,} images of {self.data}"

    def __str__(self) -> str:
        return f"{title(self.model)}, {PIXELS[self.pixels]}, {self.factors}, rate {self.lr:g}"


def cells(base: CollapseCell) -> Iterator[CollapseCell]:
    """Yield the sixteen cells of ReLU2; ``base`` gives data, seed and length."""
    switches = (False, True)
    for pixels, warm, balanced, lifted in product(RATES, switches, switches, switches):
        yield replace(
            base,
            model="relu2",
            pixels=pixels,
            lr=RATES[pixels],
            warmup=base.epochs // WARM if warm else 0,
            target=BALANCE if balanced else 1.0,
            lift=1.0 if lifted else 0.0,
        )


def baselines(base: CollapseCell) -> Iterator[CollapseCell]:
    """Yield ReLU, trained by the paper's protocol, on each form of pixels."""
    return (replace(base, model="relu", pixels=pixels, lr=lr) for pixels, lr in RATES.items())


def controls(base: CollapseCell) -> Iterator[CollapseCell]:
    """Yield cells that separate the factors from side effects.

    With nine times the target's gradient, the outputs of every image are pushed up nine times as much as down, and grow
    without bound. So there are cells with evened pushes, which remove the claimed cause and change nothing else, and
    cells with smaller steps, without any factor and with balanced gradients.
    """
    for pixels, lr in RATES.items():
        plain = replace(base, model="relu2", pixels=pixels)
        yield replace(plain, lr=lr, evened=True)
        yield replace(plain, lr=lr / 10)
        yield replace(plain, lr=lr / 100, target=BALANCE)


def tuning(base: CollapseCell) -> Iterator[CollapseCell]:
    """Yield ReLU at the paper's rate on raw pixels and at every rate tried on unit ones, from a start of its own."""
    for pixels, lr in (("raw", RATES["raw"]), *(("unit", rate) for rate in TRIED)):
        yield replace(base, model="relu", pixels=pixels, lr=lr, starts=(TUNED,))
