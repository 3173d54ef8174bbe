"""What chance recovers of the principal axes of a Gaussian, as a job."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.mahalanobis.plan import NAME, GaussianTask

__all__ = ["Chance"]


@dataclass(frozen=True)
class Chance:
    """How well randomly rotated whitenings of one Gaussian recover its principal axes: the null distribution of C07.

    ``draws`` rotations are drawn. Their mean over as many rotations as there are trials is drawn ``means`` times;
    ``high`` is the upper quantile of these means that is reported.
    """

    task: GaussianTask
    draws: int = 400
    means: int = 2_000
    high: float = 0.975
    method: int = 1  # raised when the same request would give other numbers
    study: str = NAME
