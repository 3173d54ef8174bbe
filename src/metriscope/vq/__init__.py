"""Any network's activation patterns: capture, kernel, embedding, comparison, units, novelty, counts, linear regions."""

from metriscope.vq.capture import Description, Layer, Patterns, capture, check_same_points, describe
from metriscope.vq.measures import VQMDS, Alignment, alignment, heat_cosine, pair_counts, vq_blocks, vq_kernel
from metriscope.vq.regions.exact import linear_regions
from metriscope.vq.regions.partition import Partition
from metriscope.vq.units.novelty import local_complexity, naswot_score, novelty, pattern_multiplicities, region_count
from metriscope.vq.units.utilization import Utilization, UtilizationTracker, utilization

__all__ = ["Description", "Layer", "Patterns", "capture", "check_same_points", "describe"]
__all__ += ["VQMDS", "Alignment", "alignment", "heat_cosine", "pair_counts", "vq_blocks", "vq_kernel"]
__all__ += ["Partition", "linear_regions"]
__all__ += ["local_complexity", "naswot_score", "novelty", "pattern_multiplicities", "region_count"]
__all__ += ["Utilization", "UtilizationTracker", "utilization"]
