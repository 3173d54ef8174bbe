"""Data that studies and tests draw on."""

from metriscope.data.dataset import DataSet, Labeled
from metriscope.data.images import pixels, read_idx
from metriscope.data.loader import available, digest, fetch, load, mnist_5k
from metriscope.data.locations import DataError
from metriscope.data.registry import names
from metriscope.data.synthetic import Gaussian, random_gaussian, sphere_moons, turn, two_moons

__all__ = [
    "DataError",
    "DataSet",
    "Gaussian",
    "Labeled",
    "available",
    "digest",
    "fetch",
    "load",
    "mnist_5k",
    "names",
    "pixels",
    "random_gaussian",
    "read_idx",
    "sphere_moons",
    "turn",
    "two_moons",
]
