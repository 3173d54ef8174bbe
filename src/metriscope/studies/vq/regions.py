"""Exact regions: both distances over every pair of regions of random networks, tent maps, and the explorer.

Axes: P pairs of regions, B segments of a decision boundary. On a convex window the lemmas hold as on the whole plane:
the straight line between two regions stays inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from metriscope.nn import ACTIVATIONS
from metriscope.report.explorer import Scene
from metriscope.rng import stream
from metriscope.runs import Driver, Finished, Result, Run, once
from metriscope.studies.vq.networks import STUDY, Group, MLPShape
from metriscope.studies.vq.plan import Explorer, Exploring, Lemmas, Lot, TentMaps
from metriscope.studies.vq.train import Networks, mlp, sample, stored, trained
from metriscope.vq import Partition, linear_regions, vq_kernel

__all__ = [
    "ExplorerResults", "LemmasResults", "Steps", "Tent", "View", "both_distances", "compare", "compare_windows",
    "lot_rows", "measure_explorer", "measure_lemmas", "random_network", "tent_rows", "wider_distances",
]  # fmt: skip


class Tent(nn.Module):
    """The tent map of the unit interval, 2z up to 1/2 and 2 - 2z beyond, applied once per layer, with one unit each.

    ``printed`` is the formula as Roddenberry et al. print it, min(2z, 1).
    """

    def __init__(self, layers: int, printed: bool = False) -> None:
        super().__init__()
        self.layers, self.slope = layers, 2.0 if printed else 4.0

    def forward(self, z: Tensor) -> Tensor:
        """Return the image of each number."""
        for _ in range(self.layers):
            z = 2 * z - torch.relu(self.slope * (z - 0.5))
        return z


class Steps(nn.Module):
    """One hidden layer that cuts the unit interval into equal pieces, one unit per cut."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.register_buffer("cuts", torch.arange(1, pieces, dtype=torch.float64) / pieces)

    def forward(self, z: Tensor) -> Tensor:
        """Return the sum of all units."""
        return torch.relu(z - self.get_buffer("cuts")).sum(1, keepdim=True)


def _shape(lot: Lot, index: int) -> MLPShape:
    kind = lot.networks
    combinations = list(product(kind.widths, kind.depths, kind.activations))
    width, depth, activation = combinations[(lot.number * lot.count + index) % len(combinations)]
    return MLPShape(2, depth, width, 1, activation)


def random_network(lot: Lot, index: int) -> nn.Sequential:
    """Return one network of a set."""
    return mlp(_shape(lot, index), stream(lot.seed, STUDY, "lemmas", lot.networks.name, lot.number, index))


def both_distances(partition: Partition) -> tuple[Int64[np.ndarray, " p"], Int64[np.ndarray, " p"]]:
    """Return the VQ distance and the region-graph distance of every pair of regions."""
    pairs = np.triu_indices(len(partition), 1)
    graph = partition.distance(np.arange(len(partition)))
    return vq_kernel(partition.patterns)[pairs].astype(np.int64), graph[pairs]


def compare(vq: Int64[np.ndarray, " p"], graph: Int64[np.ndarray, " p"]) -> dict[str, float]:
    """Return how two distances of the same pairs differ.

    >>> compare(np.array([1, 2, 2]), np.array([1, 2, 5]))["strict"]
    0.3333333333333333
    """
    gap = graph - vq
    return {
        "pairs": len(gap),
        "violations": int((gap < 0).sum()),
        "strict": float((gap > 0).mean()) if len(gap) else 0.0,
        "mean gap": float(gap.mean()) if len(gap) else 0.0,
        "largest gap": int(gap.max(initial=0)),
        "stretch": float(graph.sum() / vq.sum()) if len(gap) else 1.0,
    }


def wider_distances(partition: Partition, wide: Partition) -> Int64[np.ndarray, " p"]:
    """Return the region-graph distance on a wider window of every pair of regions of a partition."""
    where = wide.locate(partition.centers)
    return wide.distance(where)[:, where][np.triu_indices(len(partition), 1)]


