"""The diagnosis of a trial as a job: thresholds, and the outcomes that it tells apart."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.mahalanobis.plan import EXACT, NAME, DistanceTraining

__all__ = ["OUTCOMES", "Diagnosis"]

OUTCOMES = {
    "exact": "learned the distance",
    "reaches exact": "was still descending; a second optimizer that continues from there learns the distance",
    "descends elsewhere": "was still descending; a second optimizer reaches another stationary point, not exact either",
    "true minimum": "is at a local minimum: every direction curves up or is a symmetry",
    "saddle": "is at a saddle that neither optimizer left",
    "stationary": "is at a stationary point whose curvature was not computed (too many parameters)",
    "not converged": "has too large a gradient, even after the second optimizer's iterations, to tell where it ends",
}


@dataclass(frozen=True)
class Diagnosis:
    """Why each trial of a training ended as it did.

    A loss below ``exact`` times the loss of one lost direction counts as learned. At a stationary point no component of
    the gradient exceeds ``gradient``, in whitened coordinates. A trial counts as still descending if the second
    optimizer lowers its loss by the share ``descent``. A curvature counts as downward if it is below minus ``downward``
    times the largest one, since symmetries make exact zeros. Networks of more than ``large`` parameters get fewer
    iterations, and their Hessian is not computed.
    """

    training: DistanceTraining
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
