"""Shapes, data and recipes of networks, and the specification of a group of networks that are trained together."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = [
    "GROUP",
    "PLANE",
    "STUDY",
    "TOGETHER",
    "Group",
    "Images",
    "MLPShape",
    "MoonPoints",
    "VQRecipe",
    "blocks",
    "matched_width",
]

STUDY = "vq"
# Seeds are trained in groups of this size, whatever the machine: a group is what is stored.
GROUP = 5
# Groups that share a pass; as many as keep the cores of a large machine busy.
TOGETHER = 16


@dataclass(frozen=True)
class MLPShape:
    """A plain network: ``depth`` hidden layers of one width."""

    inputs: int
    depth: int
    width: int
    outputs: int = 1
    activation: str = "relu"

    @property
    def parameters(self) -> int:
        """Return the number of weights and biases.

        >>> MLPShape(2, 3, 96).parameters, MLPShape(2, 1, 10).parameters
        (19009, 41)
        """
        hidden = (self.depth - 1) * (self.width + 1) * self.width
        return (self.inputs + 1) * self.width + hidden + (self.width + 1) * self.outputs


@dataclass(frozen=True)
class VQRecipe:
    """How a group is trained: epochs, loss, batch size (None: all points in every step) and learning rate.

    The networks of the role "first" are also stored at the epochs ``kept``.
    """

    epochs: int
    loss: str
    batch: int | None = None
    lr: float = 1e-3
    kept: tuple[int, ...] = ()


@dataclass(frozen=True)
class MoonPoints:
    """Two moons: ``count`` training points and as many new ones; the role "turned" rotates them by ``angle``.

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
    """Images of a named data set, drawn anew for each seed: ``train`` images to train on, ``test`` to test on."""

    name: str
    sha256: str
    train: int
    test: int


@dataclass(frozen=True)
class Group:
    """Some seeds of one network shape in every role: the unit that is computed, stored and resumed.

    A role determines what a network is trained on: "first" and "second" on the data, "turned" on rotated data,
    "shuffled" on the data with random labels. Every role has its own initial weights.
    """

    task: str
    shape: MLPShape
    recipe: VQRecipe
    roles: tuple[str, ...]
    seeds: tuple[int, ...]
    data: MoonPoints | Images = PLANE
    seed: int = 0
    method: int = 2  # increased when the same request would give different numbers
    study: str = STUDY

    @property
    def members(self) -> tuple[tuple[int, str], ...]:
        """Return seed and role of each network, in the order in which they are stacked."""
        return tuple((s, role) for s in self.seeds for role in self.roles)

    @property
    def angle(self) -> float:
        """Return the angle by which the role "turned" rotates its data; images are not rotated."""
        return self.data.angle if isinstance(self.data, MoonPoints) else 0.0

    @property
    def epochs(self) -> tuple[int, ...]:
        """Return the epochs at which the networks of the role "first" are stored, from the start to the end."""
        return (0, *self.recipe.kept, self.recipe.epochs)


def blocks(seeds: int) -> tuple[tuple[int, ...], ...]:
    """Return the seeds 0, 1, ..., in groups of at most ``GROUP``.

    >>> blocks(7)
    ((0, 1, 2, 3, 4), (5, 6))
    """
    return tuple(tuple(range(i, min(i + GROUP, seeds))) for i in range(0, seeds, GROUP))


def matched_width(inputs: int, depth: int, budget: int) -> int:
    """Return the width at which a network with one output has the number of parameters nearest to the budget.

    >>> [matched_width(2, depth, 4_834) for depth in (1, 2, 3)]
    [1208, 67, 48]
    """
    if min(inputs, depth) < 1 or budget < MLPShape(inputs, depth, 1).parameters:
        raise ValueError(f"{budget} parameters are too few for {depth} hidden layers on {inputs} inputs")
    width = 1
    while MLPShape(inputs, depth, width + 1).parameters <= budget:
        width += 1
    return min((width, width + 1), key=lambda w: abs(MLPShape(inputs, depth, w).parameters - budget))
