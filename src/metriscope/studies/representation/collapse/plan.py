"""The factorial experiment on ReLU2: which cells are trained, and at which learning rates.

Four factors, each off or on, make sixteen cells. This file imports no tensor library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from metriscope.studies.representation.plan import NAME, PIXELS, title

__all__ = ["BALANCE", "EVENED", "FACTORS", "RATES", "WARM", "CollapseCell", "baselines", "cells", "controls", "tuning"]

# Off is the paper's protocol: a constant rate, raw pixels, plain cross-entropy, no bias in the second layer.
FACTORS = {"warm": "warm-up", "unit": "unit pixels", "balanced": "target × 9", "lifted": "positive bias"}
EVENED = "evened pushes"
# For each output one label in ten is its own: the gradient of a target counts as much as those of the nine others.
BALANCE = 9.0
# The paper's rate on raw pixels. On unit pixels, of the rates tried, the one after which ReLU's training loss is
# nearest to that on raw pixels (see ``tuning``): both forms then train the baseline equally far.
RATES = {"raw": 1e-3, "unit": 1.0}
TRIED = (0.03, 0.1, 0.3, 1.0)
# A start that no cell uses.
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
    """Yield cells that tell the factors from what else they change.

    With nine times the target's gradient, the outputs of every image are pushed up nine times as much as down, and grow
    without bound. So there are cells with evened pushes, which remove the claimed cause and add nothing; and smaller
    steps, without any factor and with balanced gradients.
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
