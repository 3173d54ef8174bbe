"""Data in any supported form, as batches that a model can be called with.

A batch is a tensor or an array; a tuple or list, whose first entry is the input (or first entries, if the model needs
several inputs); or a mapping of names to tensors, which are passed by name. Axes: N points, first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from metriscope.common.validation import contiguous, described, plain_array, require_tensors

__all__ = [
    "Batch", "Reader", "as_points", "by_name", "expected_points", "is_table", "required_parameters", "split",
    "table_batches", "table_shards",
]  # fmt: skip

# Names of targets in data sets; they are passed only to a model that has such a parameter.
_LABELS = frozenset({"label", "labels", "label_ids", "target", "targets", "y"})


@dataclass(frozen=True)
class Batch:
    """The arguments of one call of a model, its number of points, the shape of a point of floats, their axis."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    points: int
    form: tuple[int, ...] | None
    axis: int = 0

    def take(self, rows: Tensor) -> Batch:
        """Return some of the points."""

        def some(value: Any) -> Any:
            held = isinstance(value, Tensor) and value.ndim > self.axis and value.shape[self.axis] == self.points
            return value.index_select(self.axis, rows.to(value.device)) if held else value

        named = {name: some(value) for name, value in self.kwargs.items()}
        return Batch(tuple(some(value) for value in self.args), named, len(rows), self.form, self.axis)


def as_points(data: Any, name: str) -> Any:
    """Return tables and nested lists of numbers as arrays, and anything else as it is, if it can hold points.

    >>> as_points([[1.0, 2.0], [3.0, 4.0]], "data").shape
    (2, 2)
    """
    if isinstance(data, Tensor):
        _check_tensor(data, name)
        return data
    rows = isinstance(data, list | tuple) and bool(data) and isinstance(data[0], list | tuple)
    masked = isinstance(data, np.ma.MaskedArray)
    if masked or (rows and _first_leaf(data)) or (hasattr(data, "__array__") and not isinstance(data, np.ndarray)):
        return plain_array(data, name)
    return data


def by_name(model: nn.Module, data: Any) -> Any:
    """Return a tuple of tensors as a mapping if the model needs several inputs, and anything else as it is.

    >>> by_name(nn.Bilinear(2, 3, 1), (torch.zeros(4, 2), torch.zeros(4, 3))).keys()
    dict_keys(['input1', 'input2'])
    """
    return _named(data, required_parameters(model.forward)) if isinstance(data, tuple) else data


def _named(data: Sequence[Any], names: Sequence[str]) -> Any:
    several = len(data) >= len(names) > 1 and all(isinstance(one, Tensor | np.ndarray) for one in data[: len(names)])
    return dict(zip(names, data, strict=False)) if several else data


def _check_tensor(data: Tensor, name: str) -> None:
    if not data.is_complex():
        require_tensors(**{name: data})
    if data.device.type == "meta":
        raise ValueError(f"{name} must hold values, got a tensor on the meta device, which has none")


def _first_leaf(data: Any) -> bool:
    """Return whether nested lists hold numbers, not batches."""
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return isinstance(data, int | float)


def expected_points(data: Any, axis: int = 0) -> int | None:
    """Return the number of points if it is known before they are read; for a loader it is an estimate."""
    if isinstance(data, Tensor | np.ndarray):
        return data.shape[axis] if data.ndim > axis else None
    if isinstance(data, Mapping):
        return _points(data, axis)
    counted = getattr(data, "dataset", data if isinstance(data, Dataset) or is_table(data) else None)
    try:
        return len(counted)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError, AttributeError):  # Ray counts only when asked to
        return None


def split(data: Any, batch_size: int, axis: int = 0) -> Iterator[Any]:
    """Yield the batches of any supported data, split along the axis of points, without keeping any of them.

    >>> [len(batch) for batch in split(np.zeros((5, 2)), 2)]
    [2, 2, 1]
    """
    if isinstance(data, Tensor | np.ndarray):
        _check_axis(data, "data", axis)
        starts = range(0, data.shape[axis], batch_size)
        return (_rows(data, slice(start, start + batch_size), axis) for start in starts)
    if isinstance(data, Mapping):
        return _split_mapping(data, batch_size, axis)
    if is_table(data):
        return table_batches(data, batch_size)
    if isinstance(data, Dataset) and not isinstance(data, Iterable):
        return iter(DataLoader(data, batch_size))
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise ValueError(f"data must be a tensor, an array, a data set, a loader or batches, got {described(data)}")
    return iter(data)


def is_table(data: Any) -> bool:
    """Return whether the data is a Hugging Face dataset or a Ray dataset: named columns, read by batches."""
    return _is_ray(data) or (hasattr(data, "with_format") and hasattr(data, "iter"))


def _is_ray(data: Any) -> bool:
    return hasattr(data, "iter_batches") and hasattr(data, "map_batches")


def table_batches(data: Any, batch_size: int) -> Iterator[Any]:
    """Yield the batches of a Hugging Face or Ray dataset as mappings of column names to tensors or arrays."""
    if _is_ray(data):
        return iter(data.iter_batches(batch_size=batch_size, batch_format="numpy"))
    return iter(data.with_format("torch").iter(batch_size))


