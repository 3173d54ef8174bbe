"""The moons in 100 dimensions with more and more training points."""

from __future__ import annotations

from dataclasses import dataclass, replace

from metriscope.studies.vq.moons.plan import PLAIN, spheres
from metriscope.studies.vq.networks.plan import STUDY, Group, VQRecipe

__all__ = ["STRUCTURE", "Crowd", "SampleSizes"]

# Kaufman and Rousseeuw (1990) see no substantial structure in a mean silhouette of this or less.
STRUCTURE = 0.25


@dataclass(frozen=True)
class Crowd:
    """Networks trained on one number of points: how well they separate at most ``points`` training and new points."""

    group: Group
    points: int = 1_000
    components: int = 2
    method: int = 1  # raised when the same request would end in other numbers
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
