"""What can be measured on a trained network and its linear layers."""

from metriscope.probes.hyperplanes import MirroredPair, centering, mirrored_pairs
from metriscope.probes.perturbation import Perturbation, holding_range, perturb, perturbation
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
    "Perturbation",
    "centering",
    "eigen_recovery",
    "holding_range",
    "lost_directions",
    "metric_error",
    "metric_rank",
    "mirrored_pairs",
    "perturb",
    "perturbation",
    "sphericity",
]
