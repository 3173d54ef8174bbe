"""What chance recovers of the principal axes: the null of the claim that weights recover them."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.mahalanobis.plan import NAME, Task

__all__ = ["Chance"]


@dataclass(frozen=True)
class Chance:
    """Randomly rotated whitenings of one Gaussian, ``draws`` of them.

    Their averages over as many as there are trials are drawn ``means`` times; ``high`` is the quantile of them that is
    shown beside what was measured.
    """

    task: Task
    draws: int = 400
    means: int = 2_000
    high: float = 0.975
    method: int = 1  # raised when the same request would give other numbers
    study: str = NAME
