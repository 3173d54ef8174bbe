"""Any network's activation patterns: capture, kernel, embedding, comparison, units, novelty, counts, linear regions."""

from metriscope.vq.alignment import Alignment, alignment
from metriscope.vq.capture import Description, capture, describe
from metriscope.vq.counts import local_complexity, naswot_score, pattern_multiplicities, region_count
from metriscope.vq.embedding import VQMDS
from metriscope.vq.heat import heat_cosine, pair_counts
from metriscope.vq.kernel import vq_blocks, vq_kernel
from metriscope.vq.novelty import novelty
from metriscope.vq.partition import Partition
from metriscope.vq.patterns import Layer, Patterns, check_same_points
from metriscope.vq.regions import linear_regions
from metriscope.vq.utilization import Utilization, UtilizationTracker, utilization

__all__ = [
    "VQMDS",
    "Alignment",
    "Description",
    "Layer",
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
