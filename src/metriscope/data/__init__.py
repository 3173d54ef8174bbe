"""Data sets by name, images as points, and synthetic data."""

from metriscope.data.dataset import DataError, DataSet, Labeled
from metriscope.data.images import pixels, read_idx
from metriscope.data.loader import available, digest, fetch, load, mnist_5k
from metriscope.data.registry import names
from metriscope.data.synthetic import Gaussian, random_gaussian, rotate, sphere_moons, two_moons
from metriscope.data.synthetic import turn as turn

__all__ = [
    "DataError", "DataSet", "Gaussian", "Labeled", "available", "digest", "fetch", "load", "mnist_5k", "names",
    "pixels", "random_gaussian", "read_idx", "rotate", "sphere_moons", "two_moons",
]  # fmt: skip
