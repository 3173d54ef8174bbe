"""Two networks on the same points, as numbers: how similar their distances are, and where points disagree.

Axes: N points. Measures of pairs of points use an even sample of the points if there are many.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64, Num

from metriscope import vq
from metriscope.reading.inspection import Places, Subject, centered_places

__all__ = [
    "LEVEL",
    "PERMUTATIONS",
    "Comparison",
    "PointAgreement",
    "agreements",
    "compared",
    "identical",
    "point_agreement",
    "turned",
]

PERMUTATIONS, LEVEL = 200, 0.95


class PointAgreement(NamedTuple):
    """How far two networks agree on each of some points.

    ``agreement`` is the correlation of a point's distances to other points, ``nearest`` its nearest other point.
    """

    rows: Int64[np.ndarray, " k"]
    agreement: Float64[np.ndarray, " k"]
    nearest: tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"]]

    def lowest(self, most: int) -> PointAgreement:
        """Return the points that agree least, those without an agreement last.

        >>> rows = np.arange(3)
        >>> PointAgreement(rows, np.array([0.5, np.nan, 0.1]), (rows, rows)).lowest(2).rows
        array([2, 0])
        """
        order = np.argsort(np.where(np.isnan(self.agreement), np.inf, self.agreement), kind="stable")[:most]
        a, b = self.nearest
        return PointAgreement(self.rows[order], self.agreement[order], (a[order], b[order]))


class Comparison(NamedTuple):
    """Two networks on the same points: alignments, maps, agreement on each point, and whether patterns are equal."""

    whole: vq.Alignment | None
    layers: vq.Alignment | None
    places: tuple[Places | None, Places | None]
    shown: PointAgreement
    same: bool


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
    return Comparison(whole, layers, (first, second), _agreement_of(kernels, rows, rows), identical(p, q))


def identical(p: vq.Patterns, q: vq.Patterns, batch: int = 4096) -> bool:
    """Return whether layers of the same widths have the same signs at every point.

    >>> bits = np.array([[0b10100000], [0b01000000]], np.uint8)
    >>> one, two = (vq.Patterns((vq.Layer(name, 3, "relu"),), bits) for name in ("a", "b"))
    >>> identical(one, two), identical(one, two[::-1])
    (True, False)
    """
    if [layer.width for layer in p.layers] != [layer.width for layer in q.layers] or len(p) != len(q):
        return False
    parts = (slice(start, start + batch) for start in range(0, len(p), batch))
    return all(np.array_equal(p[part].packed, q[part].packed) for part in parts)


def point_agreement(one: Subject, two: Subject, rows: Int64[np.ndarray, " k"]) -> PointAgreement:
    """Return how far two networks agree on some points, by distances to the points that the page shows."""
    others = one.shown_rows()
    kernels = [vq.vq_kernel(each.patterns[rows], each.patterns[others]) for each in (one, two)]
    return _agreement_of(kernels, rows, others)


def _agreement_of(kernels: list[Num[np.ndarray, "k m"]], rows: np.ndarray, others: np.ndarray) -> PointAgreement:
    apart = rows[:, None] != others
    nearest = [others[np.where(apart, kernel, np.inf).argmin(1)] for kernel in kernels]
    return PointAgreement(rows, agreements(kernels[0], kernels[1], apart), (nearest[0], nearest[1]))


def turned(places: Float64[np.ndarray, "n 2"], onto: Float64[np.ndarray, "n 2"]) -> Float64[np.ndarray, "n 2"]:
    """Return places rotated, mirrored and scaled to be as near as possible to other places (Procrustes).

    >>> turned(np.array([[0.0, -2.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [-1.0, 0.0]])).round(6).tolist()
    [[1.0, 0.0], [-1.0, 0.0]]
    """
    u, s, vt = np.linalg.svd(places.T @ onto)
    size = float((places**2).sum())
    return places @ (u @ vt) * (s.sum() / size if size else 1.0) + 0.0


def agreements(
    one: Num[np.ndarray, "n m"], two: Num[np.ndarray, "n m"], apart: Bool[np.ndarray, "n m"]
) -> Float64[np.ndarray, " n"]:
    """Return, for each point, the correlation of its distances in two networks to others; NaN where undefined.

    ``apart`` is False where a row and a column are the same point.

    >>> kernel = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]])
    >>> agreements(kernel, 2 * kernel, ~np.eye(3, dtype=bool)).round(6)
    array([1., 1., 1.])
    """
    counts = apart.sum(1, keepdims=True)
    a, b = (np.where(apart, kernel, 0.0) for kernel in (one, two))
    a, b = (np.where(apart, each - each.sum(1, keepdims=True) / np.maximum(counts, 1), 0.0) for each in (a, b))
    norms = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.divide((a * b).sum(1), norms, out=np.full(len(one), np.nan), where=norms > 0)
