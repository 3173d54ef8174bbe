"""Data that studies and tests draw on."""

from metriscope.data.errors import DataError
from metriscope.data.gaussians import Gaussian, random_gaussian
from metriscope.data.idx import read_idx
from metriscope.data.images import pixels
from metriscope.data.loading import available, digest, fetch, load, mnist_5k
from metriscope.data.moons import sphere_moons, turn, two_moons
from metriscope.data.registry import names
from metriscope.data.sets import DataSet, Labelled

__all__ = [
    "DataError",
    "DataSet",
    "Gaussian",
    "Labelled",
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
