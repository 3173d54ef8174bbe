"""Two networks on the same points, as numbers: how similar their distances are, and where points disagree.

Axes: N points. Measures of pairs of points use an even sample of the points if there are many.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, Num

from metriscope import vq
from metriscope.reading.inspection import Places, Subject, centered_places

__all__ = ["LEVEL", "PERMUTATIONS", "Comparison", "agreements", "compared", "turned"]

PERMUTATIONS, LEVEL = 200, 0.95


class Comparison(NamedTuple):
    """Two networks on the same points: alignments, distances, places side by side, and where points disagree."""

    whole: vq.Alignment | None
    layers: vq.Alignment | None
    rows: Int64[np.ndarray, " k"]
    places: tuple[Places | None, Places | None]
    agreement: Float64[np.ndarray, " k"]
    nearest: tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"]]


def compared(one: Subject, two: Subject) -> Comparison:
    """Return everything that the page of two networks shows."""
    p, q, rows = one.patterns, two.patterns, one.shown_rows()
    kernels = [vq.vq_kernel(each[rows]) for each in (p, q)]
    first, second = (centered_places(kernel) for kernel in kernels)
    if first is not None and second is not None:
        second = Places(turned(second.places, first.places), second.shares)
    whole = layers = None
    if len(p) > 1:
        whole = vq.alignment(p, q, permutations=PERMUTATIONS, interval=LEVEL)
        layers = vq.alignment(p, q, by_layer=True)
    nearest = [(kernel + np.diag(np.full(len(rows), np.inf))).argmin(1) for kernel in kernels]
    return Comparison(whole, layers, rows, (first, second), agreements(*kernels), (nearest[0], nearest[1]))


def turned(places: Float64[np.ndarray, "n 2"], onto: Float64[np.ndarray, "n 2"]) -> Float64[np.ndarray, "n 2"]:
    """Return places rotated, mirrored and scaled to be as near as possible to other places (Procrustes).

    >>> turned(np.array([[0.0, -2.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [-1.0, 0.0]])).round(6).tolist()
    [[1.0, 0.0], [-1.0, 0.0]]
    """
    u, s, vt = np.linalg.svd(places.T @ onto)
    size = float((places**2).sum())
    return places @ (u @ vt) * (s.sum() / size if size else 1.0) + 0.0


def agreements(one: Num[np.ndarray, "n n"], two: Num[np.ndarray, "n n"]) -> Float64[np.ndarray, " n"]:
    """Return, for each point, the correlation of its distances to all others in two networks; NaN where undefined.

    >>> agreements(np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]]), np.array([[0, 2, 4], [2, 0, 6], [4, 6, 0]])).round(6)
    array([1., 1., 1.])
    """
    off = ~np.eye(len(one), dtype=bool)
    a, b = (kernel.astype(np.float64)[off].reshape(len(one), -1) for kernel in (one, two))
    if a.shape[1] < 2:
        return np.full(len(one), np.nan)
    a, b = (each - each.mean(1, keepdims=True) for each in (a, b))
    norms = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.divide((a * b).sum(1), norms, out=np.full(len(one), np.nan), where=norms > 0)
