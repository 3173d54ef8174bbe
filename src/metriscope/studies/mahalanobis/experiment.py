"""Run the Mahalanobis study's trainings: draw the problem, place the hyperplanes, train a group, store it.

Axes: S trials, N points, D features, K units.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope.data import Gaussian, random_gaussian
from metriscope.nn import Mahalanobis, init_from_clusters, init_through_points
from metriscope.rng import stream
from metriscope.runs import Checkpoint, Run, Store
from metriscope.studies.mahalanobis.spec import NAME, Group
from metriscope.train import Cohort, Protocol, engine_for, fit

__all__ = ["Problem", "cohorts_of", "compute", "network", "problem", "protocol"]

# Seconds between checkpoints; more often where machines are taken away without notice.
CHECKPOINT_SECONDS = float(os.environ.get("METRISCOPE_CHECKPOINT_SECONDS", "10"))


@dataclass(frozen=True)
class Problem:
    """One Gaussian, its training points, and their true distances, in float32 as they are trained on."""

    gaussian: Gaussian
    x: Float[Tensor, "n d"]
    y: Float[Tensor, n]

    def fresh(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return points that no network has seen, and their true distances."""
        x = self.gaussian.sample(count, generator)
        return x.float(), self.gaussian.distance(x).float()


def problem(dim: int, samples: int, seed: int, number: int = 0) -> Problem:
    """Return a dimension's Gaussian of that number and the training points that all its trials share."""
    gaussian = random_gaussian(dim, stream(seed, NAME, dim, "gaussian", number))
    x = gaussian.sample(samples, stream(seed, NAME, dim, "training points", number))
    return Problem(gaussian, x.float(), gaussian.distance(x).float())


def protocol(group: Group) -> Protocol:
    """Return the training recipe of a group."""
    return Protocol(epochs=group.epochs, optimizer="adam", lr=group.lr, betas=group.betas, loss="mse")


def network(group: Group, activation: str, trial: int, x: Float[Tensor, "n d"]) -> Mahalanobis:
    """Return one trial's network before training.

    A random start draws 2D units a trial and gives the first D to Abs, so that all activations begin
    from the same hyperplanes. A start from clusters sees its own resample of the training points:
    otherwise all trials would begin alike.
    """
    here = (group.seed, NAME, group.dim, group.gaussian, "trial", trial)
    model = Mahalanobis(group.dim, activation=activation)
    units = model.linear.out_features
    widest = nn.Linear(group.dim, max(2 * group.dim, units))
    if group.start.clusters is None:
        nn.init.kaiming_normal_(widest.weight, nonlinearity="relu", generator=stream(*here, "weights"))
        init_through_points(widest, x, generator=stream(*here, "points"))
    else:
        rows = torch.randint(len(x), (len(x),), generator=stream(*here, "resample"))
        widest = nn.Linear(group.dim, units)
        init_from_clusters(widest, x[rows], group.start.clusters, generator=stream(*here, "clusters"))
    with torch.no_grad():
        model.linear.weight.copy_(widest.weight[:units])
        model.linear.bias.copy_(widest.bias[:units])
    return model


def compute(group: Group, store: Store, show: Callable[[int], None] | None = None) -> Run:
    """Train a group, from its checkpoint on if it has one, and store it."""
    cohorts = cohorts_of(group)
    checkpoint = store.checkpoint(group)
    _restore(cohorts, checkpoint)
    fit(cohorts, tick=_ticker(cohorts, checkpoint, show))
    tensors = {f"{c.name}/{name}": p[0] for c in cohorts for name, p in c.parameters.items()}
    return store.put(group, tensors, {"study": NAME}, {"history": _history(cohorts)})


def cohorts_of(group: Group) -> list[Cohort]:
    """Return a group's networks before training, each a cohort of its own."""
    task, recipe = problem(group.dim, group.samples, group.seed, group.gaussian), protocol(group)
    cohorts = []
    # The widest networks first: threads that share them out then finish together.
    for activation in reversed(group.activations):
        for trial in group.trials:
            model = network(group, activation, trial, task.x)
            engine = engine_for(model, task.x, task.y, recipe, (trial,))
            state = {name: p[None] for name, p in model.state_dict().items()}
            cohorts.append(Cohort(f"{activation}/{trial}", engine, state, recipe))
    return cohorts


def _restore(cohorts: list[Cohort], checkpoint: Checkpoint) -> None:
    saved = checkpoint.load()
    if saved is not None:
        tensors, meta = saved
        for cohort in cohorts:
            cohort.restore(tensors, int(meta["epoch"]))


def _ticker(cohorts: list[Cohort], checkpoint: Checkpoint, show: Callable[[int], None] | None) -> Callable[[int], None]:
    saved = time.monotonic()

    def tick(epoch: int) -> None:
        nonlocal saved
        if show:
            show(epoch)
        if time.monotonic() - saved >= CHECKPOINT_SECONDS:
            checkpoint.save({k: v for c in cohorts for k, v in c.tensors().items()}, {"epoch": epoch})
            saved = time.monotonic()

    return tick


def _history(cohorts: list[Cohort]) -> pd.DataFrame:
    frames = []
    for cohort in cohorts:
        activation, trial = cohort.name.split("/")
        columns = {"epoch": cohort.recorded, "loss": cohort.history[0].numpy()}
        frames.append(pd.DataFrame({"activation": activation, "trial": int(trial), **columns}))
    return pd.concat(frames, ignore_index=True)
