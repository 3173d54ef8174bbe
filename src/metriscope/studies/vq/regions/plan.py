"""Networks whose regions are computed exactly: random ones for the lemmas, tent maps, and those of the explorer."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.vq.moons.plan import PLAIN
from metriscope.studies.vq.networks.plan import PLANE, STUDY, Group, MLPShape, MoonPoints, VQRecipe

__all__ = ["KINDS", "Explorer", "Exploring", "Lemmas", "Lot", "RandomNetworks", "TentMaps"]

Bounds = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class RandomNetworks:
    """Depths and widths of random networks; a lot uses every combination in turn, with ReLU and with Abs."""

    name: str
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    activations: tuple[str, ...] = ("relu", "abs")


KINDS = (RandomNetworks("shallow", (1,), (4, 8, 12, 16, 20)), RandomNetworks("deep", (2, 3, 4, 5), (4, 6, 8, 10)))

# With one hidden layer a straight line is a shortest path, and no convex window cuts it off.
WIDER = {"shallow": 0.0, "deep": 4.0}


@dataclass(frozen=True)
class Lot:
    """A set of random networks of one kind, compared region by region: the unit that is computed and stored.

    A window cuts off paths that lead outside it, so that distances in the region graph may be longer than on the whole
    plane. A second window, ``wider`` times as wide, measures by how much; 0: no second window.
    """

    networks: RandomNetworks
    number: int
    count: int = 20
    bounds: Bounds = ((-2.0, 2.0), (-2.0, 2.0))
    wider: float = 4.0
    seed: int = 0
    method: int = 2  # increased when the same request would give different numbers
    study: str = STUDY


@dataclass(frozen=True)
class TentMaps:
    """The tent map as a deep and as a shallow network, for each number of layers; that of ``shown`` layers is drawn."""

    layers: tuple[int, ...] = tuple(range(1, 11))
    shown: int = 3
    samples: int = 401
    method: int = 1
    study: str = STUDY


@dataclass(frozen=True)
class Lemmas:
    """One :class:`Lot` of random networks per seed and kind, and the tent maps."""

    seeds: int
    seed: int = 0
    count: int = 20
    tents: TentMaps = TentMaps()

    def lots(self) -> tuple[Lot, ...]:
        """Return the measurements, one specification per seed and kind."""
        asked = [(kind, number) for number in range(self.seeds) for kind in KINDS]
        return tuple(Lot(kind, n, self.count, wider=WIDER[kind.name], seed=self.seed) for kind, n in asked)


# As many units, so that VQ distances compare. Depth and width, activation and role, each with the explorer's name.
SHAPES = {(3, 32): "deep", (1, 96): "shallow"}
ACTIVATIONS = {"relu": "ReLU", "abs": "Abs"}
DATA = {"first": "moons", "turned": "rotated moons"}


@dataclass(frozen=True)
class Exploring:
    """The exact regions of one network on a square, and both distances from some of its regions to all.

    ``initial`` networks are not yet trained. Regions are colored by their distance from ``middle``.
    """

    group: Group
    role: str
    initial: bool
    bounds: Bounds = ((-1.2, 1.2), (-1.2, 1.2))
    middle: tuple[float, float] = (0.0, 0.0)
    # All pairs of regions would take minutes.
    sources: int = 100
    method: int = 1  # raised when the same network would be measured otherwise
    study: str = STUDY

    @property
    def choices(self) -> dict[str, str]:
        """Return the explorer's names for the network."""
        shape = self.group.shape
        return {
            "data": DATA[self.role],
            "state": "initial" if self.initial else "trained",
            "shape": SHAPES[shape.depth, shape.width],
            "activation": ACTIVATIONS[shape.activation],
        }


@dataclass(frozen=True)
class Explorer:
    """One seed of every shape and activation, on moons and rotated moons, before and after training."""

    seed: int = 0
    recipe: VQRecipe = PLAIN
    points: MoonPoints = PLANE

    def jobs(self) -> tuple[Group, ...]:
        """Return the trainings."""
        shapes = [MLPShape(2, *size, 1, activation) for size in SHAPES for activation in ACTIVATIONS]
        return tuple(Group("moons", shape, self.recipe, tuple(DATA), (0,), self.points, self.seed) for shape in shapes)

    def views(self) -> tuple[Exploring, ...]:
        """Return the networks in the order in which the explorer lists them."""
        states = (False, True)
        return tuple(Exploring(g, role, initial) for g in self.jobs() for role in DATA for initial in states)
