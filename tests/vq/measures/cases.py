"""Patterns of points that have some geometry, and the plain float64 definitions of every measure."""

from __future__ import annotations

import importlib

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from vq.units.cases import patterns

# The first call of a compiled loop or of a thread pool may take longer than any later one.
patient = settings(max_examples=25)
WIDTHS = ((13,), (8, 16), (5, 21, 1, 9), (130, 70))


def module(name):
    """Return a module of the package whose name a function has taken."""
    return importlib.import_module(f"metriscope.vq.measures.{name}")


def clouds(points, widths, seed=0, noise=0.3):
    """Return patterns of random hyperplanes through a cloud in four dimensions; noise parts equal neighbors."""
    rng = np.random.default_rng(seed)
    cloud = np.random.default_rng(99).normal(size=(points, 4))
    heights = cloud @ rng.normal(size=(4, sum(widths))) + noise * rng.normal(size=(points, sum(widths)))
    return patterns(heights >= rng.normal(size=sum(widths)) / 2, widths)


@st.composite
def cloudy(draw, least=2, most=40):
    return clouds(draw(st.integers(least, most)), draw(st.sampled_from(WIDTHS)), draw(st.integers(0, 999)))


def signs(p):
    return p.signs().astype(np.float64)


def centered(p):
    return signs(p) - signs(p).mean(0)


def columns(p, weights):
    """Return the signs of all units, each times the root of its layer's weight."""
    return signs(p) * np.sqrt(np.repeat(weights, [layer.width for layer in p.layers]))


def distances(a, b=None):
    """Return a quarter of the squared Euclidean distances between rows."""
    b = a if b is None else b
    return np.square(a[:, None] - b[None]).sum(-1) / 4


def scaled(kernel):
    """Return the doubly centered -B / 2 of classical scaling."""
    centering = np.eye(len(kernel)) - 1 / len(kernel)
    return -centering @ kernel @ centering / 2


def aligned(a, b):
    """Return the cosine of two centered kernels, from the kernels themselves."""
    first, second = scaled(distances(a)), scaled(distances(b))
    with np.errstate(invalid="ignore"):
        return (first * second).sum() / (np.linalg.norm(first) * np.linalg.norm(second))


def debiased(a, b):
    """Return the debiased cosine of two kernels by its definition (Song et al. 2007), from the kernels themselves."""
    first, second = (x @ x.T for x in (a, b))
    for kernel in (first, second):
        np.fill_diagonal(kernel, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return unbiased(first, second) / np.sqrt(unbiased(first, first) * unbiased(second, second))


def unbiased(k, m):
    """Return the unbiased HSIC of two kernels with empty diagonals, times n (n - 3)."""
    n = len(k)
    return (k * m).sum() + k.sum() * m.sum() / (n - 1) / (n - 2) - 2 / (n - 2) * (k @ m).sum()


PLAIN = {"debiased": debiased, "biased": aligned}
