"""Sixty architectures, and the scores of their kernels before training and after its first epoch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from metriscope.studies.vq.networks.plan import STUDY, Group, Images, MLPShape, VQRecipe

__all__ = ["CONTROLS", "REFERENCE", "SCORES", "USEFUL", "Contest", "Prediction"]

# Larger is expected to be better, for each of them.
SCORES = {
    "naswot": "NASWOT's score before training",
    "rank": "effective rank before training",
    "labels": "alignment with the labels before training",
    "moved": "change of the kernel in the first epoch",
    "labels after": "alignment with the labels after one epoch",
}
# Not a score of the kernel: what one epoch of training tells without it.
REFERENCE = {"early": "training accuracy after one epoch"}
# What an architecture is known by before any network is drawn.
CONTROLS = ("parameters", "depth")
# A partial rank correlation of this size is the least that counts as useful.
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
    method: int = 1  # raised when the same request would end in other numbers
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
