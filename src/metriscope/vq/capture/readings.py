"""What is read of each unit of an activation: the side of thresholds on which its value lies, or the winner of a pool.

Axes: N points, U units, K bits per unit; of a max pool ``*n`` points and channels, ``*o`` outputs along each pooled
axis. PyTorch numbers a winner by its place in the whole input; here it is numbered by its place in its own window, in
row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

__all__ = [
    "REMOTE",
    "Levels",
    "Reading",
    "Windows",
    "Winners",
    "adaptive_windows",
    "in_numpy",
    "pool",
    "strided_windows",
]
__all__ += ["winners_along"]

# Bounds as large as this keep a value within the range of a precision; they are no thresholds of units.
REMOTE = 1e4

Places = TypeVar("Places", Tensor, np.ndarray)


@dataclass(frozen=True)
class Windows:
    """The windows of a pool: along each axis the size of the input, the elements, their spacing, the starts, the ends.

    Without ``ends``, a window ends after its last element.
    """

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    dilation: tuple[int, ...]
    starts: tuple[Int[np.ndarray, " o"], ...]
    ends: tuple[Int[np.ndarray, " o"], ...] | None = None

    @cached_property
    def members(self) -> Int[np.ndarray, "o k"]:
        """Return the place in the input of each element of each window, -1 where there is none."""
        inside, places = np.ones((1, 1), bool), np.zeros((1, 1), np.int64)
        for axis, (start, size) in enumerate(zip(self.starts, self.sizes, strict=True)):
            end = np.full(len(start), size) if self.ends is None else self.ends[axis]
            along = start[:, None] + self.dilation[axis] * np.arange(self.kernel[axis])
            here = (along >= 0) & (along < np.minimum(end, size)[:, None])
            places = _every(places * size, along, np.add)
            inside = _every(inside, here, np.logical_and)
        return np.where(inside, places, -1)

    @property
    def elements(self) -> int:
        """Return the number of elements in a window."""
        return prod(self.kernel)

    def places(self, indices: Places) -> tuple[Places, Places]:
        """Return one number per winner, and a table of the bits that belong to each number."""
        if self._overhang:
            return self._by_coordinates(indices), _like(indices, np.eye(self.elements, dtype=bool))
        return indices - _like(indices, self._first), _like(indices, self._table)

    @cached_property
    def _first(self) -> Int[np.ndarray, "*o"]:
        """Return the place of each window's first element in the input."""
        return _grid([start * inner for start, inner in zip(self.starts, self._inner, strict=True)])

    @cached_property
    def _table(self) -> Bool[np.ndarray, "p k"]:
        """Return a table of the winner's bits, indexed by its offset from the first element of its window."""
        steps = [spacing * inner for spacing, inner in zip(self.dilation, self._inner, strict=True)]
        offsets = _grid([np.arange(count) * step for count, step in zip(self.kernel, steps, strict=True)]).ravel()
        table = np.zeros((offsets[-1] + 1, self.elements), bool)
        table[offsets, np.arange(self.elements)] = True
        return table

    @property
    def _inner(self) -> list[int]:
        """Return the distance in the input between two neighbors along each axis."""
        return [prod(self.sizes[axis + 1 :]) for axis in range(len(self.sizes))]

    @property
    def _overhang(self) -> bool:
        """Return whether a window is wider than the input, where two elements may have the same offset."""
        spans = [spacing * (count - 1) for spacing, count in zip(self.dilation, self.kernel, strict=True)]
        return any(span >= size for span, size in zip(spans, self.sizes, strict=True))

    def _by_coordinates(self, indices: Places) -> Places:
        axes = range(len(self.sizes))
        places = indices * 0
        for axis, inner in enumerate(self._inner):
            start = self.starts[axis].reshape([-1 if other == axis else 1 for other in axes])
            along = (indices // inner % self.sizes[axis] - _like(indices, start)) // self.dilation[axis]
            places = places * self.kernel[axis] + along
        return places


def pool(
    x: Tensor, axes: int, kernel_size: Any, stride: Any = None, **options: Any
) -> tuple[Tensor, Int[Tensor, "*n *o"]]:
    """Return the largest value of each window and its place in the input; of equal values, the first.

    >>> pool(torch.tensor([[1.0, 1.0, 3.0, 2.0]]), 1, 2)
    (tensor([[1., 3.]]), tensor([[0, 2]]))
    """
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[axes - 1]
    values, indices = function(x, kernel_size, stride, return_indices=True, **options)
    return values, indices


def strided_windows(shape: torch.Size, out: torch.Size, geometry: Sequence[Any], axes: int) -> Windows:
    """Return the windows of a pool with a kernel, a stride (its kernel if None), a padding and a dilation."""
    size, step, *rest = geometry
    kernel, stride, padding, dilation = (_each(one, axes) for one in (size, size if step is None else step, *rest))
    counts = tuple(out)[-axes:]
    starts = tuple(np.arange(count) * step - pad for count, step, pad in zip(counts, stride, padding, strict=True))
    return Windows(tuple(shape)[-axes:], kernel, dilation, starts)


def adaptive_windows(shape: torch.Size, out: torch.Size, axes: int) -> Windows:
    """Return the windows of an adaptive pool; sizes along an axis may differ by one or two elements."""
    sizes, counts = tuple(shape)[-axes:], tuple(out)[-axes:]
    starts = tuple(np.arange(count) * size // count for size, count in zip(sizes, counts, strict=True))
    ends = tuple(-(-(np.arange(count) + 1) * size // count) for size, count in zip(sizes, counts, strict=True))
    kernel = tuple(int((end - start).max()) for start, end in zip(starts, ends, strict=True))
    return Windows(sizes, kernel, (1,) * axes, starts, ends)


def _each(value: Any, axes: int) -> tuple[int, ...]:
    """Return a number for every axis; one number, alone or in a sequence, stands for all."""
    numbers = tuple(value) if isinstance(value, Sequence) else (value,)
    return numbers * axes if len(numbers) == 1 else numbers


def _grid(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sums of one number of each part, one axis per part."""
    total = np.zeros((), np.int64)
    for part in parts:
        total = total[..., None] + part
    return total


def _every(outer: np.ndarray, inner: np.ndarray, join: np.ufunc) -> np.ndarray:
    """Return the Kronecker product of two tables with ``join`` in place of multiplication."""
    joined = join(outer[:, None, :, None], inner[None, :, None, :])
    return joined.reshape(len(outer) * len(inner), -1)


def _like(indices: Places, array: np.ndarray) -> Places:
    """Return an array as it is, or as a tensor on the device of the indices if they are a tensor."""
    return torch.from_numpy(array).to(indices.device) if isinstance(indices, Tensor) else array


@dataclass(frozen=True)
class Levels:
    """On which side of one or several thresholds each value lies.

    ``values`` must be finite, points first. ``result`` is None: the call itself must still be run. ``kind`` is the
    kind of the activation where its arguments, not its name, determine it.
    """

    values: Float[Tensor, "n ..."]
    levels: tuple[float, ...] = (0.0,)
    result: None = None
    kind: str = ""

    @property
    def bits(self) -> int:
        """Return the number of thresholds."""
        return len(self.levels)

    def write(self, rows: slice, out: Bool[np.ndarray, "n u k"]) -> None:
        """Write the bits of some points, from values that NumPy can read."""
        values = self.values.numpy()[rows].reshape(out.shape[:2])
        for place, level in enumerate(self.levels):
            np.greater_equal(values, level, out=out[..., place])

    def tensor(self, rows: slice) -> Bool[Tensor, "n u k"]:
        """Return the bits of some points, on the device of their values."""
        values = self.values[rows].flatten(1) if self.values.ndim > 1 else self.values[rows, None]
        return torch.stack([values >= level for level in self.levels], -1)


@dataclass(frozen=True)
class Winners:
    """Which element of its window each output of a max pool is, and ``result``, the return value for ``source``.

    ``sliding`` is the number of the last axes of ``values`` along which there are windows.
    """

    values: Float[Tensor, "n ..."]
    indices: Int[Tensor, "n ..."]
    windows: Windows
    result: Any
    source: Float[Tensor, "n ..."]
    kind: str = ""
    sliding: int = 0

    @property
    def bits(self) -> int:
        """Return the number of elements in a window."""
        return self.windows.elements

    def write(self, rows: slice, out: Bool[np.ndarray, "n u k"]) -> None:
        """Write the bits of some points, from values that NumPy can read."""
        places, table = self.windows.places(self.indices.numpy()[rows])
        # "clip" because the default makes a copy to check indices; every place is in the table.
        np.take(table, places.reshape(-1), axis=0, out=out.reshape(places.size, -1), mode="clip")

    def tensor(self, rows: slice) -> Bool[Tensor, "n u k"]:
        """Return the bits of some points, on the device of their values."""
        places, table = self.windows.places(self.indices[rows])
        return table[places.flatten(1)]


Reading: TypeAlias = Levels | Winners


def in_numpy(values: Tensor) -> bool:
    """Return whether NumPy can read a tensor's memory; it compares several times as fast as PyTorch."""
    return values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)


def winners_along(x: Float[Tensor, ...], axes: Sequence[int], smallest: bool = False) -> Winners:
    """Return which element along whole axes is the largest, or the smallest; of equal ones, the first.

    >>> winners_along(torch.tensor([[1.0, 3.0, 2.0]]), [1]).indices
    tensor([1])
    """
    placed = [axis % x.ndim for axis in axes]
    kept = [axis for axis in range(x.ndim) if axis not in placed]
    flat = x.detach().permute(*kept, *placed).flatten(len(kept))
    values, indices = flat.min(-1) if smallest else flat.max(-1)
    size = flat.shape[-1]
    return Winners(values, indices, Windows((size,), (size,), (1,), (np.zeros(1, np.int64),)), None, x.detach())
