"""Packing the bits of an activation into bytes, a few rows at a time: there is never a copy of a batch of activations.

Axes: N points, U units, K bits per unit, H = U K bits, B bytes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from tempfile import TemporaryFile
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from metriscope.vq.capture.readings import Levels, Reading, in_numpy
from metriscope.vq.capture.sign_kernel import available, pack_signs

__all__ = ["Pooling", "RowBuffer", "all_finite", "pack_reading", "pack_values", "pool_positions"]

Bits = TypeVar("Bits", Tensor, np.ndarray)

# Bits to work on at once: their values and the bits themselves stay in the processor's cache.
_CHUNK = 1 << 17
_CHUNK_ELSEWHERE = 1 << 26
_GROWTH = 1.3
# Up to this many bytes, rows are copied out of the memory map at the end.
_SMALL = 1 << 20
# From this many bytes on, memory is asked for in huge pages.
_LARGE = 1 << 23


def all_finite(values: Float[np.ndarray, "*n"]) -> bool:
    """Return whether all values are finite, in one pass where their squares are, which is faster than ``isfinite``.

    >>> all_finite(np.array([1.0, 2.0])), all_finite(np.array([1.0, np.nan]))
    (True, False)
    """
    with np.errstate(invalid="ignore", over="ignore"):
        if values.flags.c_contiguous and values.dtype != np.float16:
            flat = values.reshape(-1)
            if np.isfinite(np.dot(flat, flat)):
                return True
        return bool(values.max() < np.inf and values.min() > -np.inf)


@dataclass(frozen=True)
class Pooling:
    """How the positions of a channel become one bit: by ``"any"``, ``"first"``, ``"last"``, or their ``"mean"``.

    ``axis`` is the axis of channels, not counting the axis of points. ``mask`` says which positions of each point
    count; all if None.
    """

    axis: int
    how: str = "any"
    mask: Bool[np.ndarray, "n p"] | None = None

    def rows(self, rows: slice) -> Pooling:
        """Return the pooling of some points."""
        return self if self.mask is None else replace(self, mask=self.mask[rows])


def pool_positions(bits: Bits, pooling: Pooling) -> Bits:
    """Return one bit per channel: from (n, *units, k) to (n, channels, k).

    The mean of signs gives 1 if at least half of the positions that count are 1. If no position counts, a bit is 0.

    >>> pool_positions(np.array([[[[True], [False]], [[False], [False]]]]), Pooling(0))[..., 0]
    array([[ True, False]])
    """
    if pooling.how == "any" and pooling.mask is None:
        if isinstance(bits, Tensor):
            return bits.movedim(pooling.axis + 1, 1).flatten(2, -2).any(2)
        positions = tuple(other for other in range(1, bits.ndim - 1) if other != pooling.axis + 1)
        return np.asarray(bits.any(axis=positions))
    if isinstance(bits, Tensor):
        return torch.from_numpy(_vote(bits.cpu().numpy(), pooling)).to(bits.device)
    return _vote(bits, pooling)


def _vote(bits: Bool[np.ndarray, "n ..."], pooling: Pooling) -> Bool[np.ndarray, "n c k"]:
    moved = np.moveaxis(bits, pooling.axis + 1, 1)
    flat = moved.reshape(*moved.shape[:2], -1, moved.shape[-1])
    votes = np.ones((len(flat), flat.shape[2]), bool) if pooling.mask is None else pooling.mask
    voting = flat & votes[:, None, :, None]
    if pooling.how == "any":
        return np.asarray(voting.any(2))
    if pooling.how == "mean":
        counted = votes.sum(1)[:, None, None]
        return np.asarray((2 * voting.sum(2) >= counted) & (counted > 0))
    place = votes.argmax(1) if pooling.how == "first" else votes.shape[1] - 1 - votes[:, ::-1].argmax(1)
    return np.asarray(voting[np.arange(len(flat)), :, place])


def pack_reading(
    reading: Reading, pooling: Pooling | None = None, out: UInt8[np.ndarray, "n b"] | None = None
) -> tuple[UInt8[np.ndarray, "n b"], bool]:
    """Return the packed bits, pooled and written into ``out`` if asked for, and whether all values are finite."""
    in_place = in_numpy(reading.values)
    if in_place and pooling is None and isinstance(reading, Levels) and reading.bits == 1:
        values = reading.values.numpy()
        if _in_one_pass(values):
            return pack_signs(values.reshape(len(values), -1), reading.levels[0], out)
    packed, finite = (_pack_in_numpy if in_place else _pack_in_torch)(reading, pooling)
    if out is None:
        return packed, finite
    out[:] = packed
    return out, finite


def _pack_in_numpy(reading: Reading, pooling: Pooling | None) -> tuple[UInt8[np.ndarray, "n b"], bool]:
    values = reading.values.numpy()
    units = values.shape[1:] or (1,)
    width = prod(units) * reading.bits
    chunks = _chunks(len(values), width, _CHUNK)
    scratch = np.empty((chunks[0].stop, *units, reading.bits), bool)
    parts, finite = [], True
    for rows in chunks:
        bits = scratch[: rows.stop - rows.start]
        reading.write(rows, bits.reshape(len(bits), -1, reading.bits))
        pooled = bits if pooling is None else pool_positions(bits, pooling.rows(rows))
        parts.append(np.packbits(pooled.reshape(len(bits), -1), axis=1))
        finite = finite and all_finite(values[rows])
    return np.concatenate(parts), finite


def _in_one_pass(values: np.ndarray) -> bool:
    return values.size > 0 and values.flags.c_contiguous and available()


def _pack_in_torch(reading: Reading, pooling: Pooling | None) -> tuple[UInt8[np.ndarray, "n b"], bool]:
    """Pack on the device of the values, so that only an eighth of the bytes is copied."""
    values = reading.values
    units = values.shape[1:] or (1,)
    parts = []
    for rows in _chunks(len(values), prod(units) * reading.bits, _CHUNK_ELSEWHERE):
        bits = reading.tensor(rows)
        if pooling is not None:
            bits = pool_positions(bits.unflatten(1, units), pooling.rows(rows))
        parts.append(_pack_bits(bits.flatten(1)).cpu().numpy())
    low, high = values.aminmax()
    return np.concatenate(parts), bool(low > -torch.inf) and bool(high < torch.inf)


def _chunks(count: int, width: int, size: int) -> list[slice]:
    step = max(1, size // width)
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _pack_bits(bits: Bool[Tensor, "n h"]) -> UInt8[Tensor, "n b"]:
    """Return eight bits per byte, the first one highest; unused bits of the last byte are zero."""
    full = torch.nn.functional.pad(bits.to(torch.uint8), (0, -bits.shape[1] % 8)).unflatten(1, (-1, 8))
    places = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=bits.device)
    return (full * places).sum(-1, dtype=torch.uint8)


def pack_values(
    values: Float[Tensor, "n ..."], dtype: np.dtype[Any], pooling: Pooling | None = None
) -> Float[np.ndarray, "n u"]:
    """Return values in a precision, one row per point; positions are pooled as their bits are.

    Where a channel's bit is pooled by ``"any"``, its value is the largest; by ``"mean"``, its value is the mean.
    """
    flat = values.detach().float() if pooling is None else _pool_values(values.detach().float(), pooling)
    rows = flat.reshape(len(flat), -1).cpu().numpy()
    with np.errstate(over="ignore"):
        return rows.astype(dtype)


def _pool_values(values: Float[Tensor, "n ..."], pooling: Pooling) -> Float[Tensor, "n c"]:
    moved = values.movedim(pooling.axis + 1, 1).flatten(2)
    votes = torch.ones(len(moved), moved.shape[2], dtype=torch.bool, device=values.device)
    if pooling.mask is not None:
        votes = torch.from_numpy(pooling.mask).to(values.device)
    if pooling.how == "any":
        # If no position counts, a value is 0.
        return moved.masked_fill(~votes[:, None], -torch.inf).amax(2).masked_fill(~votes.any(1)[:, None], 0.0)
    if pooling.how == "mean":
        return (moved * votes[:, None]).sum(2) / votes.sum(1).clamp(min=1)[:, None]
    order = votes.int() if pooling.how == "first" else votes.int().flip(1)
    place = order.argmax(1) if pooling.how == "first" else votes.shape[1] - 1 - order.argmax(1)
    return moved.take_along_dim(place[:, None, None], 2)[..., 0]


class RowBuffer:
    """Rows of bytes that arrive batch by batch: room for ``expected`` rows, and more if more come.

    They are in memory or, if ``on_disk``, in an unnamed file that is deleted when the rows are no longer used.
    """

    def __init__(self, width: int, expected: int, on_disk: bool = False) -> None:
        self._width, self._used, self._on_disk = width, 0, on_disk
        # Not a NumPy array: resizing one holds the old and the new memory at the same time.
        self._memory = (_unnamed if on_disk else _private)(max(expected, 1) * max(width, 1))

    def __len__(self) -> int:
        return self._used

    @property
    def room(self) -> int:
        """Return how many rows fit into the memory that is already allocated."""
        return len(self._memory) // max(self._width, 1)

    def append(self, parts: list[UInt8[np.ndarray, "n _"]]) -> None:
        """Add rows, whose bytes are those of the parts side by side."""
        np.concatenate(parts, axis=1, out=self.space(len(parts[0])))
        self._used += len(parts[0])

    def space(self, count: int) -> UInt8[np.ndarray, "n b"]:
        """Return memory for the next rows, which are added when ``take`` is called; it must be released before that."""
        end = self._used + count
        if end > self.room:
            self._resize(max(end, int(_GROWTH * self.room)))
        return self._rows(end)[self._used :]

    def take(self, count: int) -> None:
        """Add rows that were written into ``space``."""
        self._used += count

    def close(self) -> UInt8[np.ndarray, "n b"]:
        """Return the rows and release the memory that was not needed."""
        if len(self._memory) < _SMALL:
            # A memory map takes whole pages, and the system limits the number of maps.
            return self._rows(self._used).copy()
        if self._used < self.room:
            self._resize(max(self._used, 1))
        return self._rows(self._used)

    def _rows(self, count: int) -> UInt8[np.ndarray, "n b"]:
        return np.frombuffer(self._memory, np.uint8, count * self._width).reshape(count, self._width)

    def _resize(self, rows: int) -> None:
        self._memory = _resized(self._memory, rows * max(self._width, 1), _unnamed if self._on_disk else _private)


def _private(size: int) -> mmap.mmap:
    """Return private anonymous memory: a child process gets a copy."""
    options = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if os.name == "posix" else {}
    memory = mmap.mmap(-1, size, **options)
    if size >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        # Advice only: pages of 2 MiB, so that the system is not called for every 4 KiB.
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _unnamed(size: int) -> mmap.mmap:
    """Return a file without a name, mapped into memory."""
    with TemporaryFile() as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)


def _resized(memory: mmap.mmap, size: int, new: Callable[[int], mmap.mmap] = _private) -> mmap.mmap:
    """Return the memory with another size: the same pages where the system can move them, otherwise a copy."""
    try:
        memory.resize(size)
    except (SystemError, OSError):
        return _copied(memory, size, new)
    return memory


def _copied(memory: mmap.mmap, size: int, new: Callable[[int], mmap.mmap] = _private) -> mmap.mmap:
    copy, kept = new(size), min(size, len(memory))
    np.frombuffer(copy, np.uint8, kept)[:] = np.frombuffer(memory, np.uint8, kept)
    return copy
