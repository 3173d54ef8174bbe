"""Both distances over every pair of exact regions of random networks, and the tent map of figure 5.

Axes: R regions. On a convex part of the plane the lemmas hold as they do on the whole plane: the straight way between
two regions stays inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from metriscope.nn import ACTIVATIONS
from metriscope.rng import stream
from metriscope.runs import Driver
from metriscope.studies.vq.lemmas.plan import Lemmas, Lot, TentMaps
from metriscope.studies.vq.networks.measure import stored
from metriscope.studies.vq.networks.plan import STUDY, Shape
from metriscope.studies.vq.train import mlp
from metriscope.vq import Partition, linear_regions, vq_kernel

__all__ = [
    "Pieces",
    "Results",
    "Steps",
    "Tent",
    "both_distances",
    "compare",
    "compare_windows",
    "lot_rows",
    "measure",
    "random_network",
    "tent_rows",
    "wider_distances",
]


class Tent(nn.Module):
    """The tent map of the unit interval, 2z up to the middle and 2 - 2z behind it, so many times; one unit each.

    ``printed`` is the formula as S4 prints it, min(2z, 1).
    """

    def __init__(self, layers: int, printed: bool = False) -> None:
        super().__init__()
        self.layers, self.slope = layers, 2.0 if printed else 4.0

    def forward(self, z: Tensor) -> Tensor:
        """Return the map of each number."""
        for _ in range(self.layers):
            z = 2 * z - torch.relu(self.slope * (z - 0.5))
        return z


class Steps(nn.Module):
    """One hidden layer that cuts the unit interval into equal pieces, one unit for each cut."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.register_buffer("cuts", torch.arange(1, pieces, dtype=torch.float64) / pieces)

    def forward(self, z: Tensor) -> Tensor:
        """Return the sum of all units."""
        return torch.relu(z - self.get_buffer("cuts")).sum(1, keepdim=True)


def random_shape(lot: Lot, index: int) -> Shape:
    """Return the shape of one network of a lot."""
    kind = lot.networks
    combinations = list(product(kind.widths, kind.depths, kind.activations))
    width, depth, activation = combinations[(lot.number * lot.count + index) % len(combinations)]
    return Shape(2, depth, width, 1, activation)


def random_network(lot: Lot, index: int) -> nn.Sequential:
    """Return one network of a lot."""
    return mlp(random_shape(lot, index), stream(lot.seed, STUDY, "lemmas", lot.networks.name, lot.number, index))


def both_distances(partition: Partition) -> tuple[Int64[np.ndarray, " p"], Int64[np.ndarray, " p"]]:
    """Return the VQ distance and the region-graph distance of every pair of regions."""
    pairs = np.triu_indices(len(partition), 1)
    everything = np.arange(len(partition))
    return vq_kernel(partition.patterns)[pairs].astype(np.int64), partition.distance(everything)[pairs]


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
    """Return how many pairs a wider window brings nearer in the graph, by how much, and what it does to the lemmas.

    >>> compare_windows(np.array([1, 2]), np.array([1, 4]), np.array([1, 2]))["shortened"]
    0.5
    """
    against = compare(vq, wide)
    return {
        "shortened": float((wide < graph).mean()) if len(graph) else 0.0,
        "excess": float((graph - wide).mean()) if len(graph) else 0.0,
        "wider strict": against["strict"],
        "wider violations": against["violations"],
    }


def lot_rows(lot: Lot) -> Iterator[dict[str, object]]:
    """Yield what every pair of regions of each network of a lot shows."""
    for index in range(lot.count):
        shape = random_shape(lot, index)
        model = random_network(lot, index)
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
    """Yield what the tent map, its printed formula and its shallow twin give, one row per number of layers."""
    for count in spec.layers:
        tent = linear_regions(Tent(count), bounds=(0.0, 1.0))
        twin = linear_regions(Steps(2**count), bounds=(0.0, 1.0))
        vq, graph = both_distances(tent)
        flat, steps = both_distances(twin)
        yield {
            "layers": count,
            "units": count,
            "pieces": len(tent),
            "pieces as printed": len(linear_regions(Tent(count, printed=True), bounds=(0.0, 1.0))),
            "largest VQ": int(vq.max()),
            "largest graph": int(graph.max()),
            "strict": compare(vq, graph)["strict"],
            "violations": compare(vq, graph)["violations"],
            "twin units": 2**count - 1,
            "twin pieces": len(twin),
            "twin differs": int((flat != steps).sum()),
        }


@dataclass(frozen=True)
class Pieces:
    """What figure 5 shows: the tent map so many times over, and VQ distances of its pieces, deep and shallow."""

    layers: int
    z: Float[np.ndarray, " n"]
    value: Float[np.ndarray, " n"]
    distances: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Results:
    """What both lemmas show: one row per network, and one row per number of layers of the tent map."""

    networks: pd.DataFrame
    tents: pd.DataFrame
    pieces: Pieces

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Random networks and tent maps, with what a lemma would have to be zero in whole numbers."""
        rows, tents = self.networks, self.tents
        differ = (rows["strict"] * rows["pairs"]).round() + rows["violations"]
        names = rows["kind"] + " " + rows["seed"].astype(str) + "." + rows["number"].astype(str)
        off = (tents["pieces"] - 2 ** tents["layers"]).abs()
        # A single layer has two pieces, and no pair that could differ.
        never = (tents["layers"] > 1) & ~(tents["strict"] > 0)
        extra = {"pieces off": off, "never strict": never.astype(int)}
        return {
            "lemmas": rows.assign(network=names, differ=differ, protocol=True),
            "tents": tents.assign(**extra, protocol=True),
        }


def measure(part: Lemmas, driver: Driver) -> Results:
    """Compare the distances of every pair of regions."""
    networks = stored(driver, part.lots(), lot_rows, "vq: regions of random networks")
    tents = stored(driver, (part.tents,), tent_rows, "vq: tent maps")
    return Results(networks, tents, _pieces(part.tents))


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
