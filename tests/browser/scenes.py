"""Real scenes to look at: small networks with random weights, their exact regions, and what Python says of both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.csgraph import dijkstra
from torch import nn

from metriscope.report.explorer import Scene
from metriscope.rng import stream
from metriscope.vq import vq_kernel
from metriscope.vq.capture import capture
from metriscope.vq.regions.exact import linear_regions
from metriscope.vq.regions.partition import Partition

SQUARE = ((-1.0, 1.0), (-1.0, 1.0))
SHAPES = {"shallow": (20,), "deep": (10, 33, 7)}


@dataclass(frozen=True)
class Case:
    """A network, its partition, and the scene made of them."""

    model: nn.Sequential
    partition: Partition
    scene: Scene

    def distances(self, pointer, points, weights=None):
        """Return VQ, graph and Euclidean distances from the pointer, none of them from the page's own numbers."""
        places = np.asarray([pointer, *points], np.float64)
        patterns = capture(self.model, torch.from_numpy(places))
        found = self.partition.locate(places)
        steps = dijkstra(self.partition.graph, directed=False, unweighted=True, indices=found[0])[found[1:]]
        euclid = np.linalg.norm(places[1:] - places[0], axis=1)
        return {"vq": vq_kernel(patterns[:1], patterns[1:], weights)[0], "graph": steps, "euclid": euclid}

    def reach(self, weights=None):
        """Return the largest of each distance: where the color scales end."""
        graph = dijkstra(self.partition.graph, directed=False, unweighted=True).max()
        vq = vq_kernel(self.partition.patterns, weights=weights).max()
        return {"vq": float(vq), "graph": float(graph), "euclid": float(np.hypot(2, 2))}


def network(widths, seed):
    sizes = zip((2, *widths[:-1]), widths, strict=True)
    model = nn.Sequential(*(part for sides in sizes for part in (nn.Linear(*sides), nn.ReLU()))).double()
    generator = stream(seed, "explorer")
    with torch.no_grad():
        for linear in model[::2]:
            linear.weight.normal_(0, (2 / linear.in_features) ** 0.5, generator=generator)
            linear.bias.uniform_(-0.5, 0.5, generator=generator)
    return model


def case(shape, seed):
    model = network(SHAPES[shape], seed)
    partition = linear_regions(model, bounds=SQUARE)
    layers = tuple((f"layer {i + 1}", width) for i, width in enumerate(SHAPES[shape]))
    points = uniform(40, seed, "points")
    mesh = partition.vertices, partition.corners, partition.starts
    choices = {"shape": shape, "weights": ("first draw", "second draw")[seed]}
    return Case(
        model, partition, Scene(choices, SQUARE, *mesh, partition.patterns.signs(), layers, points, np.arange(40) % 2)
    )


def uniform(count, seed, *names):
    return (2 * torch.rand(count, 2, generator=stream(seed, *names), dtype=torch.float64) - 1).numpy()
