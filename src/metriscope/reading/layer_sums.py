"""What a pass over data gathers about one layer: sums, nearest points and a sample of rows, which shards can merge.

Axes: N points, P positions, R rows (positions of all points), K units, C classes, D inputs of a unit.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metriscope.reading.layer_inputs import LayerSource, Site, site_inputs
from metriscope.reading.unit_statistics import ClassCovariances, ClassMoments, NearestPoints, RowSample
from metriscope.vq.capture.batches import Batch

__all__ = ["LayerSums", "gathered"]

# Pre-activations must be smaller, so that their squares are finite.
_LARGEST = 1e150
# How many numbers covariance matrices, and one chunk of pre-activations, may have in memory.
_ROOM, _CHUNK = 1 << 25, 1 << 22


class LayerSums:
    """Everything that one pass over data gathers about a layer; the points are numbered from ``first``."""

    def __init__(self, site: Site, classes: int, codes: np.ndarray | None = None, first: int = 0) -> None:
        self.site, self.codes, self.first, self.points, self.rows = site, codes, first, 0, 0
        self.moments, self.inputs = ClassMoments(classes), ClassCovariances(classes, _ROOM)
        self.sample, self.grouped = RowSample(), False
        self.prototype, self.above, self.below, self.strongest = (NearestPoints() for _ in range(4))

    def add(self, source: LayerSource, batch: Batch) -> None:
        """Run the model on a batch and add what its layer does."""
        with self.site.watched() as calls:
            source.run(batch)
        if not calls:
            raise ValueError(f"the model does not call the layer {self.site.name!r}")
        z = torch.cat([self.site.rows(each, batch.points) for _, each in calls], dim=1).cpu()
        # Plain tensors: what is kept must not depend on a user's subclass of tensors.
        z = z.as_subclass(Tensor)
        if not bool((z.abs() < _LARGEST).all()):
            said = "NaN, infinity or numbers whose squares are infinite"
            raise ValueError(f"the pre-activations of {self.site.name!r} must be finite, got {said}")
        codes = self._codes(batch.points)
        step = max(1, _CHUNK // z[0].numel())
        for start in range(0, batch.points, step):
            self._add_rows(z[start : start + step], codes[start : start + step], self.first + self.points + start)
        for given, _ in calls:
            if self.site.linear is not None and given is not None:
                self._add_inputs(site_inputs(self.site.linear, given, batch.points), codes)
        self.points += batch.points

    def _codes(self, count: int) -> Tensor:
        if self.codes is None:
            return torch.zeros(count, dtype=torch.int64)
        found = torch.as_tensor(self.codes[self.points : self.points + count])
        if len(found) < count:
            raise ValueError(f"labels must have one entry per point, got {len(self.codes)} for more points")
        return found

    def _add_rows(self, given: Float[Tensor, "n p k"], codes: Tensor, first: int) -> None:
        z = given.double()
        rows, own = z.flatten(0, 1), codes.repeat_interleave(z.shape[1])
        self.rows += len(rows)
        self.moments.add(rows, own)
        self.sample.add(z, codes, first)
        far = torch.inf
        self.prototype.add(z.abs().amin(1), first)
        self.above.add(z.masked_fill(z < 0, far).amin(1), first)
        self.below.add((-z).masked_fill(z >= 0, far).amin(1), first)
        # Units are the second axis: activations with a parameter per unit expect them there.
        active = rows if self.site.activate is None else self.site.activate(given.flatten(0, 1).clone()).detach()
        self.strongest.add(-active.double().reshape(z.shape).amax(1), first)

    def _add_inputs(self, x: Tensor | None, codes: Tensor) -> None:
        if x is None or x.shape[-1] ** 2 > _ROOM:
            self.grouped = True
            return
        x = x.cpu().as_subclass(Tensor)
        step = max(1, _CHUNK // x[0].numel())
        for start in range(0, len(x), step):
            part = x[start : start + step].double()
            self.inputs.add(part.flatten(0, 1), codes[start : start + step].repeat_interleave(x.shape[1]))

    def merge(self, other: LayerSums) -> None:
        """Add what was gathered from other points with the same classes."""
        self.points, self.rows = self.points + other.points, self.rows + other.rows
        self.grouped |= other.grouped
        self.moments.merge(other.moments)
        self.inputs.merge(other.inputs)
        self.sample.merge(other.sample)
        self.prototype.merge(other.prototype)
        self.above.merge(other.above)
        self.below.merge(other.below)
        self.strongest.merge(other.strongest)


def gathered(
    source: LayerSource, site: Site, classes: int, codes: np.ndarray | None = None, first: int = 0
) -> LayerSums:
    """Return what a pass over all batches of a source gathers; raise if labels and points differ in number."""
    found = LayerSums(site, classes, codes, first)
    for batch in source.batches():
        found.add(source, batch)
    if codes is not None and found.points != len(codes):
        raise ValueError(f"labels must have one entry per point, got {len(codes)} for {found.points} points")
    return found
