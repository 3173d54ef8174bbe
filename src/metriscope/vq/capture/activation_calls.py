"""Which calls are activations, and which bits each gives: the side of a threshold, or the winner of a max pool.

Axes: N points, U units, K bits per unit. A unit of most kinds has one bit, 1 where its pre-activation is >= 0 (-0.0
included). Kinds with two thresholds (hardtanh, relu6, hardsigmoid, hardshrink, softshrink, clamp) have two bits side
by side, for the lower and the upper threshold. A pool has one bit for each element of its window, in row-major
order, and the bit of the first largest element is 1: so the patterns of any two winners differ in two bits.
Smooth kinds are read by the sign of their pre-activation and marked as not piecewise affine.

Recurrent layers run all steps in one call. Their gates are computed again from their inputs and outputs. The units of
an LSTM are, side by side, the input, forget, cell and output gate and the cell state; those of a GRU the reset, update
and new gate. T steps, D directions, G gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from metriscope.nn import ACTIVATIONS
from metriscope.vq.capture.readings import (
    REMOTE,
    Levels,
    Reading,
    Windows,
    Winners,
    adaptive_windows,
    pool,
    strided_windows,
)

__all__ = ["CALLS", "CHANNELS_FIRST", "CHANNELS_LAST", "KINDS", "RECURRENT", "Call", "recurrent_gates"]

Reader = Callable[..., Reading | None]


def _at(levels: tuple[float, ...]) -> Reader:
    return lambda input, *_, **__: Levels(input.detach(), levels)


def _hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, *_: Any, **__: Any) -> Levels:
    # The module ReLU6 calls hardtanh, but is reported under its own name.
    return Levels(input.detach(), (min_val, max_val), kind="relu6" if (min_val, max_val) == (0.0, 6.0) else "")


def _elu(input: Tensor, alpha: float = 1.0, scale: float = 1.0, *_: Any, **__: Any) -> Levels:
    # At the dispatcher SELU is an ELU with these two constants of Klambauer et al. (2017).
    selu = abs(alpha - 1.6732632423543772) + abs(scale - 1.0507009873554805) < 1e-12
    return Levels(input.detach(), kind="selu" if selu else "")


def _shrink(input: Tensor, lambd: float = 0.5, *_: Any, **__: Any) -> Levels:
    return Levels(input.detach(), (-lambd, lambd))


def _threshold(input: Tensor, threshold: float, *_: Any, **__: Any) -> Levels:
    return Levels(input.detach(), (threshold,))


def _gate(input: Tensor, dim: int = -1, *_: Any, **__: Any) -> Levels:
    return Levels(input.detach().chunk(2, dim)[1])


def _clamp(input: Tensor, min: Any = None, max: Any = None, **_: Any) -> Levels | None:
    """Read a clamp as an activation if its interval contains zero and is not very wide; others only limit values."""
    bounds = tuple(bound for bound in (min, max) if bound is not None)
    if not bounds or not all(isinstance(bound, int | float) for bound in bounds):
        return None
    holds_zero = (min is None or -REMOTE < min <= 0) and (max is None or 0 <= max < REMOTE)
    return Levels(input.detach(), bounds) if holds_zero else None


def _winners(input: Tensor, values: Tensor, found: Tensor, windows: Windows, both: bool) -> Winners:
    result = (values, found) if both else values
    return Winners(values.detach(), found, windows, result, input.detach(), sliding=len(windows.sizes))


def _pool(axes: int, indices: bool) -> Reader:
    def read(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Winners:
        options = {"padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
        values, found = pool(input, axes, kernel_size, stride or None, **options)
        windows = strided_windows(input.shape, values.shape, (kernel_size, stride or None, padding, dilation), axes)
        return _winners(input, values, found, windows, indices or return_indices)

    return read


def _adaptive_pool(axes: int, indices: bool) -> Reader:
    def read(input: Tensor, output_size: Any, return_indices: bool = False) -> Winners:
        function = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[axes - 1]
        values, found = function(input, output_size, return_indices=True)
        windows = adaptive_windows(input.shape, values.shape, axes)
        return _winners(input, values, found, windows, indices or return_indices)

    return read


@dataclass(frozen=True)
class ActivationKind:
    """One row of the table of activations."""

    read: Reader
    piecewise_affine: bool = True
    other_names: tuple[str, ...] = ()


# Other names that PyTorch has for an activation of the one table.
_ALIASES = {
    "abs": ("absolute",),
    "sigmoid": ("special_expit", "expit"),
    "logsigmoid": ("log_sigmoid", "log_sigmoid_forward"),
}

# The activations of the table, by their kinks or, if smooth, by their sign; then those that need their own arguments.
KINDS = {
    **{
        name: ActivationKind(_at(row.kinks or (0.0,)), row.piecewise_affine, _ALIASES.get(name, ()))
        for name, row in ACTIVATIONS.items()
    },
    "elu": ActivationKind(_elu, piecewise_affine=False),
    "prelu": ActivationKind(_at((0.0,)), other_names=("_prelu_kernel",)),
    "rrelu": ActivationKind(_at((0.0,)), other_names=("rrelu_with_noise",)),
    "threshold": ActivationKind(_threshold),
    "hardtanh": ActivationKind(_hardtanh),
    "hardshrink": ActivationKind(_shrink),
    "softshrink": ActivationKind(_shrink),
    "clamp": ActivationKind(_clamp, other_names=("clip", "clamp_min")),
    "clamp_max": ActivationKind(lambda input, max, **_: _clamp(input, None, max)),
    "glu": ActivationKind(_gate, piecewise_affine=False),
    # What a GELU written by hand is made of.
    "erf": ActivationKind(_at((0.0,)), piecewise_affine=False, other_names=("special_erf",)),
}


@dataclass(frozen=True)
class Call:
    """A function that is an activation: its kind, how its units are read, and whether it is a function or a method."""

    kind: str
    piecewise_affine: bool
    read: Reader
    seen: str

    def of_kind(self, kind: str) -> Call:
        """Return the same call with another kind."""
        return replace(self, kind=kind, piecewise_affine=KINDS[kind].piecewise_affine)


_PLACES = (("function", torch), ("function", torch.special), ("function", F), ("method", Tensor))


def _overloads(name: str) -> Iterator[Any]:
    """Yield an operator of PyTorch's own library, as exported programs call it, and its overloads."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is not None:
        yield packet
        yield from (getattr(packet, overload) for overload in packet.overloads())


