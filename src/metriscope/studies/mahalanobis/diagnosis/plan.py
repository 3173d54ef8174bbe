"""What a diagnosis asks, with every number that decides an outcome."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.mahalanobis.plan import EXACT, NAME, Training

__all__ = ["OUTCOMES", "Diagnosis"]

OUTCOMES = {
    "exact": "learned the distance",
    "reaches exact": "was still descending, and a second optimizer that goes on from there learns the distance",
    "descends elsewhere": (
        "was still descending, and a second optimizer goes on to another stationary point that is not exact either"
    ),
    "true minimum": "stands at a local minimum: every direction curves up or is a symmetry",
    "saddle": "stands at a saddle that neither optimizer left",
    "stationary": "stands still; its curvature was not computed (too many parameters)",
    "not converged": "its gradient is still too large after the second optimizer's iterations to say where it goes",
}


@dataclass(frozen=True)
class Diagnosis:
    """Why each trial of a training ended as it did.

    A loss under ``exact`` of what one lost direction costs counts as learned. A stationary point has no component of
    its gradient over ``gradient``, in whitened coordinates. Polishing must lower the loss by ``descent`` before a trial
    counts as still descending. A curvature below minus ``downward`` of the largest counts as downward, since symmetries
    make exact zeros. Networks of more than ``large`` parameters get fewer iterations, and their Hessian is left out.
    """

    training: Training
    exact: float = EXACT
    gradient: float = 1e-6
    descent: float = 0.1
    downward: float = 1e-5
    difference: float = 1e-5
    iterations: int = 2_000
    memory: int = 30
    large: int = 1_000
    large_iterations: int = 60
    lost: float = 0.1
    method: int = 2  # raised when the same request would give other outcomes
    study: str = NAME
