"""Pure tensor maths: distances, whitening, hyperplanes and the statistics of runs."""

from __future__ import annotations

from metriscope.functional.distances import OffsetForm, mahalanobis, norm, offset_l2
from metriscope.functional.hyperplanes import (
    bias_through,
    deduplicate,
    distance_to_point,
    mirrored_pairs,
    signed_distance,
)
from metriscope.functional.statistics import Summary, summarize
from metriscope.functional.whitening import (
    expected_sphericity,
    learned_covariance,
    principal_axes,
    sphericity,
    whitening_factor,
)

__all__ = [
    "OffsetForm",
    "Summary",
    "bias_through",
    "deduplicate",
    "distance_to_point",
    "expected_sphericity",
    "learned_covariance",
    "mahalanobis",
    "mirrored_pairs",
    "norm",
    "offset_l2",
    "principal_axes",
    "signed_distance",
    "sphericity",
    "summarize",
    "whitening_factor",
]
