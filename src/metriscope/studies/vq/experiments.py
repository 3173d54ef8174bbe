"""Specifications of the experiments on moons, spheres and digits, on sample sizes, and on prediction.

T4 is the trained network of 4 hidden layers on digits, I4 the same before training; a prime marks a second start on
the same images. This module loads no tensor library.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from metriscope.studies.vq.networks import PLANE, STUDY, Group, Images, MLPShape, MoonPoints, VQRecipe, blocks

__all__ = [
    "COMPARISONS", "CONTROLS", "DISTANCES", "FORMS", "INITIAL", "KERNEL_MEASURES", "PAIRS", "PLACES", "PLAIN",
    "PLAIN_DIGITS", "REFERENCE", "SCORES", "SEPARATION_MEASURES", "SOURCE_IMAGES", "SPHERE_ROLES", "STRUCTURE",
    "TRAINED", "TWINS", "USEFUL", "Band", "Contest", "CountedPairs", "Crowd", "Digits",
    "Moons", "Pair", "Prediction", "Rotation",
    "SampleSizes", "Scales", "SeedPairs", "Separation", "Starts", "name_of", "spheres",
]  # fmt: skip

SHAPE = MLPShape(2, 3, 96)
# Full-batch steps: the loss of separable moons never stops falling, so that "to convergence" needs its own rule.
MOONS = VQRecipe(epochs=800, loss="bce", kept=(3, 10, 30, 60, 100, 200, 300, 500))
PLAIN = VQRecipe(epochs=800, loss="bce")
# A network has converged on the moons if its mean loss is under this: every point is classified correctly by a wide
# margin.
CONVERGED = 0.01

# Each comparison is between the first network and another, at the end or at the start of training.
COMPARISONS = {
    "back": "rotated data, rotated back",
    "ceiling": "same data, another start",
    "still": "rotated data, not rotated back",
    "start back": "before training, rotated back",
    "start": "before training, not rotated back",
}
KERNEL_MEASURES = {"overlap": "eigenspace overlap", "cosine": "eigenvector |cosine|", "alignment": "centered alignment"}
SPHERE_ROLES = ("first", "turned", "shuffled")
DISTANCES = {
    "first": "VQ",
    "turned": "VQ, rotated data",
    "euclid": "Euclid",
    "start": "VQ before training",
    "shuffled": "VQ, random labels, by those labels",
    "shuffled true": "VQ, random labels, by true labels",
}
SEPARATION_MEASURES = {
    "silhouette": "silhouette on the plane",
    "neighbor": "nearest neighbor, leave one out",
    "rank": "rank, entropy",
    "participation": "rank, participation",
}
PLACES = {"training": "training points", "new": "new points"}


@dataclass(frozen=True)
class Rotation:
    """Kernels of one group's networks compared on the unit disc of a grid, unchanged and rotated back."""

    group: Group
    grid: int
    components: int = 3
    estimator: str = "debiased"
    method: int = 2  # increased when the same networks would be measured in another way
    study: str = STUDY


@dataclass(frozen=True)
class Separation:
    """How well one group's kernels separate the classes, in a scaling of ``components`` dimensions, and their rank."""

    group: Group
    components: int = 2
    method: int = 1  # increased when the same networks would be measured in another way
    study: str = STUDY


@dataclass(frozen=True)
class Moons:
    """Networks of one shape on the moons; by default two starts on the same data, and one on the rotated data."""

    seeds: int
    seed: int = 0
    task: str = "moons"
    roles: tuple[str, ...] = ("first", "second", "turned")
    shape: MLPShape = SHAPE
    recipe: VQRecipe = MOONS
    points: MoonPoints = PLANE
    grid: int = 96
    converged: float = CONVERGED

    def jobs(self) -> tuple[Group, ...]:
        """Return the trainings."""
        how = (self.task, self.shape, self.recipe, self.roles)
        return tuple(Group(*how, block, self.points, self.seed) for block in blocks(self.seeds))

    def rotations(self) -> tuple[Rotation, ...]:
        """Return the comparisons of figure 1, one specification per training."""
        return tuple(Rotation(group, self.grid) for group in self.jobs())

    def separations(self) -> tuple[Separation, ...]:
        """Return the measurements of figure 2, one specification per training."""
        return tuple(Separation(group) for group in self.jobs())


