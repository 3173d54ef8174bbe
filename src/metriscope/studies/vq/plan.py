"""The plan of the VQ study: options, and every experiment with its trainings and measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from tyro.conf import arg

from metriscope.studies.vq.experiments import (
    PAIRS,
    PLAIN,
    PLAIN_DIGITS,
    SOURCE_IMAGES,
    Digits,
    Moons,
    Prediction,
    SampleSizes,
    Starts,
    spheres,
)
from metriscope.studies.vq.networks import (
    DATA,
    PLANE,
    STUDY,
    Distillation,
    ExampleSplit,
    Group,
    Images,
    MLPShape,
    MoonPoints,
    VQRecipe,
    matched_width,
)

__all__ = [
    "KINDS", "OPTIONS", "TIMES", "TITLE", "Beyond", "Course", "Explorer", "Exploring", "Lemmas", "Lot", "Ranks",
    "TentMaps", "VQOptions", "VQPlan", "plan",
]  # fmt: skip

Bounds = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class RandomNetworks:
    """Depths and widths of random networks; each :class:`Lot` uses every combination in turn, with ReLU and Abs."""

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
    plane. A second window, ``wider`` times as wide, measures by how much; 0 means no second window.
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


# All have the same number of units, so that VQ distances are comparable. Depth and width, activation and role, each
# with its name in the explorer.
SHAPES = {(3, 32): "deep", (1, 96): "shallow"}
ACTIVATIONS = {"relu": "ReLU", "abs": "Abs"}
ROLES = {"first": "moons", "turned": "rotated moons"}


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
    method: int = 1  # increased when the same network would be measured in another way
    study: str = STUDY

    @property
    def choices(self) -> dict[str, str]:
        """Return the explorer's names for the network."""
        shape = self.group.shape
        return {
            "data": ROLES[self.role],
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
        return tuple(Group("moons", shape, self.recipe, tuple(ROLES), (0,), self.points, self.seed) for shape in shapes)

    def views(self) -> tuple[Exploring, ...]:
        """Return the networks in the order in which the explorer lists them."""
        states = (False, True)
        return tuple(Exploring(g, role, initial) for g in self.jobs() for role in ROLES for initial in states)


TITLE = "VQ kernels"
TIMES = {"quick": "two minutes on two cores", "paper": "half an hour on two cores, with full MNIST"}
SEEDS = {"quick": 3, "paper": 10}
# Starts of the networks on digits in the paper profile.
STARTS = 20
# Of each data set: features, classes, and examples to train, to choose weights and to test on.
EXAMPLES = {"mnist-5k": (784, 10, 3_500, 500, 1_000), "letter": (16, 26, 4_000, 2_000, 4_000)}
# Data set, images for training and for testing.
IMAGES = {"quick": ("mnist-5k", 4_000, 1_000), "paper": SOURCE_IMAGES}


@dataclass(frozen=True)
class VQOptions:
    """Options of the VQ study."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: digits from the embedded mnist-5k, or 8,000 and 2,000 images of full MNIST as in the paper."""
    seeds: Annotated[
        int | None, arg(metavar="INT", help_behavior_hint="(default: quick: 3; paper: 10, on digits 20)")
    ] = None
    """Repetitions of every experiment, each with its own data and initial weights; at least 3."""
    seed: int = 0
    """Root of all random streams."""


OPTIONS = VQOptions


@dataclass(frozen=True)
class Course:
    """Alignment with the final network at each kept epoch; of groups on images, also with each other.

    Groups on the moons are compared on the unit disc of a grid, those on images on the test images.
    """

    groups: tuple[Group, ...]
    grid: int = 0
    estimator: str = "debiased"
    method: int = 2  # increased when the same networks would be measured in another way
    study: str = STUDY


@dataclass(frozen=True)
class Ranks:
    """The rank of one group's kernels on the unit disc of a grid, and how well they separate new points."""

    group: Group
    grid: int
    components: int = 2
    method: int = 1
    study: str = STUDY


@dataclass(frozen=True)
class Beyond:
    """Questions beyond the paper: figures 1 and 3 over epochs, at other depths of equal size, and with Abs."""

    moons: Moons
    digits: Digits
    plain: VQRecipe = PLAIN
    plain_digits: VQRecipe = PLAIN_DIGITS
    # About this many parameters at every depth: the nearest widths are within 2 % of it.
    budget: int = 4_834
    depths: tuple[int, ...] = (1, 2, 3, 4, 6)

    @property
    def abs_moons(self) -> Moons:
        """Figure 1 with Abs."""
        return replace(self.moons, shape=replace(self.moons.shape, activation="abs"), recipe=self.plain)

    @property
    def abs_digits(self) -> Digits:
        """Figures 3 and 4 with Abs, without permutations, because no claim is judged by them."""
        plain = replace(self.digits, activation="abs", recipe=self.plain_digits, roles=("first",))
        return replace(plain, pairs=PAIRS, permutations=0, further=0)

    def deep(self, depth: int) -> Moons:
        """Return figure 1 with networks that have ``depth`` hidden layers and the budget's parameters."""
        shape = MLPShape(2, depth, matched_width(2, depth, self.budget))
        return replace(self.moons, shape=shape, recipe=self.plain, grid=self.moons.grid // 3)

    def jobs(self) -> tuple[Group, ...]:
        """Return the trainings that no other experiment asks for."""
        depths = [group for depth in self.depths for group in self.deep(depth).jobs()]
        return (*self.abs_digits.jobs(), *self.abs_moons.jobs(), *depths)

    def courses(self) -> tuple[Course, ...]:
        """Return the measurements during training, those of the moons first."""
        moons = [Course((group,), self.moons.grid // 2) for group in self.moons.jobs()]
        return (*moons, *(Course(groups) for groups in self.digits.together()))

    def ranks(self, depth: int) -> tuple[Ranks, ...]:
        """Return the measurements of networks of one depth."""
        part = self.deep(depth)
        return tuple(Ranks(group, part.grid) for group in part.jobs())


@dataclass(frozen=True)
class VQPlan:
    """Everything one call of the study will compute."""

    options: VQOptions
    moons: Moons
    spheres: Moons
    digits: Digits
    lemmas: Lemmas
    beyond: Beyond
    explorer: Explorer
    prediction: Prediction
    distillation: Distillation
    sample_sizes: SampleSizes
    starts: Starts

    @property
    def repeats(self) -> tuple[int, ...]:
        """How many starts a network has, on the moons and on digits."""
        return self.moons.seeds, self.digits.seeds

    def jobs(self) -> tuple[Group, ...]:
        """Return the trainings, those that take longest first."""
        parts = (self.digits, self.beyond, self.moons, self.spheres, self.explorer)
        return tuple(group for part in parts for group in part.jobs())

    def deviations(self) -> tuple[str, ...]:
        """Return one sentence for each choice that the paper leaves open or that differs from it."""
        moons, digits, images = self.moons, self.digits, self.digits.images
        found = (
            "The paper shows one network each and no seeds; here every number is a mean over "
            f"{moons.seeds} seeds, each with its own data and initial weights.",
            f"The paper does not define “to convergence”. Here it is Adam at {moons.recipe.lr:g}: on the moons "
            f"{moons.recipe.epochs:,} steps on all points, and a network counts as converged under a mean loss of "
            f"{moons.converged:g}; on digits {digits.recipe.epochs} epochs in batches of {digits.recipe.batch}. Tables "
            "show what was reached.",
            "Noise of the moons, pixels from 0 to 1 and the default initialization of PyTorch are our choices.",
        )
        stand_in = (
            f"Digits are {images.train:,} and {images.test:,} images of `{images.name}` in place of the paper's 8,000 "
            "and 2,000 of MNIST."
        )
        return found if digits.protocol else (*found, stand_in)


def plan(options: VQOptions) -> VQPlan:
    """Return the plan, or raise a ValueError that says in one sentence why it cannot be run.

    >>> plan(VQOptions(seeds=4)).moons.seeds
    4
    """
    if options.profile not in SEEDS:
        raise ValueError(f"unknown profile {options.profile!r}: there are {', '.join(SEEDS)}")
    seeds, seed = SEEDS[options.profile] if options.seeds is None else options.seeds, options.seed
    if seeds < 3:
        raise ValueError(f"--seeds must be at least 3, not {seeds}: tests over seeds need three")
    computed = options.profile == "paper"
    many = STARTS if computed and options.seeds is None else seeds
    moons, digits = Moons(seeds, seed), Digits(many, _images(options.profile), seed)
    further = Lemmas(seeds, seed), Beyond(moons, digits), Explorer(seed)
    return VQPlan(
        *(options, moons, spheres(seeds, seed), digits, *further),
        prediction=Prediction(_images("quick"), computed, seed),
        distillation=_distillation(computed, seed),
        sample_sizes=SampleSizes(computed, seed),
        starts=Starts(digits if computed else Digits(STARTS, _source_images(), seed)),
    )


def _images(profile: str) -> Images:
    """Return the profile's digits without reading them; only data that is not embedded may be missing."""
    from metriscope.data import available, digest

    name, train, test = IMAGES[profile]
    if not available(name):
        raise ValueError(
            f"the paper profile needs full MNIST: `metriscope data fetch {name}` downloads it, or --data-dir names a "
            "folder that holds it; the quick profile needs no download"
        )
    return Images(name, digest(name), train, test)


def _source_images() -> Images:
    """Return the paper's digits without asking whether they are on this machine."""
    from metriscope.data import digest

    name, train, test = SOURCE_IMAGES
    return Images(name, digest(name), train, test)


def _distillation(computed: bool, seed: int) -> Distillation:
    """Return the lessons on each data set; data that is not on this machine is looked up in the records."""
    from metriscope.data import available, digest

    examples = [ExampleSplit(name, digest(name), *EXAMPLES[name], together=name == "mnist-5k") for name in DATA]
    return Distillation(tuple(examples), tuple(name for name in DATA if computed and available(name)), seed)
