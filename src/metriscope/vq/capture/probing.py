"""A probe: a run on a few points that tells what no captured layer explains, and which axis holds the points.

Axes: N points, T tokens or windows. Two numbers of points tell which axis of a tensor counts them: the one that changes
with them. Where rows are points and tokens folded into one axis, values at both numbers tell which of the two is first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from metriscope.common.model_state import attributes_kept, hooks_aside
from metriscope.vq.capture.activation_calls import Call
from metriscope.vq.capture.batches import Batch
from metriscope.vq.capture.listening import FORMULA, Functions, Listener, modules_followed
from metriscope.vq.capture.missed import MissedOperation
from metriscope.vq.capture.operator_view import Event, OperatorView, operations
from metriscope.vq.capture.operators import Recipe, function_role, fused_function
from metriscope.vq.capture.readings import Reading, Winners

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
    the kinds of which recorded operators are parts; ``by_hand`` the operators that are activations written by hand;
    ``below`` whether compiled code ran an activation; ``problem`` why the model did not run on another number of
    points.
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
    return not isinstance(reading, Winners) or layout.axis < reading.values.ndim - reading.sliding


class Probe(Listener):
    """Runs a model on a few points and collects findings, which may build on those of an ``earlier`` probe."""

    def __init__(self, model: nn.Module, weights: list[Tensor], earlier: Findings | None = None) -> None:
        super().__init__(model, weights)
        if earlier is not None:
            self.renamed, self.by_hand = earlier.renamed, earlier.by_hand
        self._model, self._view = model, OperatorView(self._place, self._operator)

    def run(self, call: Callable[..., Any], batch: Batch, hooks: bool = True) -> Findings:
        """Return the findings of one call of the model, which is left as it was; its own ``hooks`` may be left out."""
        found, view = Findings(batch.points), self._view
        self.findings = found
        self._begin(batch.points)
        for value in (*batch.args, *batch.kwargs.values()):
            if isinstance(value, Tensor):
                view.add_input(value)
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
