"""Listening to a forward pass: every call of a PyTorch function, and the name of the module that makes it.

A mode of PyTorch's function dispatch sees modules, functions, methods and in-place forms alike, each before it runs.
TorchScript runs below that level; where a network contains it, a second mode passes every operator to the first.
Activations written by hand, such as ``torch.where(x > 0, x, 0)``, are read from operators that a probe has found.
A layer is named by the innermost module that was running; where that module is more than an activation, the
name of the function is added, as in ``block.relu()``; the second use of the same name ends in ``#2``.

A probe listens to a run on a few points. It finds what no captured layer explains, and which axis holds the points: the
one whose length changes with the number of points. Where points and tokens are folded into one axis, comparing the
values of both runs tells which of the two comes first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

from metriscope.common.model_state import attributes_kept, hooks_aside
from metriscope.vq.capture.activation_calls import (
    CALLS,
    CHANNELS_FIRST,
    CHANNELS_LAST,
    RECURRENT,
    Call,
    recurrent_gates,
)
from metriscope.vq.capture.batches import Batch
from metriscope.vq.capture.interception import Functions, modules_followed
from metriscope.vq.capture.missed import MissedOperation
from metriscope.vq.capture.operator_view import Event, OperatorView, operations
from metriscope.vq.capture.operators import BY_HAND, Recipe, function_role, fused_function, operator_name
from metriscope.vq.capture.patterns import Layer
from metriscope.vq.capture.readings import Reading, Winners

__all__ = ["FORMULA", "HEAD", "Findings", "Layout", "Listener", "Probe", "other_points"]

# The name under which an activation written by hand is called.
FORMULA = "formula"


class Listener:
    """Reads the activations that one model calls, batch after batch, and gives each a name.

    ``renamed`` gives the kind of which an operator is a part, by its number in the pass: softsign is computed from abs.
    ``by_hand`` says which operators are activations written by hand, and how to read them.
    """

    def __init__(self, model: nn.Module, weights: list[Tensor]) -> None:
        self._names = {module: name for name, module in model.named_modules()}
        self._activations = frozenset(module for module in self._names if _is_an_activation(module))
        self._weights = {weight.untyped_storage().data_ptr() for weight in weights} - {0}
        self.scripted = any(isinstance(module, torch.jit.ScriptModule) for module in self._names)
        self.renamed: dict[int, str] = {}
        self.by_hand: dict[str, Recipe] = {}
        self._reading = False
        self._inside: list[nn.Module] = []
        self._begin(0)

    def _begin(self, points: int) -> None:
        self._points, self._channels_last, self._number = points, False, 0
        self._inside.clear()
        self._uses: Counter[str] = Counter()
        self._operators: Counter[str] = Counter()

    @abstractmethod
    def _record(self, call: Call, reading: Reading, name: str) -> None:
        """Record an activation."""

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call. An activation is read before it runs, because it may overwrite its own input."""
        if self._reading:
            return function(*args, **kwargs)
        call = CALLS.get(function)
        if call is None:
            if function in RECURRENT:
                return self._recurrent(function, args, kwargs)
            if function in CHANNELS_LAST or function in CHANNELS_FIRST:
                self._channels_last = function in CHANNELS_LAST
            return function(*args, **kwargs)
        reading = call.read(*args, **kwargs) if self._is_activation(args, kwargs) else None
        if reading is None:
            return function(*args, **kwargs)
        self._note(call, reading)
        result = function(*args, **kwargs) if reading.result is None else reading.result
        self._done(result)
        return result

    def _done(self, result: Any) -> None:
        """Note what the most recently recorded activation has returned."""

    def _note(self, call: Call, reading: Reading) -> None:
        kind = self.renamed.get(self._number, reading.kind)
        call = call.of_kind(kind) if kind else call
        self._number += 1
        self._take(call, reading)

    def _recurrent(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run all steps of a recurrent layer and read its gates."""
        out = function(*args, **kwargs)
        if not kwargs and self._is_activation(args, kwargs):
            self._channels_last, call = True, RECURRENT[function]
            for reading in recurrent_gates(function, args, out, call.kind):
                self._note(call, reading)
        return out

    def _operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Read an operator before it runs, if it is an activation written by hand, and return its key.

        The key is the running module, the operator's name and how often it has run there; empty if it cannot be an
        activation.
        """
        name = operator_name(func)
        if self._reading or name not in BY_HAND:
            return ""
        place = f"{self._names[self._inside[-1]] if self._inside else ''}:{name}"
        self._operators[place] += 1
        key = f"{place}#{self._operators[place]}"
        recipe = self.by_hand.get(key)
        if recipe is not None:
            self._reading = True
            reading = recipe.read(name, args, kwargs)
            self._take(Call(recipe.kind, recipe.piecewise_affine, recipe.read, FORMULA), reading)
        return key

    def _take(self, call: Call, reading: Reading) -> None:
        """Record an activation; operators that run for the recording do not count as the model's."""
        self._reading = True
        try:
            self._record(call, reading, self._name(call.kind))
        finally:
            self._reading = False

    def _is_activation(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether a call is given values of points: real numbers that are not the model's own weights."""
        x = args[0] if args else kwargs.get("input")
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim == 0 or x.numel() == 0:
            return False
        if is_functorch_wrapped_tensor(x):
            raise ValueError("an activation runs inside torch.vmap or torch.func, where its values cannot be read")
        return x.layout == torch.strided and x.untyped_storage().data_ptr() not in self._weights

    def _layer(self, call: Call, reading: Reading, name: str) -> Layer:
        """Return the layer that an activation call belongs to, before its positions are pooled into channels."""
        units = tuple(reading.values.shape[1:]) or (1,)
        axis = None if len(units) < 2 else len(units) - 1 if self._channels_last else 0
        shape = units if reading.bits == 1 else (*units, reading.bits)
        seen = "module" if self._own and call.seen != "operator" else call.seen
        return Layer(name, prod(shape), call.kind, call.piecewise_affine, shape, seen, reading.bits, axis)

    @property
    def _own(self) -> bool:
        """Whether the innermost module is nothing but an activation."""
        return bool(self._inside) and self._inside[-1] in self._activations

    def _name(self, kind: str) -> str:
        path = self._names[self._inside[-1]] if self._inside else ""
        base = path or kind if self._own else f"{path}.{kind}()".removeprefix(".")
        self._uses[base] += 1
        return base if self._uses[base] == 1 else f"{base}#{self._uses[base]}"


def _is_an_activation(module: nn.Module) -> bool:
    """Return whether a module is nothing but an activation: no modules inside, and no weights unless it is a PReLU."""
    bare = next(module.parameters(recurse=False), None) is None or isinstance(module, nn.PReLU)
    return bare and next(module.children(), None) is None


# Most points that a probe has in common with a batch.
HEAD = 3
# Calls after which values can be changed without a further call.
_LEAVING = frozenset((Tensor.numpy, Tensor.__array__, Tensor.tolist))
# Share of values that must agree between two runs of the same points, and how far they may differ, relative to the
# largest.
_AGREE = 0.9


def other_points(batch: Batch) -> Batch:
    """Return a few points of a batch, as a batch of another size: two points, or three if the batch has two."""
    count = HEAD if batch.points == 2 else 2
    return batch.take(torch.arange(count) % batch.points)


@dataclass(frozen=True)
class Layout:
    """Where a tensor holds the points: along ``axis``, in which ``tokens`` rows belong to each point.

    The rows of one point are neighbors; with ``tokens_first`` they are as far apart as there are points.
    """

    axis: int = 0
    tokens: int = 1
    tokens_first: bool = False

    def fits(self, shape: tuple[int, ...], points: int) -> bool:
        """Return whether a tensor of ``points`` points can have this shape."""
        return self.axis < len(shape) and shape[self.axis] == points * self.tokens

    def points_first(self, values: Tensor) -> Tensor:
        """Return values with an axis of points first, followed by one of tokens if there are several."""
        moved = values.movedim(self.axis, 0)
        if self.tokens == 1:
            return moved
        if self.tokens_first:
            return moved.unflatten(0, (self.tokens, -1)).transpose(0, 1)
        return moved.unflatten(0, (-1, self.tokens))

    def apply(self, reading: Reading) -> Reading:
        """Return a reading whose values have the points first."""
        if self == Layout():
            return reading
        if isinstance(reading, Winners):
            indices = self.points_first(reading.indices)
            return replace(reading, values=self.points_first(reading.values), indices=indices)
        return replace(reading, values=self.points_first(reading.values))


@dataclass
class Findings:
    """What a probe of ``points`` points found.

    ``values`` are those of each activation; ``shared`` are the names of activations that do not depend on the points;
    ``renamed`` are the kinds of which recorded operators are parts; ``by_hand`` are the operators that are activations
    written by hand; ``below`` says whether compiled code ran an activation; ``problem`` is why the model did not run
    on a batch of another size.
    """

    points: int = 0
    values: dict[str, Tensor] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    renamed: dict[int, str] = field(default_factory=dict)
    by_hand: dict[str, Recipe] = field(default_factory=dict)
    below: bool = False
    problem: str = ""
    operations: tuple[MissedOperation, ...] = ()

    def is_shared(self, name: str, shape: tuple[int, ...]) -> bool:
        """Return whether an activation is the same for all points; False if its input was computed outside PyTorch."""
        return name in self.shared and name in self.values and tuple(self.values[name].shape) == shape

    def layout(self, name: str, reading: Reading, points: int) -> Layout | None:
        """Return where an activation of ``points`` points holds them; None if that cannot be determined."""
        before, now = self.values[name], reading.values
        candidates = [one for one in self._candidates(before.shape, now.shape, points) if _keeps_pool(one, reading)]
        if len(candidates) > 1:
            candidates = [one for one in candidates if self.agrees(name, one, now)]
        return candidates[0] if len(candidates) == 1 else None

    def _candidates(self, before: torch.Size, now: torch.Size, points: int) -> Iterator[Layout]:
        if len(before) != len(now):
            return
        changed = [axis for axis, sizes in enumerate(zip(before, now, strict=True)) if sizes[0] != sizes[1]]
        if len(changed) != 1 or now[changed[0]] % points:
            return
        axis, tokens = changed[0], now[changed[0]] // points
        if before[axis] != tokens * self.points:
            return
        yield Layout(axis, tokens)
        if tokens > 1:
            yield Layout(axis, tokens, tokens_first=True)

    def agrees(self, name: str, layout: Layout, values: Tensor) -> bool:
        """Return whether the points that are in both runs have the same values in both."""
        before, now = layout.points_first(self.values[name]), layout.points_first(values)
        common = min(len(before), len(now))
        if values.device.type == "meta" or not values.is_floating_point():
            return True
        before, now = before[:common].double(), now[:common].double()
        slack = torch.finfo(values.dtype).eps ** 0.5 * now.abs().amax()
        return bool(((before - now).abs() <= slack).double().mean() >= _AGREE)


def _keeps_pool(layout: Layout, reading: Reading) -> bool:
    """Return whether a pool does not slide along the axis of points."""
    return not isinstance(reading, Winners) or layout.axis < reading.values.ndim - reading.sliding


class Probe(Listener):
    """Runs a model on a few points and collects findings, which may use those of an ``earlier`` probe."""

    def __init__(self, model: nn.Module, weights: list[Tensor], earlier: Findings | None = None) -> None:
        super().__init__(model, weights)
        if earlier is not None:
            self.renamed, self.by_hand = earlier.renamed, earlier.by_hand
        self._model, self._view = model, OperatorView(self._place, self._operator)

    def run(self, call: Callable[..., Any], batch: Batch, hooks: bool = True) -> Findings:
        """Return the findings of one call of the model, which is not changed; its own ``hooks`` may be skipped."""
        found, view = Findings(batch.points), self._view
        self.findings = found
        self._begin(batch.points)
        for name, value in (*(("", one) for one in batch.args), *batch.kwargs.items()):
            if isinstance(value, Tensor):
                view.add_input(value, "mask" in name)
        following = modules_followed(self._names, self._inside)
        with attributes_kept(self._model), hooks_aside(self._model, hooks), following, Functions(self._call), view:
            call(*batch.args, **batch.kwargs)
        found.renamed = {**self.renamed, **view.renamed}
        found.by_hand = {one.key: one.recipe for one in view.events if one.recipe and one.taken}
        found.operations = tuple(operations(view.events))
        return found

    def _place(self) -> tuple[str, str]:
        """Return the name and the type of the innermost module."""
        return (self._names[self._inside[-1]], type(self._inside[-1]).__name__) if self._inside else ("", "")

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        view, outer, fused = self._view, self._view.context, fused_function(function)
        if function in _LEAVING and view.depends(args[0]):
            view.events.append(Event("numpy", self._place()[0]))
        recorded, events = view.recorded, len(view.events)
        view.context = outer or fused or function_role(function)
        try:
            return super()._call(function, args, kwargs)
        finally:
            view.context = outer
            if view.recorded > recorded:
                del view.events[events:]
            elif fused and not outer:
                view.events[events:] = [Event(fused, self._place()[0])]

    def _record(self, call: Call, reading: Reading, name: str) -> None:
        found, view = self.findings, self._view
        found.values[name] = reading.values.detach().clone()
        if call.seen == FORMULA:
            return
        source = reading.source if isinstance(reading, Winners) else reading.values
        if not view.depends(source):
            found.shared.add(name)
            if len(source) == found.points:
                view.add_input(source)
        found.below |= call.seen == "operator" and view.below
        view.record(call, source, self._number - 1)
