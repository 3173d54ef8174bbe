"""The replay of the published runs as a job."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.mahalanobis.plan import ACTIVATIONS, NAME, PAPER, DistanceRecipe, GaussianTask, author_task

__all__ = ["CHAOTIC", "CLOSE", "LOOSE", "ReplayedTrials", "replay_of"]

# The relative difference that is allowed beside half of the last printed digit.
CLOSE = 1e-3
# Where rounding grows until trials part, only the losses are compared, and more loosely.
CHAOTIC, LOOSE = ((10, "relu"), (10, "sigmoid"), (100, "relu"), (100, "sigmoid")), 0.02


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