def _found(name: str) -> Iterator[tuple[Any, str]]:
    """Yield everything that has this name in PyTorch, with how it is called; in-place forms end in an underscore."""
    for spelling in (name, f"{name}_"):
        yield from ((found, seen) for seen, place in _PLACES if (found := getattr(place, spelling, None)) is not None)
        yield from ((found, "operator") for found in _overloads(spelling))


def _elementwise() -> Iterator[tuple[Any, Call]]:
    for kind, row in KINDS.items():
        for function, seen in chain.from_iterable(map(_found, (kind, *row.other_names))):
            yield function, Call(kind, row.piecewise_affine, row.read, seen)


def _pools() -> Iterator[tuple[Any, Call]]:
    for axes in (1, 2, 3):
        for stem, reader in (("max_pool", _pool), ("adaptive_max_pool", _adaptive_pool)):
            name = f"{stem}{axes}d"
            for function, seen in _found(f"{name}_with_indices"):
                yield function, Call(stem, True, reader(axes, True), seen)
            # What PyTorch calls adaptive_max_pool outside nn.functional returns indices as well.
            for function, seen in _found(name):
                both = stem == "adaptive_max_pool" and function is not getattr(F, name)
                yield function, Call(stem, True, reader(axes, both), seen)


CALLS: dict[Any, Call] = dict(chain(_elementwise(), _pools()))


def _all(*names: str) -> frozenset[Any]:
    return frozenset(function for name in names for function, _ in _found(name))


# A tensor does not tell which of its axes counts channels, but the last layer that made channels does.
CHANNELS_FIRST = _all(
    *(f"conv{way}{axes}d" for way in ("", "_transpose") for axes in (1, 2, 3)),
    *("convolution", "batch_norm", "group_norm", "instance_norm", "native_batch_norm", "native_group_norm"),
)
CHANNELS_LAST = _all(
    "linear", "addmm", "matmul", "__matmul__", "layer_norm", "rms_norm", "native_layer_norm", "embedding"
)


