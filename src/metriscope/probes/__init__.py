"""What can be measured on a trained network and its linear layers."""

from metriscope.probes.linear import (
    EigenRecovery,
    MetricRank,
    MirroredPair,
    centering,
    eigen_recovery,
    metric_error,
    metric_rank,
    mirrored_pairs,
    sphericity,
)
from metriscope.probes.perturbation import Perturbation, holding_range, perturbation
from metriscope.probes.perturbation_levels import DEFINITIONS, Definition, perturb
from metriscope.probes.sharpness import sharpness
from metriscope.probes.theory import LostDirections, lost_directions

__all__ = [
    "DEFINITIONS", "Definition", "EigenRecovery", "LostDirections", "MetricRank", "MirroredPair", "Perturbation",
    "centering", "eigen_recovery", "holding_range", "lost_directions", "metric_error", "metric_rank", "mirrored_pairs",
    "perturb", "perturbation", "sharpness", "sphericity",
]  # fmt: skip
