"""Train the networks of the Mahalanobis study: draw the problem, place the hyperplanes, train a few trials.

Axes: S trials, N points, D features, K units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope.data import Gaussian, random_gaussian
from metriscope.nn import Mahalanobis, init_from_clusters_, init_through_points_
from metriscope.rng import cuda_advance, cuda_integers, cuda_normal, cuda_uniform, stream
from metriscope.runs import Result, Work
from metriscope.studies.mahalanobis.plan import NAME, DistanceTraining, GaussianTask
from metriscope.train import Cohort, CohortPass, Protocol, engine_for

__all__ = ["WORK", "DistanceProblem", "cohorts_of", "draw_problem", "network"]


@dataclass(frozen=True)
class DistanceProblem:
    """One Gaussian, its training points and their true distances, in the float32 precision used for training."""

    gaussian: Gaussian
    x: Float[Tensor, "n d"]
    y: Float[Tensor, n]

    def fresh(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return points that no network was trained on, and their true distances."""
        x = self.gaussian.sample(count, generator)
        return x.float(), self.gaussian.distance(x).float()


def draw_problem(task: GaussianTask) -> DistanceProblem:
    """Return a task's Gaussian and the training points that all its trials share."""
    if task.author:
        return _published_problem(task)
    here = (task.seed, NAME, task.dim)
    gaussian = random_gaussian(task.dim, stream(*here, "gaussian", task.gaussian), task.ridge, task.spread)
    x = gaussian.sample(task.samples, stream(*here, "training points", task.gaussian))
    return DistanceProblem(gaussian, x.float(), gaussian.distance(x).float())


def _draws(task: GaussianTask, trial: int = 0) -> tuple[list[int], list[int]]:
    """Return how many numbers each call of the author's program draws, up to a trial, and the offset of each call."""
    dim = task.dim
    counts = [dim, dim * dim, task.samples * dim, *(2 * dim * dim, 2 * dim) * (trial + 1)]
    return counts, [0, *accumulate(cuda_advance(count, task.threads) for count in counts)]


def _published_problem(task: GaussianTask) -> DistanceProblem:
    """Return the published Gaussian and its training points, computed in the precision that the author used."""
    (many, entries, values, *_), (first, second, third, *_) = _draws(task)
    mean = cuda_uniform(many, task.seed, first, task.threads) * 2 * task.spread - task.spread
    root = cuda_normal(entries, task.seed, second, task.threads).reshape(task.dim, task.dim)
    cov = root @ root.mT + task.ridge * torch.eye(task.dim)
    cov = cov / torch.linalg.eigvalsh(cov)[-1]
    noise = cuda_normal(values, task.seed, third, task.threads).reshape(task.samples, task.dim)
    x = mean + noise @ torch.linalg.cholesky(cov).mT
    centered = x - mean
    distance = (centered @ torch.linalg.inv(cov) * centered).sum(1).sqrt()
    return DistanceProblem(Gaussian(mean, (cov + cov.mT) / 2), x, distance)


def _published_start(task: GaussianTask, trial: int, x: Float[Tensor, "n d"]) -> tuple[Tensor, Tensor]:
    """Return the weights and biases with which a published trial began."""
    counts, offsets = _draws(task, trial)
    weight = cuda_normal(counts[-2], task.seed, offsets[-3], task.threads).reshape(2 * task.dim, task.dim)
    weight = weight * (2 / task.dim) ** 0.5
    rows = cuda_integers(counts[-1], task.seed, offsets[-2], task.threads, high=len(x))
    return weight, -(weight * x[rows]).sum(1)


def network(job: DistanceTraining, activation: str, trial: int, x: Float[Tensor, "n d"]) -> Mahalanobis:
    """Return one trial's network before training.

    A random start draws 2D units per trial and gives the first D to Abs, so that all activations begin with the same
    hyperplanes. A start from clusters uses the trial's own bootstrap resample of the training points; otherwise all
    trials would start from the same weights.
    """
    dim = job.task.dim
    here = (job.task.seed, NAME, dim, job.task.gaussian, "trial", trial)
    model = Mahalanobis(dim, job.hidden, activation)
    units = model.linear.out_features
    widest = nn.Linear(dim, max(2 * dim, units))
    if job.start.clusters is None and job.task.author:
        weight, bias = _published_start(job.task, trial, x)
        widest.load_state_dict({"weight": weight, "bias": bias})
    elif job.start.clusters is None:
        nn.init.kaiming_normal_(widest.weight, nonlinearity="relu", generator=stream(*here, "weights"))
        init_through_points_(widest, x, generator=stream(*here, "points"))
    else:
        rows = torch.randint(len(x), (len(x),), generator=stream(*here, "resample"))
        widest = nn.Linear(dim, units)
        init_from_clusters_(widest, x[rows], job.start.clusters, generator=stream(*here, "clusters"))
    with torch.no_grad():
        model.linear.weight.copy_(widest.weight[:units])
        model.linear.bias.copy_(widest.bias[:units])
    return model


def cohorts_of(job: DistanceTraining) -> list[Cohort]:
    """Return a job's networks before training, one cohort per network."""
    problem, recipe = draw_problem(job.task), job.recipe
    protocol = Protocol(recipe.epochs, "adam", recipe.lr, recipe.betas, recipe.eps, loss="mse")
    cohorts = []
    # The widest networks come first, so that the threads that share the work finish at about the same time.
    for activation in reversed(job.activations):
        for trial in job.trials:
            model = network(job, activation, trial, problem.x)
            engine = engine_for(model, problem.x, problem.y, protocol, (trial,))
            state = {name: p[None] for name, p in model.state_dict().items()}
            cohorts.append(Cohort(f"{activation}/{trial}", engine, state, protocol))
    return cohorts


def _begin(jobs: Sequence[DistanceTraining]) -> CohortPass:
    return CohortPass({job: cohorts_of(job) for job in jobs}, _finish)


def _finish(job: DistanceTraining, cohorts: Sequence[Cohort]) -> Result:
    tensors = {f"{c.name}/{name}": p[0] for c in cohorts for name, p in c.parameters.items()}
    frames = []
    for cohort in cohorts:
        activation, trial = cohort.name.split("/")
        columns = {"epoch": cohort.recorded, "loss": cohort.history[0].numpy()}
        frames.append(pd.DataFrame({"activation": activation, "trial": int(trial), **columns}))
    return Result({"history": pd.concat(frames, ignore_index=True)}, tensors)


WORK = Work(_begin)
