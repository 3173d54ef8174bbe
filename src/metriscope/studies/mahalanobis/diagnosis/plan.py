"""What a diagnosis asks, with every number that decides an outcome."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.mahalanobis.plan import NAME, Training

__all__ = ["OUTCOMES", "Diagnosis"]

OUTCOMES = {
    "exact": "learned the distance",
    "out of reach": "was still descending: another optimizer goes on where Adam's epochs ended",
    "true minimum": "stands at a local minimum: every direction curves up or is a symmetry",
    "saddle": "stands at a saddle that Adam did not leave",
    "stationary": "stands still; its curvature was not computed (too many parameters)",
}


@dataclass(frozen=True)
class Diagnosis:
    """Why each trial of a training ended as it did.

    A loss under ``exact`` of what one lost direction costs counts as learned. L-BFGS must lower the loss by
    ``descent`` before a trial counts as still descending. A curvature below minus ``downward`` of the largest counts as
    downward, since symmetries make exact zeros. With more than ``large`` parameters the Hessian is left out.
    """

    training: Training
    exact: float = 0.02
    descent: float = 0.1
    downward: float = 1e-5
    difference: float = 1e-5
    iterations: int = 1_000
    memory: int = 30
    ftol: float = 1e-12
    gtol: float = 1e-9
    large: int = 1_000
    large_iterations: int = 60
    lost: float = 0.1
    method: int = 1  # raised when the same request would give other outcomes
    study: str = NAME
