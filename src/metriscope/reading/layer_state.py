"""A layer read as distances from points in shards: update states with shards, merge them, compute at the end.

Axes: N points, C classes, K units. Points are numbered through all shards; these numbers identify points in the
reading, and decide which rows are sampled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import nn

from metriscope.common.validation import instance, integer, label_array
from metriscope.reading.layer_inputs import LayerSource, Site, locate
from metriscope.reading.layer_reading import LayerReading, effects_on, reading_of
from metriscope.reading.layer_sums import LayerSums, gathered

__all__ = ["LayerState"]

Spans = list[tuple[int, int]]


class LayerState:
    """The :func:`read_layer` of a network over shards of points; it keeps its model and at most 4,096 rows.

    Merging in another order changes means, deviations and what follows from them by rounding only, and everything else
    not at all: shares of rows, extremes, the nearest points, and the sample of rows behind ``gaussians`` and
    ``information``. Kinds of units are found by perturbing them, which needs points: pass them to :meth:`compute`.

    Parameters
    ----------
    model : torch.nn.Module
        Any network; it is not changed.
    layer : str or torch.nn.Module
        The layer, as for :func:`read_layer`.
    classes : array of int or str, optional
        All labels that can occur; without them, no labels are read.

    Raises
    ------
    ValueError
        If the classes are neither integers nor text.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
    >>> _ = model.load_state_dict({"0.weight": torch.tensor([[1.0], [-1.0]]), "0.bias": torch.tensor([-1.0, 1.0])})
    >>> one, other = LayerState(model, "0"), LayerState(model, "0")
    >>> _ = one.update(np.array([[0.0]])), other.update(np.array([[4.0]]), first=1)
    >>> one.merge(other).compute().to_pandas()[["unit", "status", "mirrored_with", "offset"]]
       unit  status  mirrored_with  offset
    0     0  active              1     0.5
    1     1  active              0     0.5
    """

    def __init__(self, model: nn.Module, layer: str | nn.Module, classes: Any = None) -> None:
        self.model, self.layer = instance(model, "model", nn.Module), layer
        self._names = None if classes is None else np.unique(label_array(classes, "classes", len(classes)))
        self._spans: Spans = []
        self._sums: LayerSums | None = None

    @property
    def points(self) -> int:
        """Number of points so far."""
        return 0 if self._sums is None else self._sums.points

    def update(self, data: Any, labels: Any = None, first: int | None = None, batch_size: int = 1024) -> LayerState:
        """Add the points of one shard, and return the state.

        Parameters
        ----------
        data : tensor, array, mapping, data set or loader
            The points of the shard, as for :func:`read_layer`.
        labels : array of int or str, optional
            One label per point, if the state has classes.
        first : int, optional
            Index of the shard's first point among all points; by default the one after the last point of this state.
        batch_size : int
            How many points to run at once, unless the data comes in batches.

        Raises
        ------
        ValueError
            If points were already added, the labels do not fit, or the model does not run on the points.
        """
        start = integer(self._next() if first is None else first, "first", 0)
        source = LayerSource(self.model, data, integer(batch_size, "batch_size"))
        codes = self._codes(labels, source.expected)
        site = locate(source, self.layer)
        with source.opened():
            found = gathered(source, site, 1 if self._names is None else len(self._names), codes, start)
        return self._add(found, [(start, start + found.points)])

    def merge(self, other: LayerState) -> LayerState:
        """Add the points of another state, and return this one.

        Raises
        ------
        ValueError
            If the layers or classes differ, or a point is in both states.
        """
        ours, theirs = self._names, instance(other, "other", LayerState)._names
        if (ours is None) != (theirs is None) or not np.array_equal(ours, theirs):  # type: ignore[arg-type]
            raise ValueError("states to merge must have the same classes")
        return self if other._sums is None else self._add(other._sums, other._spans)

    def compute(self, data: Any = None, labels: Any = None, batch_size: int = 1024, probed: int = 1000) -> LayerReading:
        """Return the reading of all points so far; units are perturbed on points of ``data``.

        Parameters
        ----------
        data : tensor, array, mapping, data set or loader, optional
            Points like those of the shards; without them every kind is ``"neither"``.
        labels : array of int or str, optional
            Their labels, if the state has classes.
        batch_size : int
            How many points to run at once, unless the data comes in batches.
        probed : int
            The number of these points, evenly chosen, on which units are perturbed.

        Returns
        -------
        LayerReading
            What :func:`read_layer` returns.

        Raises
        ------
        ValueError
            If there are no points, a class has none, or the labels do not fit.
        """
        integer(probed, "probed", 0)
        if self._sums is None:
            raise ValueError("the state has seen no points yet: call update first")
        if self._names is not None and not bool(self._sums.moments.counts.all()):
            missing = self._names[(self._sums.moments.counts == 0).numpy()].tolist()
            raise ValueError(f"every class must have points, got none of {missing}")
        if data is None:
            return reading_of(self._sums, self._names, None, "no points were given on which to perturb units")
        source = LayerSource(self.model, data, integer(batch_size, "batch_size"))
        codes = self._codes(labels, source.expected)
        with source.opened():
            count = sum(batch.points for batch in source.batches())
            if codes is not None and len(codes) != count:
                raise ValueError(f"labels must have one entry per point, got {len(codes)} for {count} points")
            site = locate(source, self.layer)
            effects = effects_on(source, site, count, (self._names, codes), probed)
        return reading_of(self._sums, self._names, *effects)

    def _next(self) -> int:
        return self._spans[-1][1] if self._spans else 0

    def _codes(self, labels: Any, expected: int | None) -> Int64[np.ndarray, " n"] | None:
        """Return the number of each point's label among the classes."""
        if (labels is None) != (self._names is None):
            raise ValueError(
                "labels and classes must be given together: classes to LayerState and labels to update, or neither"
            )
        if labels is None or self._names is None:
            return None
        found = label_array(labels, "labels", len(labels) if expected is None else expected)
        strange = np.setdiff1d(found, self._names)
        if len(strange):
            raise ValueError(f"labels must be among the classes {self._names.tolist()}, got {strange[:5].tolist()}")
        return np.searchsorted(self._names, found)

    def _add(self, found: LayerSums, spans: Spans) -> LayerState:
        joined = _joined(self._spans, spans)
        if self._sums is None:
            self._sums = LayerSums(found.site, found.moments.classes)
        elif not _same(self._sums.site, found.site):
            raise ValueError(f"the layer {self._sums.site.name!r} must stay the same, with the same weights")
        self._sums.merge(found)
        self._spans = joined
        return self


def _joined(ours: Spans, theirs: Spans) -> Spans:
    """Return ranges of points in order, joined where they touch; raise if a point is in two of them."""
    found: Spans = []
    for start, stop in sorted([*ours, *theirs]):
        if found and start < found[-1][1]:
            twice = f"points {start} to {min(stop, found[-1][1]) - 1}"
            raise ValueError(f"{twice} were added twice: pass update the index of each shard's first point")
        if found and start == found[-1][1]:
            start = found.pop()[0]
        found.append((start, stop))
    return found


def _same(one: Site, other: Site) -> bool:
    """Return whether two sites are the same layer with the same weights."""
    mine, theirs = one.affine() or (), other.affine() or ()
    alike = len(mine) == len(theirs) and all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    return alike and (one.name, one.activation) == (other.name, other.activation)
