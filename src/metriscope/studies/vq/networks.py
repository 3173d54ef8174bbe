"""Networks and how they are trained: shapes, data and recipes, groups of seeds, and students of a teacher.

This module loads no tensor library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = [
    "DATA", "GROUP", "MATCHED", "METHODS", "PLANE", "STUDY", "TOGETHER", "WORTH", "Distillation", "Distilling",
    "ExampleSplit", "Group", "Images", "MLPShape", "MoonPoints", "StudentVariant", "VQRecipe", "blocks",
    "matched_width",
]  # fmt: skip

STUDY = "vq"
# Seeds are trained in groups of this size, whatever the machine: a group is what is stored.
GROUP = 5
# The number of groups that share a pass: enough to keep the cores of a large machine busy.
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

    With more than two dimensions the moons are scaled down, and random coordinates are added that put every point on
    the unit sphere.
    """

    count: int = 150
    noise: float = 0.1
    angle: float = math.pi / 6
    dim: int = 2
    scale: float = 1.0


PLANE = MoonPoints()


@dataclass(frozen=True)
class Images:
    """Images of a named data set, drawn separately for each seed: ``train`` images to train on, ``test`` to test on."""

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


# The smallest gain in test accuracy, in percentage points, that is worth another loss term.
WORTH = 0.3
DATA = ("mnist-5k", "letter")


@dataclass(frozen=True)
class Method:
    """What a student learns from besides the labels: the teacher's logits, and a kernel of its hidden layers."""

    title: str
    logits: bool
    match: str = ""


METHODS = {
    "labels": Method("labels only", logits=False),
    "logits": Method("logits", logits=True),
    "signs": Method("logits and VQ kernel", logits=True, match="signs"),
    "activations": Method("logits and kernel of activations", logits=True, match="activations"),
    "signs alone": Method("labels and VQ kernel", logits=False, match="signs"),
}
MATCHED = tuple(name for name, method in METHODS.items() if method.match)


@dataclass(frozen=True)
class StudentVariant:
    """One student: its method, and the weight of the matching term (0 without one)."""

    method: str
    weight: float = 0.0


@dataclass(frozen=True)
class ExampleSplit:
    """A named data set, and how many of its examples each seed draws to train, to choose weights and to test on.

    Features are scaled together, as for pixels, or each separately.
    """

    name: str
    sha256: str
    inputs: int
    classes: int
    train: int
    validation: int
    test: int
    together: bool = False


@dataclass(frozen=True)
class Distilling:
    """One seed: a teacher is trained on labels, then every variant of a student from the same start and batches.

    ``share`` is the weight of the logits' loss against that of the labels, at ``temperature``. Soft signs are
    tanh(``beta`` z), with z in units of its layer's root mean square on the batch.
    """

    examples: ExampleSplit
    number: int
    teacher: tuple[int, int] = (6, 64)
    student: tuple[int, int] = (2, 32)
    # The teacher is trained for longer, since it should be better than its students.
    schooling: int = 60
    epochs: int = 20
    batch: int = 128
    lr: float = 2e-3
    temperature: float = 4.0
    share: float = 0.9
    beta: float = 3.0
    weights: tuple[float, ...] = (0.1, 0.5, 2.0)
    seed: int = 0
    method: int = 1  # increased when the same request would give other numbers
    study: str = STUDY

    def shape(self, size: tuple[int, int]) -> MLPShape:
        """Return a network of a depth and width for these examples."""
        return MLPShape(self.examples.inputs, *size, self.examples.classes)

    def variants(self) -> tuple[StudentVariant, ...]:
        """Return all students."""
        plain = [StudentVariant(name) for name in METHODS if name not in MATCHED]
        return (*plain, *(StudentVariant(name, weight) for name in MATCHED for weight in self.weights))


@dataclass(frozen=True)
class Distillation:
    """Every seed of every data set; lessons on data sets that are ``computed`` are run, others looked up."""

    examples: tuple[ExampleSplit, ...]
    computed: tuple[str, ...] = ()
    seed: int = 0
    seeds: int = 10

    def lessons(self) -> tuple[Distilling, ...]:
        """Return one lesson per data set and seed."""
        return tuple(Distilling(some, n, seed=self.seed) for some in self.examples for n in range(self.seeds))