def spheres(seeds: int, seed: int = 0) -> Moons:
    """Return networks on moons in 100 dimensions: on the data, on the rotated data, and on random labels."""
    return Moons(seeds, seed, "spheres", SPHERE_ROLES, MLPShape(100, 3, 64), PLAIN, MoonPoints(dim=100, scale=0.1))


Pair = tuple[str, str]

DIGITS = VQRecipe(epochs=30, loss="cross-entropy", batch=128, kept=(1, 2, 3, 5, 8, 12, 18, 24))
PLAIN_DIGITS = VQRecipe(epochs=30, loss="cross-entropy", batch=128)
PAIRS: tuple[Pair, ...] = (("T4", "T6"), ("T4", "I4"), ("T4", "I6"), ("T6", "I4"), ("T6", "I6"), ("I4", "I6"))
TWINS: tuple[Pair, ...] = (("T4", "T4′"), ("T6", "T6′"), ("I4", "I4′"), ("I6", "I6′"))
TRAINED, INITIAL = PAIRS[0], PAIRS[-1]
FORMS = {"distance": "exp(−d / σ²)", "squared": "exp(−d² / σ²)"}
# The source's data set, and its images for training and for testing.
SOURCE_IMAGES = ("mnist", 8_000, 2_000)


def name_of(pair: Pair) -> str:
    """Return the name of a pair as pages show it.

    >>> name_of(("T4", "I6"))
    'T4–I6'
    """
    return "–".join(pair)


@dataclass(frozen=True)
class Scales:
    """The scales σ² of one form of heat kernel: ``count`` of them from the smallest to the largest, in equal ratios."""

    form: str
    least: float
    largest: float
    count: int


# Wide enough for both limits: at the left only pairs with the same pattern count, at the right all pairs count equally.
SCALES = (Scales("distance", 0.1, 1e4, 51), Scales("squared", 0.1, 1e6, 71))


@dataclass(frozen=True)
class SeedPairs:
    """Every pair of one seed's networks compared on the test images: alignment with its null, cosines at all scales.

    Pairs that are ``judged`` get ``permutations`` permutations, the others ``further``. The mean and one ``quantile``
    of the null are stored.
    """

    groups: tuple[Group, ...]
    number: int
    pairs: tuple[Pair, ...] = (*PAIRS, *TWINS)
    scales: tuple[Scales, ...] = SCALES
    permutations: int = 999
    further: int = 99
    judged: tuple[Pair, ...] = (TRAINED, INITIAL)
    quantile: float = 0.95
    estimator: str = "debiased"
    method: int = 2  # increased when the same networks would be measured in another way
    study: str = STUDY


@dataclass(frozen=True)
class CountedPairs:
    """How many pairs of test images have each pair of distances, for pairs of one seed's networks."""

    groups: tuple[Group, ...]
    number: int
    pairs: tuple[Pair, ...] = (TRAINED, INITIAL)
    study: str = STUDY


@dataclass(frozen=True)
class Band:
    """A simultaneous confidence band of a curve of differences, from ``draws`` simulated samples of seeds.

    A cosine that is smaller by at most ``margin`` counts as equal.
    """

    level: float = 0.95
    draws: int = 9_999
    margin: float = 0.01


@dataclass(frozen=True)
class Digits:
    """Networks of 4 and 6 layers on images, before and after training, and a second start of each."""

    seeds: int
    images: Images
    seed: int = 0
    activation: str = "relu"
    depths: tuple[int, ...] = (4, 6)
    width: int = 16
    recipe: VQRecipe = DIGITS
    roles: tuple[str, ...] = ("first", "second")
    pairs: tuple[Pair, ...] = (*PAIRS, *TWINS)
    scales: tuple[Scales, ...] = SCALES
    permutations: int = 999
    further: int = 99
    band: Band = Band()

    @property
    def protocol(self) -> bool:
        """Whether the images are the source's own; its number of epochs is not printed."""
        return (self.images.name, self.images.train, self.images.test) == SOURCE_IMAGES

    def groups(self, depth: int) -> tuple[Group, ...]:
        """Return the trainings of one depth."""
        shape, some = MLPShape(784, depth, self.width, 10, self.activation), blocks(self.seeds)
        return tuple(Group("digits", shape, self.recipe, self.roles, b, self.images, self.seed) for b in some)

    def jobs(self) -> tuple[Group, ...]:
        """Return the trainings."""
        return tuple(group for depth in self.depths for group in self.groups(depth))

    def together(self) -> tuple[tuple[Group, ...], ...]:
        """Return the trainings of all depths for each block of seeds."""
        return tuple(zip(*(self.groups(depth) for depth in self.depths), strict=True))

    def counted(self) -> CountedPairs:
        """Return the measurement of the first seed from which the cosine at any scale can be computed."""
        groups = self.together()[0]
        return CountedPairs(groups, groups[0].seeds[0])

    def comparisons(self) -> tuple[SeedPairs, ...]:
        """Return the measurements, one specification per seed."""
        how = (self.pairs, self.scales, self.permutations, self.further)
        return tuple(SeedPairs(groups, n, *how) for groups in self.together() for n in groups[0].seeds)


