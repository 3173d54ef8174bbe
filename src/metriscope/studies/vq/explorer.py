"""Trained networks of the plane as scenes of the explorer, and what their exact regions show.

Axes: R regions. Shallow and deep networks have the same number of units, so that their VQ distances compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from metriscope.report import Companion, Prose, Section, Table
from metriscope.report.explorer import Scene, explorer_page
from metriscope.rng import stream
from metriscope.runs import Store
from metriscope.studies.contract import Announce
from metriscope.studies.vq.experiment import Networks, sample, train
from metriscope.studies.vq.lemmas import compare
from metriscope.studies.vq.parts import Part
from metriscope.studies.vq.spec import NAME, Group, Plan, Shape
from metriscope.vq import Partition, linear_regions, vq_kernel

__all__ = ["PART", "Explored", "groups", "scene"]

BOUNDS = ((-1.2, 1.2), (-1.2, 1.2))
SHAPES = {"deep": (3, 32), "shallow": (1, 96)}
ACTIVATIONS = {"ReLU": "relu", "Abs": "abs"}
ROLES = {"moons": "first", "turned moons": "turned"}
# Regions from which distances to all others are compared; all pairs would take minutes.
SOURCES = 100


@dataclass(frozen=True)
class View:
    """One network of the explorer: how it is chosen, and its exact regions."""

    choices: dict[str, str]
    partition: Partition
    networks: Networks

    @property
    def role(self) -> str:
        """Return the role in which it was trained."""
        return ROLES[self.choices["data"]]


@dataclass(frozen=True)
class Explored:
    """All views, and one row of numbers each."""

    views: tuple[View, ...]
    rows: pd.DataFrame


def groups(plan: Plan) -> tuple[Group, ...]:
    """Return the trainings behind the explorer: one seed of every shape and activation, on both data."""
    shapes = [Shape(2, *size, 1, kind) for size in SHAPES.values() for kind in ACTIVATIONS.values()]
    return tuple(Group("moons", shape, plan.plain, tuple(ROLES.values()), (0,), seed=plan.seed) for shape in shapes)


def collect(plan: Plan, store: Store, announce: Announce) -> Explored:
    """Train what is missing, and find the regions of every network, before and after training."""
    views = tuple(view for networks in train(groups(plan), store) for view in _views(networks))
    rows = [{**view.choices, **_numbers(view, plan.seed)} for view in views]
    announce(f"explorer: {len(views)} networks, {sum(len(view.partition) for view in views):,} exact regions")
    return Explored(views, pd.DataFrame(rows))


def _views(networks: Networks) -> Iterator[View]:
    shape = networks.group.shape
    name = next(name for name, size in SHAPES.items() if size == (shape.depth, shape.width))
    activation = next(name for name, kind in ACTIVATIONS.items() if kind == shape.activation)
    for data, role in ROLES.items():
        for state, epoch in (("trained", None), ("initial", 0)):
            partition = linear_regions(networks.network(0, role, epoch), bounds=BOUNDS)
            yield View({"data": data, "state": state, "shape": name, "activation": activation}, partition, networks)


def _numbers(view: View, seed: int) -> dict[str, float]:
    """Return how many regions there are, and both distances from some regions to all."""
    partition = view.partition
    drawn = torch.randperm(len(partition), generator=stream(seed, NAME, "explorer", "sources"))
    some = np.sort(drawn[:SOURCES].numpy())
    vq = vq_kernel(partition.patterns[some], partition.patterns).astype(np.int64)
    found = compare(vq.ravel(), partition.distance(some).ravel())
    border = np.diff(partition.decision_boundary(), axis=1)
    kept = ("violations", "strict", "mean gap", "largest gap", "stretch")
    length = float(np.linalg.norm(border, axis=-1).sum())
    return {"regions": len(partition), **{name: found[name] for name in kept}, "decision boundary": length}


def scene(view: View) -> Scene:
    """Return a view as the explorer shows it."""
    partition, points = view.partition, sample(view.networks.group, 0, view.role)
    return Scene(
        choices=view.choices,
        bounds=BOUNDS,
        vertices=partition.vertices,
        corners=partition.corners,
        starts=partition.starts,
        signs=partition.patterns.signs(),
        layers=tuple((f"layer {i + 1}", layer.width) for i, layer in enumerate(partition.layers)),
        points=points.x.double().numpy(),
        labels=points.y.long().numpy(),
    )


def sections(explored: Explored) -> tuple[Section, ...]:
    """Return the part's section of the report, with the explorer beside it."""
    from metriscope.studies.vq.explorer_figures import partitions

    table = Table(
        "vq-regions",
        "Exact regions of small networks on the moons",
        explored.rows.drop(columns="violations"),
        f"Distances from {SOURCES} regions to all others; “strict” is the share of pairs with VQ below the region "
        "graph, differences are graph minus VQ. One seed; shallow is 1 × 96, deep is 3 × 32: as many units. The "
        "decision boundary's length is in units of the plane.",
        labels={"strict": "share strict", "stretch": "graph / VQ", "decision boundary": "decision boundary, length"},
    )
    page = Companion(
        "explorer.html",
        "Open the explorer",
        "Move the pointer to paint the distance from there to everywhere: VQ, region graph and Euclid side by side, "
        f"for {len(explored.views)} networks. One file, no network; works with mouse, touch and keyboard.",
        explorer_page([scene(view) for view in explored.views]),
    )
    return (Section("The explorer", (Prose(_text(explored)), page, partitions(explored), table)),)


def _text(explored: Explored) -> str:
    rows = explored.rows
    means = rows.groupby(["shape", "state"])["strict"].mean()
    deep = {state: 100 * float(means.loc[("deep", state)]) for state in ("initial", "trained")}
    return (
        "Shallow and deep networks of 96 units, ReLU and Abs, on the moons and on the turned moons, before and after "
        f"training: {int(rows['regions'].sum()):,} regions, all exact. No pair of regions breaks a lemma "
        f"({int(rows['violations'].sum())} violations). Deep networks are strict for {deep['initial']:.0f} % of pairs "
        f"before training and {deep['trained']:.0f} % after it."
    )


PART = Part("explorer", collect, sections)
