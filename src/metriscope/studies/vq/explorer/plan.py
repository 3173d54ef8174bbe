"""The networks of the explorer: shallow and deep with as many units, ReLU and Abs, on moons and turned moons."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.vq.moons.plan import PLAIN
from metriscope.studies.vq.networks.plan import PLANE, STUDY, Group, MoonPoints, Recipe, Shape

__all__ = ["ACTIVATIONS", "DATA", "SHAPES", "Explorer", "Exploring"]

# As many units, so that VQ distances compare.
SHAPES = {"deep": (3, 32), "shallow": (1, 96)}
ACTIVATIONS = {"ReLU": "relu", "Abs": "abs"}
DATA = {"moons": "first", "turned moons": "turned"}


@dataclass(frozen=True)
class Exploring:
    """The exact regions of one network on a square, and both distances from some of its regions to all.

    ``initial`` networks are as they were before training. Regions are colored by their distance from ``middle``.
    """

    group: Group
    role: str
    initial: bool
    bounds: tuple[tuple[float, float], tuple[float, float]] = ((-1.2, 1.2), (-1.2, 1.2))
    middle: tuple[float, float] = (0.0, 0.0)
    # All pairs of regions would take minutes.
    sources: int = 100
    method: int = 1  # raised when the same network would be measured otherwise
    study: str = STUDY

    @property
    def choices(self) -> dict[str, str]:
        """Return how the explorer names the network."""
        shape = self.group.shape
        return {
            "data": next(name for name, role in DATA.items() if role == self.role),
            "state": "initial" if self.initial else "trained",
            "shape": next(name for name, size in SHAPES.items() if size == (shape.depth, shape.width)),
            "activation": next(name for name, kind in ACTIVATIONS.items() if kind == shape.activation),
        }


@dataclass(frozen=True)
class Explorer:
    """One seed of every shape and activation, on both data, before and after training."""

    seed: int = 0
    recipe: Recipe = PLAIN
    points: MoonPoints = PLANE

    def jobs(self) -> tuple[Group, ...]:
        """Return the trainings."""
        shapes = [Shape(2, *size, 1, kind) for size in SHAPES.values() for kind in ACTIVATIONS.values()]
        roles = tuple(DATA.values())
        return tuple(Group("moons", shape, self.recipe, roles, (0,), self.points, self.seed) for shape in shapes)

    def views(self) -> tuple[Exploring, ...]:
        """Return the networks in the order in which the explorer lists them."""
        states = (False, True)
        return tuple(Exploring(g, role, initial) for g in self.jobs() for role in DATA.values() for initial in states)
