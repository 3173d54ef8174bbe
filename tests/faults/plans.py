"""A plan of every study that takes a second or two: the trainings, and all that is measured on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from metriscope.runs import Driver
from metriscope.studies.contract import study

__all__ = ["Tiny", "tiny"]


@dataclass(frozen=True)
class Tiny:
    """A small plan of a study.

    ``whole`` says whether everything is computed that the page needs; otherwise only the first trainings are.
    """

    name: str
    plan: Any
    whole: bool = True
    most: int | None = None

    def perform(self, driver: Driver) -> None:
        """Compute whatever is missing in the driver's store."""
        own = study(self.name)
        runs = driver.perform(self.plan.jobs()[: self.most], own.train.WORK, "trainings")
        if self.whole:
            own.measure.measure(self.plan, runs, driver)


def _mahalanobis() -> Tiny:
    from metriscope.studies.mahalanobis.plan import MahalanobisOptions, plan

    # 3-D is not in the paper: it has no further Gaussians.
    return Tiny("mahalanobis", plan(MahalanobisOptions(dims=(3,), trials=2, epochs=400, activations=("abs",))))


def _representation() -> Tiny:
    from metriscope.studies.representation.plan import RepresentationOptions, plan

    options = RepresentationOptions(models=("abs", "relu-l2"), seeds=2, epochs=30, train_size=60, pixels="unit")
    return Tiny("representation", plan(options), whole=False)


def _vq() -> Tiny:
    from studies.vq.tiny import tiny as short

    return Tiny("vq", short(), whole=False, most=6)


def _heads() -> Tiny:
    from metriscope.studies.heads.plan import HeadContests, HeadsOptions, Offsets, plan

    runs = (*(("abs-l2-neg", variant) for variant in ("trained", "placed")), ("relu-l2", "trained"))
    offsets = Offsets(seeds=1, epochs=2, train_size=100, runs=runs, reading=(2, (2, 3)))
    return Tiny("heads", replace(plan(HeadsOptions("paper")), offsets=offsets, contests=HeadContests(names=())))


def _initialization() -> Tiny:
    from metriscope.studies.initialization.plan import InitializationPlan, StartContest

    entries = ("kaiming", "points", "clusters")
    mixture = StartContest(
        "mixture-3", "mixture", "relu", entries, "kaiming", 3, (1e-2,), 2, dim=4, starts=2, checks=2, hidden=8,
        component=(50, 20),
    )  # fmt: skip
    gaussian = StartContest(
        "gaussian-2", "gaussian-2", "abs", entries, "points", 1, (1e-2,), 4, dim=2, starts=2, checks=2, gaussians=2,
        sizes=(100, 50),
    )  # fmt: skip
    contests = (mixture, replace(mixture, activation="abs"), gaussian, replace(gaussian, seed=1))
    return Tiny("initialization", InitializationPlan("paper", contests), whole=False)


def _transfer() -> Tiny:
    from metriscope.studies.transfer.plan import REFERENCE, TransferOptions, plan

    whole = plan(TransferOptions("paper", seeds=2, epochs=2))
    kept = [job for job in whole.trainings if job.data == REFERENCE and job.model.startswith("relu")]
    few = tuple(replace(job, train_size=60, sample=40, steps=2) for job in kept)
    return Tiny("transfer", replace(whole, trainings=few), whole=False, most=5)


def _reading() -> Tiny:
    from metriscope.studies.reading.plan import ReadingPlan, ReadNetworks

    first = ReadNetworks("wine", "abs", 2, starts=2, steps=40, hidden=8)
    networks = tuple(replace(first, activation=name, seed=seed) for name in ("abs", "relu", "gelu") for seed in (0, 1))[
        :4
    ]
    return Tiny("reading", ReadingPlan("paper", networks))


PLANS: dict[str, Callable[[], Tiny]] = {
    "mahalanobis": _mahalanobis,
    "representation": _representation,
    "vq": _vq,
    "heads": _heads,
    "initialization": _initialization,
    "transfer": _transfer,
    "reading": _reading,
}


def tiny(name: str) -> Tiny:
    """Return the small plan of a study."""
    return PLANS[name]()
