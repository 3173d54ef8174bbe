"""Which units of the first layer belong together by their second-layer weights, and how far clusters are apart.

Axes: N points, D features, K units of the first layer, C clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from metriscope.rng import derive
from metriscope.runs import Driver, Record, Result, Run, once
from metriscope.studies.mahalanobis.second_layer.plan import SecondLayer, SecondLayers
from metriscope.studies.mahalanobis.second_layer.train import ClusterPoints, begun, draw, trained

__all__ = ["cluster_of_units", "grouped", "grouping", "measure_second_layer", "read", "silhouette"]


def measure_second_layer(part: SecondLayers, driver: Driver, *, recorded: bool) -> pd.DataFrame:
    """Return one row per kind of data, number of clusters, first layer, head and start."""
    jobs = part.jobs()
    found: Mapping[SecondLayer, Record | Run] = (
        driver.recorded(jobs) if recorded else driver.perform(jobs, once(read), "mahalanobis: second layer")
    )
    origin = {"origin": "record"} if recorded else {}
    rows = [
        run.table("starts").assign(data=jobs[job], clusters=job.data.count, first=job.first, head=job.head, **origin)
        for job, run in found.items()
    ]
    names = ["data", "clusters", "first", "head", "start", "agreement"]
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=names)


def read(job: SecondLayer) -> Result:
    """Train the networks of a job and return one row per start."""
    points = [draw(job.data, job.seed, number) for number in range(job.starts)]
    before = [begun(job, number, p) for number, p in enumerate(points)]
    after = trained(job, before, points)
    rows = []
    for number, (old, new, own) in enumerate(zip(before, after, points, strict=True)):
        seed = derive(job.seed, "second layer", "grouping", number) % 2**32
        rows.append({"start": number, **grouping(job, new, own, seed), **_separation(old, new, own)})
    return Result({"starts": pd.DataFrame(rows)})


def cluster_of_units(
    weight: Float[Tensor, "k d"], bias: Float[Tensor, " k"], x: Float[Tensor, "n d"], y: Int[Tensor, " n"]
) -> Int[Tensor, " k"]:
    """Return through which cluster's mean each hyperplane passes most nearly, in that cluster's own deviations.

    >>> x = torch.tensor([[-1.0], [1.0], [9.0], [11.0]])
    >>> cluster_of_units(torch.ones(2, 1), torch.tensor([-10.0, -1.0]), x, torch.tensor([0, 0, 1, 1]))
    tensor([1, 0])
    """
    parts = [x[y == c].double() @ weight.double().mT + bias.double() for c in range(int(y.max()) + 1)]
    return torch.stack([part.mean(0).abs() / part.std(0) for part in parts]).argmin(0)


def grouped(columns: Float[np.ndarray, "k c"], count: int, tries: int, seed: int) -> Int[np.ndarray, " k"]:
    """Return clusters of units by their second-layer weights, which count up to a constant over the outputs."""
    from sklearn.cluster import KMeans

    centered = columns - columns.mean(axis=1, keepdims=True)
    return KMeans(count, n_init=tries, random_state=seed).fit(centered).labels_


def grouping(job: SecondLayer, model: nn.Sequential, own: ClusterPoints, seed: int) -> dict[str, float]:
    """Return the agreement (adjusted Rand index) of the units' clusters with groups of their second-layer weights."""
    from sklearn.metrics import adjusted_rand_score as agreement

    first, second = cast(nn.Linear, model[0]), cast(nn.Linear, model[2])
    belongs = cluster_of_units(first.weight, first.bias, own.x, own.y).numpy()
    groups = grouped(second.weight.mT.double().numpy(), job.data.count, job.tries, seed)
    random = np.random.default_rng(seed)
    null = [agreement(random.permutation(belongs), groups) for _ in range(job.permutations)]
    values = {"agreement": agreement(belongs, groups), "chance": np.mean(null), "high": np.quantile(null, job.high)}
    return {name: float(value) for name, value in values.items()}


def silhouette(points: Float[Tensor, "n k"], labels: Int[Tensor, " n"]) -> float:
    """Return the mean silhouette of points by their clusters, from -1 to 1.

    >>> round(silhouette(torch.tensor([[0.0], [0.0], [5.0], [5.0]]), torch.tensor([0, 0, 1, 1])), 3)
    1.0
    """
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(points.double().numpy(), labels.numpy()))


def _separation(old: nn.Sequential, new: nn.Sequential, own: ClusterPoints) -> dict[str, float]:
    """Return how far the clusters of new points are apart in the inputs, after each layer, and without training."""
    with torch.no_grad():
        distances, outputs = new[:2](own.new_x), new(own.new_x)
        # The second layer as it began, on the first as it ended.
        untrained = old[2:](distances)
    spaces = {"inputs": own.new_x, "first layer": distances, "second layer": outputs, "untrained": untrained}
    right = float((outputs.argmax(1) == own.new_y).double().mean())
    return {"accuracy": 100 * right, **{name: silhouette(space, own.new_y) for name, space in spaces.items()}}