# Recurrent functions and cells, by what PyTorch calls them, with the kind of their layers.
_RECURRENT = {"lstm": "lstm", "gru": "gru", "rnn_tanh": "rnn", "rnn_relu": "rnn"}
RECURRENT: dict[Any, Call] = {
    function: Call(kind, name == "rnn_relu", lambda *_, **__: None, seen)
    for name, kind in _RECURRENT.items()
    for spelling in (name, f"{name}_cell")
    for function, seen in _found(spelling)
}
_CELLS = frozenset(function for name in _RECURRENT for function, _ in _found(f"{name}_cell"))


def recurrent_gates(function: Any, args: tuple[Any, ...], out: Any, kind: str) -> list[Levels]:
    """Return the gates of a recurrent call that has returned ``out``: one reading per layer and direction.

    Empty for packed sequences, whose steps are not sorted by points.
    """
    if function in _CELLS:
        state, *weights = args[1:]
        hidden, cell = (state[0], state[1]) if kind == "lstm" else (state, None)
        return [Levels(_gates(kind, args[0], hidden, cell, weights).detach())]
    if isinstance(args[1], Tensor) and not args[1].is_floating_point():
        return []
    x, state, weights, biased, layers, _, _, both, batch_first = args
    hidden, cell = (state[0], state[1]) if kind == "lstm" else (state, None)
    directions, x = 2 if both else 1, x.transpose(0, 1) if batch_first else x
    per_layer = len(weights) // layers
    found = []
    for layer in range(layers):
        own, places = weights[layer * per_layer :][:per_layer], slice(layer * directions, (layer + 1) * directions)
        began = (hidden[places], None if cell is None else cell[places])
        if layer == layers - 1:
            after = out[0].transpose(0, 1) if batch_first else out[0]
        else:
            states = began[0] if cell is None else began
            after = function(x, states, own, biased, 1, 0.0, False, both, False)[0]
        found += list(_layer_gates(kind, x, after, began, own, directions))
        x = after
    return [Levels((one.transpose(0, 1) if batch_first else one).detach()) for one in found]


def _layer_gates(
    kind: str, x: Tensor, after: Tensor, began: tuple[Tensor, Tensor | None], weights: Any, directions: int
) -> Iterator[Tensor]:
    """Yield the gates of one layer at all steps, one tensor of shape (T, N, G units) per direction."""
    each = len(weights) // directions
    for way, out in enumerate(after.chunk(directions, -1)):
        cell, first = None if began[1] is None else began[1][way], began[0][way][None]
        before = torch.cat([out[1:], first] if way else [first, out[:-1]])
        yield _gates(kind, x, before, cell, weights[way * each :][:each], backward=bool(way))


def _gates(kind: str, x: Tensor, hidden: Tensor, cell: Tensor | None, weights: Any, backward: bool = False) -> Tensor:
    """Return pre-activations from inputs and the hidden state before them; ``cell`` is the state before all steps."""
    into, over, *biases = weights
    plain = [bias for bias in biases if bias is not None and bias.ndim == 1] or [None, None]
    given, kept = F.linear(x, into, plain[0]), F.linear(hidden, over, plain[1])
    if kind == "gru":
        first, last = 2 * given.shape[-1] // 3, given.shape[-1] // 3
        both = given[..., :first] + kept[..., :first]
        new = given[..., first:] + torch.sigmoid(both[..., :last]) * kept[..., first:]
        return torch.cat([both, new], -1)
    gates = given + kept
    return gates if cell is None else torch.cat([gates, _cells(gates, cell, backward)], -1)


def _cells(gates: Tensor, cell: Tensor, backward: bool) -> Tensor:
    """Return the states of an LSTM's cells at all steps, or at the only one."""
    into, forget, new, _ = gates.chunk(4, -1)
    added, kept = torch.sigmoid(into) * torch.tanh(new), torch.sigmoid(forget)
    if gates.ndim == cell.ndim:
        return kept * cell + added
    steps, found = range(len(gates)), []
    for step in reversed(steps) if backward else steps:
        cell = kept[step] * cell + added[step]
        found.append(cell)
    return torch.stack(found[::-1] if backward else found)
