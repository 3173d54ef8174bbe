"""Whether a network uses a unit as a distance or as an intensity, by perturbing that unit alone (Oursland 2024b).

Axes: N points, C classes, K units. A unit *serves* the class whose log-odds fall most when its activation is replaced
by its mean. On the points of that class two perturbations of equal size are compared: an offset, which moves the zero
set, and a scale, which does not. If the class lies on the zero set, a scale changes nothing and an offset removes the
evidence: the unit is used as a distance. If the class lies where the unit is largest, a scale removes more: the unit is
used as an intensity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from metriscope.reading.layer_inputs import LayerSource, Site
from metriscope.vq.capture.batches import Batch

__all__ = ["ClassScores", "UnitEffects", "log_odds", "unit_effects"]

# Offsets are this share of the unit's typical activation, and scales differ from 1 by this much.
_SIZE = 1.0
# The larger effect must be this many times the smaller.
_CLEARLY = 1.25
# Classes whose log-odds fall nearly as much as those of the served class are served too.
_TIED = 0.9
_FEWEST, _LEVEL = 5, 0.01
# Steps of the bisection for the mean activation.
_BISECTIONS = 40
# Changes of log-odds below this share of their size are rounding.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class ClassScores:
    """How a network's outputs give one score per class: as they are, or by their nearness to mean outputs."""

    outputs: Int64[np.ndarray, " c"] | None
    means: Float64[Tensor, "c o"] | None = None
    variance: float = 1.0

    @classmethod
    def of(cls, outputs: Float64[Tensor, "n o"], codes: Int64[Tensor, " n"], classes: np.ndarray) -> ClassScores:
        """Return how to score the given classes.

        Integer labels are indices of outputs. Other labels are matched with the outputs that predict them, if that is
        correct for most points.
        """
        from scipy.optimize import linear_sum_assignment

        width = outputs.shape[1]
        whole = classes.dtype.kind in "iuf" and np.array_equal(classes, np.rint(classes))
        if whole and width > 1 and classes.min() >= 0 and classes.max() < width:
            return cls(classes.astype(np.int64))
        if not whole and width >= len(classes):
            table = np.zeros((len(classes), width))
            np.add.at(table, (codes.numpy(), outputs.argmax(1).numpy()), 1)
            rows, columns = linear_sum_assignment(table, maximize=True)
            if table[rows, columns].sum() > len(codes) / 2:
                return cls(columns)
        means = torch.stack([outputs[codes == code].mean(0) for code in range(len(classes))])
        variance = float((outputs - means[codes]).square().sum(1).mean())
        return cls(None, means, variance if variance > 0 else 1.0)

    def log_odds(self, outputs: Float64[Tensor, "n o"]) -> Float64[np.ndarray, "n c"]:
        """Return the log-odds of each class at each point."""
        if self.means is not None:
            scores = -torch.cdist(outputs, self.means).square() / (2 * self.variance)
            return log_odds(scores).numpy()
        return log_odds(outputs).numpy()[:, self.outputs]


def log_odds(scores: Float64[Tensor, "n c"]) -> Float64[Tensor, "n c"]:
    """Return each score minus the logarithm of the summed exponentials of the others.

    >>> log_odds(torch.tensor([[0.0, 3.0]]).double())
    tensor([[-3.,  3.]], dtype=torch.float64)
    """
    total, best = scores.logsumexp(1, keepdim=True), scores.argmax(1, keepdim=True)
    others = total + torch.log1p(-(scores - total).exp().clamp(max=0.75))
    # The other scores beside the largest one would be a difference of nearly equal numbers.
    rest = scores.scatter(1, best, -torch.inf).logsumexp(1, keepdim=True)
    return scores - others.scatter(1, best, rest)


def _first_tensor(outputs: Any) -> Tensor | None:
    """Return the class scores, or otherwise the first tensor, of any output of a model."""
    if isinstance(outputs, Tensor):
        return outputs
    if isinstance(getattr(outputs, "logits", None), Tensor):
        return outputs.logits
    parts = outputs.values() if isinstance(outputs, Mapping) else outputs if isinstance(outputs, tuple | list) else ()
    return next((found for part in parts if (found := _first_tensor(part)) is not None), None)


