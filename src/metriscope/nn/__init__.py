"""Layers that measure distances, named networks, exact rewriting, initializers and stacked networks."""

from __future__ import annotations

from metriscope.nn.activations import ACTIVATIONS, Abs, AbsReLU, Activation, activation_row
from metriscope.nn.architectures import ARCHITECTURES, Architecture, architectures, build
from metriscope.nn.heads import HEADS, CosineHead, Head, MahalanobisHead, NearestMean, RBFHead, build_head
from metriscope.nn.initialization import init_from_clusters as init_from_clusters  # the old name
from metriscope.nn.initialization import init_from_clusters_, init_head_, init_through_points_
from metriscope.nn.initialization import init_through_points as init_through_points  # the old name
from metriscope.nn.layers import Mahalanobis, Neg, OffsetL2
from metriscope.nn.layerwise import init_lsuv_, init_model_
from metriscope.nn.penalties import (
    PENALTIES,
    Penalty,
    double_soft_orthogonality,
    hyperplane_spread,
    soft_orthogonality,
    srip,
    whitening,
)
from metriscope.nn.rewriting import abs_to_relu, relu_to_abs
from metriscope.nn.stacked import stack_state, stacked_forward, unstack

__all__ = [
    "ACTIVATIONS", "ARCHITECTURES", "HEADS", "PENALTIES", "Abs", "AbsReLU", "Activation", "Architecture", "CosineHead",
    "Head", "Mahalanobis", "MahalanobisHead", "NearestMean", "Neg", "OffsetL2", "Penalty", "RBFHead", "abs_to_relu",
    "activation_row", "architectures", "build", "build_head", "double_soft_orthogonality", "hyperplane_spread",
    "init_from_clusters_", "init_head_", "init_lsuv_", "init_model_", "init_through_points_", "relu_to_abs",
    "soft_orthogonality", "srip", "stack_state", "stacked_forward", "unstack", "whitening",
]  # fmt: skip
