"""The VQ kernel: the number of units whose sign differs between two points, summed over layers with a weight for each.

Axes: N, M points, H bits, B bytes, L layers. Without weights all distances are exact integers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int, Num, UInt8
from numpy.typing import DTypeLike

from metriscope.common.threads import in_parallel, row_slices, workers_available
from metriscope.common.validation import described, instance, integer, real_array
from metriscope.vq.capture.patterns import Layer, Patterns
from metriscope.vq.measures.hamming import columns_of, compact_dtype, compiled, write_distances

__all__ = ["Weights", "check_same_layers", "layer_weights", "vq_blocks", "vq_kernel"]

Weights = Sequence[float] | Mapping[str, float] | str | None
Device = str | torch.device | None

# Distances that one thread writes at a time, and the fewest and most rows of them: enough that calls cost little time.
_PIECE, _FEWEST, _MOST = 1 << 22, 16, 512
# Tiles of a symmetric kernel fit the second-level cache.
_TILE = 512
_ROWS_ELSEWHERE = 4096
# Bytes of a row beyond which computing a pair costs more than copying it to the other side of the diagonal.
_WORTH_MIRRORING = 320


def layer_weights(layers: Sequence[Layer], weights: Weights) -> Float64[np.ndarray, " l"]:
    """Return the weight of each layer: as given, or with ``"mean"`` so that all layers have equal influence.

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
    found = real_array(weights, "weights", str(len(layers)))
    if (found < 0).any():
        raise ValueError(f"weights must not be negative, got {found.min()}")
    return found


def check_same_layers(p: Sequence[Layer], q: Sequence[Layer]) -> None:
    """Check that the bits of two sets of patterns belong to the same units."""
    ours, theirs = ([(layer.name, layer.width) for layer in each] for each in (p, q))
    if ours != theirs:
        raise ValueError(f"distances need the same layers on both sides, got {ours} and {theirs}")


def vq_kernel(
    p: Patterns,
    q: Patterns | None = None,
    weights: Weights = None,
    device: Device = None,
    dtype: DTypeLike | None = None,
    out: Num[np.ndarray, "n m"] | None = None,
) -> Num[np.ndarray, "n m"]:
    """Return the distances of the points of ``p`` to those of ``q``, or to each other.

    Parameters
    ----------
    p : Patterns
        The points of the rows.
    q : Patterns, optional
        The points of the columns, of the same layers; those of ``p`` if not given.
    weights : sequence of float, mapping of str to float, or "mean", optional
        One weight per layer, in order or by name. ``"mean"`` divides each layer's distance by its width and averages
        over layers, for architectures of different size. Without weights every unit counts 1.
    device : torch.device or str, optional
        Compute on this device, by products of signs, instead of counting packed bits on the CPU.
    dtype : numpy dtype, optional
        A smaller integer type to save memory, for distances without weights.
    out : array, shape (n, m), optional
        Where to write the distances, such as a ``numpy.memmap``; its dtype is used.

    Returns
    -------
    array, shape (n, m)
        Without weights exact integers: int32, or int64 where int32 would not hold their squares. With weights float64.

    Raises
    ------
    ValueError
        If the layers of ``p`` and ``q`` differ, a weight is negative or missing, ``dtype`` does not hold the
        distances, or ``out`` has another shape.
    MemoryError
        If the matrix does not fit into this machine's memory; :func:`vq_blocks` gives it in blocks of rows.

    Examples
    --------
    >>> p = Patterns((Layer("act", 3, "relu"),), np.array([[0b10100000], [0b01000000]], np.uint8))
    >>> vq_kernel(p).tolist()
    [[0, 3], [3, 0]]
    """
    parts = _parts(p, q, weights)
    out = _room((len(p), len(parts[0].columns)), _dtype(p, weights, dtype if out is None else out.dtype), out)
    if q is None and weights is None and device is None and parts[0].rows.shape[1] > _WORTH_MIRRORING:
        _write_half(parts[0], out)
    else:
        _writer(parts, device, out.dtype)(slice(0, len(p)), out)
    return out


