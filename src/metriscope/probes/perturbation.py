"""How a classifier's accuracy depends on the scale, the offset and the ceiling of a layer's pre-activations.

Axes: N points, K units of the perturbed layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope.common.model_state import in_eval_mode
from metriscope.common.validation import instance, number, one_of, real_array, real_tensor, whole_array
from metriscope.probes.perturbation_levels import (
    LEVELS,
    Definition,
    UnitRanges,
    activation_after,
    definition_of,
    perturb,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Perturbation", "holding_range", "perturbation"]

# The level of each kind at which nothing is changed.
_NEUTRAL = {"scale": 1.0, "offset": 0.0, "clip": math.inf}
_BATCH = 4096


@dataclass(frozen=True)
class Perturbation:
    """The accuracy of a classifier while the pre-activations of one layer were perturbed.

    Parameters
    ----------
    layer : str
        The name of the layer.
    baseline : float
        The accuracy without any change.
    kinds : tuple of str
        The kind of each of ``m`` measurements: ``"scale"``, ``"offset"`` or ``"clip"``.
    levels : array of shape (m,)
        The level of each measurement.
    accuracies : array of shape (m,)
        The accuracy at each level.
    silent : int or None
        The number of units whose largest activation is 0, so that an offset does not scale them; None where the
        definition needs no activations.

    Examples
    --------
    >>> found = Perturbation("0", 1.0, ("scale", "scale"), np.array([0.5, 1.0]), np.array([0.5, 1.0]))
    >>> found.to_pandas()
      layer   kind  level  accuracy  baseline
    0     0  scale    0.5       0.5       1.0
    1     0  scale    1.0       1.0       1.0
    >>> found.holds("scale", points=0.25)
    (0.75, inf)
    """

    layer: str
    baseline: float
    kinds: tuple[str, ...]
    levels: Float[np.ndarray, " m"] = field(repr=False)
    accuracies: Float[np.ndarray, " m"] = field(repr=False)
    silent: int | None = None

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per level: layer, kind, level, accuracy, baseline."""
        import pandas as pd

        columns = {"kind": self.kinds, "level": self.levels, "accuracy": self.accuracies}
        return pd.DataFrame({"layer": self.layer, **columns, "baseline": self.baseline})

    def holds(self, kind: str, points: float = 0.01) -> tuple[float, float]:
        """Return the levels between which the accuracy is at most ``points`` below the baseline.

        Parameters
        ----------
        kind : str
            The kind of perturbation, one that was measured.
        points : float
            How much accuracy may be lost, as a share of all points.

        Returns
        -------
        tuple of float
            The lowest and the highest level; see :func:`holding_range`.

        Raises
        ------
        ValueError
            If the kind was not measured.
        """
        chosen = np.array([name == kind for name in self.kinds], dtype=bool)
        if not chosen.any():
            raise ValueError(f"{kind!r} was not measured: there are {', '.join(dict.fromkeys(self.kinds))}")
        floor = self.baseline - points
        return holding_range(self.levels[chosen], self.accuracies[chosen], floor, _NEUTRAL[kind])


def holding_range(levels: np.ndarray, values: np.ndarray, floor: float, neutral: float) -> tuple[float, float]:
    """Return the interval of levels around ``neutral`` in which ``values`` stay at or above ``floor``.

    Between two levels, values are interpolated linearly.

    Parameters
    ----------
    levels : array of shape (m,)
        Levels, in any order.
    values : array of shape (m,)
        What was measured at each.
    floor : float
        The least value that is accepted.
    neutral : float
        The level from which to search in both directions; outside of ``levels``, the nearest one is used.

    Returns
    -------
    tuple of float
        The lowest and the highest level. An end is infinite if the value never falls below the floor on that side;
        both are NaN if it is below the floor at the neutral level.

    Raises
    ------
    ValueError
        If the numbers of levels and values differ, or ``floor`` or ``neutral`` is NaN.

    Examples
    --------
    >>> holding_range(np.array([-2.0, -1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.5]), 0.75, 0.0)
    (-1.25, 0.5)
    """
    sizes: dict[str, int] = {}
    x, y = real_array(levels, "levels", "levels", sizes), real_array(values, "values", "levels", sizes)
    if math.isnan(floor) or math.isnan(neutral):
        raise ValueError(f"floor and neutral must be numbers, got {floor} and {neutral}")
    order = np.argsort(x)
    x, y = x[order], y[order]
    start = int(np.abs(x - min(max(neutral, x[0]), x[-1])).argmin())
    if not y[start] >= floor:
        return math.nan, math.nan
    return _end(x[start::-1], y[start::-1], floor, -math.inf), _end(x[start:], y[start:], floor, math.inf)


