"""The networks of figures 3 and 4, the pairs that are compared, and the scales.

T4 is the trained network of 4 hidden layers, I4 the same before training; a prime marks a second start on the same
images.
"""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.vq.networks.plan import STUDY, Group, Images, MLPShape, VQRecipe, blocks

__all__ = [
    "FORMS",
    "INITIAL",
    "PAIRS",
    "PLAIN_DIGITS",
    "SOURCE_IMAGES",
    "TRAINED",
    "TWINS",
    "Band",
    "Digits",
    "Pair",
    "Scales",
    "SeedPairs",
    "Starts",
    "name_of",
]

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
    """Return a pair as it is shown.

    >>> name_of(("T4", "I6"))
    'T4–I6'
    """
    return "–".join(pair)


@dataclass(frozen=True)
class Scales:
    """The scales σ² of one form of heat kernel: ``count`` of them from the least to the largest, in equal ratios."""

    form: str
    least: float
    largest: float
    count: int


# Wide enough for both limits: at the left only points with the same pattern count, at the right all count alike.
SCALES = (Scales("distance", 0.1, 1e4, 51), Scales("squared", 0.1, 1e6, 71))


@dataclass(frozen=True)
class SeedPairs:
    """Every pair of one seed's networks compared on the test images: alignment with its null, cosines at all scales.

    Pairs that are ``judged`` have ``permutations`` permutations, the others ``further``. The mean and one ``quantile``
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
    method: int = 2  # raised when the same networks would be measured otherwise
    study: str = STUDY


@dataclass(frozen=True)
class Band:
    """A simultaneous confidence band of a curve of differences, from ``draws`` simulated samples of seeds.

    ``margin``: a cosine that is less by at most this much counts as the same.
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

    def comparisons(self) -> tuple[SeedPairs, ...]:
        """Return the measurements, one specification per seed."""
        how = (self.pairs, self.scales, self.permutations, self.further)
        return tuple(SeedPairs(groups, n, *how) for groups in self.together() for n in groups[0].seeds)


@dataclass(frozen=True)
class Starts:
    """What is judged of all starts of figures 3 and 4, small enough to be recorded."""

    digits: Digits
    method: int = 1  # raised when the same comparisons would be summarized otherwise
    study: str = STUDY
