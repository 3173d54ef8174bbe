"""What can be measured on a trained linear layer."""

from metriscope.probes.hyperplanes import MirroredPair, centering, mirrored_pairs
from metriscope.probes.whitening import (
    EigenRecovery,
    LostDirections,
    MetricRank,
    eigen_recovery,
    lost_directions,
    metric_error,
    metric_rank,
    sphericity,
)

__all__ = [
    "EigenRecovery",
    "LostDirections",
    "MetricRank",
    "MirroredPair",
    "centering",
    "eigen_recovery",
    "lost_directions",
    "metric_error",
    "metric_rank",
    "mirrored_pairs",
    "sphericity",
]
