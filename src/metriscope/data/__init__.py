"""Data that studies and tests draw on."""

from metriscope.data.gaussians import Gaussian, random_gaussian

__all__ = ["Gaussian", "random_gaussian"]
