"""Train networks, read their hidden units on training points, and test the readings on held-out points.

Axes: N training points, H held-out points, K units of a layer, C classes, R points of a reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope import data
from metriscope.nn.activations import activation_row
from metriscope.reading.unit_kinds import log_odds
from metriscope.rng import stream
from metriscope.runs import Result, once
from metriscope.studies.reading.plan import READINGS, ReadNetworks

__all__ = ["WORK", "HeldOut", "ablation_effects", "read_layer_units", "read_networks"]


class HeldOut(NamedTuple):
    """Standardized training and held-out points with their classes."""

    x: Float[Tensor, "n d"]
    y: Int64[Tensor, " n"]
    held: Float[Tensor, "h d"]
    held_y: Int64[Tensor, " h"]
    classes: int


@lru_cache(maxsize=2)
def split(name: str, points: int, held: int, seed: int) -> HeldOut:
    """Return points of a data set, standardized by the training points; images with one deviation for all pixels."""
    found = data.load(name)
    names = np.unique(found.train.y)
    parts: list[tuple[Tensor, Tensor]] = []
    for part, count in ((found.train, points), (found.test, held)):
        rows = torch.randperm(len(part.y), generator=stream(seed, "reading", name, len(parts))).numpy()[:count]
        flat = torch.as_tensor(part.x[rows].reshape(len(rows), -1).astype(np.float32))
        parts.append((flat, torch.as_tensor(np.searchsorted(names, part.y[rows]))))
    (x, y), (other, other_y) = parts
    spread = x.std(0) if found.train.x.ndim == 2 else x.std().expand(x.shape[1])
    spread = torch.where(spread > 0, spread, 1.0)
    return HeldOut((x - x.mean(0)) / spread, y, (other - x.mean(0)) / spread, other_y, len(names))


def trained(job: ReadNetworks, points: HeldOut, start: int) -> nn.Sequential:
    """Return a trained network; networks of one start see the same batches."""
    sizes = (points.x.shape[1], *[job.hidden] * job.depth, points.classes)
    init, order = (stream(job.seed, job.study, job.data, word, start) for word in ("init", "batches"))
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        linear = nn.Linear(fan_in, fan_out)
        nn.init.kaiming_normal_(linear.weight, generator=init)
        nn.init.zeros_(linear.bias)
        layers += [linear, activation_row(job.activation).module()]
    model = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(model.parameters(), job.lr)
    for _ in range(job.steps):
        rows = torch.randint(len(points.x), (min(job.batch, len(points.x)),), generator=order)
        optimizer.zero_grad()
        F.cross_entropy(model(points.x[rows]), points.y[rows]).backward()
        optimizer.step()
    return model.requires_grad_(False)


def readings_of(
    z: Float[Tensor, "n k"], a: Float[Tensor, "n k"], generator: torch.Generator, count: int
) -> Mapping[str, Int64[Tensor, "r k"]]:
    """Return the points by which each way of reading describes each unit.

    >>> z = torch.tensor([[-3.0], [0.5], [2.0]])
    >>> found = readings_of(z, z.relu(), torch.Generator(), 1)
    >>> found["near"].tolist(), found["top"].tolist()
    ([[1]], [[2]])
    """
    count = min(count, len(z))
    random = torch.stack([torch.randperm(len(z), generator=generator)[:count] for _ in range(z.shape[1])], 1)
    near, top = z.abs().argsort(dim=0, stable=True), (-a).argsort(dim=0, stable=True)
    return dict(zip(READINGS, (near[:count], top[:count], random), strict=True))


def ablation_effects(
    tail: Callable[[Tensor], Tensor], a: Float[Tensor, "h k"], mean: Float[Tensor, " k"], y: Int64[Tensor, " h"]
) -> Float[np.ndarray, "k c"]:
    """Return the mean fall of each class's log-odds, at its own points, when a unit's activation is set to its mean.

    NaN for a class without points.
    """
    before = log_odds(tail(a).double())
    classes, found = before.shape[1], []
    own = F.one_hot(y, classes).double()
    for unit in range(a.shape[1]):
        changed = a.clone()
        changed[:, unit] = mean[unit]
        lost = ((before - log_odds(tail(changed).double())) * own).sum(0)
        found.append((lost / own.sum(0)).numpy())
    return np.stack(found)


def _lift(rows: Int64[Tensor, "r k"], y: Int64[Tensor, " n"], classes: int) -> Float[np.ndarray, "k c"]:
    """Return how much more frequent each class is among the points of a reading than among all."""
    among = F.one_hot(y[rows], classes).double().mean(0)
    return (among / F.one_hot(y, classes).double().mean(0)).numpy()


def _correlations(a: Float[np.ndarray, "k c"], b: Float[np.ndarray, "k c"]) -> Float[np.ndarray, " k"]:
    """Return the correlation over classes of each unit; 0 where a reading or an effect is the same for all classes."""
    a, b = (each - each.mean(1, keepdims=True) for each in (a, b))
    size = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.divide((a * b).sum(1), size, out=np.zeros(len(a)), where=size > 0)


def read_layer_units(job: ReadNetworks, points: HeldOut, model: nn.Sequential, layer: int, start: int) -> pd.DataFrame:
    """Return one row per way of reading: how well it predicts classes and ablations of the units of one layer."""
    before, after = model[: 2 * layer + 1], model[2 * layer + 1]
    z, held_z = before(points.x), before(points.held)
    a, held_a = after(z), after(held_z)
    alive = a.std(0) > 0
    z, a, held_z, tested = z[:, alive], a[:, alive], held_z[:, alive], held_a[:, alive]

    def tail(part: Tensor) -> Tensor:
        return model[2 * layer + 2 :](held_a.masked_scatter(alive.expand(len(part), -1), part))

    effects = ablation_effects(tail, tested, a.mean(0), points.held_y)
    kept = ~np.isnan(effects).any(0)
    draws = [stream(job.seed, job.study, job.data, word, start, layer) for word in ("random", "held")]
    shown, again = readings_of(z, a, draws[0], job.read), readings_of(held_z, tested, draws[1], job.read)
    rows = []
    for name, chosen in shown.items():
        lift = np.where(kept, _lift(chosen, points.y, points.classes), -np.inf)
        best = lift.argmax(1)
        precision = (points.held_y[again[name]].numpy() == best).mean()
        hit = (best == np.where(kept, effects, -np.inf).argmax(1)).mean()
        profile = _correlations(lift[:, kept], effects[:, kept]).mean()
        numbers = {"class_precision": 100 * precision, "ablation_hit": 100 * hit, "ablation_profile": profile}
        rows.append({"start": start, "layer": layer, "reading": name, "units": int(alive.sum()), **numbers})
    return pd.DataFrame(rows)


def read_networks(job: ReadNetworks) -> Result:
    """Return how well the units of every start and layer are read, and the accuracies of the networks."""
    points = split(job.data, job.points, job.held, job.seed)
    tables = []
    for start in range(job.starts):
        model = trained(job, points, start)
        accuracy = 100 * float((model(points.held).argmax(1) == points.held_y).double().mean())
        read = [read_layer_units(job, points, model, layer, start) for layer in range(job.depth)]
        tables += [table.assign(accuracy=accuracy) for table in read]
    return Result({"readings": pd.concat(tables, ignore_index=True)})


WORK = once(read_networks)