def compare_windows(
    vq: Int64[np.ndarray, " p"], graph: Int64[np.ndarray, " p"], wide: Int64[np.ndarray, " p"]
) -> dict[str, float]:
    """Return how many pairs are nearer in the graph of a wider window, by how much, and whether the lemmas hold there.

    >>> compare_windows(np.array([1, 2]), np.array([1, 4]), np.array([1, 2]))["shortened"]
    0.5
    """
    windows, lemma = compare(wide, graph), compare(vq, wide)
    found = {"shortened": windows["strict"], "excess": windows["mean gap"]}
    return found | {"wider strict": lemma["strict"], "wider violations": lemma["violations"]}


def lot_rows(lot: Lot) -> Iterator[dict[str, object]]:
    """Yield one row per network of a set: both distances over every pair of its regions."""
    for index in range(lot.count):
        shape, model = _shape(lot, index), random_network(lot, index)
        partition = linear_regions(model, bounds=lot.bounds)
        name = ACTIVATIONS[shape.activation].title
        what = {"kind": lot.networks.name, "depth": shape.depth, "width": shape.width, "activation": name}
        vq, graph = both_distances(partition)
        found = {"regions": len(partition), **compare(vq, graph)}
        if lot.wider:
            (x0, x1), (y0, y1) = np.multiply(lot.bounds, lot.wider).tolist()
            wide = wider_distances(partition, linear_regions(model, bounds=((x0, x1), (y0, y1))))
            found |= {"wider": lot.wider, **compare_windows(vq, graph, wide)}
        yield {**what, "seed": lot.number, "number": index, **found}


def tent_rows(spec: TentMaps) -> Iterator[dict[str, float]]:
    """Yield one row per number of layers: the tent map, its printed formula and its shallow equivalent."""
    for count in spec.layers:
        tent = linear_regions(Tent(count), bounds=(0.0, 1.0))
        twin = linear_regions(Steps(2**count), bounds=(0.0, 1.0))
        vq, graph = both_distances(tent)
        found, (flat, steps) = compare(vq, graph), both_distances(twin)
        yield {
            "layers": count,
            "units": count,
            "pieces": len(tent),
            "pieces as printed": len(linear_regions(Tent(count, printed=True), bounds=(0.0, 1.0))),
            "largest VQ": int(vq.max()),
            "largest graph": int(graph.max()),
            "strict": found["strict"],
            "violations": found["violations"],
            "twin units": 2**count - 1,
            "twin pieces": len(twin),
            "twin differs": int((flat != steps).sum()),
        }


@dataclass(frozen=True)
class Pieces:
    """What figure 5 shows: the tent map of some layers, and VQ distances of its pieces, deep and shallow."""

    layers: int
    z: Float[np.ndarray, " n"]
    value: Float[np.ndarray, " n"]
    distances: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class LemmasResults:
    """Both lemmas: one row per random network, and one row per number of layers of the tent map."""

    networks: pd.DataFrame
    tents: pd.DataFrame
    pieces: Pieces

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Random networks and tent maps, with the counts that must be zero if the lemmas hold."""
        rows, tents = self.networks, self.tents
        differ = (rows["strict"] * rows["pairs"]).round() + rows["violations"]
        names = rows["kind"] + " " + rows["seed"].astype(str) + "." + rows["number"].astype(str)
        # A single layer has only two pieces, and so no pair that could differ.
        never = (tents["layers"] > 1) & ~(tents["strict"] > 0)
        extra = {"pieces off": (tents["pieces"] - 2 ** tents["layers"]).abs(), "never strict": never.astype(int)}
        lemmas = rows.assign(network=names, differ=differ, protocol=True)
        return {"lemmas": lemmas, "tents": tents.assign(**extra, protocol=True)}


def measure_lemmas(part: Lemmas, driver: Driver) -> LemmasResults:
    """Compare both distances of every pair of regions."""
    networks = stored(driver, part.lots(), lot_rows, "vq: regions of random networks")
    tents = stored(driver, (part.tents,), tent_rows, "vq: tent maps")
    return LemmasResults(networks, tents, _pieces(part.tents))


def _pieces(spec: TentMaps) -> Pieces:
    layers = spec.shown
    z = torch.linspace(0, 1, spec.samples, dtype=torch.float64)[:, None]
    models = {f"deep: {layers} layers of 1": Tent(layers), f"shallow: 1 layer of {2**layers - 1}": Steps(2**layers)}
    found = {}
    for title, model in models.items():
        partition = linear_regions(model, bounds=(0.0, 1.0))
        order = np.argsort(partition.centers[:, 0])
        found[title] = vq_kernel(partition.patterns[order])
    return Pieces(layers, z[:, 0].numpy(), Tent(layers)(z)[:, 0].numpy(), found)


# The results of `compare` that the explorer's table shows, and the fields that a scene takes from a partition.
KEPT = ("violations", "strict", "mean gap", "largest gap", "stretch")
SCENE = ("vertices", "corners", "starts", "signs")


@dataclass(frozen=True)
class View:
    """One network of the explorer: its scene, its decision boundary, and distances of regions from the middle."""

    scene: Scene
    boundary: Float64[np.ndarray, "b 2 2"]
    distances: np.ndarray

    @property
    def choices(self) -> Mapping[str, str]:
        """The explorer's names for the network."""
        return self.scene.choices


