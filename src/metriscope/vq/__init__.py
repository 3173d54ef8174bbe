"""Any network's activation patterns: capture, kernel, embedding, comparison, units, novelty, counts, linear regions."""

from metriscope.vq.capture import (
    Description,
    Layer,
    Missed,
    MissedOperation,
    Patterns,
    capture,
    check_same_points,
    describe,
)
from metriscope.vq.measures import VQMDS, Alignment, alignment, heat_cosine, pair_counts, vq_blocks, vq_kernel
from metriscope.vq.regions.exact import linear_regions
from metriscope.vq.regions.partition import Partition
from metriscope.vq.units.novelty import local_complexity, naswot_score, novelty, pattern_multiplicities, region_count
from metriscope.vq.units.utilization import Utilization, UtilizationTracker, utilization

__all__ = [
    "VQMDS",
    "Alignment",
    "Description",
    "Layer",
    "Missed",
    "MissedOperation",
    "Partition",
    "Patterns",
    "Utilization",
    "UtilizationTracker",
    "alignment",
    "capture",
    "check_same_points",
    "describe",
    "heat_cosine",
    "linear_regions",
    "local_complexity",
    "naswot_score",
    "novelty",
    "pair_counts",
    "pattern_multiplicities",
    "region_count",
    "utilization",
    "vq_blocks",
    "vq_kernel",
]
