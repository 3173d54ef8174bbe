"""Diagnose failed trials: L-BFGS goes on from where Adam stopped until the gradient is gone; then curvature is read.

Axes: N points, D features (the last is the constant 1), K units. All in float64 with the closed-form gradient, and in
whitened coordinates: stationary points and the signs of curvatures do not depend on coordinates, the way there does.

A trial whose loss falls when L-BFGS takes over had not arrived; where it then goes, to the exact distance or to another
stationary point, is another question. A trial that stays is at a stationary point: a true minimum if no direction
curves down, else a saddle.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from threadpoolctl import threadpool_limits
from torch import nn

from metriscope import functional, probes
from metriscope.common.threads import workers_available
from metriscope.runs import Result, Run
from metriscope.studies.mahalanobis.diagnosis.plan import Diagnosis
from metriscope.studies.mahalanobis.train import Problem, problem
from metriscope.studies.mahalanobis.trials.measure import Trained, networks, one_lost, shares, training_loss

__all__ = ["diagnose", "diagnosed", "loss_and_gradient"]


def _same(z: np.ndarray) -> np.ndarray:
    return z


def _positive(z: np.ndarray) -> np.ndarray:
    return np.maximum(z, 0)


# f(z) f'(z) of the activations that have a metric to lose; its square is that of f(z).
HALVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"abs": _same, "relu": _positive}


@dataclass(frozen=True)
class Outcome:
    """What became of one trial."""

    dim: int
    start: str
    activation: str
    trial: int
    outcome: str
    loss: float
    polished: float
    lost: int
    lost_polished: int
    gradient: float
    curvature: float
    reach: float
    needed: float


def loss_and_gradient(
    planes: Float[np.ndarray, "k d"], x: Float[np.ndarray, "n d"], y: Float[np.ndarray, n], activation: str
) -> tuple[float, np.ndarray]:
    """Return the mean squared error of a distance network and its gradient.

    >>> loss, gradient = loss_and_gradient(np.ones((1, 2)), np.array([[2.0, 1.0]]), np.array([1.0]), "abs")
    >>> loss, gradient.tolist()
    (4.0, [[8.0, 4.0]])
    """
    a = HALVES[activation](x @ planes.T)
    distance = np.sqrt(np.square(a).sum(1))
    residual = distance - y
    factors = np.divide(2 * residual, len(y) * distance, out=np.zeros_like(distance), where=distance > 0)
    return float(np.square(residual).mean()), (a * factors[:, None]).T @ x


def diagnosed(spec: Diagnosis, run: Run) -> Result:
    """Return one row per network of a training that has a metric to lose."""
    with threadpool_limits(limits=1, user_api="blas"):
        table = diagnose(networks(run, spec.training), problem(spec.training.task), spec)
    return Result({"diagnosis": table})


def diagnose(trained: list[Trained], task: Problem, spec: Diagnosis) -> pd.DataFrame:
    """Return one row per network that has a metric to lose."""
    data = _whitened(task)
    chosen = [network for network in trained if network.activation in HALVES]
    with ThreadPoolExecutor(workers_available()) as pool:
        rows = list(pool.map(lambda network: _diagnose(network, task, data, spec), chosen))
    return pd.DataFrame([asdict(row) for row in rows], columns=[field.name for field in fields(Outcome)])


Data = tuple[np.ndarray, np.ndarray]


def _whitened(task: Problem) -> Data:
    """Return the training points in whitened coordinates, with a column of ones, and their true distances."""
    factor = functional.whitening_factor(task.gaussian.cov)
    points = (task.x.double() - task.gaussian.mean) @ factor.mT
    return np.column_stack([points.numpy(), np.ones(len(points))]), task.y.double().numpy()


def _planes(network: Trained, task: Problem) -> np.ndarray:
    """Return the units in whitened coordinates: the same functions of the points."""
    linear, gaussian = network.model.linear, task.gaussian
    unwhiten = torch.linalg.inv(functional.whitening_factor(gaussian.cov))
    weight, bias = linear.weight.double(), linear.bias.double()
    return torch.column_stack([weight @ unwhiten, weight @ gaussian.mean + bias]).numpy()


def _diagnose(network: Trained, task: Problem, data: Data, spec: Diagnosis) -> Outcome:
    planes = _planes(network, task)
    loss, _ = loss_and_gradient(planes, *data, network.activation)
    learned = training_loss(network, task) < spec.exact * one_lost(network.dim).loss
    after = planes if learned else _polish(planes, data, network.activation, spec)
    polished, left = loss_and_gradient(after, *data, network.activation)
    largest = float(np.abs(left).max())
    curvature = float("nan")
    if not learned and largest <= spec.gradient and planes.size <= spec.large:
        curvature = _least_curvature(after, data, network.activation, spec.difference)
    outcome = "exact" if learned else _outcome(network, (loss, polished, largest, curvature), spec)
    where = (network.dim, network.start, network.activation, network.trial)
    lost, lost_after = (_lost(p, data, network.activation, spec) for p in (planes, after))
    reach = spec.training.recipe.lr * spec.training.recipe.epochs
    losses, ends = (loss, polished), (largest, curvature, reach, _needed(network, task))
    return Outcome(*where, outcome, *losses, lost, lost_after, *ends)


def _outcome(network: Trained, found: tuple[float, float, float, float], spec: Diagnosis) -> str:
    """Return what became of a trial that was not exact; a curvature that was not computed is NaN."""
    loss, polished, gradient, curvature = found
    if polished < spec.exact * one_lost(network.dim).loss:
        return "reaches exact"
    if not gradient <= spec.gradient:
        return "not converged"
    if polished < (1 - spec.descent) * loss:
        return "descends elsewhere"
    if np.isnan(curvature):
        return "stationary"
    return "saddle" if curvature < -spec.downward else "true minimum"


def _polish(planes: np.ndarray, data: Data, activation: str, spec: Diagnosis) -> np.ndarray:
    from scipy.optimize import minimize

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = loss_and_gradient(flat.reshape(planes.shape), *data, activation)
        return loss, gradient.ravel()

    steps = spec.large_iterations if planes.size > spec.large else spec.iterations
    if not steps:
        return planes
    # Only the gradient ends it: a loss that falls slowly is still falling.
    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 0.0, "gtol": spec.gradient, "maxcor": spec.memory}
    call: Any = minimize  # the stubs do not know L-BFGS-B's own options
    found = call(objective, planes.ravel(), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(planes.shape)


def _least_curvature(planes: np.ndarray, data: Data, activation: str, difference: float) -> float:
    # Central differences of the exact gradient, with steps in proportion to the parameters.
    steps = np.diag(difference * np.maximum(np.abs(planes.ravel()), 1)).reshape(-1, *planes.shape)
    sides = ([loss_and_gradient(planes + sign * step, *data, activation)[1] for sign in (1, -1)] for step in steps)
    hessian = np.array([(up - down).ravel() / (2 * step.max()) for (up, down), step in zip(sides, steps, strict=True)])
    values = np.linalg.eigvalsh((hessian + hessian.T) / 2)
    return float(values[0] / values[-1])


def _lost(planes: np.ndarray, data: Data, activation: str, spec: Diagnosis) -> int:
    """Return how many directions the units give less than a share of their true squared length."""
    layer = nn.Linear(planes.shape[1] - 1, len(planes), dtype=torch.float64)
    layer.load_state_dict({"weight": torch.from_numpy(planes[:, :-1]), "bias": torch.from_numpy(planes[:, -1])})
    weights = shares(layer, torch.from_numpy(data[0][:, :-1]), activation)
    center, white = torch.zeros(layer.in_features), torch.eye(layer.in_features)
    return layer.in_features - probes.metric_rank(layer, center, white, weights, spec.lost).rank


def _needed(network: Trained, task: Problem) -> float:
    # Whatever whitening is learned, its biases have the norm of the whitened mean; shared evenly it asks least.
    mean = functional.whitening_factor(task.gaussian.cov) @ task.gaussian.mean
    return float(torch.linalg.vector_norm(mean)) / network.dim**0.5
