"""Measures on sign patterns: kernels, embeddings, and comparisons of two networks."""

from metriscope.vq.measures.alignment import Alignment, alignment
from metriscope.vq.measures.embedding import VQMDS
from metriscope.vq.measures.heat import heat_cosine, pair_counts
from metriscope.vq.measures.kernel import vq_blocks, vq_kernel
from metriscope.vq.measures.states import AlignmentState, MDSState, PairState

__all__ = [
    "VQMDS",
    "Alignment",
    "AlignmentState",
    "MDSState",
    "PairState",
    "alignment",
    "heat_cosine",
    "pair_counts",
    "vq_blocks",
    "vq_kernel",
]
