"""Any network's activation patterns: capture, kernel, embedding, comparison, units, novelty, counts, linear regions."""

from metriscope.vq.capture.capture import Description, capture, describe
from metriscope.vq.capture.patterns import Layer, Patterns, check_same_points
from metriscope.vq.measures.alignment import Alignment, alignment
from metriscope.vq.measures.embedding import VQMDS
from metriscope.vq.measures.heat import heat_cosine, pair_counts
from metriscope.vq.measures.kernel import vq_blocks, vq_kernel
from metriscope.vq.regions.exact import linear_regions
from metriscope.vq.regions.partition import Partition
from metriscope.vq.units.novelty import local_complexity, naswot_score, novelty, pattern_multiplicities, region_count
from metriscope.vq.units.utilization import Utilization, UtilizationTracker, utilization

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