@dataclass(frozen=True)
class Starts:
    """The judged numbers of all starts of figures 3 and 4, small enough to be recorded."""

    digits: Digits
    method: int = 1  # increased when the same comparisons would be summarized in another way
    study: str = STUDY


# Kaufman and Rousseeuw (1990) see no substantial structure in a mean silhouette of this or less.
STRUCTURE = 0.25


@dataclass(frozen=True)
class Crowd:
    """Networks trained on one number of points: how well they separate at most ``points`` training and new points."""

    group: Group
    points: int = 1_000
    components: int = 2
    method: int = 1  # increased when the same request would give other numbers
    study: str = STUDY


@dataclass(frozen=True)
class SampleSizes:
    """Figure 2 with each number of training points; computed here, or looked up in the records."""

    computed: bool = False
    seed: int = 0
    counts: tuple[int, ...] = (150, 300, 600, 1_200, 2_500, 5_000)
    seeds: int = 5
    recipe: VQRecipe = PLAIN

    def crowds(self) -> tuple[Crowd, ...]:
        """Return one job per number of points: the networks of figure 2 without their controls."""
        part = replace(spheres(self.seeds, self.seed), roles=("first",), recipe=self.recipe)
        sizes = [replace(part, points=replace(part.points, count=count)) for count in self.counts]
        return tuple(Crowd(group) for some in sizes for group in some.jobs())


# For each of these scores, larger is expected to be better.
SCORES = {
    "naswot": "NASWOT's score before training",
    "rank": "effective rank before training",
    "labels": "alignment with the labels before training",
    "moved": "change of the kernel in the first epoch",
    "labels after": "alignment with the labels after one epoch",
}
# Not a score of the kernel: what one epoch of training predicts without it.
REFERENCE = {"early": "training accuracy after one epoch"}
# What is known of an architecture before any network is drawn.
CONTROLS = ("parameters", "depth")
# The smallest partial rank correlation that counts as useful.
USEFUL = 0.3

RECIPE = VQRecipe(epochs=15, loss="cross-entropy", batch=128, kept=(1,))


@dataclass(frozen=True)
class Contest:
    """Architectures of one depth and activation, one per width: scores and final accuracy of each start.

    NASWOT's score is the mean over ``batches`` of ``batch`` training images, the other scores are from the kernel on
    the first ``points`` training images.
    """

    depth: int
    activation: str
    widths: tuple[int, ...]
    seeds: tuple[int, ...]
    images: Images
    recipe: VQRecipe = RECIPE
    # With more points than units + 1 the determinant is zero; the smallest architecture has 8 units.
    batch: int = 32
    batches: int = 8
    points: int = 1_000
    seed: int = 0
    method: int = 1  # increased when the same request would give other numbers
    study: str = STUDY

    def group(self, width: int) -> Group:
        """Return the starts of one architecture, which are trained together."""
        shape = MLPShape(784, self.depth, width, 10, self.activation)
        return Group("contest", shape, self.recipe, ("first",), self.seeds, self.images, self.seed)


@dataclass(frozen=True)
class Prediction:
    """All architectures; they are trained where ``computed``, and otherwise looked up in the records."""

    images: Images
    computed: bool = False
    seed: int = 0
    depths: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    widths: tuple[int, ...] = (8, 16, 32, 64, 128)
    activations: tuple[str, ...] = ("relu", "abs")
    starts: int = 5
    permutations: int = 9_999

    def contests(self) -> tuple[Contest, ...]:
        """Return the trainings with their measurements."""
        starts = tuple(range(self.starts))
        kinds = product(self.depths, self.activations)
        return tuple(Contest(d, a, self.widths, starts, self.images, seed=self.seed) for d, a in kinds)
