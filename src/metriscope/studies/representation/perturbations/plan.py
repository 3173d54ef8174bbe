"""What is measured on the replayed networks of the perturbation paper.

This file imports no tensor library, so that a bad request is refused before anything heavy loads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metriscope.studies.representation.plan import NAME, PAPER, RepresentationTraining
from metriscope.studies.representation.starts.plan import PERTURBED, REPLAYS

__all__ = ["NETWORKS", "PROGRAM", "TEXT", "PublishedLevels", "judged_levels", "per_cent", "published_runs"]

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


def per_cent(level: float) -> str:
    """Return a level in per cent.

    >>> per_cent(-0.05), per_cent(0.1)
    ('−5 %', '10 %')
    """
    return f"{100 * level:.4g} %".replace("-", "−")


def judged_levels(training: RepresentationTraining) -> PublishedLevels:
    """Return what C17 needs to know of a network that was not replayed."""
    return PublishedLevels(training, _JUDGED, definitions=(PROGRAM,), steps=0, offsets=())


def published_runs(models: Iterable[str], sha256: str) -> tuple[PublishedLevels, ...]:
    """Return the measurements of the paper's own runs, of those of its networks that are asked for."""
    asked, shared = set(models), (PAPER.data, PAPER.train_size, "raw", PAPER.epochs, PAPER.seed, sha256)
    return tuple(
        PublishedLevels(RepresentationTraining(model, number, *shared, replay=PERTURBED))
        for model in NETWORKS
        if model in asked
        for number in range(REPLAYS[PERTURBED].runs)
    )
