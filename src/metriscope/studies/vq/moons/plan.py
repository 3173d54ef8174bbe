"""Networks on two moons, in the plane (figure 1) and in 100 dimensions (figure 2), and what is measured on them."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.vq.networks.plan import PLANE, STUDY, Group, MLPShape, MoonPoints, VQRecipe, blocks

__all__ = [
    "COMPARISONS",
    "DISTANCES",
    "KERNEL_MEASURES",
    "PLACES",
    "PLAIN",
    "SEPARATION_MEASURES",
    "SPHERE_ROLES",
    "Moons",
    "Rotation",
    "Separation",
    "spheres",
]

SHAPE = MLPShape(2, 3, 96)
# Full-batch steps: the loss of separable moons falls for ever, so that "to convergence" needs a rule of its own.
MOONS = VQRecipe(epochs=800, loss="bce", kept=(3, 10, 30, 60, 100, 200, 300, 500))
PLAIN = VQRecipe(epochs=800, loss="bce")
# A network has converged on the moons if its mean loss is under this: every point is right by a wide margin.
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
    """Kernels of one group's networks compared on the unit disc of a grid, as they are and rotated back."""

    group: Group
    grid: int
    components: int = 3
    estimator: str = "debiased"
    method: int = 2  # raised when the same networks would be measured otherwise
    study: str = STUDY


@dataclass(frozen=True)
class Separation:
    """How well one group's kernels separate the classes, in a scaling of ``components`` dimensions, and their rank."""

    group: Group
    components: int = 2
    method: int = 1  # raised when the same networks would be measured otherwise
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