@dataclass(frozen=True)
class ExplorerResults:
    """All views, and one row of numbers each."""

    part: Explorer
    views: tuple[View, ...]
    rows: pd.DataFrame

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """One row per network."""
        return {"explorer": self.rows}


def measure_explorer(part: Explorer, runs: Finished, driver: Driver) -> ExplorerResults:
    """Find the regions of every network of the explorer, before and after training."""
    networks, specs = trained(part.jobs(), runs), part.views()
    found = driver.perform(specs, once(lambda spec: _explore(networks, spec)), "vq: explorer")
    rows = pd.concat([found[spec].table("rows") for spec in specs], ignore_index=True)
    return ExplorerResults(part, tuple(_view(spec, found[spec]) for spec in specs), rows)


def _explore(networks: Mapping[Group, Networks], spec: Exploring) -> Result:
    model = networks[spec.group].network(spec.group.seeds[0], spec.role, 0 if spec.initial else None)
    partition = linear_regions(model, bounds=spec.bounds)
    boundary = partition.decision_boundary()
    here = partition.patterns[partition.locate([spec.middle])]
    arrays = {"vertices": partition.vertices, "corners": partition.corners, "starts": partition.starts}
    arrays |= {"signs": partition.patterns.signs(), "boundary": boundary}
    arrays |= {"distances": vq_kernel(here, partition.patterns)[0]}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    rows = pd.DataFrame([{**spec.choices, **_numbers(partition, boundary, spec)}])
    return Result({"rows": rows}, tensors, {"widths": [layer.width for layer in partition.layers]})


def _numbers(partition: Partition, boundary: np.ndarray, spec: Exploring) -> dict[str, float]:
    """Return the number of regions, and how both distances from some regions to all differ."""
    drawn = torch.randperm(len(partition), generator=stream(spec.group.seed, STUDY, "explorer", "sources"))
    some = np.sort(drawn[: spec.sources].numpy())
    vq = vq_kernel(partition.patterns[some], partition.patterns).astype(np.int64)
    found = compare(vq.ravel(), partition.distance(some).ravel())
    length = float(np.linalg.norm(np.diff(boundary, axis=1), axis=-1).sum())
    return {"regions": len(partition), **{name: found[name] for name in KEPT}, "decision boundary": length}


def _view(spec: Exploring, run: Run) -> View:
    arrays = {name: tensor.numpy() for name, tensor in run.tensors().items()}
    points = sample(spec.group, spec.group.seeds[0], spec.role)
    scene = Scene(
        choices=spec.choices,
        bounds=spec.bounds,
        layers=tuple((f"layer {i + 1}", width) for i, width in enumerate(run.record["widths"])),
        points=points.x.double().numpy(),
        labels=points.y.long().numpy(),
        **{name: arrays[name] for name in SCENE},
    )
    return View(scene, arrays["boundary"], arrays["distances"])
