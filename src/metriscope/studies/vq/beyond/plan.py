"""What is asked beyond the paper: the course of training, depths at equal size, and Abs in place of ReLU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from metriscope.studies.vq.digits.plan import PAIRS, PLAIN_DIGITS, Digits
from metriscope.studies.vq.moons.plan import PLAIN, Moons
from metriscope.studies.vq.networks.plan import STUDY, Group, Recipe, Shape, matched_width

__all__ = ["Beyond", "Course", "Ranks"]


@dataclass(frozen=True)
class Course:
    """Alignment with the final network at each kept epoch; of groups on images, also with each other.

    Groups on the moons are compared on the unit disc of a grid, those on images on the test images.
    """

    groups: tuple[Group, ...]
    grid: int = 0
    estimator: str = "debiased"
    method: int = 2  # raised when the same networks would be measured otherwise
    study: str = STUDY


@dataclass(frozen=True)
class Ranks:
    """The rank of one group's kernels on the unit disc of a grid, and their separation of new points."""

    group: Group
    grid: int
    components: int = 2
    method: int = 1
    study: str = STUDY


@dataclass(frozen=True)
class Beyond:
    """The experiments of figures 1 and 3 once more: over epochs, at other depths, and with Abs."""

    moons: Moons
    digits: Digits
    plain: Recipe = PLAIN
    plain_digits: Recipe = PLAIN_DIGITS
    # About this many weights whatever the depth: the widths that come nearest lie within 2 % of it.
    budget: int = 4_834
    depths: tuple[int, ...] = (1, 2, 3, 4, 6)

    @property
    def abs_moons(self) -> Moons:
        """Figure 1 with Abs."""
        return replace(self.moons, shape=replace(self.moons.shape, activation="abs"), recipe=self.plain)

    @property
    def abs_digits(self) -> Digits:
        """Figures 3 and 4 with Abs; chance is asked for where the claim is judged, and is the same for other units."""
        plain = replace(self.digits, activation="abs", recipe=self.plain_digits, roles=("first",))
        return replace(plain, pairs=PAIRS, permutations=0)

    def deep(self, depth: int) -> Moons:
        """Return figure 1 with networks that have ``depth`` hidden layers and the budget's parameters."""
        shape = Shape(2, depth, matched_width(2, depth, self.budget))
        return replace(self.moons, shape=shape, recipe=self.plain, grid=self.moons.grid // 3)

    def jobs(self) -> tuple[Group, ...]:
        """Return the trainings that no other experiment asks for."""
        depths = [group for depth in self.depths for group in self.deep(depth).jobs()]
        return (*self.abs_digits.jobs(), *self.abs_moons.jobs(), *depths)

    def courses(self) -> tuple[Course, ...]:
        """Return the measurements during training, those of the moons first."""
        moons = [Course((group,), self.moons.grid // 2) for group in self.moons.jobs()]
        return (*moons, *(Course(groups) for groups in self.digits.together()))

    def ranks(self, depth: int) -> tuple[Ranks, ...]:
        """Return the measurements of networks of one depth."""
        part = self.deep(depth)
        return tuple(Ranks(group, part.grid) for group in part.jobs())
