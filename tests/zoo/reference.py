"""An independent capture: the input of every activation, as PyTorch's dispatcher sees it, and what it should become.

It shares no code with ``metriscope.vq.capture``, which listens to calls of functions and modules: here the operators
below Python are watched, on one pass of the whole batch. Of max pools, those over images are part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from metriscope.vq import Patterns

__all__ = ["Outcome", "compared", "seen"]

# Operators that are captured by the sign of their input, and the kinds that a capture calls them.
SIGNS = {
    "relu": ("relu",),
    "gelu": ("gelu",),
    "silu": ("silu",),
    "mish": ("mish",),
    "elu": ("elu", "selu", "celu"),
    "leaky_relu": ("leaky_relu",),
    "_prelu_kernel": ("prelu",),
    "sigmoid": ("sigmoid",),
    "tanh": ("tanh",),
    "softplus": ("softplus",),
    "hardswish": ("hardswish",),
    "log_sigmoid_forward": ("logsigmoid", "log_sigmoid"),
    "erf": ("erf",),
}


# Operators that are captured by the two ends of an interval.
INTERVALS = {"hardtanh": ("hardtanh", "relu6"), "hardsigmoid": ("hardsigmoid",)}
POOL = "max_pool2d_with_indices"
KINDS = {**SIGNS, **INTERVALS, "glu": ("glu",), POOL: ("max_pool",)}


@dataclass(frozen=True)
class Outcome:
    """How a capture compares with the reference: equal layers, captured layers that differ, and calls not captured."""

    equal: int
    differing: tuple[str, ...]
    unmatched: tuple[str, ...]


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, npt.NDArray[np.bool_]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.removesuffix("_")
        if name in KINDS and args[0].is_floating_point():
            # Before the call, which may be in place.
            self.calls.append((name, _bits(name, *args).numpy()))
        return func(*args, **(kwargs or {}))


def _bits(name: str, values: Tensor, *options: Any) -> Tensor:
    if name == POOL:
        return _winners(values, *options)
    if name == "glu":
        return values.chunk(2, options[0] if options else -1)[1] >= 0
    if name in INTERVALS:
        low, high = (options or (-1, 1)) if name == "hardtanh" else (-3, 3)
        return torch.stack([values >= low, values >= high], dim=-1)
    return values >= 0


def _winners(
    values: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Tensor:
    """Return which element of each window is the largest, one bit each: windows are laid side by side and searched."""
    size, step, pad, space = (_two(one) for one in (kernel, stride or kernel, padding, dilation))
    beyond = [pad[axis] + (step[axis] if ceil_mode else 0) for axis in (0, 1)]
    wide = torch.nn.functional.pad(values.float(), (pad[1], beyond[1], pad[0], beyond[0]), value=-torch.inf)
    count = [
        _outputs(values.shape[2 + axis], size[axis], step[axis], pad[axis], space[axis], ceil_mode) for axis in (0, 1)
    ]
    parts = [
        wide[:, :, i * space[0] :, j * space[1] :][:, :, :: step[0], :: step[1]][:, :, : count[0], : count[1]]
        for i in range(size[0])
        for j in range(size[1])
    ]
    windows = torch.stack(parts, dim=-1)
    # NumPy finds the first of several equal values.
    place = torch.from_numpy(windows.numpy().argmax(-1))
    return torch.nn.functional.one_hot(place, len(parts)) > 0


def _two(value: Any) -> tuple[int, int]:
    numbers = tuple(value) if isinstance(value, list | tuple) else (value,)
    return (numbers[0], numbers[-1])


def _outputs(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Return the number of windows along an axis, by the formula in PyTorch's documentation of MaxPool2d."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    count = -(-span // stride) + 1
    return count - 1 if (count - 1) * stride >= size + padding else count


def seen(model: nn.Module, inputs: Tensor | dict[str, Tensor]) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Return operator and bits of every activation, in the order of the calls.

    Calls whose first axis does not count points, and whose bits stay when the points change places, are left out: they
    are the same for all points, such as those that compute biases of relative positions.
    """
    named = inputs if isinstance(inputs, dict) else {"": inputs}
    calls, again = (_calls(model, {k: v.roll(shift, 0) for k, v in named.items()}) for shift in (0, 1))
    points = len(next(iter(named.values())))
    return [
        one
        for one, other in zip(calls, again, strict=True)
        if len(one[1]) == points or not np.array_equal(one[1], other[1])
    ]


def _calls(model: nn.Module, inputs: dict[str, Tensor]) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    with torch.no_grad(), _Watch() as watch:
        model(inputs[""]) if "" in inputs else model(**inputs)
    return watch.calls


def _layouts(signs: npt.NDArray[np.bool_], points: int) -> list[npt.NDArray[np.bool_]]:
    """Return the ways in which an array can be one row per point: any axis of that length, or folded into the first."""
    found = [np.moveaxis(signs, axis, 0) for axis, size in enumerate(signs.shape) if size == points]
    if signs.shape and signs.shape[0] > points and signs.shape[0] % points == 0:
        rows = signs.reshape(points, signs.shape[0] // points, *signs.shape[1:])
        found += [rows, signs.reshape(signs.shape[0] // points, points, *signs.shape[1:]).swapaxes(0, 1)]
    return [one.reshape(points, -1) for one in found]


def compared(patterns: Patterns, calls: list[tuple[str, npt.NDArray[np.bool_]]]) -> Outcome:
    """Return how the layers of a capture compare with the calls of the same kinds, in their order."""
    points = len(patterns)
    known = {kind for kinds in KINDS.values() for kind in kinds}
    layers = [layer for layer in patterns.layers if layer.kind in known]
    left = list(calls)
    equal, differing = 0, []
    for layer in layers:
        signs = patterns.layer(layer.name).signs() > 0
        place = next(
            (i for i, (name, _) in enumerate(left) if layer.kind in KINDS[name] and _same(signs, left[i][1])), None
        )
        if place is None:
            differing.append(layer.name)
        else:
            equal += 1
            del left[place]
    dropped = sum(one.count for one in patterns.missed.operations if one.role == "dropped")
    # Rows that are no points cannot be captured; a capture must have named as many as are left.
    astray = [call for call in left if not _layouts(call[1], points)]
    lost = [call for call in left if _layouts(call[1], points)] + astray[dropped:]
    unmatched = tuple(f"{name} {signs.shape}" for name, signs in lost)
    return Outcome(equal, tuple(differing), unmatched)


def _same(signs: npt.NDArray[np.bool_], seen: npt.NDArray[np.bool_]) -> bool:
    return any(np.array_equal(signs, layout) for layout in _layouts(seen, len(signs)))
