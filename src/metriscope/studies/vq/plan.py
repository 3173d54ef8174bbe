"""What the VQ study asks for: every experiment with its trainings and measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from metriscope.studies.vq.beyond.plan import Beyond
from metriscope.studies.vq.digits.plan import Digits
from metriscope.studies.vq.explorer.plan import Explorer
from metriscope.studies.vq.lemmas.plan import Lemmas
from metriscope.studies.vq.moons.plan import Moons
from metriscope.studies.vq.networks.plan import Group, Images
from metriscope.studies.vq.spheres.plan import Spheres

__all__ = ["TIMES", "TITLE", "Options", "Plan", "plan"]

TITLE = "VQ kernels"
TIMES = {"quick": "two minutes on two cores", "paper": "ten minutes on two cores, with full MNIST"}
SEEDS = {"quick": 3, "paper": 10}
# Data set, images for training and for testing.
DIGITS = {"quick": ("mnist-5k", 4_000, 1_000), "paper": ("mnist", 8_000, 2_000)}


@dataclass(frozen=True)
class Options:
    """Options of the VQ study."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: digits from the embedded mnist-5k, or 8,000 and 2,000 images of full MNIST as in the paper."""
    seeds: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: quick: 3; paper: 10)")] = None
    """Repetitions of every experiment, each with data and starts of its own; at least 3."""
    seed: int = 0
    """Root of all random streams."""


OPTIONS = Options


@dataclass(frozen=True)
class Plan:
    """Everything one call of the study will compute."""

    options: Options
    moons: Moons
    spheres: Spheres
    digits: Digits
    lemmas: Lemmas
    beyond: Beyond
    explorer: Explorer

    def jobs(self) -> tuple[Group, ...]:
        """Return the trainings, those that take longest first."""
        parts = (self.digits, self.beyond, self.moons, self.spheres, self.explorer)
        return tuple(group for part in parts for group in part.jobs())

    def deviations(self) -> tuple[str, ...]:
        """Return one sentence for each choice that the paper leaves open or that differs from it."""
        moons, digits = self.moons, self.digits
        found = [
            "The paper prints one network each and no seeds; here every number is a mean over "
            f"{moons.seeds} seeds, each with data and starts of its own.",
            f"“To convergence” is not defined there. Here it is Adam at {moons.recipe.lr:g}: on the moons "
            f"{moons.recipe.epochs:,} steps on all points, which counts as converged under a mean loss of "
            f"{moons.converged:g}; on digits {digits.recipe.epochs} epochs in batches of {digits.recipe.batch}. Tables "
            "say what was reached.",
            "Noise of the moons, scale of the pixels (here 0 to 1) and PyTorch's default start are our choices.",
        ]
        if not digits.protocol:
            images = digits.images
            found.append(
                f"Digits are {images.train:,} and {images.test:,} images of `{images.name}` in place of the paper's "
                "8,000 and 2,000 of MNIST."
            )
        return tuple(found)


def plan(options: Options) -> Plan:
    """Return the plan, or say in one sentence why it cannot be run.

    >>> plan(Options(seeds=4)).moons.seeds
    4
    """
    if options.profile not in SEEDS:
        raise ValueError(f"unknown profile {options.profile!r}: there are {', '.join(SEEDS)}")
    seeds = SEEDS[options.profile] if options.seeds is None else options.seeds
    if seeds < 3:
        raise ValueError(f"--seeds must be at least 3, not {seeds}: tests over seeds need three")
    moons = Moons(seeds, options.seed)
    digits = Digits(seeds, _images(options.profile), options.seed)
    return Plan(
        options,
        moons,
        Spheres(seeds, options.seed),
        digits,
        Lemmas(seeds, options.seed),
        Beyond(moons, digits),
        Explorer(options.seed),
    )


def _images(profile: str) -> Images:
    """Return the profile's digits; nothing is read, and only what is not embedded can be missing."""
    from metriscope.data import available, digest

    name, train, test = DIGITS[profile]
    if not available(name):
        raise ValueError(
            f"the paper profile needs full MNIST: `metriscope data fetch {name}` downloads it, or --data-dir names a "
            "folder that holds it; the quick profile needs no download"
        )
    return Images(name, digest(name), train, test)
