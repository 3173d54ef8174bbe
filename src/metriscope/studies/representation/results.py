"""What the report of the MNIST study is made from: finished runs, the images they saw, and how far both fall short.

Axes: N images, D pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pandas as pd
import torch
from jaxtyping import Float32, Int64
from torch import Tensor, nn

from metriscope.nn import OffsetL2, architectures
from metriscope.studies.representation.spec import NAME

__all__ = ["NAME", "Images", "Results", "Setting", "Trained", "title"]

PAPER_EPOCHS, PAPER_IMAGES = 5_000, 60_000
PIXELS = {"raw": "raw pixels", "normalized": "normalised pixels", "unit": "pixels from 0 to 1"}
WORDS = {"relu": "ReLU", "relu2": "ReLU2", "abs": "Abs", "abs2": "Abs2", "neg": "Neg", "l2": "L2"}


def title(name: str) -> str:
    """Return a network's name as S2 writes it.

    >>> title("abs2-neg"), title("relu-bias"), title("abs-l2")
    ('Abs2-Neg', 'ReLU + bias', 'Abs-L2')
    """
    stem, _, mark = name.partition(" ")
    words = "-".join(WORDS.get(word, word) for word in stem.removesuffix("-bias").split("-"))
    return " ".join([words, *["+ bias"] * stem.endswith("-bias"), *[mark] * bool(mark)])


@dataclass(frozen=True)
class Setting:
    """Under what one run was trained: networks are compared within one setting only."""

    pixels: str
    epochs: int
    data: str
    train_size: int

    def __str__(self) -> str:
        return (
            f"{self.epochs:,} epochs, {PIXELS.get(self.pixels, self.pixels)}, {self.train_size:,} images of {self.data}"
        )

    @property
    def paper(self) -> bool:
        """Whether this is S2's protocol, or longer."""
        return self.data == "mnist" and self.train_size >= PAPER_IMAGES and self.epochs >= PAPER_EPOCHS

    @property
    def shortfall(self) -> str:
        """A sentence on what the protocol has and this setting lacks; empty where it lacks nothing."""
        if self.paper:
            return ""
        return f"Smaller than the paper's protocol ({PAPER_EPOCHS:,} epochs on {PAPER_IMAGES:,} images)."


@dataclass(frozen=True, eq=False)
class Trained:
    """One finished run.

    ``model`` takes images already in the form ``pixels``; None where only the records are at hand. ``history`` has
    one row an epoch recorded: epoch, train_loss, train_accuracy, test_loss, test_accuracy, accuracies as shares.
    ``dead`` has one row an epoch, layer ("hidden" or "output") and part ("train" or "test"): never, under_1 and
    under_5 count the units active for no image, for under 1 % and for under 5 % of them, out of ``units``.
    """

    name: str
    seed: int
    pixels: str
    epochs: int
    data: str
    train_size: int
    model: nn.Sequential | None = field(repr=False)
    history: pd.DataFrame = field(repr=False)
    dead: pd.DataFrame = field(repr=False)

    @property
    def setting(self) -> Setting:
        """What the run was trained under."""
        return Setting(self.pixels, self.epochs, self.data, self.train_size)

    @property
    def network(self) -> str:
        """The name, with the other form of OffsetL2 marked: the two are different networks."""
        other = self.model is not None and self.form == "squared-weights"
        return f"{self.name} (squared weights)" if other else self.name

    @property
    def form(self) -> str:
        """The form of the network's distance layer; empty where it has none."""
        heads = [layer for layer in self.model or () if isinstance(layer, OffsetL2)]
        return heads[0].form if heads else ""


@dataclass(frozen=True, eq=False)
class Images:
    """The images as the networks of one pixel form saw them."""

    x_train: Float32[Tensor, "n d"]
    y_train: Int64[Tensor, " n"]
    x_test: Float32[Tensor, "m d"]
    y_test: Int64[Tensor, " m"]

    def sample(self, part: str = "train", most: int = 2_000) -> tuple[Float32[Tensor, "k d"], Int64[Tensor, " k"]]:
        """Return at most so many images of a part, evenly spaced, as data may be in the order of its labels."""
        x, y = (self.x_train, self.y_train) if part == "train" else (self.x_test, self.y_test)
        rows = torch.linspace(0, len(x) - 1, min(most, len(x)), dtype=torch.float64).round().long()
        return x[rows], y[rows]


@dataclass(frozen=True, eq=False)
class Results:
    """Every run at hand, the images by pixel form, and one sentence for each way of falling short of S2."""

    runs: tuple[Trained, ...]
    images: Mapping[str, Images] = field(default_factory=dict)
    deviations: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every setting, the nearest to what S2 ran first: raw pixels, full MNIST, most images, most epochs."""
        found = dict.fromkeys(run.setting for run in self.runs)
        return tuple(sorted(found, key=_closeness, reverse=True))

    @property
    def networks(self) -> tuple[str, ...]:
        """Every network that was run, in the order of the architectures' table."""
        order = {name: i for i, name in enumerate(architectures())}
        found = {run.network: run.name for run in self.runs}
        return tuple(sorted(found, key=lambda network: (order.get(found[network], len(order)), network)))

    def select(self, setting: Setting, names: Iterable[str] | None = None) -> tuple[Trained, ...]:
        """Return the runs of a setting, of the named networks or of all, in order of name as asked, then seed."""
        runs = [run for run in self.runs if run.setting == setting]
        order = list(dict.fromkeys(names)) if names is not None else list(self.networks)
        kept = [run for run in runs if run.network in order]
        return tuple(sorted(kept, key=lambda run: (order.index(run.network), run.seed)))

    def measurable(self, setting: Setting, names: Iterable[str] | None = None) -> tuple[Trained, ...]:
        """Return those of the selected runs whose network and images are at hand."""
        if setting.pixels not in self.images:
            return ()
        return tuple(run for run in self.select(setting, names) if run.model is not None)

    def nearest(self, name: str) -> tuple[Trained, ...]:
        """Return the measurable runs of one network in the setting nearest to S2's that has any, in order of seed."""
        found = (self.measurable(setting, (name,)) for setting in self.settings)
        return next((runs for runs in found if runs), ())


def _closeness(setting: Setting) -> tuple[bool, bool, int, int, str]:
    raw = setting.pixels == "raw"
    return raw, setting.data == "mnist", setting.train_size, setting.epochs, setting.pixels
