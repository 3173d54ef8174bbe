"""Diagnose failed trials: L-BFGS continues from where Adam stopped until the gradient vanishes; then curvature follows.

Axes: N points, D features (the last is the constant 1), K units. Everything is computed in float64, with the
closed-form gradient and in whitened coordinates. Stationary points and the signs of curvatures do not depend on the
coordinates; the path of the optimizer does.

If L-BFGS lowers the loss, the trial had not converged; it may then reach the exact distance or another stationary
point. If the loss stays, the trial is at a stationary point: a true minimum if no direction curves down, else a saddle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import nn

from metriscope import functional, probes
from metriscope.common.threads import in_parallel, one_blas_thread
from metriscope.runs import Result, Run
from metriscope.studies.mahalanobis.experiments import Diagnosis
from metriscope.studies.mahalanobis.train import DistanceProblem, draw_problem
from metriscope.studies.mahalanobis.trials import TrainedDistance, mse, networks, one_lost, shares

__all__ = ["diagnose", "diagnosed", "loss_and_gradient"]

# The activations that have a metric to lose.
DIAGNOSED = ("abs", "relu")
WHERE = ("dim", "start", "activation", "trial")
FOUND = ("outcome", "loss", "polished", "lost", "lost_polished", "gradient", "curvature", "reach", "needed")
Data = tuple[np.ndarray, np.ndarray]


def loss_and_gradient(
    planes: Float[np.ndarray, "k d"], x: Float[np.ndarray, "n d"], y: Float[np.ndarray, n], activation: str
) -> tuple[float, np.ndarray]:
    """Return the mean squared error of a distance network and its gradient.

    >>> loss, gradient = loss_and_gradient(np.ones((1, 2)), np.array([[2.0, 1.0]]), np.array([1.0]), "abs")
    >>> loss, gradient.tolist()
    (4.0, [[8.0, 4.0]])
    """
    z = x @ planes.T
    # f(z) f'(z), whose square is that of f(z).
    a = np.maximum(z, 0) if activation == "relu" else z
    distance = np.sqrt(np.square(a).sum(1))
    residual = distance - y
    factors = np.divide(2 * residual, len(y) * distance, out=np.zeros_like(distance), where=distance > 0)
    return float(np.square(residual).mean()), (a * factors[:, None]).T @ x


def diagnosed(spec: Diagnosis, run: Run) -> Result:
    """Return one row per network of a training whose activation has a metric to lose."""
    with one_blas_thread():
        table = diagnose(networks(run, spec.training), draw_problem(spec.training.task), spec)
    return Result({"diagnosis": table})


def diagnose(trained: list[TrainedDistance], problem: DistanceProblem, spec: Diagnosis) -> pd.DataFrame:
    """Return one row per network that has a metric to lose."""
    # The training points in whitened coordinates, with a column of ones, and their true distances.
    points = (problem.x.double() - problem.gaussian.mean) @ functional.whitening_factor(problem.gaussian.cov).mT
    data = np.column_stack([points.numpy(), np.ones(len(points))]), problem.y.double().numpy()
    chosen = [network for network in trained if network.activation in DIAGNOSED]
    rows = in_parallel(lambda network: _diagnose(network, problem, data, spec), chosen)
    return pd.DataFrame(rows, columns=[*WHERE, *FOUND])


def _planes(network: TrainedDistance, problem: DistanceProblem) -> np.ndarray:
    """Return the units in whitened coordinates: the same functions of the points."""
    linear, gaussian = network.model.linear, problem.gaussian
    unwhiten = torch.linalg.inv(functional.whitening_factor(gaussian.cov))
    weight, bias = linear.weight.double(), linear.bias.double()
    return torch.column_stack([weight @ unwhiten, weight @ gaussian.mean + bias]).numpy()


def _diagnose(network: TrainedDistance, problem: DistanceProblem, data: Data, spec: Diagnosis) -> tuple[object, ...]:
    """Return the values of the columns ``WHERE`` and ``FOUND``."""
    planes, activation, recipe = _planes(network, problem), network.activation, spec.training.recipe
    loss, _ = loss_and_gradient(planes, *data, activation)
    learned = mse(network.model, problem.x, problem.y) < spec.exact * one_lost(network.dim).loss
    after = planes if learned else _polish(planes, data, activation, spec)
    polished, left = loss_and_gradient(after, *data, activation)
    largest, curvature = float(np.abs(left).max()), float("nan")
    if not learned and largest <= spec.gradient and planes.size <= spec.large:
        curvature = _least_curvature(after, data, activation, spec.difference)
    outcome = "exact" if learned else _outcome(network, (loss, polished, largest, curvature), spec)
    lost = [_lost(p, data, activation, spec) for p in (planes, after)]
    # Every whitening has biases with the norm of the whitened mean; spread evenly, each bias needs this much.
    mean = functional.whitening_factor(problem.gaussian.cov) @ problem.gaussian.mean
    needed = float(torch.linalg.vector_norm(mean)) / network.dim**0.5
    ends = (outcome, loss, polished, *lost, largest, curvature, recipe.lr * recipe.epochs, needed)
    return *(getattr(network, name) for name in WHERE), *ends


def _outcome(network: TrainedDistance, found: tuple[float, float, float, float], spec: Diagnosis) -> str:
    """Return the outcome of a trial that was not exact, from its losses, gradient and curvature (NaN if unknown)."""
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
    # Only a small gradient stops it: a loss that falls slowly is still falling.
    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 0.0, "gtol": spec.gradient, "maxcor": spec.memory}
    call: Any = minimize  # the stubs do not know L-BFGS-B's own options
    found = call(objective, planes.ravel(), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(planes.shape)


def _least_curvature(planes: np.ndarray, data: Data, activation: str, difference: float) -> float:
    """Return the smallest eigenvalue of the Hessian divided by the largest."""
    # Central differences of the exact gradient, with steps in proportion to the parameters.
    steps = np.diag(difference * np.maximum(np.abs(planes.ravel()), 1)).reshape(-1, *planes.shape)
    sides = ([loss_and_gradient(planes + sign * step, *data, activation)[1] for sign in (1, -1)] for step in steps)
    hessian = np.array([(up - down).ravel() / (2 * step.max()) for (up, down), step in zip(sides, steps, strict=True)])
    values = np.linalg.eigvalsh((hessian + hessian.T) / 2)
    return float(values[0] / values[-1])


def _lost(planes: np.ndarray, data: Data, activation: str, spec: Diagnosis) -> int:
    """Return the number of directions to which the units give less than a share of their true squared length."""
    layer = nn.Linear(planes.shape[1] - 1, len(planes), dtype=torch.float64)
    layer.load_state_dict({"weight": torch.from_numpy(planes[:, :-1]), "bias": torch.from_numpy(planes[:, -1])})
    weights = shares(layer, torch.from_numpy(data[0][:, :-1]), activation)
    center, white = torch.zeros(layer.in_features), torch.eye(layer.in_features)
    return layer.in_features - probes.metric_rank(layer, center, white, weights, spec.lost).rank
