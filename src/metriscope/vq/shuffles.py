"""Inner products of two sign kernels with the points of one of them shuffled: what chance alone would give.

Axes: N points, U, V bits of the networks, L, M groups of them, P permutations. An order changes neither the norm of a
kernel nor the mean length of its rows; only the energy and the sum of products of lengths are found again, and each
thread works on a permutation of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int

from metriscope.rng import stream
from metriscope.vq.bits import ShuffledProducts
from metriscope.vq.centered_kernels import Signs, Totals, row_lengths, scale, units_at_once
from metriscope.vq.hamming import columns_of, compact_dtype, compiled, in_parallel, row_slices, write_distances

__all__ = ["shuffled_products"]

# Distances of all pairs of points held at once, in numbers of two or four bytes.
_HELD = 1 << 28
# A pair of points costs this many times what a product of two units costs per point: a number is looked up, not a bit
# counted.
_LOOK_UP = 100
_ROWS = 64

Order = Int[np.ndarray, " n"]
Matrix = Float64[np.ndarray, "l m"]


def shuffled_products(
    sides: tuple[Signs, Signs], total: Totals, estimator: str, permutations: int, seed: int
) -> Float64[np.ndarray, "p l m"]:
    """Return the inner products of the kernels, the points of the second side in ``permutations`` random orders."""
    if not permutations:
        return np.empty((0, *total.energy.shape))
    d, e = (lengths - lengths.mean(1, keepdims=True) for lengths in map(row_lengths, sides))
    ways = _Pairs(*sides) if _pairs_are_cheaper(*sides) else _Units(*sides)

    def one(i: int) -> Matrix:
        order = torch.randperm(total.points, generator=stream(seed, "permutation", i)).numpy()
        lengths = d @ e[:, order].T
        return replace(total, energy=ways.energy(order, lengths), lengths=lengths).product(estimator)

    return np.stack(in_parallel(one, range(permutations)))


def _pairs_are_cheaper(first: Signs, second: Signs) -> bool:
    points, groups = len(first.packed), len(first.spans) * len(second.spans)
    held = points**2 * (len(first.spans) + len(second.spans))
    weighted = first.roots is not None or second.roots is not None
    exact = points**2 * first.bits * second.bits < np.iinfo(np.int64).max
    return not weighted and exact and held <= _HELD and _LOOK_UP * points * groups < first.bits * second.bits


class _Units:
    """The energy |Sᵀ T|² from products of units; the side with fewer bits is the one that is reordered."""

    def __init__(self, first: Signs, second: Signs) -> None:
        self._turned = first.bits < second.bits
        self._fixed, self._moved = (second, first) if self._turned else (first, second)
        self._products = ShuffledProducts(self._fixed.packed, self._moved.packed)

    def energy(self, order: Order, lengths: Matrix) -> Matrix:
        """Return the energies; to reorder the first side backwards is to reorder the second."""
        backwards = np.argsort(order) if self._turned else order
        parts = []
        for units, products in self._products.centred(backwards, units_at_once(self._moved)):
            scaled = scale(products, self._fixed, self._moved, units)
            parts.append(np.add.reduceat(np.square(scaled, out=scaled), self._moved.starts, axis=1))
        found: Matrix = np.add.reduceat(np.concatenate(parts), self._fixed.starts, axis=0)
        return found.T if self._turned else found


class _Pairs:
    """The energy from the distances of all pairs of points, which are computed once and looked up in every order.

    With distances D and E: |Sᵀ T|² = 4 <D, E> - 4 (Σ D)(Σ E) / N² - N / 2 Σ (d - d̄)(e - ē). The sums are exact.
    """

    def __init__(self, first: Signs, second: Signs) -> None:
        self._first, self._second = ([_distances(group) for group in side.groups()] for side in (first, second))
        self._sums = [[int(each.sum(dtype=np.int64)) for each in side] for side in (self._first, self._second)]

    def energy(self, order: Order, lengths: Matrix) -> Matrix:
        """Return the energies of all pairs of groups."""
        n = len(order)
        middle = np.empty(lengths.shape)
        for i, j in np.ndindex(*lengths.shape):
            inner, product = int(_inner(self._first[i], self._second[j], order)), self._sums[0][i] * self._sums[1][j]
            # Python's integers: the two are large, and nearly the same.
            middle[i, j] = 4 * (n * n * inner - product) / (n * n)
        return middle - n / 2 * lengths


def _distances(group: Signs) -> Int[np.ndarray, "n n"]:
    columns = columns_of(group.packed, compact_dtype(group.widths[0]))
    out = np.empty((len(group.packed), len(group.packed)), columns.dtype)
    slices = row_slices(len(out), _ROWS)
    in_parallel(lambda rows: write_distances(group.packed[rows], columns, out[rows]), slices)
    return out


@compiled
def _inner(first: Any, second: Any, order: Any) -> Any:
    """Return Σ D[i, j] E[order[i], order[j]]; both are symmetric, with zeros on the diagonal."""
    total = np.int64(0)
    for i in range(len(order)):
        row, other = first[i], second[order[i]]
        for j in range(i):
            total += np.int64(row[j]) * np.int64(other[order[j]])
    return 2 * total
