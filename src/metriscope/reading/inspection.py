"""What the pages of a network show, as numbers and tables: layers, units, distances, novelty, and two compared.

Axes: N points, H bits. Measures of pairs of points use an even sample of the points if there are many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64, Num

from metriscope import vq

__all__ = [
    "DistanceSummary",
    "PointMap",
    "Subject",
    "alignments",
    "distances",
    "heat_cosines",
    "layer_table",
    "novel_points",
    "point_map",
    "unit_tables",
]

SHOWN = 2_000  # points drawn or compared pair by pair; beyond it a picture shows no more
NOVEL = 20
SCALES = np.geomspace(0.01, 100, 49)  # of the mean distance, or its square
PERMUTATIONS, LEVEL = 200, 0.95


@dataclass(frozen=True)
class Subject:
    """A network's patterns, its name on the page, and its points' labels if they have any."""

    name: str
    patterns: vq.Patterns
    labels: np.ndarray | None = None

    def shown_rows(self, most: int = SHOWN) -> np.ndarray:
        """Return the rows of evenly chosen points, all of them if there are few."""
        return np.unique(np.linspace(0, len(self.patterns) - 1, min(most, len(self.patterns))).round().astype(int))

    def sample(self) -> Subject:
        """Return the points that are shown."""
        rows = self.shown_rows()
        return Subject(self.name, self.patterns[rows], None if self.labels is None else self.labels[rows])


def layer_table(patterns: vq.Patterns) -> pd.DataFrame:
    """Return one row per captured layer."""
    rows = [
        {
            "layer": layer.name,
            "kind": layer.kind,
            "signs": layer.width,
            "shape": " × ".join(map(str, layer.shape)),
            "piecewise affine": layer.piecewise_affine,
            "seen by": layer.seen,
        }
        for layer in patterns.layers
    ]
    return pd.DataFrame(rows)


def unit_tables(patterns: vq.Patterns) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return how units are used: one row per layer, and one row per unit."""
    found = vq.utilization(patterns)
    return found.summary(), found.to_pandas()


class DistanceSummary(NamedTuple):
    """VQ distances between points, and their means: over all pairs, with equal labels, and with different labels."""

    kernel: Num[np.ndarray, "n n"]
    mean: float
    within: float
    between: float


def distances(shown: Subject) -> DistanceSummary:
    """Return the distances between all points and their means, NaN where there is no pair of points."""
    kernel = vq.vq_kernel(shown.patterns)
    pairs = ~np.eye(len(kernel), dtype=bool)
    labels = np.zeros(len(kernel)) if shown.labels is None else shown.labels
    same = labels[:, None] == labels
    return DistanceSummary(kernel, _mean(kernel, pairs), _mean(kernel, pairs & same), _mean(kernel, ~same))


def _mean(kernel: Num[np.ndarray, "n n"], pairs: Bool[np.ndarray, "n n"]) -> float:
    return float(kernel[pairs].mean()) if pairs.any() else np.nan


class PointMap(NamedTuple):
    """Places of the shown points on two axes, and the eigenvalue of each axis that is defined."""

    places: Float64[np.ndarray, "n 2"]
    eigenvalues: Float64[np.ndarray, " k"]


def point_map(subject: Subject) -> PointMap | None:
    """Return the classical scaling of all points at the rows that are shown; None if all patterns are equal."""
    patterns = vq.region_count(subject.patterns)
    if patterns < 2:
        return None
    # No three corners of a cube lie on a line: two patterns span one axis, and three at least two.
    axes = min(2, patterns - 1)
    fitted, rows = vq.VQMDS(n_components=axes).fit(subject.patterns), subject.shown_rows()
    return PointMap(np.pad(fitted.embedding_[rows], ((0, 0), (0, 2 - axes))), fitted.eigenvalues_)


def novel_points(subject: Subject) -> tuple[pd.DataFrame, float]:
    """Return the points that are farthest from their nearest other point, and the median over all points."""
    patterns = subject.patterns
    # The nearest neighbor of a point among all points is itself: the second nearest is another.
    found = vq.novelty(patterns, patterns, k=2)
    top = np.argsort(-found, kind="stable")[:NOVEL]
    frame = pd.DataFrame({"point": patterns.ids[top], "signs to the nearest other point": found[top]})
    if subject.labels is not None:
        frame["label"] = subject.labels[top]
    return frame, float(np.median(found))


def alignments(one: Subject, two: Subject) -> tuple[vq.Alignment, vq.Alignment]:
    """Return the alignment of two networks, with permutations and an interval, and of each pair of layers."""
    p, q = one.patterns, two.patterns
    return vq.alignment(p, q, permutations=PERMUTATIONS, interval=LEVEL), vq.alignment(p, q, by_layer=True)


def heat_cosines(one: Subject, two: Subject) -> pd.DataFrame:
    """Return the cosines of both forms of heat kernels, one row per scale; no rows if all distances are 0."""
    p, q = one.sample().patterns, two.sample().patterns
    typical = float(np.mean([vq.vq_kernel(each).mean() for each in (p, q)]))
    scales = SCALES if typical else SCALES[:0]
    units = {"distance": typical, "squared": typical**2}
    columns = {form: vq.heat_cosine(p, q, scales * unit, form) for form, unit in units.items() if typical}
    return pd.DataFrame({"scale": scales, **columns})
