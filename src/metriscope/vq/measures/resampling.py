"""Jackknife intervals and permutation nulls of an alignment, from the same products as the value itself.

Axes: N points, K points per block, U and V bits of the two networks, L and M groups of bits. S and T are the centered
signs of all points, C = Sᵀ T, and μ and ν are the means of the uncentered signs. Leaving out a point changes the inner
product of the kernels only by terms of the point's own rows s and t: sᵀ C t, sᵀ C ν, tᵀ Cᵀ μ, and the squared lengths
d = |s|² and e = |t|².
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from scipy.special import expit, logit, stdtrit

from metriscope.common.threads import in_parallel, one_blas_thread, row_slices
from metriscope.vq.measures.centered_kernels import (
    NEGLIGIBLE,
    Distances,
    KernelPair,
    Signs,
    Totals,
    by_points,
    ratio,
    row_lengths,
    scale,
    units_at_once,
)
from metriscope.vq.measures.hamming import columns_of, compact_dtype, compiled, write_distances
from metriscope.vq.measures.sign_products import ShuffledProducts, products_and_sums, unit_sums

__all__ = ["LeaveOneOut", "interval_around", "leave_one_out", "shuffled_products"]

# Numbers of a block of points, and distances, held at once; and products of units beyond which distances are used.
_BLOCK, _DISTANCES, _LARGEST = 1 << 19, 1 << 21, 1 << 26
# A folded matrix is zero below its diagonal: it is multiplied in at most this many groups of columns, of at least this
# many columns each, without the rows that are zero in the whole group.
_STEPS, _NARROWEST = 4, 128
# With more points than this, errors are computed in single precision, unless a value is this close to one.
_SINGLE, _NEAR_ONE = 100_000, 0.999
# A value this close to the end of its range has no interval: its uncertainty is smaller than rounding.
_END = 1e-9

Block = Float64[np.ndarray, "k l m"]
Matrix = Float64[np.ndarray, "l m"]


class LeaveOneOut(NamedTuple):
    """Standard errors of the alignments, and for how many left-out points each alignment is undefined."""

    errors: Matrix
    undefined: Matrix


class _Rows(NamedTuple):
    """What some points add to the inner product of each pair of groups."""

    products: Block  # sᵀ C t
    first: Block  # sᵀ C ν
    second: Block  # tᵀ Cᵀ μ
    d: Float64[np.ndarray, "k l"]
    e: Float64[np.ndarray, "k m"]


def leave_one_out(pair: KernelPair, value: Matrix) -> LeaveOneOut:
    """Return the jackknife's standard errors of ``value``, the alignment of the pair."""
    cross, estimator = pair.cross, pair.estimator

    def sums(blocks: Blocks, part: slice) -> tuple[Matrix, Matrix, Matrix]:
        rows, *alone = blocks.at(part)
        first, second = (_norms(each, of, estimator) for each, of in zip(pair.alone, alone, strict=True))
        gaps = ratio(_without(cross, rows, estimator), first, second) - value
        return np.isnan(gaps).sum(0), gaps.sum(0), np.square(gaps).sum(0)

    # A gap is a point's own part of the products, so that single precision is enough unless gaps nearly cancel.
    single = cross.points > _SINGLE and not (np.abs(value) > _NEAR_ONE).any()
    with one_blas_thread():
        blocks = _blocks(pair, np.dtype(np.float32 if single else np.float64))
        found = in_parallel(partial(sums, blocks), blocks.parts, blocks.workers)
    undefined, total, squares = (np.sum(each, axis=0) for each in zip(*found, strict=True))
    # Rounding may put the sum of squares below the part of it that the mean explains.
    spread = np.maximum(squares - total**2 / cross.points, 0)
    return LeaveOneOut(np.sqrt((cross.points - 1) / cross.points * spread), undefined)


def _norms(totals: list[Totals], rows: list[_Rows], estimator: str) -> Float64[np.ndarray, "k l"]:
    return np.concatenate([_kept(*each, estimator) for each in zip(totals, rows, strict=True)], axis=1)


def _kept(total: Totals, rows: _Rows, estimator: str) -> Float64[np.ndarray, "k 1"]:
    """Return a group's squared norm with each point left out in turn; NaN where only rounding error remains."""
    found = _without(total, rows, estimator)[:, :, 0]
    return np.where(found > NEGLIGIBLE * total.energy[0, 0], found, np.nan)


