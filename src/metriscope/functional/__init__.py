"""Pure tensor math: distances, whitening, hyperplanes and the statistics of runs."""

from __future__ import annotations

from metriscope.functional.calibration import (
    Reliability,
    best_temperature,
    expected_calibration_error,
    false_positive_rate,
    reliability,
)
from metriscope.functional.distances import OffsetForm, mahalanobis, norm, offset_l2
from metriscope.functional.hyperplanes import (
    bias_through,
    deduplicate,
    distance_to_point,
    mirrored_pairs,
    signed_distance,
)
from metriscope.functional.ranks import Ranking, rank_methods
from metriscope.functional.statistics import (
    Moments,
    Summary,
    TTest,
    cohens_d,
    holm,
    moments,
    paired_test,
    student_test,
    summarize,
    welch_test,
)
from metriscope.functional.whitening import (
    expected_sphericity,
    learned_covariance,
    principal_axes,
    sphericity,
    whitening_factor,
)

__all__ = [
    "Moments", "OffsetForm", "Ranking", "Reliability", "Summary", "TTest", "best_temperature", "bias_through",
    "cohens_d", "deduplicate", "distance_to_point", "expected_calibration_error", "expected_sphericity",
    "false_positive_rate", "holm", "learned_covariance", "mahalanobis", "mirrored_pairs", "moments", "norm",
    "offset_l2", "paired_test", "principal_axes", "rank_methods", "reliability", "signed_distance", "sphericity",
    "student_test", "summarize", "welch_test", "whitening_factor",
]  # fmt: skip
