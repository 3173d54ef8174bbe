"""Watching a forward pass: every activation that is called, in any form, as a named layer with its packed bits.

A mode of PyTorch's function dispatch sees modules, functions, methods and in-place forms alike, each before it runs.
TorchScript runs below that level; a network that holds such a module is watched at the operator dispatcher instead.
A layer is named by the innermost module that was running; where that module is more than an activation, the
function follows, as in ``block.relu()``; the second use of the same name ends in ``#2``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod
from threading import get_ident
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from metriscope.vq.capture.activation_calls import CALLS, CHANNELS_FIRST, CHANNELS_LAST, Call, Reading
from metriscope.vq.capture.packing import pack_reading
from metriscope.vq.capture.patterns import Layer

__all__ = ["ActivationSite", "Choice", "Conv", "Keep", "NotFinite", "Wanted", "Watch"]

One: TypeAlias = "str | type[nn.Module] | nn.Module | Callable[[Layer], bool]"
Wanted: TypeAlias = "One | Sequence[One] | None"
Conv = Literal["positions", "channels"]
# What is kept of a reading: given its layer, and the axis of channels if positions are pooled.
Keep = Callable[[Layer, Reading, "int | None"], np.ndarray]


class Choice:
    """The layers to capture, by name, glob, type of module, module or a test of the layer; None for all.

    It remembers which of its entries have matched a layer.
    """

    def __init__(self, wanted: Wanted) -> None:
        listed: Any = wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
        self._wanted: list[One] | None = None if wanted is None else [_checked(one) for one in listed]
        self._matched: set[int] = set()

    def takes(self, layer: Layer, inside: Sequence[nn.Module]) -> bool:
        """Return whether a layer is wanted; ``inside`` are the modules that were running, the innermost last."""
        if self._wanted is None:
            return True
        matches = [place for place, one in enumerate(self._wanted) if _matches(one, layer, inside)]
        self._matched.update(matches)
        return bool(matches)

    def unmatched(self) -> list[str]:
        """Return the entries that matched no layer, as text."""
        return [_text(one) for place, one in enumerate(self._wanted or []) if place not in self._matched]


def _checked(one: One) -> One:
    wrong = isinstance(one, type) and not issubclass(one, nn.Module)
    if wrong or not (isinstance(one, str) or callable(one)):
        raise ValueError(
            f"layers are chosen by name, glob, type of module, module or a function of the layer, got {one!r}"
        )
    return one


def _matches(one: One, layer: Layer, inside: Sequence[nn.Module]) -> bool:
    if isinstance(one, str):
        return layer.name == one or fnmatchcase(layer.name, one)
    if isinstance(one, type):
        return any(isinstance(module, one) for module in inside)
    if isinstance(one, nn.Module):
        return any(module is one for module in inside)
    return bool(one(layer))


def _text(one: One) -> str:
    if isinstance(one, nn.Module):
        return f"this {type(one).__name__}"
    return repr(one) if isinstance(one, str) else getattr(one, "__qualname__", repr(one))


@dataclass(frozen=True)
class ActivationSite:
    """An activation that was seen, as a layer.

    ``reason`` says why it is not captured, empty if it is; ``fault`` why it cannot be, although it was chosen.
    """

    layer: Layer
    reason: str = ""
    fault: str = ""


class NotFinite(ValueError):
    """Pre-activations are NaN or infinite, and have no signs."""


class Watch:
    """The activations of one model, batch after batch; the first batch determines the layers.

    ``keep`` says what is kept of each reading: its packed bits, if None.
    """

    def __init__(
        self, model: nn.Module, weights: list[Tensor], choice: Choice, conv: Conv, keep: Keep | None = None
    ) -> None:
        self._keep = keep or _packed
        self.sites: dict[str, ActivationSite] = {}
        self._names = {module: name for name, module in model.named_modules()}
        self._scripted = any(isinstance(module, torch.jit.ScriptModule) for module in self._names)
        self._weights = {weight.untyped_storage().data_ptr() for weight in weights} - {0}
        self._choice, self._conv = choice, conv
        self._settled = False
        self._begin(0)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Return the layers that are taken, in the order in which they first ran."""
        return tuple(site.layer for site in self.sites.values() if not site.reason)

    @contextmanager
    def batch(self, points: int) -> Iterator[None]:
        """Watch what runs inside the block, a forward pass of so many points."""
        self._begin(points)
        mode = _Operators(self._call) if self._scripted else _Functions(self._call)
        with _modules_followed(self._names, self._inside), mode:
            yield
        missing = [layer.name for layer in self.layers if layer.name not in self._parts]
        if missing:
            raise ValueError(f"layer {missing[0]!r} ran in the first batch, but not in a later one")
        self._settled = True

    def parts(self) -> list[np.ndarray]:
        """Return what was kept of the last batch, one array per layer, and forget it."""
        return [self._parts.pop(layer.name) for layer in self.layers]

    def _begin(self, points: int) -> None:
        self._points, self._channels_last = points, False
        self._inside: list[nn.Module] = []
        self._uses: Counter[str] = Counter()
        self._parts: dict[str, np.ndarray] = {}

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call, and read it before it runs if it is an activation: it may overwrite its own input."""
        call = CALLS.get(function)
        if call is None:
            if function in CHANNELS_LAST or function in CHANNELS_FIRST:
                self._channels_last = function in CHANNELS_LAST
            return function(*args, **kwargs)
        reading = call.read(*args, **kwargs) if self._is_activation(args, kwargs) else None
        if reading is None:
            return function(*args, **kwargs)
        self._record(call, reading)
        return function(*args, **kwargs) if reading.result is None else reading.result

    def _is_activation(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether a call is given values of points: real numbers, and not one of the model's own weights."""
        x = args[0] if args else kwargs.get("input")
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim == 0 or x.numel() == 0:
            return False
        if is_functorch_wrapped_tensor(x):
            raise ValueError("an activation runs inside torch.vmap or torch.func, where its values cannot be read")
        return x.layout == torch.strided and x.untyped_storage().data_ptr() not in self._weights

    def _record(self, call: Call, reading: Reading) -> None:
        layer = self._layer(call, reading)
        site = self._site(layer, tuple(reading.values.shape))
        if site.reason:
            return
        self._parts[layer.name] = self._keep(layer, reading, layer.channel_axis if self._conv == "channels" else None)

    def _layer(self, call: Call, reading: Reading) -> Layer:
        """Return the layer that an activation call belongs to, before its positions are pooled into channels."""
        units = tuple(reading.values.shape[1:]) or (1,)
        axis = None if len(units) < 2 else len(units) - 1 if self._channels_last else 0
        shape = units if reading.bits == 1 else (*units, reading.bits)
        module = self._inside[-1] if self._inside else None
        own = module is not None and _is_an_activation(module)
        # The module ReLU6 calls hardtanh, and is known by its own name.
        kind = "relu6" if getattr(reading, "levels", None) == (0.0, 6.0) and call.kind == "hardtanh" else call.kind
        name = self._name(module, kind, own)
        seen = "module" if own and call.seen != "operator" else call.seen
        return Layer(name, prod(shape), kind, call.piecewise_affine, shape, seen, reading.bits, axis)

    def _name(self, module: nn.Module | None, kind: str, own: bool) -> str:
        path = "" if module is None else self._names[module]
        base = path or kind if own else f"{path}.{kind}()".removeprefix(".")
        self._uses[base] += 1
        return base if self._uses[base] == 1 else f"{base}#{self._uses[base]}"

    def _site(self, layer: Layer, shape: tuple[int, ...]) -> ActivationSite:
        """Return what is known about a layer, after checking that the current call agrees with it."""
        now = _pooled(layer) if self._conv == "channels" else layer
        astray = _astray(shape, self._points)
        known = self.sites.get(layer.name)
        if known is None:
            known = self._new_site(now, shape, astray)
            self.sites[layer.name] = known
        elif not known.reason and astray:
            raise ValueError(f"layer {layer.name!r} has the shape {shape} for {self._points} points in a later batch")
        elif not known.reason and (known.layer.shape, known.layer.kind) != (now.shape, now.kind):
            raise ValueError(
                f"layer {layer.name!r} was {known.layer.kind} of shape {known.layer.shape} in the first batch "
                f"and is {now.kind} of shape {now.shape} in a later one"
            )
        return known

    def _new_site(self, layer: Layer, shape: tuple[int, ...], astray: str) -> ActivationSite:
        if astray == _NO_POINTS or not self._choice.takes(layer, self._inside):
            return ActivationSite(layer, astray or "not chosen")
        if self._settled:
            raise ValueError(f"layer {layer.name!r} runs in a later batch, but did not in the first one")
        fault = f"layer {layer.name!r} has the shape {shape} for {self._points} points: {astray}"
        return ActivationSite(layer, astray, fault if astray else "")


