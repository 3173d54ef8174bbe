"""Draw clusters and train two layers on them, every start on points of its own.

Axes: S starts, N points, D features, K units of the first layer, C clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope import data
from metriscope.nn import build, init_from_clusters_, stack_state, stacked_forward, unstack
from metriscope.rng import stream
from metriscope.studies.mahalanobis.second_layer.plan import Clusters, SecondLayer

__all__ = ["ClusterPoints", "begun", "draw", "trained"]


@dataclass(frozen=True, eq=False)
class ClusterPoints:
    """Points to train on and new ones, each with its cluster, in float32."""

    x: Float[Tensor, "n d"]
    y: Int[Tensor, " n"]
    new_x: Float[Tensor, "n d"]
    new_y: Int[Tensor, " n"]


def draw(clusters: Clusters, seed: int, number: int) -> ClusterPoints:
    """Return the points of one start; those of a named data set are the same for all."""
    if clusters.name != "mixture":
        return _named(clusters.name)
    here = (seed, "second layer", clusters.count, clusters.dim, number)
    gaussians = [
        data.random_gaussian(clusters.dim, stream(*here, "gaussian", c), spread=clusters.spread)
        for c in range(clusters.count)
    ]
    labels = torch.arange(clusters.count).repeat_interleave(clusters.points)
    parts = [
        torch.cat([g.sample(clusters.points, stream(*here, part, c)) for c, g in enumerate(gaussians)]).float()
        for part in ("points", "new points")
    ]
    return ClusterPoints(parts[0], labels, parts[1], labels)


@lru_cache(maxsize=1)
def _named(name: str) -> ClusterPoints:
    found = data.load(name)
    scale = float(found.train.x.max())
    arrays = [
        torch.from_numpy(array)
        for part in (found.train, found.test)
        for array in (part.x.reshape(len(part), -1), part.y)
    ]
    return ClusterPoints(arrays[0].float() / scale, arrays[1], arrays[2].float() / scale, arrays[3])


def begun(job: SecondLayer, number: int, points: ClusterPoints) -> nn.Sequential:
    """Return one start's network before training; its second layer is the same for both kinds of first layer."""
    here, units = (job.seed, "second layer", number), job.data.units * job.data.count
    model = build(job.head, job.data.dim, units, job.data.count, stream(*here, "start"))
    if job.first == "clusters":
        init_from_clusters_(cast(nn.Linear, model[0]), points.x, job.data.count, stream(*here, "clusters"))
    return model


def trained(job: SecondLayer, models: list[nn.Sequential], points: list[ClusterPoints]) -> list[nn.Sequential]:
    """Return the networks after training all of them at once, with full-batch Adam on cross-entropy.

    A first layer that was set from clusters is kept.
    """
    state: Mapping[str, Tensor] = stack_state(models)
    x, y = torch.stack([p.x for p in points]), torch.stack([p.y for p in points])
    leaves = {name: value.requires_grad_() for name, value in state.items() if job.first == "random" or name[0] != "0"}
    optimizer, forward = torch.optim.Adam(leaves.values(), lr=job.lr), stacked_forward(models[0])
    for _ in range(job.epochs):
        optimizer.zero_grad()
        # Summed over starts, never averaged: each trains as it would alone.
        losses = F.cross_entropy(forward(state, x).flatten(0, 1), y.flatten(), reduction="none")
        (losses.sum() / y.shape[1]).backward()
        optimizer.step()
    final = {name: value.detach() for name, value in state.items()}
    return [unstack(model, final, i).requires_grad_(False) for i, model in enumerate(models)]
