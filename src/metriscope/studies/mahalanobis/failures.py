"""Why a trial failed: a second-order optimiser goes on from where Adam stopped, and the curvature is read.

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
from torch import nn

from metriscope import functional, probes
from metriscope.studies.mahalanobis.experiment import Problem
from metriscope.studies.mahalanobis.measure import METRIC_SHARE, Trained

__all__ = ["OUTCOMES", "Diagnosis", "diagnose", "loss_and_gradient"]

OUTCOMES = {
    "exact": "learned the distance",
    "out of reach": "was still descending: another optimiser goes on where Adam's epochs ended",
    "true minimum": "stands at a local minimum: every direction curves up or is a symmetry",
    "saddle": "stands at a saddle that Adam did not leave",
    "stationary": "stands still; its curvature was not computed (too many parameters)",
}
# A loss under this share of what one lost direction costs counts as learned.
EXACT_SHARE = 0.02
# L-BFGS must lower the loss by this share before a trial counts as still descending.
DESCENT_SHARE = 0.1
# Curvature below minus this share of the largest counts as downward: symmetries make exact zeros.
DOWNWARD_SHARE = 1e-5
ITERATIONS = 1_000
LARGE = 1_000  # parameters beyond which the Hessian is left out and fewer iterations are spent
LARGE_ITERATIONS = 60

# f(z) and f(z) f'(z) of the activations that have a metric to lose.
HALVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
}


@dataclass(frozen=True)
class Diagnosis:
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


def diagnose(trained: list[Trained], task: Problem, reach: float) -> pd.DataFrame:
    """Return one row a network that has a metric to lose; ``reach`` is learning rate times epochs."""
    x = np.column_stack([task.x.double().numpy(), np.ones(len(task.x))])
    y = task.y.double().numpy()
    rows = [_diagnose(network, task, (x, y), reach) for network in trained if network.activation in HALVES]
    return pd.DataFrame([asdict(row) for row in rows])


def _diagnose(network: Trained, task: Problem, data: tuple[np.ndarray, np.ndarray], reach: float) -> Diagnosis:
    planes = _planes(network)
    loss, _ = loss_and_gradient(planes, *data, network.activation)
    exact = EXACT_SHARE * probes.lost_directions(max(network.dim, 2), 1).loss
    # For a large network it is enough to see that it still descends; how far would take too long.
    enough = exact if planes.size <= LARGE else (1 - DESCENT_SHARE) * loss
    polished, after = (loss, planes) if loss < exact else _polish(planes, data, network.activation, enough)
    curvature = float("nan")
    if loss < exact:
        outcome = "exact"
    elif polished < (1 - DESCENT_SHARE) * loss:
        outcome = "out of reach"
    elif planes.size > LARGE:
        outcome = "stationary"
    else:
        curvature = _least_curvature(after, data, network.activation)
        outcome = "saddle" if curvature < -DOWNWARD_SHARE else "true minimum"
    where = (network.dim, network.start, network.activation, network.trial)
    lost = (_lost(planes, network, task), _lost(after, network, task))
    return Diagnosis(*where, outcome, loss, polished, *lost, curvature, reach, _needed(network, task))


def _planes(network: Trained) -> np.ndarray:
    linear = network.model.linear
    return torch.cat([linear.weight, linear.bias[:, None]], dim=1).double().numpy()


def _polish(
    planes: np.ndarray, data: tuple[np.ndarray, np.ndarray], activation: str, enough: float
) -> tuple[float, np.ndarray]:
    from scipy.optimize import OptimizeResult, minimize

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = loss_and_gradient(flat.reshape(planes.shape), *data, activation)
        return loss, gradient.ravel()

    def stop(intermediate_result: OptimizeResult) -> None:
        if intermediate_result.fun < enough:
            raise StopIteration

    steps = LARGE_ITERATIONS if planes.size > LARGE else ITERATIONS
    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-12, "gtol": 1e-9, "maxcor": 30}
    start = planes.ravel()
    # The stubs know neither of L-BFGS-B's own options nor of this form of callback.
    call: Any = minimize
    found = call(objective, start, jac=True, method="L-BFGS-B", callback=stop, options=options)
    return float(found.fun), found.x.reshape(planes.shape)


def _least_curvature(planes: np.ndarray, data: tuple[np.ndarray, np.ndarray], activation: str) -> float:
    # Central differences of the exact gradient, with steps in proportion to the parameters.
    steps = np.diag(1e-5 * np.maximum(np.abs(planes.ravel()), 1)).reshape(-1, *planes.shape)
    sides = ([loss_and_gradient(planes + sign * step, *data, activation)[1] for sign in (1, -1)] for step in steps)
    hessian = np.array([(up - down).ravel() / (2 * step.max()) for (up, down), step in zip(sides, steps, strict=True)])
    values = np.linalg.eigvalsh((hessian + hessian.T) / 2)
    return float(values[0] / values[-1])


def _lost(planes: np.ndarray, network: Trained, task: Problem) -> int:
    layer = nn.Linear(network.dim, len(planes), dtype=torch.float64)
    layer.load_state_dict({"weight": torch.from_numpy(planes[:, :-1]), "bias": torch.from_numpy(planes[:, -1])})
    share, gaussian = METRIC_SHARE[network.activation], task.gaussian
    return network.dim - probes.metric_rank(layer, gaussian.mean, gaussian.cov, share).rank


def _needed(network: Trained, task: Problem) -> float:
    # Whatever whitening is learned, its biases have the norm of the whitened mean; shared evenly it asks least.
    mean = functional.whitening_factor(task.gaussian.cov) @ task.gaussian.mean
    return float(torch.linalg.vector_norm(mean)) / network.dim**0.5
