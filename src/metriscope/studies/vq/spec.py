"""What the VQ study asks for: networks as rows, one frozen specification a group of networks trained together.

This file imports no tensor library, so that a bad request is refused before anything heavy loads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["ANGLE", "DEPTHS", "GROUP", "ROLES", "Group", "Plan", "Recipe", "Role", "Shape", "matched_width", "plan"]

NAME = "vq"
ANGLE = math.pi / 6
PROFILES = {"quick": 3, "paper": 10}

# Seeds are trained in groups of this size, whatever the machine: a group is what is stored, and what is lost at
# most between two checkpoints.
GROUP = 5


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
    def parameters(self) -> int:
        """Return how many weights and biases there are.

        >>> Shape(2, 3, 96).parameters
        19009
        """
        return parameter_count(self.inputs, self.depth, self.width, self.outputs)

    @property
    def title(self) -> str:
        """Return what people read, such as "ReLU 3 × 96"."""
        return f"{ACTIVATIONS[self.activation]} {self.depth} × {self.width}"


ACTIVATIONS = {"relu": "ReLU", "abs": "Abs"}


@dataclass(frozen=True)
class Recipe:
    """How long and on what loss a group is trained; no batch: all points in every step."""

    epochs: int
    loss: str
    batch: int | None = None
    lr: float = 1e-3
    kept: tuple[int, ...] = ()


# Full-batch steps: the loss of separable moons falls for ever, so that "to convergence" needs a rule of its own.
MOONS = Recipe(epochs=800, loss="bce", kept=(3, 10, 30, 60, 100, 200, 300, 500))
PLAIN = Recipe(epochs=800, loss="bce")
DIGITS = Recipe(epochs=30, loss="cross-entropy", batch=128, kept=(1, 2, 3, 5, 8, 12, 18, 24))
PLAIN_DIGITS = Recipe(epochs=30, loss="cross-entropy", batch=128)
# A network has converged on the moons if its mean loss is under this: every point is right by a wide margin.
CONVERGED = 0.01

MOON_SHAPE = Shape(2, 3, 96)
SPHERE_SHAPE = Shape(100, 3, 64)
DIGIT_DEPTHS = (4, 6)
DIGIT_WIDTH = 16
POINTS = 150

# About this many weights whatever the depth: the widths that come nearest lie within 2 % of it.
DEPTHS, BUDGET = (1, 2, 3, 4, 6), 4_834


@dataclass(frozen=True)
class Group:
    """Some seeds of one network shape in every role: the unit that is computed, stored and resumed."""

    task: str
    shape: Shape
    recipe: Recipe
    roles: tuple[str, ...]
    seeds: tuple[int, ...]
    data: str = "generated"
    points: int = POINTS
    seed: int = 0
    engine: int = 1  # raised when the same request would end in other numbers

    @property
    def members(self) -> tuple[tuple[int, str], ...]:
        """Return seed and role of each network, in the order in which they are stacked."""
        return tuple((s, role) for s in self.seeds for role in self.roles)


@dataclass(frozen=True)
class Plan:
    """Everything one call of the study will compute."""

    profile: str
    seeds: int
    seed: int = 0
    moons: Recipe = MOONS
    plain: Recipe = PLAIN
    digits: Recipe = DIGITS
    plain_digits: Recipe = PLAIN_DIGITS
    grid: int = 96
    images: int | None = None

    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """Return the seeds, in groups."""
        return tuple(tuple(range(i, min(i + GROUP, self.seeds))) for i in range(0, self.seeds, GROUP))

    def moon_groups(self, activation: str = "relu") -> tuple[Group, ...]:
        """Return the networks of figure 1."""
        shape = Shape(2, MOON_SHAPE.depth, MOON_SHAPE.width, 1, activation)
        recipe = self.moons if activation == "relu" else self.plain
        roles = ("first", "second", "turned")
        return tuple(Group("moons", shape, recipe, roles, block, seed=self.seed) for block in self.blocks())

    def sphere_groups(self) -> tuple[Group, ...]:
        """Return the networks of figure 2, and those trained on random labels."""
        roles = ("first", "turned", "shuffled")
        return tuple(Group("spheres", SPHERE_SHAPE, self.plain, roles, b, seed=self.seed) for b in self.blocks())

    def digit_groups(self, depth: int, data: str, points: int, activation: str = "relu") -> tuple[Group, ...]:
        """Return the networks of figures 3 and 4 with ``depth`` hidden layers."""
        shape = Shape(784, depth, DIGIT_WIDTH, 10, activation)
        plain = activation == "relu"
        recipe, roles = (self.digits, ("first", "second")) if plain else (self.plain_digits, ("first",))
        place = (data, points, self.seed)
        return tuple(Group("digits", shape, recipe, roles, block, *place) for block in self.blocks())

    def depth_groups(self, depth: int) -> tuple[Group, ...]:
        """Return the networks on the moons that have ``depth`` hidden layers and the budget's parameters."""
        shape = Shape(2, depth, matched_width(2, depth, BUDGET))
        roles = ("first", "second", "turned")
        return tuple(Group("moons", shape, self.plain, roles, block, seed=self.seed) for block in self.blocks())

    def groups(self, data: str, points: int) -> tuple[Group, ...]:
        """Return every group of the plan, those that take longest first."""
        kinds = ("relu", "abs")
        digits = [g for a in kinds for depth in DIGIT_DEPTHS for g in self.digit_groups(depth, data, points, a)]
        depths = [g for depth in DEPTHS for g in self.depth_groups(depth)]
        moons = [g for a in kinds for g in self.moon_groups(a)]
        return (*digits, *moons, *self.sphere_groups(), *depths)

    def deviations(self, data: str, points: int) -> tuple[str, ...]:
        """Return one sentence for each choice that the paper leaves open or that differs from it."""
        found = [
            "The paper prints one network each and no seeds; here every number is a mean over "
            f"{self.seeds} seeds, each with data and starts of its own.",
            f"“To convergence” is not defined there. Here it is Adam at {self.moons.lr:g}: on the moons "
            f"{self.moons.epochs:,} steps on all points, which counts as converged under a mean loss of {CONVERGED:g}; "
            f"on digits {self.digits.epochs} epochs in batches of {self.digits.batch}. Tables say what was reached.",
            "Noise of the moons, scale of the pixels (here 0 to 1) and PyTorch's default start are our choices.",
        ]
        if data != "mnist":
            train, test = points, points // 4
            found.append(
                f"Full MNIST is not here: digits are {train:,} and {test:,} images of `{data}` in place of 8,000 and "
                "2,000."
            )
        return tuple(found)


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


def plan(profile: str = "quick", seeds: int | None = None, seed: int = 0) -> Plan:
    """Return the plan of a profile, with another number of seeds where given.

    >>> plan("paper").seeds, plan("paper", seeds=4).blocks()
    (10, ((0, 1, 2, 3),))
    """
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}: there are {', '.join(PROFILES)}")
    count = PROFILES[profile] if seeds is None else seeds
    if count < 2:
        raise ValueError(f"--seeds must be at least 2, not {count}: an interval needs two")
    return Plan(profile, count, seed)
