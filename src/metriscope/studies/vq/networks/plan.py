"""Networks as rows, and one frozen specification per group of networks that are trained together."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = [
    "GROUP",
    "PLANE",
    "ROLES",
    "STUDY",
    "TOGETHER",
    "Group",
    "Images",
    "MoonPoints",
    "Recipe",
    "Role",
    "Shape",
    "blocks",
    "matched_width",
    "parameter_count",
]

STUDY = "vq"
# Seeds are trained in groups of this size, whatever the machine: a group is what is stored.
GROUP = 5
# Groups that share a pass; as many as keep the cores of a large machine busy.
TOGETHER = 16


@dataclass(frozen=True)
class Role:
    """Which points and labels a network is trained on; every role begins from a start of its own."""

    turned: bool = False
    shuffled: bool = False


ROLES = {"first": Role(), "second": Role(), "turned": Role(turned=True), "shuffled": Role(shuffled=True)}


@dataclass(frozen=True)
class Shape:
    """A plain network: ``depth`` hidden layers of one width."""

    inputs: int
    depth: int
    width: int
    outputs: int = 1
    activation: str = "relu"

    @property
    def units(self) -> int:
        """Return how many hidden units there are."""
        return self.depth * self.width

    @property
    def parameters(self) -> int:
        """Return how many weights and biases there are.

        >>> Shape(2, 3, 96).parameters
        19009
        """
        return parameter_count(self.inputs, self.depth, self.width, self.outputs)


@dataclass(frozen=True)
class Recipe:
    """How long and on what loss a group is trained; no batch: all points in every step.

    The first role's networks are also stored as they were at the epochs ``kept``.
    """

    epochs: int
    loss: str
    batch: int | None = None
    lr: float = 1e-3
    kept: tuple[int, ...] = ()


@dataclass(frozen=True)
class MoonPoints:
    """Two moons: so many points to train on and as many new ones; ``angle`` is how far they are turned in that role.

    With more than two dimensions the moons are scaled, and random coordinates bring every point to the unit sphere.
    """

    count: int = 150
    noise: float = 0.1
    angle: float = math.pi / 6
    dim: int = 2
    scale: float = 1.0


PLANE = MoonPoints()


@dataclass(frozen=True)
class Images:
    """Images of a named data set, drawn anew for each seed: so many to train on, so many to test on."""

    name: str
    sha256: str
    train: int
    test: int


@dataclass(frozen=True)
class Group:
    """Some seeds of one network shape in every role: the unit that is computed, stored and resumed."""

    task: str
    shape: Shape
    recipe: Recipe
    roles: tuple[str, ...]
    seeds: tuple[int, ...]
    data: MoonPoints | Images = PLANE
    seed: int = 0
    method: int = 2  # raised when the same request would end in other numbers
    study: str = STUDY

    @property
    def members(self) -> tuple[tuple[int, str], ...]:
        """Return seed and role of each network, in the order in which they are stacked."""
        return tuple((s, role) for s in self.seeds for role in self.roles)

    @property
    def angle(self) -> float:
        """Return how far the data is turned in the roles that turn it; images are not."""
        return self.data.angle if isinstance(self.data, MoonPoints) else 0.0

    @property
    def epochs(self) -> tuple[int, ...]:
        """Return the epochs at which the first role's networks are stored, from the start to the end."""
        return (0, *self.recipe.kept, self.recipe.epochs)


def blocks(seeds: int) -> tuple[tuple[int, ...], ...]:
    """Return the seeds 0, 1, ..., in groups.

    >>> blocks(7)
    ((0, 1, 2, 3, 4), (5, 6))
    """
    return tuple(tuple(range(i, min(i + GROUP, seeds))) for i in range(0, seeds, GROUP))


def parameter_count(inputs: int, depth: int, width: int, outputs: int = 1) -> int:
    """Return the weights and biases of a plain network.

    >>> parameter_count(2, 1, 10)
    41
    """
    return (inputs + 1) * width + (depth - 1) * (width + 1) * width + (width + 1) * outputs


def matched_width(inputs: int, depth: int, budget: int) -> int:
    """Return the width whose number of parameters comes nearest to the budget.

    >>> [matched_width(2, depth, 4_834) for depth in (1, 2, 3)]
    [1208, 67, 48]
    """
    if min(inputs, depth) < 1 or budget < parameter_count(inputs, depth, 1):
        raise ValueError(f"{budget} parameters are too few for {depth} hidden layers on {inputs} inputs")
    width = 1
    while parameter_count(inputs, depth, width + 1) <= budget:
        width += 1
    return min((width, width + 1), key=lambda w: abs(parameter_count(inputs, depth, w) - budget))
