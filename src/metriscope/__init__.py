"""Measure what a neural network measures.

Names load when they are first used: importing the package draws nothing, reads nothing, and stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metriscope import probes
    from metriscope.nn import (
        Abs,
        Mahalanobis,
        Neg,
        OffsetL2,
        abs_to_relu,
        architectures,
        build,
        init_from_clusters,
        init_through_points,
        relu_to_abs,
    )

__version__ = "0.1.0"

__all__ = [
    "Abs",
    "Mahalanobis",
    "Neg",
    "OffsetL2",
    "abs_to_relu",
    "architectures",
    "build",
    "init_from_clusters",
    "init_through_points",
    "probes",
    "relu_to_abs",
]


def __getattr__(name: str) -> Any:
    if name == "probes":
        return import_module("metriscope.probes")
    if name in __all__:
        return getattr(import_module("metriscope.nn"), name)
    raise AttributeError(f"module 'metriscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
