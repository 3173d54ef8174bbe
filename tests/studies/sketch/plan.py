"""What the sketch asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TITLE = "Coins"
TIMES = {"quick": "a moment", "paper": "a moment"}


@dataclass(frozen=True)
class SketchOptions:
    """Options of the sketch."""

    profile: Literal["quick", "paper"] = "quick"
    coins: int = 6
    """Coins that are tossed."""
    seed: int = 0


OPTIONS = SketchOptions


@dataclass(frozen=True)
class Coin:
    """One coin, tossed so many times."""

    number: int
    tosses: int = 50
    chance: float = 0.5
    seed: int = 0
    study: str = "sketch"


@dataclass(frozen=True)
class SketchPlan:
    """All coins."""

    options: SketchOptions

    def jobs(self) -> tuple[Coin, ...]:
        """Return one job per coin."""
        return tuple(Coin(number, seed=self.options.seed) for number in range(self.options.coins))


def plan(options: SketchOptions) -> SketchPlan:
    """Return the plan, or refuse it."""
    if options.coins < 1:
        raise ValueError(f"--coins must be at least 1, not {options.coins}")
    return SketchPlan(options)