def _without(total: Totals, rows: _Rows, estimator: str) -> Block:
    """Return the inner products with each point left out in turn; the module's docstring defines the symbols."""
    n, de = total.points, rows.d[:, :, None] * rows.e[:, None, :]
    if estimator == "biased":
        return total.energy - 2 * n / (n - 1) * rows.products + (n / (n - 1)) ** 2 * de
    means = total.first[:, None] * total.second
    all_de = total.lengths + n * means
    off_diagonal = total.energy - all_de - 2 * (rows.products - de)
    sums = (2 * rows.d - n * total.first)[:, :, None] * (2 * rows.e - n * total.second)[:, None, :]
    row_sums = all_de - 4 * de - 2 * (rows.first + rows.second) + rows.products
    return off_diagonal + sums / ((n - 2) * (n - 3)) - 2 / (n - 3) * row_sums


class Blocks(NamedTuple):
    """Blocks of points, and for each the rows of the pairs of groups, and those of each group paired with itself.

    ``workers`` is the number of threads that may each work on a block; None for as many as there are cores.
    """

    parts: list[slice]
    at: Callable[[slice], tuple[_Rows, list[_Rows], list[_Rows]]]
    workers: int | None = None


def _blocks(pair: KernelPair, dtype: np.dtype[Any]) -> Blocks:
    sides = pair.sides
    largest = max(sides, key=lambda side: side.bits).bits
    weighted = any(side.roots is not None for side in sides)
    if by_points(*sides) or (largest**2 > _LARGEST and not weighted):
        return _blocks_of_distances(sides)
    return _blocks_of_units(pair, dtype)


@dataclass(frozen=True)
class _Products:
    """C = Sᵀ T for two sides, and its products with the means of their signs."""

    starts: tuple[list[int], list[int]]
    c: Float[np.ndarray, "u v"]
    toward_second: Float[np.ndarray, "u m"]  # C ν, group by group
    toward_first: Float[np.ndarray, "l v"]  # Cᵀ μ, group by group

    @classmethod
    def of(cls, first: Signs, second: Signs, known: Totals) -> _Products:
        """Return the products of two sides, computed again unless their totals have kept them."""
        if known.kept is None:
            found = products_and_sums(first.packed, None if first is second else second.packed)
            c, mu, nu = scale(found.centered, first, second), first.scaled(found.left), second.scaled(found.right)
        else:
            c, mu, nu = known.kept
        toward_second = np.add.reduceat(c * nu, second.starts, axis=1)
        toward_first = np.add.reduceat(c * mu[:, None], first.starts, axis=0)
        return cls((first.starts, second.starts), c, toward_second, toward_first)

    def astype(self, dtype: np.dtype[Any]) -> _Products:
        """Return the same products in another precision."""
        return _Products(self.starts, *(one.astype(dtype) for one in (self.c, self.toward_second, self.toward_first)))

    def folded(self) -> _Products:
        """Return the same quadratic form of one group with itself, all of it on and above the diagonal of C."""
        return replace(self, c=2 * np.triu(self.c, 1) + np.diag(self.c.diagonal()))

    def rows(self, s: _Centered, t: _Centered) -> _Rows:
        """Return what points with these centered signs add."""
        starts, others = self.starts
        shape = len(s.signs), len(starts), len(others)
        products, first, second = (np.empty(shape) for _ in range(3))
        for i, units in enumerate(_spans(starts, s.signs.shape[1])):
            products[:, i] = _group_products(s.signs[:, units] @ self.c[units], t.signs, others)
            first[:, i] = s.signs[:, units] @ self.toward_second[units]
        for j, units in enumerate(_spans(others, t.signs.shape[1])):
            second[:, :, j] = t.signs[:, units] @ self.toward_first[:, units].T
        return _Rows(products, first, second, s.lengths, t.lengths)

    def own_rows(self, s: _Centered) -> _Rows:
        """Return what points add to a group paired with itself, from folded products: zeros are not multiplied."""
        image, width = np.empty_like(s.signs), s.signs.shape[1]
        for units in row_slices(width, max(_NARROWEST, -(-width // _STEPS))):
            np.matmul(s.signs[:, : units.stop], self.c[: units.stop, units], out=image[:, units])
        products = _group_products(image, s.signs, [0])[:, :, None]
        linear = (s.signs @ self.toward_second)[:, :, None]
        return _Rows(products, linear, linear, s.lengths, s.lengths)


class _Centered(NamedTuple):
    """Centered signs of some points, and their squared lengths, group by group."""

    signs: Float[np.ndarray, "k u"]
    lengths: Float64[np.ndarray, "k l"]

    def group(self, index: int, units: slice) -> _Centered:
        """Return one group."""
        return _Centered(self.signs[:, units], self.lengths[:, index : index + 1])


def _group_products(a: np.ndarray, b: np.ndarray, starts: list[int]) -> Float64[np.ndarray, "k m"]:
    """Return the products of rows, group by group."""
    found = [np.einsum("kv,kv->k", a[:, of], b[:, of]) for of in _spans(starts, a.shape[1])]
    return np.stack(found, axis=1).astype(np.float64, copy=False)


def _spans(starts: list[int], stop: int) -> list[slice]:
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], stop], strict=True)]


