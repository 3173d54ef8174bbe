"""Products with matrices of signs, computed from packed bits: at most one block of signs is unpacked at a time.

Axes: N points, B bytes per point, U = 8 B units, K columns. S is the N x U matrix of signs, most significant bit
first; Sc is S with the mean of every column subtracted. The bits that pad a layer's last byte are constant columns:
they are zero in Sc and need no special treatment.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numkong as nk
import numpy as np
from jaxtyping import Float64, Int, Int64, UInt8, UInt32

from metriscope.common.threads import in_parallel, row_slices, workers_available
from metriscope.vq.measures.hamming import compiled, popcount, shared

__all__ = [
    "Differences",
    "ShuffledProducts",
    "differences",
    "products_and_sums",
    "project",
    "sign_products",
    "tables_of",
    "unit_sums",
]

# Transposed bits held at once, in bytes: the points of one pass, all units.
_PASS = 1 << 24
# Signs unpacked at once, in numbers.
_UNPACKED = 1 << 22
# Components looked up together: their tables stay in the second-level cache.
_TOGETHER = 8
_ROWS_AT_ONCE = 512

Rows = Int[np.ndarray, " n"] | None
Packed = UInt8[np.ndarray, "n b"]
Counts = Int64[np.ndarray, "u v"]
Sums = Int64[np.ndarray, " u"]


def unit_sums(packed: UInt8[np.ndarray, "n b"], rows: Rows = None) -> Int64[np.ndarray, " u"]:
    """Return Sᵀ 1, the sum of every unit's signs, over all points or over ``rows``, which may repeat.

    >>> unit_sums(np.array([[0b10000000], [0b11000000]], np.uint8)).tolist()
    [2, 0, -2, -2, -2, -2, -2, -2]
    """
    count = len(packed) if rows is None else len(rows)
    slices = list(row_slices(count, _points_at_once(packed.shape[1])))
    ones = in_parallel(lambda part: _ones(_transposed(_taken(packed, rows, part))), slices)
    return 2 * sum(ones, np.zeros(8 * packed.shape[1], np.int64)) - count


class Products(NamedTuple):
    """Scᵀ Tc, and the sums of signs of the units on either side, Sᵀ 1 and Tᵀ 1."""

    centered: Float64[np.ndarray, "u v"]
    left: Int64[np.ndarray, " u"]
    right: Int64[np.ndarray, " v"]


class Differences(NamedTuple):
    """Integer sums over a set of points: their number, the sums of their signs, and how often two units differ.

    ``different`` counts the points at which two units have different signs.
    """

    points: int
    different: Counts
    left: Sums
    right: Sums

    def plus(self, other: Differences) -> Differences:
        """Return the numbers of both sets of points together."""
        sums = self.left + other.left, self.right + other.right
        return Differences(self.points + other.points, self.different + other.different, *sums)

    def products(self) -> Products:
        """Return Scᵀ Tc and the sums of signs; ``different`` is overwritten."""
        return Products(_centered(self.different, self.left, self.right, self.points), self.left, self.right)


def products_and_sums(a: Packed, b: Packed | None = None, rows: tuple[Rows, Rows] = (None, None)) -> Products:
    """Return Scᵀ Tc and the sums of signs for the signs S of ``a`` and T of ``b`` (T = S if ``b`` is None).

    ``rows`` selects points of each side, in any order and possibly repeated.
    """
    return differences(a, b, rows).products()


def differences(a: Packed, b: Packed | None = None, rows: tuple[Rows, Rows] = (None, None)) -> Differences:
    """Return at how many points each unit of ``a`` differs from each unit of ``b``, or of ``a`` if ``b`` is None.

    Two columns of N signs that differ in d places have the product N - 2 d: the bits are transposed, so that each
    unit is a row of packed points, and the differences are counted exactly.
    """
    count = len(a) if rows[0] is None else len(rows[0])
    shape = 8 * a.shape[1], 8 * (a if b is None else b).shape[1]
    # Differences counted so far, and room for those of one pass.
    total, found = np.zeros(shape, np.int64), np.zeros(shape, np.uint32)
    left, right = np.zeros(shape[0], np.int64), np.zeros(shape[1], np.int64)
    for part in row_slices(count, _points_at_once(max(shape) // 8)):
        units = _transposed(_taken(a, rows[0], part), None)
        left += _ones(units)
        if b is None:
            _count_symmetric(units, total, found)
            continue
        other = _transposed(_taken(b, rows[1], part), None)
        right += _ones(other)
        _count_between(units, other, total, found)
    if b is None:
        _mirror(total)
        right = left
    return Differences(count, total, 2 * left - count, 2 * right - count)


class ShuffledProducts:
    """Products of the units of ``fixed`` with those of ``moved`` while the points of ``moved`` are reordered.

    Work that does not depend on the order is done once: the transposed bits of ``fixed`` and the sums of signs. A
    call of :meth:`centered` uses one thread, so that many orders can be computed in parallel.
    """

    def __init__(self, fixed: Packed, moved: Packed) -> None:
        self._moved = np.ascontiguousarray(moved)
        self._parts = list(row_slices(len(fixed), _points_at_once(max(fixed.shape[1], moved.shape[1]))))
        self._fixed = [_transposed(np.ascontiguousarray(fixed[part]), None) for part in self._parts]
        self._sums = unit_sums(fixed), unit_sums(moved)

    def centered(self, order: Sums, units_at_once: int) -> Iterator[tuple[slice, Float64[np.ndarray, "k v"]]]:
        """Yield slices of the units of ``fixed`` with their products Scᵀ Tc, row i of T being ``moved[order[i]]``."""
        moved = [_transposed(self._moved[order[part]]) for part in self._parts]
        ready = [nk.hammings_pack(each, dtype="uint1") for each in moved]
        left, right = self._sums
        for units in row_slices(len(left), units_at_once):
            different = np.zeros((units.stop - units.start, len(right)), np.int64)
            found = np.empty(different.shape, np.uint32)
            for fixed, packed in zip(self._fixed, ready, strict=True):
                nk.hammings_packed(fixed[units], packed, out=shared(found))
                different += found
            yield units, _centered(different, left[units], right, len(order))


def _centered(different: Counts, left: Sums, right: Sums, count: int) -> Float64[np.ndarray, "u v"]:
    # N times the answer is a whole number: it is computed exactly and rounded once, in the memory of the counts.
    found = different.view(np.float64)
    for rows in row_slices(len(different), _ROWS_AT_ONCE):
        whole = count * count - 2 * count * different[rows] - np.multiply.outer(left[rows], right)
        found[rows] = whole / count
    return found


def _mirror(upper: Int64[np.ndarray, "u u"]) -> None:
    """Write the upper triangle over the lower one."""
    for rows in row_slices(len(upper), _ROWS_AT_ONCE):
        corner = np.triu(upper[rows, rows])
        upper[rows, rows] = corner + np.triu(corner, 1).T
        upper[rows.stop :, rows] = upper[rows, rows.stop :].T


def _points_at_once(bytes_: int) -> int:
    """Return how many points are transposed at once: a multiple of eight."""
    return max(8, min(_PASS // max(1, bytes_), 1 << 16) // 64 * 64)


def _taken(packed: UInt8[np.ndarray, "n b"], rows: Rows, part: slice) -> UInt8[np.ndarray, "k b"]:
    return np.ascontiguousarray(packed[part] if rows is None else packed[rows[part]])


def _count_symmetric(units: Packed, total: Counts, found: UInt32[np.ndarray, "u v"]) -> None:
    out = shared(found)

    def count(rows: slice) -> None:
        nk.hammings_symmetric(units, dtype="uint1", out=out, start_row=rows.start, end_row=rows.stop)
        total[rows, rows.start :] += found[rows, rows.start :]

    in_parallel(count, _equal_areas(len(units), 2 * workers_available()))


def _equal_areas(count: int, parts: int) -> list[slice]:
    """Return row ranges of a triangle of about the same area, in steps of 16 rows."""
    shares = 1 - np.sqrt(1 - np.arange(1, parts) / parts)
    edges = {0, count, *(16 * round(count * share / 16) for share in shares)}
    return [slice(start, stop) for start, stop in pairwise(sorted(edge for edge in edges if edge <= count))]


def _count_between(units: Packed, other: Packed, total: Counts, found: UInt32[np.ndarray, "u v"]) -> None:
    ready, out = nk.hammings_pack(other, dtype="uint1"), shared(found)

    def count(rows: slice) -> None:
        nk.hammings_packed(units, ready, out=out, start_row=rows.start, end_row=rows.stop)
        total[rows] += found[rows]

    step = max(16, -(-len(units) // (2 * workers_available())))
    in_parallel(count, row_slices(len(units), step))


def _transposed(packed: Packed, workers: int | None = 1) -> UInt8[np.ndarray, "u g"]:
    """Return the transposed bits: one row per unit, eight points per byte, zeros after the last point.

    ``workers`` threads share the points; as many as there are cores if None.
    """
    out = np.empty((8 * packed.shape[1], -(-len(packed) // 8)), np.uint8)
    step = max(512, -(-len(packed) // (workers or workers_available()) // 8) * 8)
    in_parallel(lambda rows: _transpose(packed[rows], out, rows.start // 8), row_slices(len(packed), step), workers)
    return out


@compiled
def _transpose(packed: Any, out: Any, first: int) -> None:
    """Write the transposed bits of rows into the bytes of ``out`` from ``first`` on."""
    points, width = packed.shape
    groups = (points + 7) // 8
    for start in range(0, groups, 64):  # 512 points at a time: they are still in the cache when the next byte is read
        for byte in range(width):
            for group in range(start, min(start + 64, groups)):
                word = np.uint64(0)
                for k in range(8 * group, 8 * group + 8):
                    word = (word << np.uint64(8)) | (np.uint64(packed[k, byte]) if k < points else np.uint64(0))
                word = _flip(word)
                for k in range(8):
                    out[8 * byte + k, first + group] = np.uint8(word >> np.uint64(56 - 8 * k))


@compiled
def _flip(word: Any) -> Any:
    """Return the transpose of an 8 x 8 matrix of bits (Warren, Hacker's Delight, 7-3)."""
    swap = (word ^ (word >> np.uint64(7))) & np.uint64(0x00AA00AA00AA00AA)
    word = word ^ swap ^ (swap << np.uint64(7))
    swap = (word ^ (word >> np.uint64(14))) & np.uint64(0x0000CCCC0000CCCC)
    word = word ^ swap ^ (swap << np.uint64(14))
    swap = (word ^ (word >> np.uint64(28))) & np.uint64(0x00000000F0F0F0F0)
    return word ^ swap ^ (swap << np.uint64(28))


@compiled
def _ones(units: Any) -> Any:
    found = np.zeros(units.shape[0], np.int64)
    for unit in range(units.shape[0]):
        row = units[unit]
        total = 0
        for k in range(row.shape[0]):
            total += np.int64(popcount(row[k]))
        found[unit] = total
    return found


def tables_of(axes: Float64[np.ndarray, "u k"]) -> Float64[np.ndarray, "b 256 k"]:
    """Return what each value of each byte adds to ``S axes``."""
    signs = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) * 2.0 - 1
    return signs @ axes.reshape(-1, 8, axes.shape[1])


