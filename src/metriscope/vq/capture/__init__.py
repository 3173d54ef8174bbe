"""Sign patterns: which activations a network calls, and their bits, packed."""

from metriscope.vq.capture.capture import Description, capture, describe
from metriscope.vq.capture.missed import Missed, MissedOperation
from metriscope.vq.capture.patterns import Layer, Patterns, check_same_points
from metriscope.vq.capture.sharding import capture_shards

__all__ = [
    "Description",
    "Layer",
    "Missed",
    "MissedOperation",
    "Patterns",
    "capture",
    "capture_shards",
    "check_same_points",
    "describe",
]
