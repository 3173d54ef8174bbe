"""From what a call shows to packed bytes: a few rows at a time, so that no second batch of activations is ever held.

Axes: N points, U units, K bits a unit, H = U K bits, B bytes.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from metriscope.vq.activations import Reading, in_numpy

__all__ = ["Packer", "RowBuffer", "all_finite", "pack_bits", "pool_positions"]

# Bits to work on at once: their values and the bits themselves stay in the processor's cache.
_CHUNK = 1 << 18
_CHUNK_ELSEWHERE = 1 << 26
_GROWTH = 1.3


def pack_bits(bits: Bool[Tensor, "n h"]) -> UInt8[np.ndarray, "n b"]:
    """Return eight bits a byte, the first one highest; a last byte that is not full ends in zeros.

    >>> pack_bits(torch.tensor([[True, False, True]])).tolist()
    [[160]]
    """
    if bits.device.type == "cpu":
        return np.packbits(bits.numpy(), axis=1)
    return _pack_where_it_is(bits).cpu().numpy()


def _pack_where_it_is(bits: Bool[Tensor, "n h"]) -> UInt8[Tensor, "n b"]:
    """Pack on the bits' own device: what has to travel is an eighth."""
    full = torch.nn.functional.pad(bits.to(torch.uint8), (0, -bits.shape[1] % 8)).unflatten(1, (-1, 8))
    places = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=bits.device)
    return (full * places).sum(-1, dtype=torch.uint8)


def all_finite(values: Float[Tensor, "*n"]) -> bool:
    """Say whether no value is NaN or infinite, by the extremes: far cheaper than a test of every value.

    >>> all_finite(torch.tensor([1.0, 2.0])), all_finite(torch.tensor([1.0, float("nan")]))
    (True, False)
    """
    if in_numpy(values):
        with np.errstate(invalid="ignore"):
            array = values.numpy()
            return bool(array.max() < np.inf and array.min() > -np.inf)
    low, high = values.aminmax()
    return bool(low > -torch.inf) and bool(high < torch.inf)


def pool_positions(bits: Bool[Tensor, "n *u k"], axis: int) -> Bool[Tensor, "n c k"]:
    """Return for each channel whether a bit is 1 at any position; ``axis`` counts channels, without the points.

    >>> pool_positions(torch.tensor([[[[True], [False]], [[False], [False]]]]), 0).squeeze(-1)
    tensor([[ True, False]])
    """
    return bits.movedim(axis + 1, 1).flatten(2, -2).any(2)


class Packer:
    """Packs readings one after the other through the same scratch memory."""

    def __init__(self) -> None:
        self._scratch = torch.empty(0, dtype=torch.bool)

    def __call__(self, reading: Reading, axis: int | None = None) -> tuple[UInt8[np.ndarray, "n b"], bool]:
        """Return the packed bits, pooled if ``axis`` counts channels, and whether all values are finite."""
        values = reading.values
        width = values[0].numel() * reading.bits
        step = max(1, (_CHUNK if values.device.type == "cpu" else _CHUNK_ELSEWHERE) // max(1, width))
        parts, finite = [], True
        for start in range(0, len(values), step):
            rows = slice(start, min(start + step, len(values)))
            bits = self._bits(rows.stop - start, width, values.device)
            reading.write(rows, bits.unflatten(1, (-1, reading.bits)))
            if axis is not None:
                bits = pool_positions(bits.view(-1, *values.shape[1:], reading.bits), axis).flatten(1)
            parts.append(pack_bits(bits))
            finite = finite and all_finite(values[rows])
        return np.concatenate(parts) if len(parts) > 1 else parts[0], finite

    def _bits(self, rows: int, width: int, device: torch.device) -> Bool[Tensor, "n h"]:
        if self._scratch.numel() < rows * width or self._scratch.device != device:
            self._scratch = torch.empty(rows * width, dtype=torch.bool, device=device)
        return self._scratch[: rows * width].view(rows, width)


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
