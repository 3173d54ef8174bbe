"""A session of capturing: a model runs batch by batch, is probed after the first, and what was missed is listed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from metriscope.common.model_state import Runner, unwrapped
from metriscope.common.validation import instance, one_of
from metriscope.vq.capture.activation_calls import KINDS
from metriscope.vq.capture.batches import Batch, Reader
from metriscope.vq.capture.listening import Findings, Probe, other_points
from metriscope.vq.capture.missed import Missed, MissedOperation
from metriscope.vq.capture.packing import RowBuffer
from metriscope.vq.capture.selection import Choice, Conv, Positions, Tokens, ValueChoice, Wanted
from metriscope.vq.capture.watching import NOT_POINTS, NotFinite, Watch

__all__ = ["Session"]


class Session:
    """A model, the chosen layers, and what has been captured so far.

    Without ``probing`` it is assumed that the first axis holds the points, and that all activations are known ones.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Wanted,
        device: torch.device | str | None,
        positions: Positions,
        *,
        strict: bool = False,
        axis: int = 0,
        probing: bool = True,
        values: ValueChoice | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.model, self._strict = unwrapped(instance(model, "model", nn.Module)), strict
        # The part of a point's shape that must be the same in all batches.
        last = slice(-1, None) if positions.tokens else slice(None)
        self._fixed = slice(1) if one_of(positions.conv, "conv", get_args(Conv)) == "channels" else last
        if positions.tokens is not None:
            one_of(positions.tokens, "tokens", get_args(Tokens))
        self._choice, self._all = Choice(layers), layers is None
        if device is not None and torch.device(device).type == "meta":
            raise ValueError("tensors on the device 'meta' have no values; name a device that computes")
        self._run = Runner(self.model, device)
        self._read = Reader(self.model, self._run.device, axis)
        self.watch = Watch(self.model, self._run.weights, self._choice, positions, values=values)
        self._autocast = autocast
        self._findings = Findings()
        self._form: tuple[int, ...] | None = None
        self._first, self.axis, self._probing = True, axis, probing

    def run(self, raw: Any, choosing: bool = True, rows: RowBuffer | None = None) -> int:
        """Run a batch, and return its number of points; after the first batch, add its packed bits to ``rows``."""
        batch = self._read(raw)
        del raw
        if batch.points == 0:
            return 0
        self._check_form(batch)
        if rows is not None:
            self._forward(batch, rows.space(batch.points))
            rows.take(batch.points)
            return batch.points
        self._forward(batch)
        if self._first:
            if self._probing:
                self._learn(batch)
            self.watch.forget()
            self._check_found(choosing)
        self._first = False
        return batch.points

    @contextmanager
    def many_calls(self) -> Iterator[None]:
        """Prepare once for all batches that run inside the block, in which no other model may run."""
        with self._run.many_calls(), self.watch.many_batches():
            yield

    def _learn(self, batch: Batch) -> None:
        """Run a probe, and the first batch again if the probe shows that its layers were not read correctly."""
        hooked = any(module._forward_hooks or module._forward_pre_hooks for module in self.model.modules())
        for hooks in (False, True) if hooked else (True,):
            self._findings = found = self._probe(batch, hooks)
            agrees = self.watch.agrees(found)
            if agrees and not (found.problem or self.watch.mixed or self.watch.unchecked):
                break
        if not agrees:
            self.watch.learn(found)
            self._forward(batch)

    def _forward(self, batch: Batch, rows: UInt8[np.ndarray, "n b"] | None = None) -> None:
        try:
            with self.watch.batch(batch.points, _mask(batch), rows):
                self._call(*batch.args, **batch.kwargs)
        except NotFinite as error:
            raise ValueError(f"{error}{_about_points(batch)}") from None
        except RuntimeError as error:
            # Later batches have the form of the first one: an error in them comes from the model itself and is not
            # rephrased.
            if not self._first or isinstance(error, NotImplementedError):
                raise
            said = str(error).splitlines()[0]
            raise ValueError(f"the model does not run on a batch of data {_form(batch)}: {said}") from error

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if self._autocast is None:
            return self._run(*args, **kwargs)
        with torch.autocast((self._run.device or torch.device("cpu")).type, self._autocast):
            return self._run(*args, **kwargs)

    def _probe(self, batch: Batch, hooks: bool) -> Findings:
        """Return what a probe finds on a batch of another size, or of the same size if the model accepts no other."""
        found = self._probed(other_points, batch, hooks)
        if isinstance(found, Findings):
            return found
        problem = f"the model does not run on another number of points ({found})"
        same = self._probed(lambda whole: whole, batch, hooks)
        return replace(same, problem=problem) if isinstance(same, Findings) else Findings(problem=problem)

    def _probed(self, some: Callable[[Batch], Batch], batch: Batch, hooks: bool) -> Findings | str:
        """Return what a probe finds on some points, or the error message if the model does not run on them."""
        try:
            points = some(batch)
            found = Probe(self.model, self._run.weights).run(self._call, points, hooks)
            if found.renamed or found.by_hand:
                found = Probe(self.model, self._run.weights, found).run(self._call, points, hooks)
        except Exception as error:  # whatever a model raises; it has run on the batch itself
            lines = str(error).splitlines()
            return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        return found

    @property
    def missed(self) -> Missed:
        """Return what ran and was not captured."""
        layers, sites = self.watch.layers, self.watch.sites.values()
        dropped = [
            MissedOperation(site.layer.kind, "dropped", site.reason, 1, site.layer.name)
            for site in sites
            if site.reason == NOT_POINTS
        ]
        return Missed(len(layers), (*self._findings.operations, *dropped), tuple(self._doubts()))

    def _doubts(self) -> Iterator[str]:
        taken = {layer.name for layer in self.watch.layers}
        unchecked, mixed = taken.intersection(self.watch.unchecked), taken.intersection(self.watch.mixed)
        if self._findings.problem:
            yield f"not checked which axis holds the points: {self._findings.problem}"
        elif unchecked:
            yield f"not checked which axis of {_layers(unchecked)} holds the points"
        if mixed:
            yield f"rows of {_layers(mixed)} change with the other points of a batch, or by chance"

    def _check_form(self, batch: Batch) -> None:
        """Raise if points do not have the shape of the first ones; pooled positions may vary in number."""
        form = None if batch.form is None else batch.form[self._fixed]
        if self._first:
            self._form = form
        if form != self._form:
            raise ValueError(f"a batch has points of shape {form}, but those of the first batch have {self._form}")

    def _check_found(self, choosing: bool) -> None:
        """Check that activations ran, that every choice matched one, and that the chosen layers can be captured."""
        sites = self.watch.sites.values()
        if not sites:
            ran = f" ({self.missed})" if self.missed else ""
            raise ValueError(f"the model ran no known activation{ran}; the known ones are {', '.join(sorted(KINDS))}")
        unmatched = self._choice.unmatched()
        there = ", ".join(f"{site.layer.name!r} ({site.layer.kind})" for site in sites)
        if unmatched:
            raise ValueError(f"no layer matches {', '.join(unmatched)}; there are {there}")
        fault = next((site.fault for site in sites if site.fault), "")
        if fault and choosing and not (self._all and self.watch.layers):
            raise ValueError(f"{fault}; leave it out with layers=")
        if not self.watch.layers and choosing:
            raise ValueError(f"no activation was selected among {there}")
        if self._strict and self.missed:
            raise ValueError(f"strict: {self.missed}")


def _mask(batch: Batch) -> np.ndarray | None:
    """Return which tokens of each point count, if the data says so."""
    mask = batch.kwargs.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        return None
    moved = mask.movedim(batch.axis, 0)
    return (moved != 0).cpu().numpy() if len(moved) == batch.points else None


def _layers(names: Collection[str]) -> str:
    return f"{len(names)} layer{'' if len(names) == 1 else 's'}"


def _tensors(batch: Batch) -> list[Tensor]:
    return [value for value in (*batch.args, *batch.kwargs.values()) if isinstance(value, Tensor)]


def _about_points(batch: Batch) -> str:
    """Return whether the points of a batch are finite, as the end of an error message."""
    for value in _tensors(batch):
        if count := int((~value.isfinite()).sum()):
            return f", as are {count} of {value.numel()} entries of a batch of data"
    return ", although the points are finite"


def _form(batch: Batch) -> str:
    shapes = [f"{tuple(one.shape)} in {str(one.dtype).removeprefix('torch.')}" for one in _tensors(batch)]
    return f"of shape {' and '.join(shapes)}"
