"""The measurement of centers: one job per trained network. This file imports no tensor library."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.representation.plan import NAME, RepresentationTraining

__all__ = ["DRAWS", "Centers"]

# Resamples of networks for the interval of a rank correlation.
DRAWS = 2_000


@dataclass(frozen=True)
class Centers:
    """Where the outputs of a trained network have their centers, on a sample of training images."""

    training: RepresentationTraining
    sample: int = 2_000
    version: int = 1
    study: str = NAME