def _packed(layer: Layer, reading: Reading, pooled: int | None) -> np.ndarray:
    packed, finite = pack_reading(reading, pooled)
    if not finite:
        raise NotFinite(f"layer {layer.name!r} ({layer.kind}) has pre-activations that are NaN or infinite")
    return packed


_NO_POINTS = "no axis has one entry per point"
_OTHER_AXIS = "its first axis does not have one entry per point"


def _astray(shape: tuple[int, ...], points: int) -> str:
    """Return what is wrong with a shape whose first axis is not the points.

    If no axis can be the points, the call works on something that they share, such as a learned scale.
    """
    if shape[0] == points:
        return ""
    hidden = points in shape[1:] or (points > 1 and shape[0] % points == 0)
    return _OTHER_AXIS if hidden else _NO_POINTS


def _pooled(layer: Layer) -> Layer:
    """Return a layer without its positions."""
    if layer.channel_axis is None:
        return layer
    shape = (layer.shape[layer.channel_axis],) + ((layer.bits_per_unit,) if layer.bits_per_unit > 1 else ())
    return replace(layer, width=prod(shape), shape=shape, channel_axis=None)


def _is_an_activation(module: nn.Module) -> bool:
    """Return whether a module is nothing but an activation: no modules inside, and no weights unless it is a PReLU."""
    bare = next(module.parameters(recurse=False), None) is None or isinstance(module, nn.PReLU)
    return bare and next(module.children(), None) is None


@contextmanager
def _modules_followed(names: dict[nn.Module, str], inside: list[nn.Module]) -> Iterator[None]:
    """Keep in ``inside`` the known modules that are running in this thread, the innermost last.

    It uses PyTorch's global hooks, so the model's own hooks are not changed.
    """
    thread = get_ident()

    def enter(module: nn.Module, _: Any) -> None:
        if module in names and get_ident() == thread:
            inside.append(module)

    def leave(module: nn.Module, _: Any, __: Any) -> None:
        if inside and inside[-1] is module and get_ident() == thread:
            inside.pop()

    entering = register_module_forward_pre_hook(enter)
    leaving = register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        entering.remove()
        leaving.remove()


class _HandsOn:
    """A mode that passes every call to a function."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call = call


class _Functions(_HandsOn, TorchFunctionMode):
    """Passes on every call of a PyTorch function or method."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._call(func, args, kwargs or {})


class _Operators(_HandsOn, TorchDispatchMode):
    """Passes on every operator that reaches the dispatcher."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._call(func, args, kwargs or {})
