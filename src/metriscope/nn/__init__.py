"""Layers that measure distances, named networks, exact rewriting, initializers and stacked networks."""

from __future__ import annotations

from metriscope.nn.activations import ACTIVATIONS, Abs, Activation, activation_row
from metriscope.nn.architectures import ARCHITECTURES, HEADS, Architecture, Head, architectures, build
from metriscope.nn.initialization import init_from_clusters as init_from_clusters  # the old name
from metriscope.nn.initialization import init_from_clusters_, init_through_points_
from metriscope.nn.initialization import init_through_points as init_through_points  # the old name
from metriscope.nn.layers import Mahalanobis, Neg, OffsetL2
from metriscope.nn.rewriting import abs_to_relu, relu_to_abs
from metriscope.nn.stacked import stack_state, stacked_forward, unstack

__all__ = [
    "ACTIVATIONS",
    "ARCHITECTURES",
    "HEADS",
    "Abs",
    "Activation",
    "Architecture",
    "Head",
    "Mahalanobis",
    "Neg",
    "OffsetL2",
    "abs_to_relu",
    "activation_row",
    "architectures",
    "build",
    "init_from_clusters_",
    "init_through_points_",
    "relu_to_abs",
    "stack_state",
    "stacked_forward",
    "unstack",
]
