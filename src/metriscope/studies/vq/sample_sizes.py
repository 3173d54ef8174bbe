"""Separation of training points and of new points over the number of training points, and the section on it.

Axes: T numbers of points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from metriscope.nn import unstack
from metriscope.report import Figure, Prose, Section, Table, mean_interval, mean_text, number, to_svg
from metriscope.report.plots import band
from metriscope.report.style import CYCLE, INK, figure, legend
from metriscope.runs import Driver
from metriscope.studies.tidy_tables import joined
from metriscope.studies.vq.digits import crossings
from metriscope.studies.vq.experiments import DISTANCES, PLACES, SEPARATION_MEASURES, STRUCTURE, Crowd, SampleSizes
from metriscope.studies.vq.moons import pattern_separation, point_separation
from metriscope.studies.vq.train import accuracy, cohort, looked_up, sample, start
from metriscope.train import fit
from metriscope.vq import capture

__all__ = ["SampleSizesResults", "measure_sample_sizes", "needed", "needed_text", "section"]


def crowd_rows(spec: Crowd) -> Iterator[dict[str, object]]:
    """Yield one row per seed, set of points and distance, with the network's loss and accuracy on new points."""
    own = cohort(spec.group)
    fit([own], workers=1, threads=1)
    for place, seed in enumerate(spec.group.seeds):
        points = sample(spec.group, seed, "first")
        network = unstack(start(spec.group, seed, "first"), own.parameters, place)
        end = {"loss": float(own.history[place, -1]), "test": accuracy(network, points.test_x, points.test_y)}
        for where, x, y in (("training", points.x, points.y), ("new", points.test_x, points.test_y)):
            x, labels = _some(x, spec.points), _some(y, spec.points).numpy()
            found = {
                "first": pattern_separation(capture(network, x), labels, spec.components),
                "euclid": point_separation(x.double().numpy(), labels, spec.components),
            }
            yield from ({"seed": seed, "points": where, "distance": d, **row, **end} for d, row in found.items())


def _some(rows: Tensor, count: int) -> Tensor:
    """Return at most ``count`` rows, evenly spaced because points are in the order of their labels."""
    return rows if len(rows) <= count else rows[torch.linspace(0, len(rows) - 1, count).long()]


def needed(counts: Float[np.ndarray, " t"], values: Float[np.ndarray, " t"], bound: float) -> float:
    """Return the number of points from which values stay above a bound, interpolated along the logarithm.

    It is the smallest number if all values are above the bound, and infinity if the last one is not.

    >>> round(needed(np.array([100.0, 1e4]), np.array([0.0, 0.5]), 0.25)), needed(np.ones(2), np.zeros(2), 0.25)
    (1000, inf)
    """
    if values[-1] <= bound:
        return float("inf")
    found = crossings(counts, values, bound)
    return float(found[-1]) if len(found) else float(counts[0])


@dataclass(frozen=True)
class SampleSizesResults:
    """One row per number of points, seed, set of points and distance; without rows nothing was run or recorded."""

    part: SampleSizes
    rows: pd.DataFrame

    def values(self, measure: str, points: str, distance: str) -> Float[np.ndarray, "s t"]:
        """Return a measure as seeds by numbers of points."""
        part = self.rows[(self.rows["points"] == points) & (self.rows["distance"] == distance)]
        return part.pivot(index="seed", columns="count", values=measure).to_numpy(dtype=float)

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """All rows, and per seed and set of points the number of points from which they are separated."""
        if self.rows.empty:
            return {}
        counts, found = np.unique(self.rows["count"]).astype(float), []
        for points in ("training", "new"):
            curves = self.values("silhouette", points, "first")
            found += [
                {"seed": seed, "points": points, "needed": needed(counts, curve, STRUCTURE)}
                for seed, curve in enumerate(curves)
            ]
        return {"sample sizes": self.rows, "points needed": pd.DataFrame(found)}


