"""What the study of initialization runs: every start on every data set, with the same tuning budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from tyro.conf import arg

from metriscope.studies.contract import given_numbers

__all__ = [
    "ACTIVATIONS", "ENTRIES", "KINDS", "NAME", "OPTIONS", "REAL", "TIMES", "TITLE", "InitializationOptions",
    "InitializationPlan", "StartContest", "plan",
]  # fmt: skip

NAME, TITLE = "initialization", "Initialization from data"
TIMES = {"quick": "a second: shows recorded runs", "paper": "about 25 minutes on one core"}
ACTIVATIONS: Mapping[str, str] = {"abs": "Abs", "relu": "ReLU"}
# Starts by name, as pages write them. The number of clusters is that of the classes, of the components, or one for a
# Gaussian; half or double that number; or chosen from the data.
ENTRIES: Mapping[str, str] = {
    "kaiming": "Kaiming",
    "xavier": "Xavier",
    "orthogonal": "Orthogonal",
    "lsuv": "LSUV",
    "points": "Kaiming, through points",
    "clusters": "Clusters",
    "clusters-half": "Clusters, half as many",
    "clusters-double": "Clusters, twice as many",
    "clusters-silhouette": "Clusters by silhouette",
    "clusters-bic": "Clusters by BIC",
    "model": "init_model_",
}
DIMS = (2, 10)
COMPONENTS = range(2, 11)
# Real data sets, with their number of classes and what their features are.
REAL: Mapping[str, tuple[int, str]] = {
    "mnist-5k": (10, "image"),
    "digits": (10, "image"),
    "wine": (3, "table"),
    "breast_cancer": (2, "table"),
    "spambase": (2, "table"),
    "letter": (26, "table"),
    "covertype": (7, "table"),
    "ecg5000": (5, "series"),
}
# Kinds of data, as pages write them.
KINDS: Mapping[str, str] = {
    **{f"gaussian-{dim}": f"Gaussians, {dim}-D" for dim in DIMS},
    "mixture": "mixtures",
    "real": "real data",
}


@dataclass(frozen=True)
class StartContest:
    """All starts on one data set: a learning rate is chosen for each on a validation part, then networks are trained.

    On Gaussians, networks of one layer learn the distance to the mean by full-batch Adam; a job has ``gaussians`` of
    them. On mixtures and real data, networks of two hidden layers learn the class, in mini-batches: at most ``batch``
    points, at least ``fewest`` batches per epoch. Learning rates fall linearly to zero. The loss on new points is
    noted ``checks`` times. The time of each start is the time until it reaches
    the loss that the reference start has halfway.
    """

    data: str
    family: str
    activation: str
    entries: tuple[str, ...]
    reference: str
    right: int
    rates: tuple[float, ...]
    epochs: int
    sha256: str = ""
    dim: int = 0
    gaussians: int = 0
    starts: int = 5
    checks: int = 30
    hidden: int = 64
    batch: int = 128
    fewest: int = 16
    sizes: tuple[int, int] = (3_300, 1_500)  # most training and test points
    component: tuple[int, int] = (250, 200)  # training and test points of a component of a mixture
    spread: float = 1.0  # of the means of a mixture
    tuning: int = 999  # the number of the start on which learning rates are tried
    adam: tuple[float, float, float] = (0.9, 0.999, 1e-8)  # its two betas, and what is added to the root
    seed: int = 0
    version: int = 1  # increased when the same request would give other numbers
    study: str = NAME


@dataclass(frozen=True)
class InitializationPlan:
    """Every contest of the study; the quick profile computes none and shows their records.

    ``missing`` names the data sets that cannot be loaded here without a download and are left out.
    """

    profile: str
    contests: tuple[StartContest, ...]
    missing: tuple[str, ...] = ()

    @property
    def computed(self) -> bool:
        """Whether contests are computed."""
        return self.profile != "quick"

    def jobs(self) -> tuple[StartContest, ...]:
        """Return the contests: none where the record is shown."""
        return self.contests if self.computed else ()


@dataclass(frozen=True)
class InitializationOptions:
    """Options of the study of initialization."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: nothing, and show recorded runs, or all contests."""
    seeds: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 5; Gaussians: 2 on each of 8)")] = (
        None
    )
    """Trainings of each start on each data set."""
    epochs: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 30; Gaussians: 2,000)")] = None
    """Epochs of each training."""
    seed: int = 0
    """Root of all random streams."""


OPTIONS = InitializationOptions


def plan(options: InitializationOptions) -> InitializationPlan:
    """Return the plan of a profile, changed by whatever other options are given.

    >>> len(plan(InitializationOptions("quick")).contests), len(plan(InitializationOptions("quick")).jobs())
    (38, 0)
    """
    given = given_numbers(options, TIMES, {"seeds": 1, "epochs": 1})

    # Imported here, because it imports numpy: invalid options should be rejected before that.
    from metriscope.data import available

    asked = [_changed(contest, given, options.seed) for contest in _contests()]
    missing = tuple(name for name in REAL if options.profile != "quick" and not available(name))
    return InitializationPlan(options.profile, tuple(one for one in asked if one.data not in missing), missing)


def _changed(contest: StartContest, given: Mapping[str, int], seed: int) -> StartContest:
    starts, epochs = given.get("seeds", contest.starts), given.get("epochs", contest.epochs)
    return replace(contest, seed=seed, starts=starts, epochs=epochs, checks=min(epochs, contest.checks))


def _contests() -> list[StartContest]:
    from metriscope.data import digest

    every = tuple(ENTRIES)
    whole = tuple(name for name in every if name != "clusters-half")
    slow, fast = (1e-3, 5e-3, 2e-2), (3e-3, 1e-2, 3e-2)
    found = []
    for activation in ACTIVATIONS:
        for dim in DIMS:
            name = f"gaussian-{dim}"
            shape = StartContest(name, name, activation, whole, "points", 1, fast, 2_000, dim=dim, starts=2)
            found.append(replace(shape, gaussians=8, sizes=(625, 1_000)))
        for count in COMPONENTS:
            name = f"mixture-{count}"
            found.append(StartContest(name, "mixture", activation, every, "kaiming", count, slow, 30, dim=10))
        for name, (classes, _) in REAL.items():
            found.append(StartContest(name, "real", activation, every, "kaiming", classes, slow, 30, digest(name)))
    return found
