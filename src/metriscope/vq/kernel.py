"""The VQ kernel: how many units lie on different sides for two points, summed over layers, each with its weight.

Axes: N, M points, H bits, B bytes, L layers. Without weights all distances are exact integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int, Num, UInt8

from metriscope.vq.hamming import columns_of, compiled, distance_dtype, in_parallel, row_slices, write_distances
from metriscope.vq.patterns import Layer, Patterns

__all__ = ["Weights", "check_same_layers", "layer_weights", "vq_blocks", "vq_kernel"]

Weights = Sequence[float] | Mapping[str, float] | str | None

# Rows given to one thread at a time; tiles of a symmetric kernel; both fit the second-level cache.
_ROWS, _TILE = 64, 512
# Bytes of a row beyond which computing a pair costs more than copying it to the other side of the diagonal.
_WORTH_MIRRORING = 96


def layer_weights(layers: Sequence[Layer], weights: Weights) -> Float64[np.ndarray, " l"]:
    """Return the weight of each layer: as given, or ``"mean"``, by which every layer counts the same in all.

    >>> layer_weights((Layer("a", 4, "relu"), Layer("b", 2, "relu")), "mean").tolist()
    [0.125, 0.25]
    """
    names = [layer.name for layer in layers]
    if weights is None:
        return np.ones(len(layers))
    if isinstance(weights, str):
        if weights != "mean":
            raise ValueError(f'weights must be one number per layer or "mean", got {weights!r}')
        return np.array([1 / (layer.width * len(layers)) for layer in layers])
    if isinstance(weights, Mapping):
        if set(weights) != set(names):
            raise ValueError(f"weights must name the layers {names}, got {list(weights)}")
        weights = [weights[name] for name in names]
    found = np.asarray(weights, np.float64)
    if found.shape != (len(layers),):
        raise ValueError(f"there are {len(layers)} layers, but the weights have the shape {found.shape}")
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise ValueError(f"weights must be finite and not negative, got {found.tolist()}")
    return found


def check_same_layers(p: Sequence[Layer], q: Sequence[Layer]) -> None:
    """Refuse two sets of layers whose bits do not stand for the same units."""
    ours, theirs = ([(layer.name, layer.width) for layer in each] for each in (p, q))
    if ours != theirs:
        raise ValueError(f"distances need the same layers on both sides, got {ours} and {theirs}")


def vq_kernel(
    p: Patterns, q: Patterns | None = None, weights: Weights = None, device: str | torch.device | None = None
) -> Num[np.ndarray, "n m"]:
    """Return the distances of the points of ``p`` to those of ``q``, or to each other.

    Without ``weights`` they are exact integers, of the smallest signed type that also holds their squares. With
    ``weights``, one number per layer (a sequence, or a mapping by name) or ``"mean"`` (each layer's distance divided
    by its width, averaged over layers: for architectures of different size), they are float64.
    ``device`` computes them there, as products of signs, in place of counting packed bits on the processor.

    >>> p = Patterns((Layer("act", 3, "relu"),), np.array([[0b10100000], [0b01000000]], np.uint8))
    >>> vq_kernel(p).tolist()
    [[0, 3], [3, 0]]
    """
    parts = _parts(p, q, weights)
    out = np.empty((len(p), len(p if q is None else q)), _dtype(p, weights))
    if device is not None:
        write = _products(parts, torch.device(device), out.dtype)
        for rows in row_slices(len(p), _TILE):
            out[rows] = write(rows)
    elif weights is None:
        _fill(parts[0], out, q is None)
    else:
        tasks = list(row_slices(len(p), _ROWS))
        rows_of = _counts(parts, out.dtype)
        in_parallel(lambda rows: out.__setitem__(rows, rows_of(rows)), tasks)
    return out


def vq_blocks(
    p: Patterns,
    q: Patterns | None = None,
    block: int = 1024,
    weights: Weights = None,
    device: str | torch.device | None = None,
) -> Iterator[tuple[slice, Num[np.ndarray, "k m"]]]:
    """Return an iterator of ``(rows, distances of those rows)``: the kernel, ``block`` rows at a time.

    >>> p = Patterns((Layer("act", 3, "relu"),), np.array([[0b10100000], [0b01000000]], np.uint8))
    >>> [(rows.start, found.tolist()) for rows, found in vq_blocks(p, block=1)]
    [(0, [[0, 3]]), (1, [[3, 0]])]
    """
    if block < 1:
        raise ValueError(f"a block needs at least one row, got {block}")
    parts, dtype = _parts(p, q, weights), np.dtype(_dtype(p, weights))
    if device is not None:
        rows_of = _products(parts, torch.device(device), dtype)
        return ((rows, rows_of(rows)) for rows in row_slices(len(p), block))
    rows_of = _counts(parts, dtype)
    return ((rows, _together(rows_of, rows)) for rows in row_slices(len(p), block))


@dataclass(frozen=True)
class _Part:
    """Bytes of all layers of one weight, on both sides."""

    weight: float
    width: int
    rows: UInt8[np.ndarray, "n b"]
    columns: UInt8[np.ndarray, "m b"]


def _dtype(p: Patterns, weights: Weights) -> type[np.number[Any]]:
    return distance_dtype(p.width) if weights is None else np.float64


def _parts(p: Patterns, q: Patterns | None, weights: Weights) -> list[_Part]:
    """Return what is to be counted together: layers of the same weight share one pass."""
    if q is not None:
        check_same_layers(p.layers, q.layers)
    values = layer_weights(p.layers, weights)
    left, right = p.packed, p.packed if q is None else q.packed
    if len(np.unique(values)) < 2:
        return [_Part(float(values[0]) if len(values) else 1.0, p.width, left, right)]
    found = []
    for value in np.unique(values):
        chosen = [i for i, other in enumerate(values) if other == value]
        bytes_ = np.concatenate([np.arange(p.spans[i].start, p.spans[i].stop) for i in chosen])
        width = sum(p.layers[i].width for i in chosen)
        found.append(_Part(float(value), width, left[:, bytes_], left[:, bytes_] if q is None else right[:, bytes_]))
    return found


Rows = Callable[[slice], Num[np.ndarray, "k m"]]


def _counts(parts: list[_Part], dtype: np.dtype[Any]) -> Rows:
    """Return a function from rows to their distances, by counting bits."""
    ready = [columns_of(part.columns, distance_dtype(part.width)) for part in parts]

    def rows_of(rows: slice) -> Num[np.ndarray, "k m"]:
        total: Any = None
        for part, columns in zip(parts, ready, strict=True):
            found = np.empty((rows.stop - rows.start, columns.count), columns.dtype)
            write_distances(part.rows[rows], columns, found)
            if dtype.kind == "i":
                return found
            total = found * part.weight if total is None else np.add(total, found * part.weight, out=total)
        return total

    return rows_of


def _together(rows_of: Rows, rows: slice) -> Num[np.ndarray, "k m"]:
    """Return the distances of ``rows``, found by all threads."""
    pieces = [slice(rows.start + r.start, rows.start + r.stop) for r in row_slices(rows.stop - rows.start, _ROWS)]
    return np.concatenate(in_parallel(rows_of, pieces))


def _products(parts: list[_Part], device: torch.device, dtype: np.dtype[Any]) -> Rows:
    """Return a function from rows to their distances, by products of signs on a device.

    Products of signs are whole numbers below 2^24: single precision adds them without rounding, whatever its order.
    """
    columns = [_signs(part.columns, device) for part in parts]

    def rows_of(rows: slice) -> Num[np.ndarray, "k m"]:
        total: Any = 0
        for part, right in zip(parts, columns, strict=True):
            # The bits that fill up a byte agree everywhere: they cancel against the number of all bits.
            differing = (right.shape[1] - _signs(part.rows[rows], device) @ right.mT) / 2
            total = total + differing.double().cpu().numpy() * part.weight
        return total.astype(dtype)

    return rows_of


def _signs(packed: UInt8[np.ndarray, "n b"], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.unpackbits(packed, axis=1)).to(device, torch.float32).mul_(2).sub_(1)


def _fill(part: _Part, out: Int[np.ndarray, "n m"], symmetric: bool) -> None:
    """Write exact distances, each pair once where that is the cheaper way."""
    dtype = distance_dtype(part.width)
    if symmetric and part.rows.shape[1] > _WORTH_MIRRORING:
        _fill_half(part, out)
        return
    columns = columns_of(part.columns, dtype)
    in_parallel(lambda rows: write_distances(part.rows[rows], columns, out[rows]), row_slices(len(out), _ROWS))


def _fill_half(part: _Part, out: Int[np.ndarray, "n n"]) -> None:
    tiles = list(row_slices(len(out), _TILE))
    ready = in_parallel(lambda rows: columns_of(part.columns[rows], out.dtype.type), tiles)

    def write(task: tuple[int, int]) -> None:
        rows, columns = tiles[task[0]], tiles[task[1]]
        found = np.empty((rows.stop - rows.start, columns.stop - columns.start), out.dtype)
        write_distances(part.rows[rows], ready[task[1]], found)
        _copy(found, out, rows.start, columns.start)

    in_parallel(write, [(i, j) for i in range(len(tiles)) for j in range(i, len(tiles))])


@compiled
def _copy(tile: Any, out: Any, top: int, left: int) -> None:
    """Write a tile to its place and, turned over, to its place beyond the diagonal."""
    side = 16  # a small square at a time: its rows and its columns are both in the first-level cache
    rows, columns = tile.shape
    for i in range(rows):
        out[top + i, left : left + columns] = tile[i]
    for i0 in range(0, rows, side):
        for j0 in range(0, columns, side):
            for j in range(j0, min(j0 + side, columns)):
                for i in range(i0, min(i0 + side, rows)):
                    out[left + j, top + i] = tile[i, j]