def _blocks_of_units(pair: KernelPair, dtype: np.dtype[Any]) -> Blocks:
    sides = pair.sides
    cross, tables = _Products.of(*sides, pair.cross).astype(dtype), [_tables(side, dtype) for side in sides]
    alone = [
        [
            _Products.of(group, group, own).folded().astype(dtype)
            for group, own in zip(side.groups(), known, strict=True)
        ]
        for side, known in zip(sides, pair.alone, strict=True)
    ]
    spans = [_spans(side.starts, side.bits) for side in sides]

    def at(part: slice) -> tuple[_Rows, list[_Rows], list[_Rows]]:
        s, t = (_centered(side, table, part) for side, table in zip(sides, tables, strict=True))
        first, second = (
            [own.own_rows(x.group(i, units)) for i, (own, units) in enumerate(zip(each, of, strict=True))]
            for each, of, x in zip(alone, spans, (s, t), strict=True)
        )
        return cross.rows(s, t), first, second

    size = max(1, _BLOCK // max(side.bits for side in sides))
    return Blocks(list(row_slices(len(sides[0].packed), size)), at)


def _tables(side: Signs, dtype: np.dtype[Any]) -> Float[np.ndarray, "b 256 8"]:
    """Return the eight centered signs of every value of each byte."""
    signs = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) * 2.0 - 1
    roots = np.ones(side.bits) if side.roots is None else side.roots
    means = side.scaled(unit_sums(side.packed))
    return (signs * roots.reshape(-1, 1, 8) - means.reshape(-1, 1, 8)).astype(dtype)


def _centered(side: Signs, tables: Float[np.ndarray, "b 256 8"], part: slice) -> _Centered:
    places = side.packed[part] + np.arange(0, 256 * len(tables), 256)
    signs = np.take(tables.reshape(-1, 8), places, axis=0).reshape(len(places), -1)
    return _Centered(signs, _group_products(signs, signs, side.starts))


