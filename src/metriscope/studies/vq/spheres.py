"""Figure 2 of S4: moons hidden in 100 dimensions, seen by the VQ kernel and by Euclid, learned or memorised.

Axes: N points, S seeds. New points are a second draw of the same size, which no network was trained on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from metriscope.report import Prose, Section, number
from metriscope.runs import Store
from metriscope.studies.contract import Announce
from metriscope.studies.vq import moon_figures
from metriscope.studies.vq.experiment import Networks, sample, train
from metriscope.studies.vq.measures import pattern_separation, point_separation
from metriscope.studies.vq.parts import Measured, Part, mean_text, measured, summary_table
from metriscope.studies.vq.spec import Plan
from metriscope.vq import capture

__all__ = ["DISTANCES", "MEASURES", "PART", "PLACES", "Spheres", "collect", "separations"]

DISTANCES = {
    "first": "VQ",
    "turned": "VQ, turned data",
    "euclid": "Euclid",
    "start": "VQ before training",
    "shuffled": "VQ, random labels, by those labels",
    "shuffled true": "VQ, random labels, by true labels",
}
MEASURES = {
    "silhouette": "silhouette on the plane",
    "neighbour": "nearest neighbour, leave one out",
    "rank": "rank, entropy",
    "participation": "rank, participation",
}
PLACES = {"training": "training points", "new": "new points"}


@dataclass(frozen=True)
class Spheres:
    """What figure 2 yields: one row for each seed, distance and set of points, and the networks behind it."""

    plan: Plan
    rows: pd.DataFrame
    ends: pd.DataFrame
    networks: tuple[Networks, ...]

    def values(self, distance: str, place: str, measure: str) -> np.ndarray:
        """Return one value a seed, in the order of seeds."""
        mask = (self.rows["distance"] == distance) & (self.rows["points"] == place)
        return self.rows[mask].sort_values("seed")[measure].to_numpy(dtype=float)

    def accuracies(self, role: str) -> np.ndarray:
        """Return each network's accuracy on new points."""
        return self.ends[self.ends["role"] == role]["test"].to_numpy(dtype=float)


def separations(networks: Networks, number: int) -> Iterator[dict[str, object]]:
    """Yield one row for each distance and set of points of one seed."""
    true = sample(networks.group, number, "first")
    start = networks.network(number, "first", 0)
    sets = {"training": (true.x, true.y.numpy()), "new": (true.test_x, true.test_y.numpy())}
    for place, (x, y) in sets.items():
        yield {"points": place, "distance": "euclid", **point_separation(x.double().numpy(), y)}
        yield {"points": place, "distance": "start", **pattern_separation(capture(start, x), y)}
    for role in ("first", "turned", "shuffled"):
        model, own = networks.network(number, role), sample(networks.group, number, role)
        seen, new = capture(model, own.x), capture(model, own.test_x)
        by_truth = "shuffled true" if role == "shuffled" else role
        yield {"points": "training", "distance": role, **pattern_separation(seen, own.y.numpy())}
        if role == "shuffled":
            # All roles see the same points in the same order, so the first role's labels are the true ones.
            yield {"points": "training", "distance": by_truth, **pattern_separation(seen, true.y.numpy())}
        yield {"points": "new", "distance": by_truth, **pattern_separation(new, own.test_y.numpy())}


def collect(plan: Plan, store: Store, announce: Announce) -> Spheres:
    """Train and measure the networks of figure 2."""
    networks = train(plan.sphere_groups(), store)
    tables = [_rows(some, store) for some in networks]
    rows = pd.concat(tables, ignore_index=True)
    announce(f"figure 2: {len(rows)} separations over {plan.seeds} seeds")
    return Spheres(plan, rows, pd.concat([n.history() for n in networks], ignore_index=True), networks)


def _rows(networks: Networks, store: Store) -> pd.DataFrame:
    def rows() -> Iterator[dict[str, object]]:
        for seed in networks.group.seeds:
            for row in separations(networks, seed):
                yield {"seed": seed, **row}

    return measured(store, Measured("separation", (networks.group,)), rows)


def sections(spheres: Spheres) -> tuple[Section, ...]:
    """Return figure 2 and its numbers on training points and on new ones."""
    order = pd.Categorical(spheres.rows["distance"], list(DISTANCES), ordered=True)
    rows = spheres.rows.assign(order=order).sort_values(["points", "order"], ascending=[False, True])
    rows = rows.assign(points=rows["points"].map(PLACES), distance=rows["distance"].map(DISTANCES))
    note = (
        "Silhouette of the labels on the two-dimensional scaling; nearest-neighbour accuracy in the full distance, "
        "ties shared; effective rank of the centred kernel as the exponential of its spectrum's entropy and as "
        "participation ratio. New points have their own scaling, and true labels."
    )
    table = summary_table("vq-separation", "Separation and rank", rows, ["points", "distance"], MEASURES, note)
    return (Section("Moons in 100 dimensions", (Prose(_words(spheres)), moon_figures.scalings(spheres), table)),)


def _words(spheres: Spheres) -> str:
    names = {"first": "moons", "turned": "turned moons", "shuffled": "random labels"}
    parts = [f"{text} {mean_text(spheres.accuracies(role))}" for role, text in names.items()]
    return (
        "The moons are scaled by 0.1 and 98 random coordinates bring every point to the unit sphere: the signal is as "
        "faint as any single coordinate of the noise. S4 shows that the VQ kernel of the training points separates the "
        "classes in two dimensions where Euclidean scaling does not. Two controls are added: points of a new draw, and "
        "networks trained on labels dealt at random, which have nothing but memory to go by.\n\n"
        f"Lowest accuracy of a network on its training points: {number(spheres.ends['train'].min())}. On new points, "
        f"where 0.5 is chance: {', '.join(parts)}."
    )


PART = Part("spheres", collect, sections)