def table_shards(data: Any, size: int) -> Iterator[Any]:
    """Yield pieces of a Hugging Face or Ray dataset, or functions that read them if the pieces can be read by number.

    >>> list(table_shards([0, 1], 1))
    Traceback (most recent call last):
    ValueError: data must be a Hugging Face or Ray dataset, got a list
    """
    if not is_table(data):
        raise ValueError(f"data must be a Hugging Face or Ray dataset, got {described(data)}")
    if not hasattr(data, "select"):
        yield from table_batches(data, size)
        return
    for start in range(0, len(data), size):
        yield partial(data.select, range(start, min(start + size, len(data))))


def _check_axis(data: Tensor | np.ndarray, name: str, axis: int) -> None:
    if data.ndim == 0:
        raise ValueError(f"{name} must have an axis of points, got a single number")
    if data.ndim <= axis:
        raise ValueError(f"{name} must have its points on axis {axis}, got the shape {tuple(data.shape)}")


def _rows(value: Any, rows: slice, axis: int) -> Any:
    return value[(slice(None),) * axis + (rows,)]


def _split_mapping(data: Mapping[str, Any], batch_size: int, axis: int) -> Iterator[dict[str, Any]]:
    count = _points(data, axis)
    for start in range(0, count, batch_size):
        yield {name: _part(value, slice(start, start + batch_size), count, axis) for name, value in data.items()}


def _part(value: Any, rows: slice, count: int, axis: int) -> Any:
    per_point = isinstance(value, Tensor | np.ndarray) and value.ndim > axis and value.shape[axis] == count
    return _rows(value, rows, axis) if per_point else value


def _points(batch: Mapping[str, Any], axis: int) -> int:
    """Return the length of the first tensor along the axis of points."""
    for value in batch.values():
        if isinstance(value, Tensor | np.ndarray) and value.ndim > axis:
            return value.shape[axis]
    raise ValueError(f"a batch of data must hold a tensor, got a mapping with the keys {list(batch)}")


class Reader:
    """Converts batches into a model's arguments: on its device, arrays in its precision, mappings by parameter name."""

    def __init__(self, model: nn.Module, device: torch.device | None, axis: int = 0) -> None:
        self._device, self._dtype, self._axis = device, _precision(model), axis
        self._names, self._needed = _parameters(model), required_parameters(model.forward)

    def __call__(self, batch: Any) -> Batch:
        """Return a batch, ready for the model."""
        while isinstance(batch, tuple | list) and batch:
            named = _named(batch, self._needed)
            batch = batch[0] if named is batch else named
        if isinstance(batch, Mapping):
            only = self._only_input(batch)
            if only is not None:
                return self(only)
            kwargs = {name: self._value(value) for name, value in batch.items() if self._accepts(name)}
            return Batch((), kwargs, _points(batch, self._axis), None, self._axis)
        if not isinstance(batch, Tensor | np.ndarray):
            raise ValueError(
                f"a batch of data must be a tensor, an array, a tuple or a mapping, got {described(batch)}"
            )
        _check_axis(batch, "a batch of data", self._axis)
        x = self._value(batch)
        form = tuple(size for axis, size in enumerate(x.shape) if axis != self._axis)
        return Batch((x,), {}, x.shape[self._axis], form if x.is_floating_point() else None, self._axis)

    def _only_input(self, batch: Mapping[str, Any]) -> Tensor | np.ndarray | None:
        """Return the only column of a mapping besides labels, if it has another name than the model's only input."""
        columns = [name for name in batch if name not in _LABELS]
        if len(columns) != 1 or len(self._needed) != 1 or self._names is None or self._names & batch.keys():
            return None
        value = batch[columns[0]]
        return value if isinstance(value, Tensor | np.ndarray) else None

    def _accepts(self, name: str) -> bool:
        if self._names is None or name in self._names:
            return True
        if name in _LABELS:
            return False
        raise ValueError(f"a batch has the key {name!r}, but the model takes {', '.join(sorted(self._names))}")

    def _value(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            value = self._tensor(value)
        movable = isinstance(value, Tensor) and self._device is not None
        return value.to(self._device) if movable else value

    def _tensor(self, array: np.ndarray) -> Tensor:
        plain = contiguous(plain_array(array, "data"))
        # PyTorch warns about read-only memory.
        tensor = torch.from_numpy(plain if plain.flags.writeable else plain.copy())
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor


def _precision(model: nn.Module) -> torch.dtype:
    floating = (weight.dtype for weight in model.parameters() if weight.is_floating_point())
    return next(floating, torch.get_default_dtype())


def required_parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of the positional arguments that a function requires; none if they are not known.

    >>> required_parameters(lambda x, y=1, *, z=2: x)
    ['x']
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in parameters if one.kind in places and one.default is one.empty]


def _parameters(model: nn.Module) -> frozenset[str] | None:
    """Return the names of the parameters of a model; None if it accepts any name."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)
