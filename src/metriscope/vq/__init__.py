"""Any network's activation patterns: capture, kernel, embedding, comparison, units, novelty, counts, linear regions."""

from metriscope.vq.capture import (
    Description,
    Layer,
    Missed,
    MissedOperation,
    Patterns,
    capture,
    capture_shards,
    check_same_points,
    describe,
)
from metriscope.vq.measures import (
    VQMDS,
    Alignment,
    AlignmentState,
    MDSState,
    PairState,
    alignment,
    heat_cosine,
    pair_counts,
    vq_blocks,
    vq_kernel,
)
from metriscope.vq.regions.exact import linear_regions
from metriscope.vq.regions.partition import Partition
from metriscope.vq.units.novelty import local_complexity, naswot_score, novelty, pattern_multiplicities, region_count
from metriscope.vq.units.utilization import Utilization, UtilizationTracker, utilization
from metriscope.vq.units.utilization_state import UtilizationState

__all__ = [
    "VQMDS",
    "Alignment",
    "AlignmentState",
    "Description",
    "Layer",
    "MDSState",
    "Missed",
    "MissedOperation",
    "PairState",
    "Partition",
    "Patterns",
    "Utilization",
    "UtilizationState",
    "UtilizationTracker",
    "alignment",
    "capture",
    "capture_shards",
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