def _end(x: np.ndarray, y: np.ndarray, floor: float, open_end: float) -> float:
    below = np.flatnonzero(y < floor)
    if not len(below):
        return open_end
    i = int(below[0])
    return float(x[i] + (x[i - 1] - x[i]) * (floor - y[i]) / (y[i - 1] - y[i]))


def perturbation(
    model: nn.Module,
    x: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    layer: str | nn.Linear | None = None,
    kinds: Sequence[str] = ("scale", "offset", "clip"),
    levels: Mapping[str, Sequence[float]] | None = None,
    definition: str | Definition = "pre-activation",
) -> Perturbation:
    """Return the accuracy of a classifier while the pre-activations of one linear layer are perturbed.

    A unit's output z becomes ``min(scale * z + offset * r, clip * r)``, with one of the three changed at a time; r is
    the unit's range over ``x``, its largest output minus its smallest without any change. By other definitions, r is
    the range of the unit's activation and ceilings are counted from the lowest activation, or an offset also scales z
    so that the largest activation does not change. The model runs in evaluation mode, without gradients, and is not
    changed.

    Parameters
    ----------
    model : nn.Module
        A classifier that returns one output per class.
    x : array of shape (n, ...)
        Points.
    y : array of shape (n,)
        The class of each point, a whole number. A prediction is correct if the largest output is that of ``y``.
    layer : str, nn.Linear or None
        The layer or its name; None for the first linear layer.
    kinds : sequence of str
        The perturbations to measure: ``"scale"``, ``"offset"``, ``"clip"``.
    levels : mapping of str to sequence of float, or None
        Levels by kind that replace the default ones.
    definition : str or Definition
        What levels are shares of: ``"pre-activation"``, ``"post-activation"``, or either with ``-kept``, where
        the largest activation does not change. The text of Oursland 2024b describes ``"post-activation"``, and its
        author's program does ``"post-activation-kept"``. These need the activation, by default the module after the
        layer in its ``nn.Sequential``; a :class:`Definition` can name another.

    Returns
    -------
    Perturbation
        The accuracy at each level of each kind.

    Raises
    ------
    ValueError
        If the model has no such layer or never calls it, does not return one row of finite outputs per point, the
        activation that the definition needs is not known, or the points, classes, kinds or levels are not valid.

    Examples
    --------
    >>> model = nn.Linear(1, 2, bias=False)
    >>> _ = model.load_state_dict({"weight": torch.tensor([[1.0], [-1.0]])})
    >>> points, classes = torch.tensor([[-1.0], [2.0]]), torch.tensor([1, 0])
    >>> perturbation(model, points, classes, kinds=("scale",), levels={"scale": (-1.0, 1.0)}).accuracies
    array([0., 1.])
    """
    name, chosen = _find(instance(model, "model", nn.Module), layer)
    points = _points(chosen.weight, x)
    labels = torch.from_numpy(whole_array(y, "y", "points", {"points": len(points)})).to(chosen.weight.device)
    grid, meaning = _grid(kinds, levels), definition_of(definition)
    activation = activation_after(model, chosen, meaning)
    with in_eval_mode(model), torch.no_grad():
        baseline, rows, outputs = _recorded(model, chosen, points, labels)
        ranges = UnitRanges.of(rows, meaning, activation)
        found = [(kind, float(level)) for kind in grid for level in grid[kind]]
        accuracies = []
        for kind, level in found:
            with _replaying(chosen, outputs), chosen.register_forward_hook(_changing(ranges, **{kind: level})):
                accuracies.append(_accuracy(model, points, labels))
    names, values = zip(*found, strict=True)
    return Perturbation(name, baseline, names, np.array(values), np.array(accuracies), ranges.silent)


