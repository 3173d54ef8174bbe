"""Exact regions of trained networks, and both distances between them.

Axes: R regions, V vertices, C corners.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64

from metriscope.report.explorer import Scene
from metriscope.rng import stream
from metriscope.runs import Driver, Finished, Result, Run, once
from metriscope.studies.vq.explorer.plan import Explorer, Exploring
from metriscope.studies.vq.lemmas.measure import compare
from metriscope.studies.vq.networks.measure import trained
from metriscope.studies.vq.networks.plan import STUDY, Group
from metriscope.studies.vq.train import Networks, sample
from metriscope.vq import Partition, linear_regions, vq_kernel

__all__ = ["Results", "View", "measure"]

KEPT = ("violations", "strict", "mean gap", "largest gap", "stretch")


@dataclass(frozen=True)
class View:
    """One network of the explorer: its scene, its decision boundary, and distances of regions from the middle."""

    scene: Scene
    boundary: Float64[np.ndarray, "b 2 2"]
    distances: np.ndarray

    @property
    def choices(self) -> Mapping[str, str]:
        """How the explorer names the network."""
        return self.scene.choices


@dataclass(frozen=True)
class Results:
    """All views, and one row of numbers each."""

    part: Explorer
    views: tuple[View, ...]
    rows: pd.DataFrame

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """One row per network."""
        return {"explorer": self.rows}


def measure(part: Explorer, runs: Finished, driver: Driver) -> Results:
    """Find the regions of every network, before and after training."""
    networks, specs = trained(part.jobs(), runs), part.views()
    found = driver.perform(specs, once(lambda spec: _explore(networks, spec)), "vq: explorer")
    rows = pd.concat([found[spec].table("rows") for spec in specs], ignore_index=True)
    return Results(part, tuple(_view(spec, found[spec]) for spec in specs), rows)


def _explore(networks: Mapping[Group, Networks], spec: Exploring) -> Result:
    model = networks[spec.group].network(spec.group.seeds[0], spec.role, 0 if spec.initial else None)
    partition = linear_regions(model, bounds=spec.bounds)
    boundary = partition.decision_boundary()
    here = partition.patterns[partition.locate([spec.middle])]
    arrays = {
        "vertices": partition.vertices,
        "corners": partition.corners,
        "starts": partition.starts,
        "signs": partition.patterns.signs(),
        "boundary": boundary,
        "distances": vq_kernel(here, partition.patterns)[0],
    }
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    rows = pd.DataFrame([{**spec.choices, **_numbers(partition, boundary, spec)}])
    return Result({"rows": rows}, tensors, {"widths": [layer.width for layer in partition.layers]})


def _numbers(partition: Partition, boundary: np.ndarray, spec: Exploring) -> dict[str, float]:
    """Return how many regions there are, and how both distances from some regions to all differ."""
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
        vertices=arrays["vertices"],
        corners=arrays["corners"],
        starts=arrays["starts"],
        signs=arrays["signs"],
        layers=tuple((f"layer {i + 1}", width) for i, width in enumerate(run.record["widths"])),
        points=points.x.double().numpy(),
        labels=points.y.long().numpy(),
    )
    return View(scene, arrays["boundary"], arrays["distances"])
