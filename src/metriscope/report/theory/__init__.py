"""Interactive figures for a page: a network that loses a direction, the scale of a kernel, perturbed units."""

from __future__ import annotations

from metriscope.report.theory.panels import (
    Cloud,
    CountedPair,
    PerturbedNetwork,
    StartInPlane,
    kernel_scale,
    lost_direction,
    perturbation,
    script,
    style,
)

__all__ = [
    "Cloud",
    "CountedPair",
    "PerturbedNetwork",
    "StartInPlane",
    "kernel_scale",
    "lost_direction",
    "perturbation",
    "script",
    "style",
]
