"""Interpret neural networks through distances: measure which distances a network has learned.

Names are loaded when they are first used: importing the package is fast, reads no files and draws no random numbers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metriscope import data as data
    from metriscope import functional as functional
    from metriscope import nn as nn
    from metriscope import probes, sklearn
    from metriscope import rng as rng
    from metriscope import vq as vq
    from metriscope.nn import (
        Abs,
        Mahalanobis,
        Neg,
        OffsetL2,
        abs_to_relu,
        architectures,
        build,
        init_from_clusters_,
        init_lsuv_,
        init_model_,
        init_through_points_,
        relu_to_abs,
    )
    from metriscope.reading.layer_novelty import LayerNovelty
    from metriscope.reading.layer_reading import read_layer
    from metriscope.reading.layer_state import LayerState
    from metriscope.reading.similarity import similarity
    from metriscope.reading.training import TrainingTracker
    from metriscope.vq import (
        VQMDS,
        Partition,
        Patterns,
        UtilizationTracker,
        alignment,
        capture,
        describe,
        heat_cosine,
        linear_regions,
        local_complexity,
        naswot_score,
        novelty,
        region_count,
        utilization,
        vq_blocks,
        vq_kernel,
    )

__version__ = "0.1.0"

__all__ = [
    "VQMDS", "Abs", "LayerNovelty", "LayerState", "Mahalanobis", "Neg", "OffsetL2", "Partition", "Patterns",
    "TrainingTracker", "UtilizationTracker", "abs_to_relu", "alignment", "architectures", "build", "capture",
    "describe", "heat_cosine", "init_from_clusters_", "init_lsuv_", "init_model_", "init_through_points_",
    "linear_regions", "local_complexity",
    "naswot_score", "novelty", "probes", "read_layer", "region_count", "relu_to_abs", "similarity",
    "sklearn", "utilization", "vq_blocks", "vq_kernel",
]  # fmt: skip

# Not in ``__all__``: ``from metriscope import *`` must not replace a user's own ``nn`` or ``data``.
_MODULES = ("data", "functional", "nn", "probes", "rng", "sklearn", "vq")
_READING = {
    "LayerNovelty": "layer_novelty",
    "LayerState": "layer_state",
    "TrainingTracker": "training",
    "read_layer": "layer_reading",
    "similarity": "similarity",
}
_OLD_NAMES = ("init_from_clusters", "init_through_points")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"metriscope.{name}")
    if name in _READING:
        return getattr(import_module(f"metriscope.reading.{_READING[name]}"), name)
    if name in __all__ or name in _OLD_NAMES:
        # metriscope.vq imports metriscope.nn anyway, so looking there first costs nothing.
        home = import_module("metriscope.nn")
        return getattr(home if hasattr(home, name) else import_module("metriscope.vq"), name)
    raise AttributeError(f"module 'metriscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__version__"})