def _room(shape: tuple[int, int], dtype: np.dtype[Any], out: np.ndarray | None) -> Num[np.ndarray, "n m"]:
    """Return where to write a kernel: the array that was given, or a new one if it fits into memory."""
    if out is not None:
        if out.shape != shape or not out.flags.writeable:
            raise ValueError(f"out must be a writeable array of shape {shape}, got one of shape {out.shape}")
        return out
    size = math.prod(shape) * dtype.itemsize
    try:
        if size > _memory():
            raise MemoryError
        return np.empty(shape, dtype)
    except MemoryError:
        raise MemoryError(
            f"distances of {shape[0]:,} x {shape[1]:,} points take {size / 1e9:,.1f} GB, more than is available; "
            "vq_blocks gives them in blocks of rows, and out= writes them to an array such as a numpy.memmap"
        ) from None


def _memory() -> float:
    """Return the bytes of memory of this machine; infinity if the system does not report it."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def vq_blocks(
    p: Patterns, q: Patterns | None = None, block: int = 1024, weights: Weights = None, device: Device = None
) -> Iterator[tuple[slice, Num[np.ndarray, "k m"]]]:
    """Return an iterator of ``(rows, distances of those rows)``: the kernel, ``block`` rows at a time.

    Parameters
    ----------
    p : Patterns
        The points of the rows.
    q : Patterns, optional
        The points of the columns, of the same layers; those of ``p`` if not given.
    block : int
        Number of rows at a time.
    weights : sequence of float, mapping of str to float, or "mean", optional
        One weight per layer, as for :func:`vq_kernel`.
    device : torch.device or str, optional
        Compute on this device, as for :func:`vq_kernel`.

    Returns
    -------
    iterator of (slice, array)
        The rows of each block, and their distances to all columns.

    Raises
    ------
    ValueError
        If ``block`` is not a positive integer, the layers of ``p`` and ``q`` differ, or a weight is negative.

    Examples
    --------
    >>> p = Patterns((Layer("act", 3, "relu"),), np.array([[0b10100000], [0b01000000]], np.uint8))
    >>> [(rows.start, found.tolist()) for rows, found in vq_blocks(p, block=1)]
    [(0, [[0, 3]]), (1, [[3, 0]])]
    """
    block = integer(block, "block")
    parts, dtype = _parts(p, q, weights), _dtype(p, weights, None)
    write = _writer(parts, device, dtype)

    def distances(rows: slice) -> Num[np.ndarray, "k m"]:
        out = np.empty((rows.stop - rows.start, len(parts[0].columns)), dtype)
        write(rows, out)
        return out

    return ((rows, distances(rows)) for rows in row_slices(len(p), block))


@dataclass(frozen=True)
class _Part:
    """Bytes of all layers of one weight, on both sides."""

    weight: float
    width: int
    rows: UInt8[np.ndarray, "n b"]
    columns: UInt8[np.ndarray, "m b"]


def _dtype(p: Patterns, weights: Weights, wanted: DTypeLike | None) -> np.dtype[Any]:
    if wanted is None:
        fits = p.width**2 <= np.iinfo(np.int32).max
        return np.dtype(np.float64 if weights is not None else np.int32 if fits else np.int64)
    try:
        found = np.dtype(wanted)
    except TypeError:
        raise ValueError(f"dtype must be a type of numbers, got {described(wanted)}") from None
    if weights is not None:
        if found == np.float64:
            return found
        raise ValueError(f"weighted distances are float64; dtype={found} is for distances without weights")
    if found.kind not in "iu" or np.iinfo(found).max < p.width:
        raise ValueError(f"dtype must be an integer type that holds distances up to {p.width}, got {found}")
    return found


def _parts(p: Patterns, q: Patterns | None, weights: Weights) -> list[_Part]:
    """Return the parts that are counted together: layers of the same weight share one pass."""
    instance(p, "p", Patterns)
    if q is not None:
        check_same_layers(p.layers, instance(q, "q", Patterns).layers)
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


# Writes the distances of some rows into the room for them.
Write = Callable[[slice, np.ndarray], None]


def _writer(parts: list[_Part], device: Device, dtype: np.dtype[Any]) -> Write:
    """Return the writer for a device; on the CPU, threads share the rows."""
    if device is not None:
        return _by_pieces(_products(parts, torch.device(device)), _ROWS_ELSEWHERE, 1)
    most = min(_PIECE // max(1, len(parts[0].columns)), _MOST)
    return _by_pieces(_counts(parts, None if dtype.kind == "f" else dtype), most, workers_available())


def _by_pieces(write: Write, most: int, workers: int) -> Write:
    """Return a writer that passes on at most ``most`` rows at a time, and several pieces to each worker."""

    def write_all(rows: slice, out: Num[np.ndarray, "k m"]) -> None:
        size = max(_FEWEST, min(most, len(out) // (4 * workers)))

        def one(some: slice) -> None:
            write(slice(rows.start + some.start, rows.start + some.stop), out[some])

        in_parallel(one, row_slices(len(out), size), workers)

    return write_all


def _counts(parts: list[_Part], exact: np.dtype[Any] | None) -> Write:
    """Return a writer that counts packed bits: exact distances of the type ``exact``, or weighted distances if None."""
    dtypes = [compact_dtype(part.width) if exact is None else exact for part in parts]
    ready = [columns_of(part.columns, dtype) for part, dtype in zip(parts, dtypes, strict=True)]

    def write(rows: slice, out: Num[np.ndarray, "k m"]) -> None:
        if exact is not None:
            write_distances(parts[0].rows[rows], ready[0], out)
            return
        out[:] = 0
        for part, columns in zip(parts, ready, strict=True):
            found = np.empty(out.shape, columns.dtype)
            write_distances(part.rows[rows], columns, found)
            out += np.multiply(found, part.weight, dtype=np.float64)

    return write


def _products(parts: list[_Part], device: torch.device) -> Write:
    """Return a writer that multiplies signs on a device.

    Sums of products of signs are whole numbers below 2^24: single precision holds them exactly, in any order.
    """
    columns = [_signs(part.columns, device) for part in parts]

    def write(rows: slice, out: Num[np.ndarray, "k m"]) -> None:
        total = np.zeros(out.shape)
        for part, right in zip(parts, columns, strict=True):
            # The padding bits of a byte are equal everywhere, so they cancel against the number of all bits.
            different = (right.shape[1] - _signs(part.rows[rows], device) @ right.mT) / 2
            total += part.weight * different.cpu().double().numpy()
        out[:] = total

    return write


def _signs(packed: UInt8[np.ndarray, "n b"], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.unpackbits(packed, axis=1)).to(device, torch.float32).mul_(2).sub_(1)


def _write_half(part: _Part, out: Int[np.ndarray, "n n"]) -> None:
    """Write the distances between the points; each pair is computed once."""
    tiles = list(row_slices(len(out), _TILE))
    ready = in_parallel(lambda rows: columns_of(part.columns[rows], out.dtype), tiles)

    def write(task: tuple[int, int]) -> None:
        rows, columns = tiles[task[0]], tiles[task[1]]
        found = np.empty((rows.stop - rows.start, columns.stop - columns.start), out.dtype)
        write_distances(part.rows[rows], ready[task[1]], found)
        _copy(found, out, rows.start, columns.start)

    in_parallel(write, [(i, j) for i in range(len(tiles)) for j in range(i, len(tiles))])


@compiled
def _copy(tile: Any, out: Any, top: int, left: int) -> None:
    """Write a tile to its place and, transposed, to its place on the other side of the diagonal."""
    side = 16  # a small square at a time: its rows and its columns are both in the first-level cache
    rows, columns = tile.shape
    for i in range(rows):
        out[top + i, left : left + columns] = tile[i]
    for i0 in range(0, rows, side):
        for j0 in range(0, columns, side):
            for j in range(j0, min(j0 + side, columns)):
                for i in range(i0, min(i0 + side, rows)):
                    out[left + j, top + i] = tile[i, j]
