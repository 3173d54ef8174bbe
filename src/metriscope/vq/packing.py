"""From what a call shows to packed bytes: a few rows at a time, so that no second batch of activations is ever held.

Axes: N points, U units, K bits a unit, H = U K bits, B bytes.
"""

from __future__ import annotations

from math import prod
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from metriscope.vq.activations import Reading, in_numpy

__all__ = ["RowBuffer", "all_finite", "pack_reading", "pool_positions"]

Bits = TypeVar("Bits", Tensor, np.ndarray)

# Bits to work on at once: their values and the bits themselves stay in the processor's cache.
_CHUNK = 1 << 17
_CHUNK_ELSEWHERE = 1 << 26
_GROWTH = 1.3


def all_finite(values: Float[np.ndarray, "*n"]) -> bool:
    """Say whether no value is NaN or infinite, by the extremes: far cheaper than a test of every value.

    >>> all_finite(np.array([1.0, 2.0])), all_finite(np.array([1.0, np.nan]))
    (True, False)
    """
    with np.errstate(invalid="ignore"):
        return bool(values.max() < np.inf and values.min() > -np.inf)


def pool_positions(bits: Bits, axis: int) -> Bits:
    """Return for each channel whether a bit is 1 at any position: from (n, *units, k) to (n, channels, k).

    ``axis`` counts channels, without the points.

    >>> pool_positions(np.array([[[[True], [False]], [[False], [False]]]]), 0)[..., 0]
    array([[ True, False]])
    """
    if isinstance(bits, Tensor):
        return bits.movedim(axis + 1, 1).flatten(2, -2).any(2)
    positions = tuple(other for other in range(1, bits.ndim - 1) if other != axis + 1)
    return np.asarray(bits.any(axis=positions))


def pack_reading(reading: Reading, axis: int | None = None) -> tuple[UInt8[np.ndarray, "n b"], bool]:
    """Return the packed bits, pooled if ``axis`` counts channels, and whether all values are finite."""
    return (_pack_in_numpy if in_numpy(reading.values) else _pack_in_torch)(reading, axis)


def _pack_in_numpy(reading: Reading, axis: int | None) -> tuple[UInt8[np.ndarray, "n b"], bool]:
    values = reading.values.numpy()
    units = values.shape[1:] or (1,)
    width = prod(units) * reading.bits
    chunks = _chunks(len(values), width, _CHUNK)
    scratch = np.empty((chunks[0].stop, *units, reading.bits), bool)
    parts, finite = [], True
    for rows in chunks:
        bits = scratch[: rows.stop - rows.start]
        reading.write(rows, bits.reshape(len(bits), -1, reading.bits))
        pooled = bits if axis is None else pool_positions(bits, axis)
        parts.append(np.packbits(pooled.reshape(len(bits), -1), axis=1))
        finite = finite and all_finite(values[rows])
    return np.concatenate(parts), finite


def _pack_in_torch(reading: Reading, axis: int | None) -> tuple[UInt8[np.ndarray, "n b"], bool]:
    """Pack on the values' own device: what has to travel is an eighth."""
    values = reading.values
    units = values.shape[1:] or (1,)
    parts = []
    for rows in _chunks(len(values), prod(units) * reading.bits, _CHUNK_ELSEWHERE):
        bits = reading.tensor(rows)
        if axis is not None:
            bits = pool_positions(bits.unflatten(1, units), axis)
        parts.append(_pack_bits(bits.flatten(1)).cpu().numpy())
    low, high = values.aminmax()
    return np.concatenate(parts), bool(low > -torch.inf) and bool(high < torch.inf)


def _chunks(count: int, width: int, size: int) -> list[slice]:
    step = max(1, size // width)
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _pack_bits(bits: Bool[Tensor, "n h"]) -> UInt8[Tensor, "n b"]:
    """Return eight bits a byte, the first one highest; a last byte that is not full ends in zeros."""
    full = torch.nn.functional.pad(bits.to(torch.uint8), (0, -bits.shape[1] % 8)).unflatten(1, (-1, 8))
    places = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=bits.device)
    return (full * places).sum(-1, dtype=torch.uint8)


class RowBuffer:
    """Rows of bytes that arrive batch by batch: room for ``expected`` rows, and more if more come."""

    def __init__(self, width: int, expected: int) -> None:
        self._rows = np.empty((max(expected, 1), width), np.uint8)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def append(self, parts: list[UInt8[np.ndarray, "n _"]]) -> None:
        """Add the rows whose bytes are those of the parts, side by side."""
        end = self._used + len(parts[0])
        if end > len(self._rows):
            self._resize(max(end, int(_GROWTH * len(self._rows))))
        np.concatenate(parts, axis=1, out=self._rows[self._used : end])
        self._used = end

    def close(self) -> UInt8[np.ndarray, "n b"]:
        """Return the rows and give the room that was not needed back."""
        if self._used < len(self._rows):
            self._resize(self._used)
        return self._rows

    def _resize(self, rows: int) -> None:
        # In place, because a copy would hold all rows twice; nothing else ever refers to them before ``close``.
        self._rows.resize((rows, self._rows.shape[1]), refcheck=False)