def flat_outputs(outputs: Any, points: int) -> Float64[Tensor, "n o"]:
    """Return one row of numbers per point: outputs as they are, positions averaged; an error if there is none."""
    found = _first_tensor(outputs)
    if found is None or found.ndim == 0 or len(found) != points:
        raise ValueError("the model must return a tensor with one row per point")
    found = found.detach().cpu().double()
    if found.ndim == 1:
        found = found[:, None]
    # Tokens and pixels are averaged; the features of a token are last, those of a feature map second.
    return found if found.ndim == 2 else found.mean(1) if found.ndim == 3 else found.flatten(2).mean(2)


@dataclass(frozen=True)
class UnitEffects:
    """Effects of perturbing each unit alone: the class it serves (-1 for none), the kind, and losses of log-odds."""

    kind: np.ndarray
    serves: Int64[np.ndarray, " k"]
    ablation: Float64[np.ndarray, " k"]
    offset: Float64[np.ndarray, " k"]
    scale: Float64[np.ndarray, " k"]


class _Probe:
    """The points on which a network is perturbed: its outputs without perturbation, and the change of log-odds."""

    def __init__(self, source: LayerSource, site: Site, batches: list[tuple[Batch, Int64[Tensor, " n"]]]) -> None:
        self._source, self._site, self._batches = source, site, [batch for batch, _ in batches]
        self.codes = torch.cat([codes for _, codes in batches])
        rows, outputs = [], []
        self._recorded: list[Tensor] = []
        for batch in self._batches:
            with site.watched() as calls:
                outputs.append(flat_outputs(source.run(batch), batch.points))
            parts = [site.rows(z, batch.points).flatten(0, 1) for _, z in calls]
            rows.append(torch.cat(parts))
            self._recorded += [z for _, z in calls]
        # A layer that is called several times may depend on its own perturbed outputs: it is run again.
        if site.is_input or len(self._recorded) > len(batches) or "forward" in site.module.__dict__:
            self._recorded = []
        self.outputs, self.z = torch.cat(outputs), torch.cat(rows)

    def activations(self, z: Float[Tensor, "r k"] | None = None) -> Float[Tensor, "r k"]:
        """Return the layer's activations on all rows, or those of other pre-activations."""
        given = self.z if z is None else z
        return given if self._site.activate is None else self._site.activate(given.clone()).detach()

    def middles(self) -> Float[Tensor, " k"]:
        """Return the pre-activation at which each unit's activation is its mean, by bisection between two rows."""
        a = self.activations()
        mean = a.mean(0)
        below = a.masked_fill(a > mean, -torch.inf).argmax(0)
        above = a.masked_fill(a <= mean, torch.inf).argmin(0)
        low, high = (self.z.gather(0, rows[None])[0] for rows in (below, above))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            under = self.activations(middle[None])[0] <= mean
            low, high = torch.where(under, middle, low), torch.where(under, high, middle)
        return low

    def run(self, change: Callable[[Tensor], Tensor]) -> Float64[Tensor, "n o"]:
        """Return the outputs while the pre-activations are changed."""
        with self._site.changed(change, self._recorded):
            return torch.cat([flat_outputs(self._source.run(batch), batch.points) for batch in self._batches])


def unit_effects(
    source: LayerSource, site: Site, batches: list[tuple[Batch, Int64[Tensor, " n"]]], classes: np.ndarray | None
) -> tuple[UnitEffects, str]:
    """Return the effects of perturbing each unit alone, and the reason if there are none.

    Without ``classes``, the network's own predictions are the classes.
    """
    probe = _Probe(source, site, batches)
    units = probe.z.shape[1]
    if classes is None and probe.outputs.shape[1] < 2:
        return _nothing(units), "without labels, only a network with several outputs has classes of its own"
    scores, codes = _scores(probe, classes)
    counts = np.bincount(codes)
    if int((counts >= _FEWEST).sum()) < 2:
        return _nothing(units), f"fewer than two classes have {_FEWEST} points to perturb"
    before = scores.log_odds(probe.outputs)
    own = before[np.arange(len(codes)), codes]
    answers = _Answers(codes, counts, _ROUNDING * float(np.abs(own).mean()), units)
    activations, middles, found = probe.activations(), probe.middles().tolist(), []
    for unit in range(units):

        def lost(change: Callable[[Tensor], Tensor], unit: int = unit) -> Float64[np.ndarray, "n c"]:
            return before - scores.log_odds(probe.run(_changing(site, unit, change)))

        found.append(_judged(activations[:, unit], middles[unit], answers, lost))
    kinds, serves, *numbers = zip(*found, strict=True)
    return UnitEffects(np.array(kinds, dtype=object), np.array(serves), *map(np.array, numbers)), ""


