"""A probe: a run on a few points that tells what no captured layer explains, and which axis holds the points.

Axes: N points, T tokens or windows. Two numbers of points tell which axis of a tensor counts them: the one that changes
with them. Where rows are points and tokens folded into one axis, values at both numbers tell which of the two is first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from metriscope.common.model_state import attributes_kept, hooks_aside
from metriscope.vq.capture.activation_calls import Call, Reading, Winners
from metriscope.vq.capture.batches import Batch
from metriscope.vq.capture.listening import Functions, Listener, modules_followed
from metriscope.vq.capture.missed import MissedOperation
from metriscope.vq.capture.operators import (
    COMPARISONS,
    LOOKUPS,
    PRODUCTS,
    USES,
    function_role,
    fused_function,
    operator_name,
    passes_values,
    verdict,
)

__all__ = ["HEAD", "Findings", "Layout", "Probe", "other_points"]

# Most points that a probe has in common with a batch.
HEAD = 3
# Calls after which values can be changed unseen.
_LEAVING = frozenset((Tensor.numpy, Tensor.__array__, Tensor.tolist))
# Share of values that must agree between two runs of the same points, and by how much of the largest they may differ.
_AGREE = 0.9


def other_points(batch: Batch) -> Batch:
    """Return a few of a batch's points, in another number than theirs: two, or three if there are two."""
    count = HEAD if batch.points == 2 else 2
    return batch.take(torch.arange(count) % batch.points)


