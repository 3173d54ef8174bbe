"""Hamming distances between rows of packed bits, on all cores.

Axes: N and M rows, B bytes per row, W words per row. Narrow rows are compared word by word, many columns at once,
by compiled loops; wide rows by numkong. Both release the GIL, so that threads can share the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numkong as nk
import numpy as np
from jaxtyping import Int, Shaped, UInt8, UInt32
from numba import njit
from numba.extending import intrinsic

__all__ = ["Columns", "columns_of", "compact_dtype", "popcount", "shared", "write_distances"]

# Beyond 1,280 bits per row, numkong's blocked products are faster; below, its overhead per pair dominates.
NARROW = 160
# A stretch of one output row and of eight rows of words: it stays in the first-level cache.
_STRETCH = 1024
_STEP = 8
# Bytes of output written before the next rows are begun: pages of fresh memory, which the system fills with zeros when
# they are touched, are then still in the second-level cache.
_CACHED = 1 << 19

compiled = njit(nogil=True, boundscheck=False, error_model="numpy")


def compact_dtype(width: int) -> np.dtype[Any]:
    """Return a small integer type that holds distances of ``width`` bits.

    >>> compact_dtype(32767), compact_dtype(32768)
    (dtype('int16'), dtype('int32'))
    """
    return np.dtype(np.int16 if width <= np.iinfo(np.int16).max else np.int32)


def _popcount(context: Any, word: Any) -> Any:
    """Return the number of ones in a word, in the word's own type."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return word(word), generate


popcount: Any = intrinsic(_popcount)


# Eight words at once: their sum stays in registers between one load and one store of the output. Slices are taken of
# whole contiguous arrays, so that the compiler can see that elements are contiguous, and outside the loop over rows.


@compiled
def _eight(rows: Any, columns: Any, word: int, stretch: Any, out: Any) -> None:
    left, right = stretch
    b0, b1 = columns[word, left:right], columns[word + 1, left:right]
    b2, b3 = columns[word + 2, left:right], columns[word + 3, left:right]
    b4, b5 = columns[word + 4, left:right], columns[word + 5, left:right]
    b6, b7 = columns[word + 6, left:right], columns[word + 7, left:right]
    for i in range(rows.shape[0]):
        a0, a1, a2, a3 = rows[i, word], rows[i, word + 1], rows[i, word + 2], rows[i, word + 3]
        a4, a5, a6, a7 = rows[i, word + 4], rows[i, word + 5], rows[i, word + 6], rows[i, word + 7]
        found = out[i, left:right]
        # Two loops: a condition inside one loop would prevent its vectorization.
        if word == 0:
            for j in range(right - left):
                low = popcount(a0 ^ b0[j]) + popcount(a1 ^ b1[j]) + popcount(a2 ^ b2[j]) + popcount(a3 ^ b3[j])
                high = popcount(a4 ^ b4[j]) + popcount(a5 ^ b5[j]) + popcount(a6 ^ b6[j]) + popcount(a7 ^ b7[j])
                found[j] = low + high
        else:
            for j in range(right - left):
                low = popcount(a0 ^ b0[j]) + popcount(a1 ^ b1[j]) + popcount(a2 ^ b2[j]) + popcount(a3 ^ b3[j])
                high = popcount(a4 ^ b4[j]) + popcount(a5 ^ b5[j]) + popcount(a6 ^ b6[j]) + popcount(a7 ^ b7[j])
                found[j] += low + high


@compiled
def _one(rows: Any, columns: Any, word: int, stretch: Any, out: Any) -> None:
    left, right = stretch
    b = columns[word, left:right]
    for i in range(rows.shape[0]):
        a, found = rows[i, word], out[i, left:right]
        for j in range(right - left):
            found[j] += popcount(a ^ b[j])


@compiled
def _narrow(rows: Any, columns: Any, out: Any) -> None:
    words, count = columns.shape
    whole = words - words % _STEP
    few = max(_STEP, _CACHED // max(1, count * out.itemsize))
    for top in range(0, len(rows), few):
        some, found = rows[top : top + few], out[top : top + few]
        for left in range(0, count, _STRETCH):
            stretch = left, min(count, left + _STRETCH)
            for word in range(0, whole, _STEP):
                _eight(some, columns, word, stretch, found)
            for word in range(whole, words):
                _one(some, columns, word, stretch, found)


@dataclass(frozen=True)
class Columns:
    """Rows of bits prepared for comparison with many others: words by columns, or in numkong's own order."""

    count: int
    dtype: np.dtype[Any]
    words: Shaped[np.ndarray, "w m"] | None = None
    packed: nk.PackedMatrix | None = None


def _words(packed: UInt8[np.ndarray, "n b"], dtype: np.dtype[Any]) -> Shaped[np.ndarray, "n w"]:
    """Return the bytes as at least eight words: as wide as the distances, or narrower for short rows."""
    bytes_ = packed.shape[1]
    word = np.dtype(np.uint16 if dtype.itemsize < 4 or bytes_ <= 2 * _STEP else np.uint32)
    lack = max(_STEP * word.itemsize - bytes_, -bytes_ % word.itemsize)
    padded = np.pad(packed, ((0, 0), (0, lack))) if lack else packed
    return np.ascontiguousarray(padded).view(word)


def columns_of(packed: UInt8[np.ndarray, "m b"], dtype: np.dtype[Any]) -> Columns:
    """Return rows prepared for :func:`write_distances` into arrays of ``dtype``."""
    if packed.shape[1] <= NARROW:
        return Columns(len(packed), dtype, np.ascontiguousarray(_words(packed, dtype).T))
    if not len(packed):
        return Columns(0, dtype)
    return Columns(len(packed), dtype, packed=nk.hammings_pack(np.ascontiguousarray(packed), dtype="uint1"))


def shared(array: UInt32[np.ndarray, "n m"]) -> nk.Tensor:
    """Return numkong's view of an array's memory, to write into."""
    return nk.from_pointer(array.ctypes.data, array.shape, "uint32", owner=array)


def write_distances(rows: UInt8[np.ndarray, "n b"], columns: Columns, out: Int[np.ndarray, "n m"]) -> None:
    """Write the Hamming distances of ``rows`` to ``columns`` into ``out``, a contiguous array of the columns' type."""
    if columns.words is not None:
        _narrow(_words(rows, columns.dtype), columns.words, out)
    elif columns.packed is not None and len(rows):
        found = out.view(np.uint32) if out.dtype == np.int32 else np.empty(out.shape, np.uint32)
        nk.hammings_packed(np.ascontiguousarray(rows), columns.packed, out=shared(found))
        if out.dtype != np.int32:
            out[:] = found
