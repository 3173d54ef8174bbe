"""Diagnose failed trials: L-BFGS goes on from where Adam stopped, and the curvature is read.

Axes: N points, D features (the last is the constant 1), K units. All in float64 with the closed-form gradient.

A trial whose loss falls when L-BFGS takes over had not arrived: it was out of Adam's reach, whose steps are
at most about the learning rate, so that a parameter travels at most lr x epochs. A trial that stays is at a
stationary point: a true minimum if no direction curves down, else a saddle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from threadpoolctl import threadpool_limits
from torch import nn

from metriscope import functional, probes
from metriscope.runs import Result, Run
from metriscope.studies.mahalanobis.diagnosis.plan import Diagnosis
from metriscope.studies.mahalanobis.train import Problem, problem
from metriscope.studies.mahalanobis.trials.measure import METRIC_SHARE, Trained, networks

__all__ = ["diagnose", "diagnosed", "loss_and_gradient"]

# f(z) and f(z) f'(z) of the activations that have a metric to lose.
HALVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
}


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
    x = np.column_stack([task.x.double().numpy(), np.ones(len(task.x))])
    y = task.y.double().numpy()
    rows = [_diagnose(network, task, (x, y), spec) for network in trained if network.activation in HALVES]
    return pd.DataFrame([asdict(row) for row in rows])


def _diagnose(network: Trained, task: Problem, data: tuple[np.ndarray, np.ndarray], spec: Diagnosis) -> Outcome:
    planes = _planes(network)
    loss, _ = loss_and_gradient(planes, *data, network.activation)
    exact = spec.exact * probes.lost_directions(max(network.dim, 2), 1).loss
    # For a large network it is enough to see that it still descends; how far would take too long.
    enough = exact if planes.size <= spec.large else (1 - spec.descent) * loss
    polished, after = (loss, planes) if loss < exact else _polish(planes, data, network.activation, enough, spec)
    curvature = float("nan")
    if loss < exact:
        outcome = "exact"
    elif polished < (1 - spec.descent) * loss:
        outcome = "out of reach"
    elif planes.size > spec.large:
        outcome = "stationary"
    else:
        curvature = _least_curvature(after, data, network.activation, spec.difference)
        outcome = "saddle" if curvature < -spec.downward else "true minimum"
    where = (network.dim, network.start, network.activation, network.trial)
    lost = (_lost(planes, network, task, spec), _lost(after, network, task, spec))
    reach = spec.training.recipe.lr * spec.training.recipe.epochs
    return Outcome(*where, outcome, loss, polished, *lost, curvature, reach, _needed(network, task))


def _planes(network: Trained) -> np.ndarray:
    linear = network.model.linear
    return torch.cat([linear.weight, linear.bias[:, None]], dim=1).double().numpy()


def _polish(
    planes: np.ndarray, data: tuple[np.ndarray, np.ndarray], activation: str, enough: float, spec: Diagnosis
) -> tuple[float, np.ndarray]:
    from scipy.optimize import OptimizeResult, minimize

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = loss_and_gradient(flat.reshape(planes.shape), *data, activation)
        return loss, gradient.ravel()

    def stop(intermediate_result: OptimizeResult) -> None:
        if intermediate_result.fun < enough:
            raise StopIteration

    steps = spec.large_iterations if planes.size > spec.large else spec.iterations
    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": spec.ftol, "gtol": spec.gtol, "maxcor": spec.memory}
    start = planes.ravel()
    # The stubs know neither of L-BFGS-B's own options nor of this form of callback.
    call: Any = minimize
    found = call(objective, start, jac=True, method="L-BFGS-B", callback=stop, options=options)
    return float(found.fun), found.x.reshape(planes.shape)


def _least_curvature(
    planes: np.ndarray, data: tuple[np.ndarray, np.ndarray], activation: str, difference: float
) -> float:
    # Central differences of the exact gradient, with steps in proportion to the parameters.
    steps = np.diag(difference * np.maximum(np.abs(planes.ravel()), 1)).reshape(-1, *planes.shape)
    sides = ([loss_and_gradient(planes + sign * step, *data, activation)[1] for sign in (1, -1)] for step in steps)
    hessian = np.array([(up - down).ravel() / (2 * step.max()) for (up, down), step in zip(sides, steps, strict=True)])
    values = np.linalg.eigvalsh((hessian + hessian.T) / 2)
    return float(values[0] / values[-1])


def _lost(planes: np.ndarray, network: Trained, task: Problem, spec: Diagnosis) -> int:
    layer = nn.Linear(network.dim, len(planes), dtype=torch.float64)
    layer.load_state_dict({"weight": torch.from_numpy(planes[:, :-1]), "bias": torch.from_numpy(planes[:, -1])})
    share, gaussian = METRIC_SHARE[network.activation], task.gaussian
    return network.dim - probes.metric_rank(layer, gaussian.mean, gaussian.cov, share, spec.lost).rank


def _needed(network: Trained, task: Problem) -> float:
    # Whatever whitening is learned, its biases have the norm of the whitened mean; shared evenly it asks least.
    mean = functional.whitening_factor(task.gaussian.cov) @ task.gaussian.mean
    return float(torch.linalg.vector_norm(mean)) / network.dim**0.5