@dataclass(frozen=True)
class Layout:
    """Where a tensor holds the points: along ``axis``, in which ``tokens`` rows belong to each point.

    Rows of one point are neighbors, or as far apart as there are points if ``tokens_first``.
    """

    axis: int = 0
    tokens: int = 1
    tokens_first: bool = False

    def fits(self, shape: tuple[int, ...], points: int) -> bool:
        """Return whether a tensor of so many points can have a shape."""
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

    ``values`` are those of each activation; ``shared`` the names of those that do not depend on the points; ``renamed``
    the kinds of which recorded operators are parts; ``below`` whether compiled code ran an activation; ``problem`` why
    the model did not run on another number of points.
    """

    points: int = 0
    values: dict[str, Tensor] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    renamed: dict[int, str] = field(default_factory=dict)
    below: bool = False
    problem: str = ""
    operations: tuple[MissedOperation, ...] = ()

    def is_shared(self, name: str, shape: tuple[int, ...]) -> bool:
        """Return whether an activation is the same for all points; one that leaves PyTorch on its way is not."""
        return name in self.shared and name in self.values and tuple(self.values[name].shape) == shape

    def layout(self, name: str, reading: Reading, points: int) -> Layout | None:
        """Return where an activation of so many points holds them; None if that cannot be told."""
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
        """Return whether points that both runs have in common have the same values in both."""
        before, now = layout.points_first(self.values[name]), layout.points_first(values)
        common = min(len(before), len(now))
        if values.device.type == "meta" or not values.is_floating_point():
            return True
        before, now = before[:common].double(), now[:common].double()
        slack = torch.finfo(values.dtype).eps ** 0.5 * now.abs().amax()
        return bool(((before - now).abs() <= slack).double().mean() >= _AGREE)


def _keeps_pool(layout: Layout, reading: Reading) -> bool:
    """Return whether the axis of points is none of those that a pool slides along."""
    return not isinstance(reading, Winners) or layout.axis < reading.values.ndim - len(reading.windows.sizes)


class Probe(Listener):
    """Runs a model on a few points and collects findings; another probe may have ``renamed`` operators already."""

    def __init__(self, model: nn.Module, weights: list[Tensor], renamed: dict[int, str] | None = None) -> None:
        super().__init__(model, weights)
        self.renamed = renamed or {}
        self._model, self._view = model, OperatorView(self._place)

    def run(self, call: Callable[..., Any], batch: Batch, hooks: bool = True) -> Findings:
        """Return the findings of one call of the model, which is left as it was; its own ``hooks`` may be left out."""
        found = self.findings = Findings(batch.points)
        self._begin(batch.points)
        for value in (*batch.args, *batch.kwargs.values()):
            if isinstance(value, Tensor):
                self._view.add_input(value)
        following = modules_followed(self._names, self._inside)
        with (
            attributes_kept(self._model),
            hooks_aside(self._model, hooks),
            following,
            Functions(self._call),
            self._view,
        ):
            call(*batch.args, **batch.kwargs)
        found.renamed = {**self.renamed, **self._view.renamed}
        found.operations = tuple(_operations(self._view.events))
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
            if fused and not outer:
                view.events[events:] = [Event(fused, self._place()[0])]
            elif view.recorded > recorded:
                del view.events[events:]

    def _record(self, call: Call, reading: Reading, name: str) -> None:
        found, view = self.findings, self._view
        found.values[name] = reading.values.detach().clone()
        source = reading.source if isinstance(reading, Winners) else reading.values
        if not view.depends(source):
            found.shared.add(name)
            if len(source) == found.points:
                view.add_input(source)
        found.below |= call.seen == "operator" and view.below
        view.record(call, source, self._number - 1)


@dataclass(eq=False)
class Event:
    """An operator that ran on signals and that no layer explains.

    ``role`` is what it is if it computes no units; ``below`` whether compiled code called it; ``absorbed`` whether
    another event stands for it.
    """

    what: str
    path: str
    role: str = ""
    below: bool = False
    absorbed: bool = False


def _operations(events: list[Event]) -> Iterator[MissedOperation]:
    kept = Counter((one.what, one.role, one.path, one.below) for one in events if not one.absorbed)
    for (what, role, path, below), count in kept.items():
        reason = f"computes no units: {role}" if role else _REASONS[below]
        yield MissedOperation(what, role or "missed", reason, count, path)


_REASONS = ("not one of the known activations", "not one of the known activations; it ran in compiled code")


class OperatorView(TorchDispatchMode):
    """Watches operators on values of points, and collects those that nothing explains.

    Signals are values that depend on the points: floating-point inputs, embeddings, and what is computed from them.
    Decisions are whole numbers and truth values that depend on the points, such as ``x > 0``; those that come from
    comparing signals remember it. ``context`` is the role of a function that is running, if it computes no units;
    ``recorded`` counts captured activations.
    """

    def __init__(self, place: Callable[[], tuple[str, str]]) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.context, self.recorded, self.below = "", 0, False
        self.renamed: dict[int, str] = {}
        self._place = place
        # Weak references keep the address of a storage from being used again.
        self._signals: dict[int, StorageWeakRef] = {}
        self._decisions: dict[int, tuple[StorageWeakRef, frozenset[Event]]] = {}
        self._begun: tuple[str, int] | None = None
        self._parts: dict[int, tuple[str, int, int]] = {}
        self._powers: dict[int, tuple[int, Event]] = {}

    def add_input(self, value: Tensor) -> None:
        """Mark an input of the model: real numbers are signals, whole numbers are decisions."""
        self._add(value, frozenset())

    def _add(self, value: Tensor, events: frozenset[Event]) -> None:
        real = value.is_floating_point() or value.is_complex() or value.is_quantized
        for key, storage in _storages(value):
            if real:
                self._signals[key] = storage
            else:
                self._decisions[key] = storage, events

    def is_signal(self, value: Tensor) -> bool:
        """Return whether a tensor depends on the points; one without a storage of its own is taken to."""
        keys = [key for key, _ in _storages(value)]
        return not keys or any(key in self._signals for key in keys)

    def depends(self, value: Tensor) -> bool:
        """Return whether a tensor depends on the points in any way."""
        return self.is_signal(value) or bool(self._decided([value]))

    def record(self, call: Call, source: Tensor, number: int) -> None:
        """Take note of a recorded activation, which may be a part: softsign is computed from abs, GELU from tanh."""
        self.recorded += 1
        self._begun = (call.kind, number) if call.seen == "operator" and call.kind in ("abs", "tanh") else None
        for key, _ in _storages(source) if call.kind == "tanh" else ():
            if key in self._powers:
                self._powers[key][1].absorbed = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Inside a function that Python called, the mode of functions is set aside.
        below = self.below = bool(_get_current_function_mode_stack())
        given = list(_tensors((args, kwargs or {})))
        signals = [value for value in given if self.is_signal(value)]
        recorded = self.recorded
        out = func(*args, **(kwargs or {}))
        compared = frozenset[Event]().union(*(self._decisions[key][1] for key in self._decided(given)))
        if signals or self._decided(given):
            event = None if self.recorded > recorded else self._judge(func, args, signals, compared, below)
            self._mark(operator_name(func), out, bool(signals or event), frozenset([event]) if event else compared)
            self._follow(operator_name(func), given, out)
        return out

    def _decided(self, given: list[Tensor]) -> list[int]:
        keys = [key for value in given for key, _ in _storages(value)]
        return [key for key in keys if key in self._decisions and key not in self._signals]

    def _judge(
        self, func: Any, args: Any, signals: list[Tensor], compared: frozenset[Event], below: bool
    ) -> Event | None:
        """Note an operator that bends values, and return its event."""
        path, kind = self._place()
        what, role = verdict(func, args, signals, bool(compared), kind)
        if not what:
            return None
        if operator_name(func) in USES:
            for event in compared:
                event.absorbed = True
        found = Event(what, path, self.context or role, below)
        self.events.append(found)
        return found

    def _mark(self, name: str, out: Any, signal: bool, events: frozenset[Event]) -> None:
        """Mark what an operator returned; what is computed from decisions alone stays one until weights come in."""
        if not passes_values(name):
            return
        events = events if name in COMPARISONS or not signal else frozenset()
        for value in _tensors(out):
            if signal or name in PRODUCTS or name in LOOKUPS:
                self._add(value, events)
            else:
                self._decisions.update((key, (storage, events)) for key, storage in _storages(value))

    def _follow(self, name: str, given: list[Tensor], out: Any) -> None:
        """Recognize the formulas of softsign, x / (1 + |x|), tanhshrink, x - tanh(x), and the powers inside a GELU."""
        keys = [next((key for key, _ in _storages(value)), 0) for value in given]
        result = next((key for value in _tensors(out) for key, _ in _storages(value)), 0)
        if self._begun and self._begun[0] == name:
            self._parts[result] = (name, keys[0], self._begun[1])
            self._begun = None
        elif name in ("add", "mul") and len(keys) == 1 and keys[0] in self._parts:
            self._parts[result] = self._parts[keys[0]]
        elif name == "pow" and self.events and self.events[-1].what == name:
            self._powers[result] = keys[0], self.events[-1]
        elif name in ("add", "mul") and (inside := [key for key in keys if key in self._powers]):
            source, power = self._powers[inside[0]]
            if {*keys} <= {inside[0], source}:
                self._powers[result] = source, power
        elif len(keys) == 2 and keys[1] in self._parts:
            kind, source, number = self._parts[keys[1]]
            whole = {("div", "abs"): "softsign", ("sub", "tanh"): "tanhshrink"}.get((name, kind))
            if whole and keys[0] == source:
                self.renamed[number] = whole


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))


def _storages(value: Tensor) -> Iterator[tuple[int, StorageWeakRef]]:
    """Yield the address of the memory that a tensor's values are in, and a weak reference to it."""
    if is_traceable_wrapper_subclass(value):
        for name in value.__tensor_flatten__()[0]:
            yield from _storages(getattr(value, name))
        return
    try:
        storage = value.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return
    yield storage._cdata, StorageWeakRef(storage)