def _blocks_of_distances(sides: tuple[Signs, Signs]) -> Blocks:
    """Return the rows from distances of points; as e = constant - 2 T ν, the terms S C ν are S Sᵀ e / -2."""
    lengths, tables = [row_lengths(side) for side in sides], [Distances.of(side) for side in sides]
    count, groups = len(sides[0].packed), sum(len(side.spans) for side in sides)

    def at(part: slice) -> tuple[_Rows, list[_Rows], list[_Rows]]:
        kernels = [_kernel(table, length, part) for table, length in zip(tables, lengths, strict=True)]
        first, second = (
            [_rows((k[i : i + 1], k[i : i + 1]), (d[i : i + 1], d[i : i + 1]), part) for i in range(len(k))]
            for k, d in zip(kernels, lengths, strict=True)
        )
        return _rows((kernels[0], kernels[1]), (lengths[0], lengths[1]), part), first, second

    # Distances are computed on all cores already.
    return Blocks(list(row_slices(count, max(1, _DISTANCES // (count * groups)))), at, workers=1)


def _kernel(table: Distances, lengths: Float64[np.ndarray, "l n"], part: slice) -> Float64[np.ndarray, "l k n"]:
    """Return rows of the centered kernel: by the law of cosines 2 s·s' = |s|² + |s'|² - 4 d(s, s')."""
    distances = table.rows(part) + table.middle
    return (lengths[:, part, None] + lengths[:, None, :]) / 2 - 2 * distances


def _rows(kernels: tuple[np.ndarray, np.ndarray], lengths: tuple[np.ndarray, np.ndarray], part: slice) -> _Rows:
    (k, other), (d, e) = kernels, lengths
    products = np.einsum("lkn,mkn->klm", k, other, optimize=True)
    first = np.einsum("lkn,mn->klm", k, e, optimize=True) / -2
    second = np.einsum("mkn,ln->klm", other, d, optimize=True) / -2
    return _Rows(products, first, second, d[:, part].T, e[:, part].T)


class _Scale(NamedTuple):
    """An unbounded scale on which an estimate is closer to normally distributed: transform, inverse and derivative."""

    there: Callable[[np.ndarray], np.ndarray]
    back: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]


# The debiased alignment is a cosine, between -1 and 1; the biased one is a cosine of positive kernels, between 0 and 1.
_SCALES = {
    "debiased": _Scale(np.arctanh, np.tanh, lambda x: 1 / (1 - x * x)),
    "biased": _Scale(logit, expit, lambda x: 1 / (x * (1 - x))),
}


def interval_around(
    value: Matrix, found: LeaveOneOut, points: int, estimator: str, level: float
) -> Float64[np.ndarray, "2 l m"]:
    """Return the interval of each value: Student's t on an unbounded scale, so that its ends stay in the range."""
    there, back, slope = _SCALES[estimator]
    ends = np.array([[[-1.0]], [[1.0]]]) * stdtrit(points - 1, (1 + level) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = back(there(value) + ends * found.errors * slope(value))
    certain = (1 - np.abs(value) < _END) | (found.errors == 0)
    return np.where(found.undefined > 0, np.nan, np.where(certain, value, inside))


# Distances of all pairs of points held at once, in numbers of two or four bytes.
_HELD = 1 << 28
# Looking up the distance of a pair of points costs this many times as much as a product of two units per point.
_LOOK_UP = 100
_ROWS = 64

Order = Int[np.ndarray, " n"]


def shuffled_products(pair: KernelPair, seeds: Sequence[int]) -> Float64[np.ndarray, "p l m"]:
    """Return the inner products of the kernels with the points of the second side shuffled, once per seed."""
    sides, total = pair.sides, pair.cross
    if not seeds:
        return np.empty((0, *total.energy.shape))
    d, e = (lengths - lengths.mean(1, keepdims=True) for lengths in map(row_lengths, sides))
    ways = _Pairs(*sides) if _pairs_are_cheaper(*sides) else _Units(*sides)

    def one(seed: int) -> Matrix:
        order = torch.randperm(total.points, generator=torch.Generator().manual_seed(seed)).numpy()
        lengths = d @ e[:, order].T
        return replace(total, energy=ways.energy(order, lengths), lengths=lengths).product(pair.estimator)

    return np.stack(in_parallel(one, seeds))


def _pairs_are_cheaper(first: Signs, second: Signs) -> bool:
    points, groups = len(first.packed), len(first.spans) * len(second.spans)
    held = points**2 * (len(first.spans) + len(second.spans))
    weighted = first.roots is not None or second.roots is not None
    exact = points**2 * first.bits * second.bits < np.iinfo(np.int64).max
    return not weighted and exact and held <= _HELD and _LOOK_UP * points * groups < first.bits * second.bits


class _Units:
    """Computes the energy |Sᵀ T|² from products of units; the points of the side with fewer bits are reordered."""

    def __init__(self, first: Signs, second: Signs) -> None:
        self._swapped = first.bits < second.bits
        self._fixed, self._moved = (second, first) if self._swapped else (first, second)
        self._products = ShuffledProducts(self._fixed.packed, self._moved.packed)

    def energy(self, order: Order, lengths: Matrix) -> Matrix:
        """Return the energies; reordering one side equals reordering the other by the inverse permutation."""
        backwards = np.argsort(order) if self._swapped else order
        parts = []
        for units, products in self._products.centered(backwards, units_at_once(self._moved)):
            scaled = scale(products, self._fixed, self._moved, units)
            parts.append(np.add.reduceat(np.square(scaled, out=scaled), self._moved.starts, axis=1))
        found: Matrix = np.add.reduceat(np.concatenate(parts), self._fixed.starts, axis=0)
        return found.T if self._swapped else found


class _Pairs:
    """Computes the energy from the distances of all pairs of points, which are computed once and looked up.

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
            # Python's integers: the two are large and nearly equal, so that a float difference would lose digits.
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
