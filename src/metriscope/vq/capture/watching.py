"""Watching a forward pass: every activation that is called becomes a named layer with its packed bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8
from torch import Tensor, nn

from metriscope.nn import ACTIVATIONS
from metriscope.vq.capture.activation_calls import Call
from metriscope.vq.capture.interception import (
    Functions,
    HandUp,
    can_follow_leaves,
    leaves_followed,
    modules_followed,
)
from metriscope.vq.capture.listening import FORMULA, HEAD, Findings, Layout, Listener
from metriscope.vq.capture.packing import Pooling, all_finite, pack_reading, pack_values
from metriscope.vq.capture.patterns import Layer
from metriscope.vq.capture.readings import Levels, Reading
from metriscope.vq.capture.selection import Choice, Positions, ValueChoice

__all__ = [
    "NOT_CHOSEN",
    "NOT_POINTS",
    "SHARED",
    "ActivationSite",
    "Keep",
    "NotFinite",
    "Watch",
]

# Returns what is kept of a reading, given its layer and how its positions are pooled, if they are.
Keep = Callable[[Layer, Reading, "Pooling | None"], np.ndarray]


@dataclass(frozen=True)
class ActivationSite:
    """An activation that was seen, as a layer.

    ``reason`` is why it is not captured, empty if it is; ``fault`` is why it cannot be captured although it was chosen.
    """

    layer: Layer
    reason: str = ""
    fault: str = ""


class _LeafReading(NamedTuple):
    """An activation that a module called: the call, the thresholds, and the name of the layer."""

    call: Call
    levels: tuple[float, ...]
    name: str


# Modules that do nothing but call one activation on their input; subclasses may do more.
_ELEMENTWISE = frozenset(row.module for row in ACTIVATIONS.values())


class NotFinite(ValueError):
    """Raised if pre-activations are NaN or infinite, and so have no signs."""


class Watch(Listener):
    """The activations of one model, batch after batch; the first batch determines the layers.

    ``keep`` returns what is kept of each reading; if None, its packed bits. ``values`` says which values are also kept.
    The first axis of an activation is assumed to hold the points, until ``learn`` is called with a probe's findings.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: list[Tensor],
        choice: Choice,
        positions: Positions,
        keep: Keep | None = None,
        values: ValueChoice | None = None,
    ) -> None:
        super().__init__(model, weights)
        self._wanted = values
        # What to do with the output of the most recently recorded activation.
        self._due: Callable[[Tensor], None] | None = None
        self._heads: dict[str, tuple[tuple[int, ...], Tensor]] | None = {} if keep is None else None
        self._keep = keep
        self.sites: dict[str, ActivationSite] = {}
        self._choice, self._positions = choice, positions
        self._settled, self._below = False, self.scripted
        self._model, self._leaves_only = model, False
        self._rows: UInt8[np.ndarray, "n b"] | None = None
        self._batches: ExitStack | None = None
        self._followed = False
        # What was read inside each module that is nothing but an activation, and the layers that need no more checks as
        # long as their values have this shape.
        self._read_in: dict[nn.Module, list[_LeafReading]] = {}
        self._checked: dict[str, tuple[int, ...]] = {}
        # Whether the channels of each activation come last, which the calls before it show.
        self._orders: dict[str, bool] = {}
        self._findings = Findings()
        self._layouts: dict[str, Layout] = {}
        self.unchecked: list[str] = []
        self.mixed: list[str] = []

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Return the captured layers, in the order in which they first ran."""
        return tuple(site.layer for site in self.sites.values() if not site.reason)

    def learn(self, findings: Findings) -> None:
        """Start again with what a probe found: axes of points, kinds of operators, activations in compiled code."""
        self._findings, self.renamed, self.by_hand = findings, findings.renamed, findings.by_hand
        self._below = self._below or findings.below
        self._settled, self.sites, self._layouts, self._read_in = False, {}, {}, {}
        self.unchecked, self.mixed = [], []

    def agrees(self, findings: Findings) -> bool:
        """Return whether the layers of the first batch are those that a probe found, with the points first."""
        self.unchecked, self.mixed = [], []
        if findings.renamed or findings.by_hand or (findings.below and not self._below):
            return False
        for name, (shape, head) in (self._heads or {}).items():
            before = findings.values.get(name)
            if findings.problem or before is None:
                self.unchecked.append(name)
            elif findings.is_shared(name, shape) != (self.sites[name].reason == SHARED):
                return False
            elif not findings.is_shared(name, shape):
                if (shape[0], before.shape) != (self._points, (findings.points, *shape[1:])):
                    return False
                if not findings.agrees(name, Layout(), head):
                    self.mixed.append(name)
        return True

    @contextmanager
    def batch(
        self, points: int, mask: np.ndarray | None = None, rows: UInt8[np.ndarray, "n b"] | None = None
    ) -> Iterator[None]:
        """Watch the forward pass that runs inside the block, of ``points`` points; ``mask`` says which tokens count.

        If the layers are known, their bits can be written into ``rows``, side by side.
        """
        self._begin(points)
        self._mask, self._rows = mask, rows
        self._parts: dict[str, np.ndarray] = {}
        self._values: dict[str, np.ndarray] = {}
        try:
            with self._following():
                yield
        finally:
            self._rows = None
        missing = [layer.name for layer in self.layers if layer.name not in self._parts]
        if missing:
            raise ValueError(f"layer {missing[0]!r} ran in the first batch, but not in a later one")
        if not self._settled:
            self._leaves_only = not (self._below or self.by_hand) and can_follow_leaves(self._model, self._activations)
        self._settled = True

    @contextmanager
    def many_batches(self) -> Iterator[None]:
        """Follow activations once for all batches inside the block, between which the model must not run."""
        try:
            with ExitStack() as self._batches:
                yield
        finally:
            self._batches, self._followed = None, False

    def _following(self) -> AbstractContextManager[None]:
        """Follow what runs inside the block: after the first batch, no more of it than can run activations."""
        if not (self._settled and self._leaves_only):
            return self._all_followed()
        if self._followed:
            return nullcontext()
        leaves = leaves_followed(self._activations, self._inside, self._call, self._at_input())
        if self._batches is None:
            return leaves
        self._batches.enter_context(leaves)
        self._followed = True
        return nullcontext()

    def _at_input(self) -> dict[nn.Module, Callable[[Tensor], None]]:
        """Return how to read the activations that read nothing but their input, and that run once in a pass."""
        if self._wanted is not None and self._wanted.after:
            return {}
        once = {leaf: found[0] for leaf, found in self._read_in.items() if len(found) == 1}
        return {leaf: partial(self._read_again, found) for leaf, found in once.items() if type(leaf) in _ELEMENTWISE}

    def _read_again(self, known: _LeafReading, values: Tensor) -> None:
        reading = Levels(values.detach(), known.levels)
        if self._checked.get(known.name) == values.shape:
            self._parts[known.name] = self._kept(self.sites[known.name].layer, reading, None)
        else:
            self._record(known.call, reading, known.name)

    @contextmanager
    def _all_followed(self) -> Iterator[None]:
        below = HandUp(self._operator) if self._below or self.by_hand else nullcontext()
        with modules_followed(self._names, self._inside), Functions(self._call), below:
            yield

    def forget(self) -> None:
        """Release values that are not needed after the first batch."""
        self._heads, self._findings.values = None, {}

    def parts(self) -> list[np.ndarray]:
        """Return what was kept of the last batch, one array per layer, and forget it."""
        return [self._parts.pop(layer.name) for layer in self.layers]

    def values(self) -> list[np.ndarray]:
        """Return the values of the last batch, one array per layer, and forget them; none if values are not kept."""
        return [self._values.pop(layer.name) for layer in self.layers] if self._wanted else []

    def _record(self, call: Call, reading: Reading, name: str) -> None:
        self._due = None
        if self._settled and self._leaves_only:
            self._channels_last = self._orders.get(name, False)
        else:
            self._orders[name] = self._channels_last
            if self._own and isinstance(reading, Levels):
                self._read_in.setdefault(self._inside[-1], []).append(_LeafReading(call, reading.levels, name))
        shape = tuple(reading.values.shape)
        if self._heads is not None:
            self._heads[name] = shape, reading.values[:HEAD].detach().clone()
        layout, reason = self._place(name, reading)
        if not reason:
            reading = layout.apply(reading)
        layer = self._layer(call, reading, name)
        pooling = self._positions.pooling(layer, self._channels_last, self._mask)
        site = self._site(layer if pooling is None else _pooled(layer), shape, reason)
        if site.reason:
            return
        self._parts[name] = self._kept(layer, reading, pooling)
        if self._wanted is None:
            if self._settled and pooling is None and layout == Layout():
                self._checked[name] = shape
            return
        if not self._wanted.after:
            self._keep_values(layer, reading.values, pooling)
        elif call.seen == FORMULA or call.kind in _UNSEEN_AFTER:
            raise ValueError(f"what layer {name!r} ({call.kind}) returns cannot be read; leave it out with layers=")
        else:
            self._due = lambda result: self._keep_values(layer, layout.points_first(result.reshape(shape)), pooling)

    def _kept(self, layer: Layer, reading: Reading, pooling: Pooling | None) -> np.ndarray:
        if self._keep is not None:
            return self._keep(layer, reading, pooling)
        out = None if self._rows is None else self._rows[:, self._columns[layer.name]]
        packed, finite = pack_reading(reading, pooling, out)
        if not finite:
            raise NotFinite(f"layer {layer.name!r} ({layer.kind}) has pre-activations that are NaN or infinite")
        # No view of the rows may remain: their memory could not grow.
        return packed if out is None else _WRITTEN

    @cached_property
    def _columns(self) -> dict[str, slice]:
        """Return which bytes of a row belong to each layer."""
        ends = list(accumulate(layer.bytes for layer in self.layers))
        return {layer.name: slice(end - layer.bytes, end) for layer, end in zip(self.layers, ends, strict=True)}

    def _done(self, result: Any) -> None:
        if self._due is not None:
            self._due(result[0] if isinstance(result, tuple) else result)
            self._due = None

    def _keep_values(self, layer: Layer, values: Tensor, pooling: Pooling | None) -> None:
        dtype = (self._wanted or ValueChoice(np.dtype(np.float32))).dtype
        found = pack_values(values, dtype, pooling)
        if not all_finite(found):
            raise NotFinite(f"layer {layer.name!r} ({layer.kind}) has values that {dtype} cannot hold")
        self._values[layer.name] = found

    def _place(self, name: str, reading: Reading) -> tuple[Layout, str]:
        """Return where an activation holds the points, and what is wrong if it does not hold them."""
        shape, known = tuple(reading.values.shape), self._layouts.get(name)
        if known is not None:
            return known, "" if known.fits(shape, self._points) else NOT_POINTS
        if name in self.sites:
            return Layout(), self.sites[name].reason
        found, reason = self._findings, ""
        layout: Layout | None = Layout()
        if found.is_shared(name, shape):
            reason = SHARED
        elif name in found.values and not found.problem:
            layout = found.layout(name, reading, self._points)
            reason = "" if layout else NOT_POINTS
        else:
            reason = _axis_fault(shape, self._points)
        if layout is None or reason:
            return Layout(), reason
        if name not in found.values or found.problem:
            self.unchecked.append(name)
        elif not found.agrees(name, layout, reading.values):
            self.mixed.append(name)
        self._layouts[name] = layout
        return layout, ""

    def _site(self, now: Layer, shape: tuple[int, ...], reason: str) -> ActivationSite:
        """Return what is known about a layer, after checking that the current call agrees with it."""
        known = self.sites.get(now.name)
        if known is None:
            known = self._new_site(now, shape, reason)
            self.sites[now.name] = known
        elif not known.reason and reason:
            raise ValueError(f"layer {now.name!r} has the shape {shape} for {self._points} points in a later batch")
        elif not known.reason and (known.layer.shape, known.layer.kind) != (now.shape, now.kind):
            raise ValueError(
                f"layer {now.name!r} was {known.layer.kind} of shape {known.layer.shape} in the first batch "
                f"and is {now.kind} of shape {now.shape} in a later one"
            )
        return known

    def _new_site(self, layer: Layer, shape: tuple[int, ...], reason: str) -> ActivationSite:
        if reason == SHARED or not self._choice.takes(layer, self._inside):
            return ActivationSite(layer, reason or NOT_CHOSEN)
        if self._settled:
            raise ValueError(f"layer {layer.name!r} runs in a later batch, but did not in the first one")
        fault = f"layer {layer.name!r} has the shape {shape} for {self._points} points: {reason}"
        return ActivationSite(layer, reason, fault if reason else "")


# What stands for bits that were written where they belong.
_WRITTEN = np.empty((0, 0), np.uint8)
# Of these kinds only parts are called, or their output is not one value per unit.
_UNSEEN_AFTER = ("softsign", "tanhshrink", "lstm", "gru", "rnn")
NOT_CHOSEN, SHARED, NOT_POINTS = "not chosen", "does not depend on the points", "rows are not points"


def _axis_fault(shape: tuple[int, ...], points: int) -> str:
    """Return what is wrong with a shape whose first axis is not the points, if no probe has found the axis.

    If no axis can be the points, the input of the call is shared by all points, such as a learned scale.
    """
    if shape[0] == points:
        return ""
    hidden = points in shape[1:] or (points > 1 and shape[0] % points == 0)
    return NOT_POINTS if hidden else SHARED


def _pooled(layer: Layer) -> Layer:
    """Return a layer without its positions."""
    if layer.channel_axis is None:
        return layer
    shape = (layer.shape[layer.channel_axis],) + ((layer.bits_per_unit,) if layer.bits_per_unit > 1 else ())
    return replace(layer, width=prod(shape), shape=shape, channel_axis=None)
