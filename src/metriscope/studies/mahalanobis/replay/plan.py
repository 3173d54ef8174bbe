"""The replay of the published runs as a job."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.mahalanobis.plan import ACTIVATIONS, NAME, PAPER, DistanceRecipe, GaussianTask, author_task

__all__ = ["ReplayedTrials", "replay_of"]


@dataclass(frozen=True)
class ReplayedTrials:
    """The trials of the published runs in one dimension, with the metrics that the author's record prints."""

    task: GaussianTask
    recipe: DistanceRecipe
    trials: int
    activations: tuple[str, ...] = ACTIVATIONS
    method: int = 1  # raised when the same request would give other numbers
    study: str = NAME


def replay_of(dim: int) -> ReplayedTrials:
    """Return the replay of one of the paper's dimensions."""
    size = PAPER[dim]
    return ReplayedTrials(author_task(dim, size.samples), DistanceRecipe(size.epochs), size.trials)