def _scores(probe: _Probe, classes: np.ndarray | None) -> tuple[ClassScores, Int64[np.ndarray, " n"]]:
    """Return how classes are scored, and the class of each point: its label, or the network's prediction."""
    if classes is None:
        return ClassScores(np.arange(probe.outputs.shape[1])), probe.outputs.argmax(1).numpy()
    return ClassScores.of(probe.outputs, probe.codes, classes), probe.codes.numpy()


def _nothing(units: int) -> UnitEffects:
    return UnitEffects(np.full(units, "neither", dtype=object), np.full(units, -1), *np.full((3, units), np.nan))


def _changing(site: Site, unit: int, change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def changed(z: Tensor) -> Tensor:
        found = z.clone()
        found.select(site.axis, unit).copy_(change(z.select(site.axis, unit)))
        return found

    return changed


Lost = Callable[[Callable[[Tensor], Tensor]], np.ndarray]


@dataclass(frozen=True)
class _Answers:
    """The classes of the probed points, how many points each has, and when a change of log-odds counts."""

    codes: Int64[np.ndarray, " n"]
    counts: Int64[np.ndarray, " c"]
    floor: float
    tests: int

    def own(self, lost: Float64[np.ndarray, "n c"], classes: np.ndarray) -> float:
        """Return the mean loss of the points of some classes, each in the log-odds of its own class."""
        chosen = np.isin(self.codes, classes)
        return float(lost[chosen, self.codes[chosen]].mean())

    def served(self, lost: Float64[np.ndarray, "n c"]) -> tuple[int, np.ndarray, float]:
        """Return the class that loses most, all that lose nearly as much, and how much; -1 if none clearly loses.

        A class counts if its own points lose more of its log-odds than other points do, because what all points lose
        is not evidence for the class.
        """
        from scipy.stats import norm

        usable = np.flatnonzero(self.counts >= _FEWEST)
        means, clear = np.full(len(self.counts), -np.inf), np.zeros(len(self.counts), bool)
        threshold = norm.isf(_LEVEL / (self.tests * len(usable)))
        for code in usable:
            own = self.codes == code
            inside, outside = lost[own, code], lost[~own, code]
            error = np.sqrt(inside.var() / (len(inside) - 1) + outside.var() / max(len(outside) - 1, 1))
            means[code] = inside.mean()
            gain = inside.mean() - outside.mean()
            clear[code] = inside.mean() > self.floor and gain > max(threshold * error, self.floor)
        if not clear.any():
            return -1, np.zeros(0, int), float(means.max())
        best = int(np.where(clear, means, -np.inf).argmax())
        return best, np.flatnonzero(clear & (means >= _TIED * means[best])), float(means[best])


def _judged(a: Tensor, middle: float, answers: _Answers, lost: Lost) -> tuple[str, int, float, float, float]:
    """Return kind, class served, and log-odds lost under ablation, offset and scale, for one unit."""
    typical = float(a.double().square().mean().sqrt())
    if not typical > 0:
        return "neither", -1, 0.0, 0.0, 0.0
    best, served, ablated = answers.served(lost(lambda own: torch.full_like(own, middle)))
    if best < 0:
        return "neither", -1, ablated, np.nan, np.nan
    shift = _SIZE * typical
    moved = [answers.own(lost(lambda own, t=t: own + t), served) for t in (-shift, shift)]  # type: ignore[misc]
    scaled = [answers.own(lost(lambda own, s=s: own * s), served) for s in (1 - _SIZE, 1 + _SIZE)]  # type: ignore[misc]
    offset, scale = max(moved), max(scaled)
    kind = "neither"
    if max(offset, scale) > answers.floor and not offset / _CLEARLY <= scale <= offset * _CLEARLY:
        kind = "distance" if offset > scale else "intensity"
    return kind, best, ablated, offset, scale
