"""Data that studies and tests draw on."""

from metriscope.data.gaussians import Gaussian, random_gaussian
from metriscope.data.images import mnist_5k

__all__ = ["Gaussian", "mnist_5k", "random_gaussian"]