def _find(model: nn.Module, layer: str | nn.Linear | None) -> tuple[str, nn.Linear]:
    linears = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if not linears:
        raise ValueError(f"the model needs a linear layer to perturb, {type(model).__name__} has none")
    if layer is None:
        return next(iter(linears.items()))
    found = [(name, module) for name, module in linears.items() if name == layer or module is layer]
    if not found:
        raise ValueError(f"layer must be a linear layer of the model, one of {', '.join(map(repr, linears))}")
    return found[0]


def _points(weight: Tensor, x: Any) -> Tensor:
    points = real_tensor(x, "x", "points ...")
    # Indices of an embedding stay whole numbers; points take the precision of the network.
    floating = x.is_floating_point() if isinstance(x, Tensor) else np.asarray(x).dtype.kind == "f"
    return points.detach().to(weight) if floating else points.to(weight.device, torch.int64)


def _grid(kinds: Sequence[str], levels: Mapping[str, Sequence[float]] | None) -> dict[str, np.ndarray]:
    """Return the levels of each requested kind."""
    given = {**LEVELS, **(levels or {})}
    for kind in (*kinds, *given):
        one_of(kind, "a kind of perturbation", LEVELS)
    if not kinds:
        raise ValueError("a perturbation needs at least one kind, got none")
    return {kind: _levels(kind, given[kind]) for kind in kinds}


def _levels(kind: str, levels: Any) -> np.ndarray:
    found = real_array(levels, f"levels of {kind}", "levels", finite=False)
    # An infinite clip means none; the other levels must be finite.
    for level in found:
        number(float(level), f"levels of {kind}", "(-inf, inf]" if kind == "clip" else "(-inf, inf)")
    return found


@contextmanager
def _replaying(layer: nn.Linear, outputs: Sequence[Tensor]) -> Iterator[None]:
    """Let the layer return recorded outputs, in their order, instead of computing them; without any, compute."""
    if not outputs:
        yield
        return
    given = iter(outputs)
    layer.__dict__["forward"] = lambda inputs: next(given)
    try:
        yield
    finally:
        del layer.__dict__["forward"]


def _changing(ranges: UnitRanges, **change: float) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    return lambda module, inputs, output: perturb(output, ranges.reach, **change, ends=ranges.ends)


def _accuracy(model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> float:
    right = 0
    for points, labels in zip(x.split(_BATCH), y.split(_BATCH), strict=True):
        outputs = model(points)
        # argmax would choose NaN as the largest output; such a prediction counts as wrong.
        answers = outputs.argmax(-1).masked_fill(outputs.isnan().any(-1), -1)
        right += int((answers == labels).sum())
    return right / len(x)


def _checked_outputs(model: nn.Module, points: Tensor) -> Tensor:
    """Return what the model returns; raise an error unless it is one row of finite outputs per point."""
    try:
        outputs = model(points)
    except RuntimeError as error:
        shape, dtype = tuple(points.shape), str(points.dtype).removeprefix("torch.")
        said = str(error).splitlines()[0]
        raise ValueError(f"the model does not run on x of shape {shape} and type {dtype}: {said}") from error
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(points):
        got = f"the shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(f"the model must give one row of outputs for each of {len(points)} points, got {got}")
    broken = int((~outputs.isfinite()).any(-1).sum())
    if broken:
        raise ValueError(f"the model must give finite outputs, got NaN or infinity at {broken} points of x")
    return outputs


def _recorded(
    model: nn.Module, layer: nn.Linear, x: Tensor, y: Tensor
) -> tuple[float, list[Float[Tensor, "n k"]], list[Tensor]]:
    """Return the accuracy without any change, the layer's outputs, and those of them that can be replayed.

    A layer that is called once per batch sees the same inputs at every level, so its outputs can be replayed. The
    inputs of a layer that is called several times may depend on its own perturbed outputs; it is always run.
    """
    outputs: list[Tensor] = []
    # An activation may overwrite its input.
    with layer.register_forward_hook(lambda module, inputs, output: outputs.append(output.clone())):
        accuracy = _accuracy(partial(_checked_outputs, model), x, y)
    if not outputs:
        raise ValueError("the model does not call the layer, so there is nothing to perturb")
    rows = [output.reshape(-1, output.shape[-1]) for output in outputs]
    once = len(outputs) == len(x.split(_BATCH)) and "forward" not in layer.__dict__
    return accuracy, rows, outputs if once else []
