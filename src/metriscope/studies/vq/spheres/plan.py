"""The networks of figure 2, those trained on random labels, and how separation is measured."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.vq.moons.plan import CONVERGED, PLAIN
from metriscope.studies.vq.networks.plan import STUDY, Group, MoonPoints, Recipe, Shape, blocks

__all__ = ["DISTANCES", "MEASURES", "PLACES", "ROLES", "Separation", "Spheres"]

SHAPE, SPHERE = Shape(100, 3, 64), MoonPoints(dim=100, scale=0.1)
ROLES = ("first", "turned", "shuffled")
DISTANCES = {
    "first": "VQ",
    "turned": "VQ, turned data",
    "euclid": "Euclid",
    "start": "VQ before training",
    "shuffled": "VQ, random labels, by those labels",
    "shuffled true": "VQ, random labels, by true labels",
}
MEASURES = {
    "silhouette": "silhouette on the plane",
    "neighbor": "nearest neighbor, leave one out",
    "rank": "rank, entropy",
    "participation": "rank, participation",
}
PLACES = {"training": "training points", "new": "new points"}


@dataclass(frozen=True)
class Separation:
    """How far one group's kernels have the classes apart, in a scaling of so many components, and their rank."""

    group: Group
    components: int = 2
    method: int = 1  # raised when the same networks would be measured otherwise
    study: str = STUDY


@dataclass(frozen=True)
class Spheres:
    """Networks on moons in 100 dimensions: on the data, on the turned data, and on labels dealt at random."""

    seeds: int
    seed: int = 0
    shape: Shape = SHAPE
    recipe: Recipe = PLAIN
    points: MoonPoints = SPHERE
    converged: float = CONVERGED

    def jobs(self) -> tuple[Group, ...]:
        """Return the trainings."""
        some = blocks(self.seeds)
        return tuple(Group("spheres", self.shape, self.recipe, ROLES, b, self.points, self.seed) for b in some)

    def separations(self) -> tuple[Separation, ...]:
        """Return the measurements, one specification per training."""
        return tuple(Separation(group) for group in self.jobs())