def needed_text(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return a sentence that says with how many training points new points are separated."""
    if "points needed" not in tables:
        return ""
    rows, most = tables["points needed"], int(tables["sample sizes"]["count"].max())
    values = rows[rows["points"] == "new"]["needed"].to_numpy(dtype=float)
    reached = values[np.isfinite(values)]
    separated = f"New points are separated (silhouette above {STRUCTURE:g})"
    if len(reached) < len(values):
        return f"{separated} by n = {most:,} in {len(reached)} of {len(values)} seeds."
    mean, low, high = (number(float(np.exp(v))) for v in mean_interval(np.log(values)))
    where = f"geometric mean over {len(values)} seeds, 95 % interval {low} to {high}"
    return f"{separated} from n = {mean} training points on ({where})."


def measure_sample_sizes(part: SampleSizes, driver: Driver) -> SampleSizesResults:
    """Train and measure every number of points, or look them up."""
    found = looked_up(driver, part.crowds(), crowd_rows, "vq: moons by number of points", part.computed)
    parts = [rows.assign(count=spec.group.data.count) for spec, rows in found.items()]
    return SampleSizesResults(part, joined(parts))


CURVES = {
    ("training", "first"): ("VQ, training points", CYCLE[0]),
    ("new", "first"): ("VQ, new points", CYCLE[1]),
    ("new", "euclid"): ("Euclid, new points", CYCLE[3]),
}


def separation(results: SampleSizesResults) -> Figure:
    """Draw silhouette, accuracy of the network on new points, and effective rank over the number of points."""
    counts = np.unique(results.rows["count"])
    drawing, ((left, middle, right),) = figure(9.2, 3.2, 1, 3)
    for (points, distance), (title, color) in CURVES.items():
        band(left, counts, results.values("silhouette", points, distance), title, color, log="x")
        band(right, counts, results.values("rank", points, distance), title, color, log="x")
    band(middle, counts, results.values("test", "new", "first"), "network", CYCLE[2], log="x")
    band(middle, counts, results.values("neighbor", "new", "first"), "nearest neighbor, VQ", CYCLE[1], log="x")
    left.axhline(STRUCTURE, color=INK, linewidth=0.9, dashes=(4, 3))
    titles = ("silhouette on the plane", f"accuracy, {PLACES['new']}", "effective rank")
    for ax, title in zip((left, middle, right), titles, strict=True):
        ax.set(xlabel="training points n", ylabel=title)
    for ax in (left, middle):
        legend(ax)
    caption = (
        "Median over seeds, band of the middle 80 %, extremes as thin lines. Left and right: classical scaling of VQ "
        f"and Euclidean distances. Dashed: a silhouette of {STRUCTURE:g}, above which classes count as separated."
    )
    name = "vq-sample-sizes"
    return Figure(name, "From how many points on are new points separated?", to_svg(drawing, name), caption)


TITLE = "Moons in 100 dimensions: how many points are enough?"


def section(results: SampleSizesResults) -> Section:
    """Return the question, the figure and the table or, without rows, a sentence that nothing was run."""
    part = results.part
    counts = part.counts if results.rows.empty else tuple(results.rows["count"].unique())
    text = (
        "A network that only memorizes the labels of 150 points separates them and not new ones. Do more points help? "
        f"Here the same network is trained on {min(counts):,} to {max(counts):,} points, {part.seeds} seeds "
        f"each, and measured on at most {part.crowds()[0].points:,} training points and as many new ones."
    )
    if results.rows.empty:
        return Section(TITLE, (Prose(f"{text}\n\nNot run in this profile, and there is no record of it."),))
    return Section(TITLE, (Prose(f"{text}\n\n{needed_text(results.tables)}"), separation(results), _table(results)))


def _table(results: SampleSizesResults) -> Table:
    lines = []
    for (count, points, distance), rows in results.rows.groupby(["count", "points", "distance"], sort=False):
        measures = {title: mean_text(rows[m]) for m, title in SEPARATION_MEASURES.items() if m != "participation"}
        network = {"loss": mean_text(rows["loss"], 4), "accuracy of the network, new points": mean_text(rows["test"])}
        own = network if distance == "first" else dict.fromkeys(network, "–")
        lines.append(
            {"n": count, "points": PLACES[str(points)], "distance": DISTANCES[str(distance)], **measures, **own}
        )
    note = f"Mean [95 % t interval] over {results.part.seeds} seeds."
    return Table("vq-sample-sizes", "Separation by number of training points", pd.DataFrame(lines), note)
