"""What the representation study asks for: networks by name, one frozen specification a training.

This file imports no tensor library, so that a bad request is refused before anything heavy loads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

__all__ = ["MODELS", "NAME", "OPTIONS", "PIXELS", "Part", "Plan", "Training", "plan", "seconds"]

NAME = "representation"
OPTIONS = frozenset({"models", "seeds", "epochs", "train_size", "pixels", "budget", "seed"})
PIXELS = ("raw", "normalized", "unit")

PLAIN = ("abs", "relu", "abs2", "relu2", "abs2-neg", "relu2-neg")
BIASED = tuple(f"{name}-bias" for name in PLAIN)
DISTANCES = ("relu-l2", "relu-l2-neg", "abs-l2", "abs-l2-neg")
MODELS = (*PLAIN, *BIASED, *DISTANCES)

PIXELS_A_SIDE, HIDDEN, CLASSES = 28, 128, 10
SIZES = {"mnist": 60_000, "mnist-5k": 4_000}


@dataclass(frozen=True)
class Training:
    """One network of one seed, trained to the end: the unit that is computed, stored and resumed.

    Nothing here says what else was trained beside it, because a network learns the same in any company.
    """

    model: str
    number: int
    data: str
    train_size: int
    pixels: str
    epochs: int
    seed: int = 0
    lr: float = 1e-3
    engine: int = 1  # raised when the same request would end in other numbers


@dataclass(frozen=True)
class Part:
    """Some networks on one form of the pixels."""

    models: tuple[str, ...]
    pixels: str = "raw"


@dataclass(frozen=True)
class Plan:
    """Everything one call of the study will compute, and how far that is from the paper's protocol.

    ``budget`` is the number of seconds after which training stops at a checkpoint; None: when all is done.
    """

    profile: str
    data: str
    train_size: int
    epochs: int
    seeds: int
    parts: tuple[Part, ...]
    seed: int = 0
    budget: float | None = None

    def trainings(self, part: Part) -> tuple[Training, ...]:
        """Return a part's trainings, all networks of the first seed first."""
        place = (self.data, self.train_size, part.pixels, self.epochs, self.seed)
        return tuple(Training(model, number, *place) for number in range(self.seeds) for model in part.models)

    def deviations(self) -> tuple[str, ...]:
        """Return one sentence for each way in which this plan differs from the paper's protocol."""
        full, found = PROFILES["paper"], []
        if self.data != full.data:
            found.append(f"{self.train_size:,} training images of `{self.data}` in place of MNIST's 60,000.")
        elif self.train_size != full.train_size:
            found.append(f"{self.train_size:,} of MNIST's 60,000 training images.")
        if self.epochs != full.epochs:
            found.append(f"{self.epochs:,} epochs in place of {full.epochs:,} (table 5 of the paper: 50,000).")
        if self.seeds != full.seeds:
            found.append(f"{self.seeds} seeds in place of {full.seeds}.")
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


def plan(
    profile: str = "quick",
    models: tuple[str, ...] | None = None,
    pixels: str | None = None,
    budget: str | None = None,
    seed: int = 0,
    **scale: int | None,
) -> Plan:
    """Return the plan of a profile, scaled by ``seeds``, ``epochs`` and ``train_size`` where given.

    >>> plan("paper", seeds=2, models=("abs", "relu")).trainings(Part(("abs",)))[1].number
    1
    """
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}: there are {', '.join(PROFILES)}")
    row = PROFILES[profile]
    given = {name: value for name, value in scale.items() if value is not None}
    _check(given, SIZES[row.data], row.data)
    chosen = replace(row, parts=_parts(row.parts, models, pixels), seed=seed)
    for name, value in given.items():
        chosen = replace(chosen, **{name: value})  # type: ignore[arg-type]
    return replace(chosen, budget=None if budget is None else seconds(budget))


def _parts(parts: tuple[Part, ...], models: tuple[str, ...] | None, pixels: str | None) -> tuple[Part, ...]:
    for model in models or ():
        if model not in MODELS:
            raise ValueError(f"unknown model {model!r}: there are {', '.join(MODELS)}")
    if pixels is not None and pixels not in PIXELS:
        raise ValueError(f"unknown form of pixels {pixels!r}: there are {', '.join(PIXELS)}")
    if models is not None and not models:
        raise ValueError("--models needs at least one name, got none")
    if pixels is not None:
        parts = (Part(parts[0].models, pixels),)
    chosen = [replace(part, models=tuple(m for m in part.models if m in (models or MODELS))) for part in parts]
    # A model asked for by name is run on the first form even where the profile leaves it out.
    chosen[0] = replace(chosen[0], models=tuple(m for m in MODELS if m in (models or parts[0].models)))
    return tuple(part for part in chosen if part.models)


def _check(scale: Mapping[str, int], most: int, data: str) -> None:
    least = {"seeds": 1, "epochs": 1, "train_size": 2}
    for name, value in scale.items():
        if name not in least:
            raise ValueError(f"the {NAME} study has no option {name!r}: it takes {', '.join(sorted(OPTIONS))}")
        if value < least[name]:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least[name]}, not {value}")
    if scale.get("train_size", 0) > most:
        raise ValueError(f"--train-size must be at most the {most:,} images of {data}, not {scale['train_size']:,}")


def seconds(text: str) -> float:
    """Return a span such as "2h", "30m" or "90s" in seconds.

    >>> seconds("1.5h")
    5400.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([hms])", text.strip())
    if match is None or not float(match[1]):
        raise ValueError(f"--budget must be a time such as 2h, 30m or 90s, not {text!r}")
    return float(match[1]) * {"h": 3600, "m": 60, "s": 1}[match[2]]
