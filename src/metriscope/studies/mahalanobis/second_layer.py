"""Two layers on data of several clusters: whether the second one finds the clusters, and which units it joins.

The claim C29 is judged by the second layer that the source has, a linear one before softmax; the unit is the start,
and values are averaged over mixtures of 3, 4 and 5 clusters. Its criteria were fixed before the numbers were seen.
Axes: S starts, N points, D features, K units of the first layer, C clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope.data import load, random_gaussian
from metriscope.nn import build, init_from_clusters_, stack_state, stacked_forward, unstack
from metriscope.report import Figure, Prose, Section, Table, mean_text, number, to_svg
from metriscope.report.plots import strip
from metriscope.report.style import figure
from metriscope.rng import derive, stream
from metriscope.runs import Driver, Record, Result, Run, once
from metriscope.studies.evidence import Above
from metriscope.studies.mahalanobis.experiments import DATA, FIRST, HEADS, Clusters, SecondLayer, SecondLayers
from metriscope.studies.tidy_tables import joined, matching
from metriscope.studies.verdicts import Criterion, Statement, Values

if TYPE_CHECKING:
    from metriscope.studies.verdicts import Tables

__all__ = [
    "STATEMENT", "begun", "cluster_of_units", "draw", "grouped", "grouping", "measure_second_layer", "read",
    "section", "trained",
]  # fmt: skip


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
        random_gaussian(clusters.dim, stream(*here, "gaussian", c), spread=clusters.spread)
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
    found = load(name)
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
        # Summed over starts, never averaged, so that each network trains as it would alone.
        losses = F.cross_entropy(forward(state, x).flatten(0, 1), y.flatten(), reduction="none")
        (losses.sum() / y.shape[1]).backward()
        optimizer.step()
    final = {name: value.detach() for name, value in state.items()}
    return [unstack(model, final, i).requires_grad_(False) for i, model in enumerate(models)]


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
    return joined(rows, names)


def read(job: SecondLayer) -> Result:
    """Train the networks of a job and return one row per start."""
    points = [draw(job.data, job.seed, number) for number in range(job.starts)]
    before = [begun(job, number, p) for number, p in enumerate(points)]
    after = trained(job, before, points)
    rows = []
    for start, (old, new, own) in enumerate(zip(before, after, points, strict=True)):
        seed = derive(job.seed, "second layer", "grouping", start) % 2**32
        rows.append({"start": start, **grouping(job, new, own, seed), **_separation(old, new, own)})
    return Result({"starts": pd.DataFrame(rows)})


def cluster_of_units(
    weight: Float[Tensor, "k d"], bias: Float[Tensor, " k"], x: Float[Tensor, "n d"], y: Int[Tensor, " n"]
) -> Int[Tensor, " k"]:
    """Return the cluster whose mean is nearest to each hyperplane, in standard deviations of that cluster.

    >>> x = torch.tensor([[-1.0], [1.0], [9.0], [11.0]])
    >>> cluster_of_units(torch.ones(2, 1), torch.tensor([-10.0, -1.0]), x, torch.tensor([0, 0, 1, 1]))
    tensor([1, 0])
    """
    parts = [x[y == c].double() @ weight.double().mT + bias.double() for c in range(int(y.max()) + 1)]
    return torch.stack([part.mean(0).abs() / part.std(0) for part in parts]).argmin(0)


def grouped(columns: Float[np.ndarray, "k c"], count: int, tries: int, seed: int) -> Int[np.ndarray, " k"]:
    """Return clusters of units by their second-layer weights; a constant over the outputs makes no difference."""
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
        # The initial second layer on the final first layer.
        untrained = old[2:](distances)
    spaces = {"inputs": own.new_x, "first layer": distances, "second layer": outputs, "untrained": untrained}
    right = float((outputs.argmax(1) == own.new_y).double().mean())
    return {"accuracy": 100 * right, **{name: silhouette(space, own.new_y) for name, space in spaces.items()}}


LINEAR = "abs-bias"
HALFWAY, APART = 0.5, 0.1
PARTITION = "Halfway between chance, 0, and the same partition, 1."
TENTH = "A tenth of the way from overlapping clusters, 0, to clusters that are points, 1."

_on_starts = partial(Criterion, unit="start", units="starts", paired=True)


def _criteria(first: str, data: str) -> tuple[Criterion, ...]:
    values = partial(Values.of, "second layer", data=data, first=first, head=LINEAR)
    space, level = values("second layer"), FIRST[first]
    same = f"{data}, adjusted Rand index between groups of second-layer weights and the clusters of their units"
    beyond = f"{data}, silhouette of new points after the second layer minus that after the first"
    learned = f"{data}, silhouette of new points after the second layer minus that with an untrained one"
    return (
        _on_starts(same, values("agreement"), Above(HALFWAY), PARTITION, level=level),
        _on_starts(beyond, space, Above(APART), TENTH, minus=values("first layer"), level=level),
        _on_starts(learned, space, Above(APART), TENTH, minus=values("untrained"), level=level),
    )


def _notes(tables: Tables) -> str:
    """Say how often the agreement is beyond that of permuted units."""
    parts = []
    for (first, data), rows in matching(tables["second layer"], head=LINEAR).groupby(["first", "data"], sort=False):
        beyond = int((rows["agreement"] > rows["high"]).sum())
        parts.append(
            f"{FIRST[str(first)]}, {data}: agreement {number(float(rows['agreement'].mean()))}, beyond 95 % of the "
            f"permutations of units in {beyond} of {len(rows)} networks"
        )
    return f"{'; '.join(parts)}." if parts else ""


STATEMENT = Statement(
    "C29",
    "A second linear layer over distances clusters what the first layer found.",
    "Oursland 2024a, arXiv:2410.19352",
    tuple(criterion for first in FIRST for data in DATA for criterion in _criteria(first, data)),
    factor="first layer",
    notes=_notes,
)


SPACES = {
    "inputs": "inputs",
    "first layer": "after the first layer",
    "untrained": "after an untrained second",
    "second layer": "after the second layer",
}


def layers(table: pd.DataFrame) -> Figure:
    """Draw silhouettes in every space and the agreement of groups of units, one row per first layer."""
    rows = matching(table, head=next(iter(HEADS)))
    names = [name for name in DATA if name in set(rows["data"])]
    shown = [first for first in FIRST if first in set(rows["first"])]
    drawing, axes = figure(9.2, 2.4 * len(shown), len(shown), len(names) + 1)
    for line, first in zip(axes, shown, strict=True):
        for ax, name in zip(line, names, strict=False):
            part = matching(rows, first=first, data=name)
            strip(ax, {text: part[space].to_numpy() for space, text in SPACES.items()})
            ax.set(title=f"{name}, {first}", xlabel="silhouette of new points")
            ax.tick_params(axis="y", labelleft=ax is line[0])
        parts = {name: matching(rows, first=first, data=name)["agreement"].to_numpy() for name in names}
        strip(line[-1], parts)
        line[-1].set(title=f"groups of units, {first}", xlabel="adjusted Rand index")
    caption = (
        "Left: how far the clusters of new points are apart in each space. Right: agreement between k-means groups of "
        "second-layer weights and the clusters whose mean each hyperplane passes through; 0 is chance. Second layer "
        "before softmax. Each dot is a start with points of its own (mixtures: of 3, 4 or 5 clusters)."
    )
    return Figure("second-layer", "What the second layer does", to_svg(drawing, "second-layer"), caption)


TEXT = (
    "Oursland (2024a) lets a second linear layer cluster the distances that the first one measures. Here the data have "
    "known clusters. The first layer (Linear + Abs) is set from clusters by `init_from_clusters_` and kept, or trained "
    "with the second from a random start; labels are the clusters. A unit belongs to the cluster through whose mean "
    "its hyperplane passes most nearly, in deviations of that cluster along the unit. If the second layer clusters "
    "what the first found, units of one cluster get similar weights, and the clusters of new points end farther apart."
)


def section(table: pd.DataFrame) -> Section:
    """Return the section, or a sentence if nothing was measured."""
    heading = "What a second layer does with distances"
    if table.empty:
        return Section(heading, (Prose(f"{TEXT}\n\nNo run of this experiment is recorded with these options."),))
    rows = []
    for (data, first, head), part in table.groupby(["data", "first", "head"], sort=False):
        starts = part.groupby("start").mean(numeric_only=True)
        where = {"data": data, "first layer from": FIRST[str(first)], "head": HEADS[str(head)], "starts": len(starts)}
        names = ("accuracy", "agreement", "high", *SPACES)
        rows.append({**where, **{name: mean_text(starts[name]) for name in names}})
    labels = {"accuracy": "accuracy, %", "high": "95 % of permutations", **SPACES}
    groups = {"agreement of groups of units": ("agreement", "high"), "silhouette of new points": tuple(SPACES)}
    note = (
        "Mean [95 % t interval] over starts; mixtures of 3, 4 and 5 clusters together. Agreement: adjusted Rand index."
    )
    shown = Table(
        "second-layer", "Two layers on clustered data", pd.DataFrame(rows), note, groups=groups, labels=labels
    )
    return Section(heading, (Prose(TEXT), shown, layers(table)))
