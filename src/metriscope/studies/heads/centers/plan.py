"""Networks with an OffsetL2 head whose centers mu and weights alpha are trained or not, and what is measured on them.

The networks, their starts and their images are those of the representation study.
"""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.representation.plan import DISTANCES, RepresentationTraining

__all__ = ["FAST", "NEGATED", "PARTS", "STUDY", "CenterReading", "CenterTraining", "Centers", "Variant", "variants"]

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


def variants(fast: float) -> dict[str, Variant]:
    """Return every variant by name, with the larger factor on the learning rate of mu."""
    found = (
        Variant("trained"),
        Variant("frozen", mu=0.0),
        Variant("fast", mu=fast),
        Variant("flat", alpha=0.0),
        Variant("fast flat", mu=fast, alpha=0.0),
        Variant("placed", placed=True),
    )
    return {variant.name: variant for variant in found}


# In 1,000 epochs at the paper's rate a center moves by about 1 at most, and its target lies hundreds away on raw
# pixels. These factors are the largest powers of ten with which the first hundred epochs are stable.
FAST = {"raw": 1e5, "unit": 1e4}


@dataclass(frozen=True)
class CenterTraining:
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
class CenterReading:
    """Where the centers of one training ended, and what their distances go with.

    Distances are compared, over test images, with the Mahalanobis distance of each class in the leading principal
    components of the training images, one number of ``components`` after the other; ``judged`` is the one that the
    verdict uses: a class has about 400 images, which estimate that many variances well, and that many components hold
    four fifths of the variance.
    """

    training: CenterTraining
    components: tuple[int, ...] = (20, 50, 100)
    method: int = 1  # raised when the same networks would be measured otherwise
    study: str = STUDY
    judged: int = 50


@dataclass(frozen=True)
class Part:
    """Some variants of some networks on one form of the pixels."""

    networks: tuple[str, ...]
    variants: tuple[str, ...]
    pixels: str = "raw"


# Raw pixels are the paper's. Alpha is frozen, and other pixels are tried, only where the smallest distance wins.
PARTS = (
    Part(NEGATED, ("trained", "frozen", "fast", "flat", "fast flat", "placed")),
    Part(tuple(name for name in DISTANCES if name not in NEGATED), ("trained", "frozen", "fast", "placed")),
    Part(NEGATED, ("trained", "frozen", "fast"), "unit"),
)


@dataclass(frozen=True)
class Centers:
    """The experiment: every part, from every start."""

    seeds: int = 5
    epochs: int = 1_000
    train_size: int = 4_000
    seed: int = 0
    sha256: str = ""
    data: str = "mnist-5k"
    parts: tuple[Part, ...] = PARTS

    def jobs(self) -> tuple[CenterTraining, ...]:
        """Return the trainings, one per network, variant and form of the pixels."""
        numbers = tuple(range(self.seeds))
        return tuple(
            CenterTraining(self._base(network, part.pixels), variants(FAST[part.pixels])[name], numbers)
            for part in self.parts
            for name in part.variants
            for network in part.networks
        )

    def readings(self) -> tuple[CenterReading, ...]:
        """Return the measurements, one per training."""
        return tuple(CenterReading(job) for job in self.jobs())

    def _base(self, network: str, pixels: str) -> RepresentationTraining:
        return RepresentationTraining(
            network, 0, self.data, self.train_size, pixels, self.epochs, self.seed, self.sha256
        )
