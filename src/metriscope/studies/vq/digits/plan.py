"""The networks of figures 3 and 4, the pairs that are compared, and at which scales.

T4 is the trained network of 4 hidden layers, I4 the same before training; a prime marks a second start on the same
images.
"""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.vq.networks.plan import STUDY, Group, Images, Recipe, Shape, blocks

__all__ = [
    "DIGITS",
    "FORMS",
    "INITIAL",
    "PAIRS",
    "PLAIN_DIGITS",
    "SOURCE_IMAGES",
    "TRAINED",
    "TWINS",
    "Band",
    "Comparing",
    "Digits",
    "Scales",
    "name_of",
]

Pair = tuple[str, str]

DIGITS = Recipe(epochs=30, loss="cross-entropy", batch=128, kept=(1, 2, 3, 5, 8, 12, 18, 24))
PLAIN_DIGITS = Recipe(epochs=30, loss="cross-entropy", batch=128)
PAIRS: tuple[Pair, ...] = (("T4", "T6"), ("T4", "I4"), ("T4", "I6"), ("T6", "I4"), ("T6", "I6"), ("I4", "I6"))
TWINS: tuple[Pair, ...] = (("T4", "T4′"), ("T6", "T6′"), ("I4", "I4′"), ("I6", "I6′"))
TRAINED, INITIAL = PAIRS[0], PAIRS[-1]
FORMS = {"distance": "exp(−d / σ²)", "squared": "exp(−d² / σ²)"}
# The source's data set, and its images for training and for testing.
SOURCE_IMAGES = ("mnist", 8_000, 2_000)


def name_of(pair: Pair) -> str:
    """Return a pair as people read it.

    >>> name_of(("T4", "I6"))
    'T4–I6'
    """
    return "–".join(pair)


@dataclass(frozen=True)
class Scales:
    """The scales sigma2 of one form of heat kernel: so many from the least to the largest, in equal ratios."""

    form: str
    least: float
    largest: float
    count: int


# Wide enough for both limits: at the left only points of one and the same pattern count, at the right all alike.
SCALES = (Scales("distance", 0.1, 1e4, 51), Scales("squared", 0.1, 1e6, 71))


@dataclass(frozen=True)
class Comparing:
    """Every pair of one seed's networks compared on the test images: alignment with its null, cosines at all scales.

    Of the null the mean and a ``quantile`` are kept.
    """

    groups: tuple[Group, ...]
    number: int
    pairs: tuple[Pair, ...] = (*PAIRS, *TWINS)
    scales: tuple[Scales, ...] = SCALES
    permutations: int = 999
    quantile: float = 0.95
    estimator: str = "debiased"
    method: int = 2  # raised when the same networks would be measured otherwise
    study: str = STUDY


@dataclass(frozen=True)
class Band:
    """A band that holds a curve of differences at all scales at once, by so many simulated samples of seeds.

    ``margin``: a cosine that is less by this much or less counts as the same.
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
    recipe: Recipe = DIGITS
    roles: tuple[str, ...] = ("first", "second")
    pairs: tuple[Pair, ...] = (*PAIRS, *TWINS)
    scales: tuple[Scales, ...] = SCALES
    permutations: int = 999
    band: Band = Band()

    @property
    def protocol(self) -> bool:
        """Whether these are the source's own data; its number of epochs is not printed."""
        return (self.images.name, self.images.train, self.images.test) == SOURCE_IMAGES

    def groups(self, depth: int) -> tuple[Group, ...]:
        """Return the trainings of one depth."""
        shape = Shape(784, depth, self.width, 10, self.activation)
        some = blocks(self.seeds)
        return tuple(Group("digits", shape, self.recipe, self.roles, b, self.images, self.seed) for b in some)

    def jobs(self) -> tuple[Group, ...]:
        """Return the trainings."""
        return tuple(group for depth in self.depths for group in self.groups(depth))

    def together(self) -> tuple[tuple[Group, ...], ...]:
        """Return the trainings of all depths for each block of seeds."""
        return tuple(zip(*(self.groups(depth) for depth in self.depths), strict=True))

    def comparisons(self) -> tuple[Comparing, ...]:
        """Return the measurements, one specification per seed."""
        how = (self.pairs, self.scales, self.permutations)
        return tuple(Comparing(groups, number, *how) for groups in self.together() for number in groups[0].seeds)
