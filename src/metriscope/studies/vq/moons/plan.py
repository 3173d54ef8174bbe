"""The networks of figure 1, on moons and on turned moons, and the comparisons of their kernels."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.vq.networks.plan import PLANE, STUDY, Group, MoonPoints, Recipe, Shape, blocks

__all__ = ["COMPARISONS", "CONVERGED", "MEASURES", "MOONS", "PLAIN", "Moons", "Turning"]

SHAPE = Shape(2, 3, 96)
# Full-batch steps: the loss of separable moons falls for ever, so that "to convergence" needs a rule of its own.
MOONS = Recipe(epochs=800, loss="bce", kept=(3, 10, 30, 60, 100, 200, 300, 500))
PLAIN = Recipe(epochs=800, loss="bce")
# A network has converged on the moons if its mean loss is under this: every point is right by a wide margin.
CONVERGED = 0.01

# Each comparison is between the first network and another, at the end or at the start of training.
COMPARISONS = {
    "back": "turned data, turned back",
    "ceiling": "same data, another start",
    "still": "turned data, not turned back",
    "start back": "before training, turned back",
    "start": "before training, not turned back",
}
MEASURES = {
    "overlap": "eigenspace overlap",
    "cosine": "eigenvector |cosine|",
    "alignment": "centered alignment",
}


@dataclass(frozen=True)
class Turning:
    """Kernels of one group's networks compared on the unit disc of a grid, as they are and turned back."""

    group: Group
    grid: int
    components: int = 3
    estimator: str = "debiased"
    method: int = 2  # raised when the same networks would be measured otherwise
    study: str = STUDY


@dataclass(frozen=True)
class Moons:
    """Networks of one shape on the moons: two starts on the same data, and one on the turned data."""

    seeds: int
    seed: int = 0
    shape: Shape = SHAPE
    recipe: Recipe = MOONS
    points: MoonPoints = PLANE
    grid: int = 96
    converged: float = CONVERGED

    def jobs(self) -> tuple[Group, ...]:
        """Return the trainings."""
        roles = ("first", "second", "turned")
        some = blocks(self.seeds)
        return tuple(Group("moons", self.shape, self.recipe, roles, b, self.points, self.seed) for b in some)

    def turnings(self) -> tuple[Turning, ...]:
        """Return the comparisons, one specification per training."""
        return tuple(Turning(group, self.grid) for group in self.jobs())