def project(packed: UInt8[np.ndarray, "n b"], tables: Float64[np.ndarray, "b 256 k"]) -> Float64[np.ndarray, "n k"]:
    """Return ``S axes``, by one look-up for each byte of a point: equal patterns give bit-identical rows."""
    out = np.empty((len(packed), tables.shape[2]))
    for some in row_slices(out.shape[1], _TOGETHER):
        steps = np.ascontiguousarray(tables[:, :, some])

        def look_up(rows: slice, steps: Any = steps, first: int = some.start) -> None:
            _look_up(np.ascontiguousarray(packed[rows]), steps, out[rows], first)

        in_parallel(look_up, row_slices(len(packed), 8 * _ROWS_AT_ONCE))
    return out


@compiled
def _look_up(packed: Any, steps: Any, out: Any, first: int) -> None:
    for i in range(packed.shape[0]):
        for k in range(steps.shape[2]):
            total = 0.0
            for byte in range(packed.shape[1]):
                total += steps[byte, packed[i, byte], k]
            out[i, first + k] = total


def sign_products(packed: UInt8[np.ndarray, "n b"], y: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "u k"]:
    """Return Sᵀ y, a block of signs at a time."""
    total = np.zeros((8 * packed.shape[1], y.shape[1]))
    for rows in row_slices(len(packed), max(1, _UNPACKED // max(1, 8 * packed.shape[1]))):
        total += np.unpackbits(packed[rows], axis=1).T.astype(np.float64) @ y[rows]
    return 2 * total - y.sum(0)
