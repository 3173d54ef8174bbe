"""Networks with an OffsetL2 head whose centers mu and weights alpha are trained or not, and what is measured on them.

The networks, their starts and their images are those of the representation study.
"""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.representation.plan import DISTANCES, RepresentationTraining

__all__ = ["FAST", "NEGATED", "STUDY", "VARIANTS", "OffsetReading", "OffsetTraining", "Offsets", "Variant"]

STUDY = "heads"
NEGATED = tuple(name for name in DISTANCES if name.endswith("-neg"))


@dataclass(frozen=True)
class Variant:
    """How the head is trained: factors on the learning rate of mu and alpha, and where mu begins.

    With ``placed``, mu begins at its target: the mean hidden activation of its class, or of all other classes in a
    network whose largest distance wins.
    """

    name: str
    mu: float = 1.0
    alpha: float = 1.0
    placed: bool = False


# In 1,000 epochs at the paper's rate a center moves by about 1 at most, and its target lies hundreds away. With
# this factor it moves by tens in 100 epochs, and training is stable.
FAST = 1e5
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("trained"),
        Variant("frozen", mu=0.0),
        Variant("fast", mu=FAST),
        Variant("flat", alpha=0.0),
        Variant("fast flat", mu=FAST, alpha=0.0),
        Variant("placed", placed=True),
    )
}


@dataclass(frozen=True)
class OffsetTraining:
    """One network from several starts, ``numbers``, trained with one variant of its head.

    ``base`` is the training of the representation study, with the number of the first start.
    """

    base: RepresentationTraining
    variant: Variant
    numbers: tuple[int, ...]
    version: int = 1  # raised when the same request would give other weights
    study: str = STUDY

    @property
    def negated(self) -> bool:
        """Whether the smallest distance wins: a distance to the class, as in table 4 of the paper."""
        return self.base.model in NEGATED


@dataclass(frozen=True)
class OffsetReading:
    """Where the centers of one training ended, and what their distances go with.

    Distances are compared, over test images, with the Mahalanobis distance of each class in the leading principal
    components of the training images, for each number of ``components``. The verdict uses ``judged`` of them: they
    hold four fifths of the variance, and the 400 images of a class are enough to estimate their covariance.
    """

    training: OffsetTraining
    judged: int
    components: tuple[int, ...]
    method: int = 1  # raised when the same networks would be measured otherwise
    study: str = STUDY


# Networks and variants in the order in which they are run. Alpha is frozen only where the smallest distance wins.
RUNS = (
    *((name, variant) for variant in ("trained", "frozen", "fast", "flat", "fast flat") for name in NEGATED),
    *((name, variant) for variant in ("trained", "frozen", "fast") for name in DISTANCES if name not in NEGATED),
    *((name, "placed") for name in DISTANCES),
)


@dataclass(frozen=True)
class Offsets:
    """The experiment: every network and variant from every start; ``reading``: what measurements ask for."""

    seeds: int = 5
    epochs: int = 1_000
    train_size: int = 4_000
    seed: int = 0
    sha256: str = ""
    data: str = "mnist-5k"
    pixels: str = "raw"
    runs: tuple[tuple[str, str], ...] = RUNS
    reading: tuple[int, tuple[int, ...]] = (50, (50, 20, 100))

    def jobs(self) -> tuple[OffsetTraining, ...]:
        """Return the trainings, one per network and variant."""
        numbers = tuple(range(self.seeds))
        return tuple(OffsetTraining(self._base(name), VARIANTS[variant], numbers) for name, variant in self.runs)

    def readings(self) -> tuple[OffsetReading, ...]:
        """Return the measurements, one per training."""
        return tuple(OffsetReading(job, *self.reading) for job in self.jobs())

    def _base(self, name: str) -> RepresentationTraining:
        where = (self.data, self.train_size, self.pixels, self.epochs)
        return RepresentationTraining(name, 0, *where, self.seed, self.sha256)
