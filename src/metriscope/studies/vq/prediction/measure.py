"""Scores of kernels, and how well they predict final accuracy where parameters and depth are known.

Axes: A architectures, C control variables. All correlations are between ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from scipy import stats

from metriscope.nn import unstack
from metriscope.rng import derive
from metriscope.runs import Driver
from metriscope.studies.vq.moons.measure import entropy_rank
from metriscope.studies.vq.networks.measure import aligned, looked_up
from metriscope.studies.vq.networks.plan import STUDY, Group
from metriscope.studies.vq.prediction.plan import CONTROLS, REFERENCE, SCORES, Contest, Prediction
from metriscope.studies.vq.train import accuracy, cohort, sample, start
from metriscope.train import Cohort, fit
from metriscope.vq import VQMDS, Layer, Patterns, capture, naswot_score

__all__ = [
    "PredictionResults",
    "contest_rows",
    "held_out_gains",
    "label_patterns",
    "measure_prediction",
    "partial_rank_correlation",
    "permutation_p",
    "pseudo_values",
]

Array = Float[np.ndarray, " a"]
Controls = Float[np.ndarray, "a c"]


def label_patterns(labels: Int[np.ndarray, " n"]) -> Patterns:
    """Return labels as one sign per class, so that their kernel is that of the one-hot labels.

    >>> label_patterns(np.array([0, 1])).signs().tolist()
    [[1, -1], [-1, 1]]
    """
    hot = labels[:, None] == np.arange(labels.max() + 1)
    return Patterns((Layer("labels", hot.shape[1], "relu"),), np.packbits(hot, axis=1))


def contest_rows(spec: Contest) -> Iterator[dict[str, object]]:
    """Yield one row per architecture and start: the scores, and accuracies after the first and the last epoch."""
    for width in spec.widths:
        group = spec.group(width)
        own = cohort(group)
        fit([own], workers=1, threads=1)
        for place, number in enumerate(group.seeds):
            size = {"width": width, "parameters": group.shape.parameters, "seed": number}
            yield {**size, **_scored(spec, group, own, place)}


@torch.no_grad()
def _scored(spec: Contest, group: Group, own: Cohort, place: int) -> dict[str, float]:
    number = group.seeds[place]
    points, before = sample(group, number, "first"), start(group, number, "first")
    (epoch,) = group.recipe.kept
    first = {k.removeprefix(f"{epoch}/"): v for k, v in own.snapshots.items()}
    early, last = (unstack(before, state, place) for state in (first, own.parameters))
    p, q = (capture(model, points.x[: spec.points]) for model in (before, early))
    labels = label_patterns(points.y[: spec.points].numpy())
    batches = [p[i * spec.batch : (i + 1) * spec.batch] for i in range(spec.batches)]
    return {
        "naswot": float(np.mean([naswot_score(batch) for batch in batches])),
        "rank": entropy_rank(VQMDS(n_components=None).fit(p).eigenvalues_),
        "labels": aligned(p, labels, "debiased"),
        "moved": 1 - aligned(p, q, "debiased"),
        "labels after": aligned(q, labels, "debiased"),
        "early": accuracy(early, points.x, points.y),
        "test": accuracy(last, points.test_x, points.test_y),
    }


def _ranks(values: Array | Controls) -> np.ndarray:
    return np.asarray(stats.rankdata(values, axis=0), dtype=np.float64)


def _design(controls: Controls) -> Float[np.ndarray, "a c1"]:
    return np.column_stack([np.ones(len(controls)), _ranks(controls)])


def _left(values: Array, design: Float[np.ndarray, "a c"]) -> Array:
    """Return what a linear function of the design leaves of values; rounding errors count as nothing."""
    left = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    nothing = np.linalg.norm(left) <= np.sqrt(np.finfo(float).eps) * np.linalg.norm(values)
    return np.zeros_like(left) if nothing else left


def _cosine(a: Array, b: Array) -> float:
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / norm) if norm else 0.0


def partial_rank_correlation(score: Array, target: Array, controls: Controls) -> float:
    """Return the correlation of two rankings after a linear function of the controls' ranks is taken from each.

    It is 0 if the controls leave nothing of the score.

    >>> size = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> partial_rank_correlation(size[:, 0] ** 2, np.array([1.0, 3.0, 2.0, 4.0]), size)
    0.0
    """
    design = _design(controls)
    return _cosine(_left(_ranks(score), design), _left(_ranks(target), design))


def pseudo_values(score: Array, target: Array, controls: Controls) -> Array:
    """Return the jackknife pseudo-value of the partial rank correlation for each architecture.

    Their mean estimates the correlation, and a t-test of them takes the architecture as the unit of replication.
    """
    count, whole = len(score), partial_rank_correlation(score, target, controls)
    rest = [np.delete(np.arange(count), i) for i in range(count)]
    without = np.array([partial_rank_correlation(score[r], target[r], controls[r]) for r in rest])
    return count * whole - (count - 1) * without


def permutation_p(score: Array, target: Array, controls: Controls, permutations: int, seed: int) -> float:
    """Return the one-sided p-value of the partial rank correlation, with what is left of the score shuffled."""
    design, generator = _design(controls), np.random.default_rng(seed)
    left, goal = _left(_ranks(score), design), _left(_ranks(target), design)
    shuffled = generator.permuted(np.tile(left, (permutations, 1)), axis=1)
    # The controls take their part from each shuffled score too.
    shuffled -= shuffled @ design @ np.linalg.pinv(design)
    norms = np.linalg.norm(shuffled, axis=1) * np.linalg.norm(goal)
    found = np.divide(shuffled @ goal, norms, out=np.zeros(permutations), where=norms > 0)
    return float((1 + np.sum(found >= _cosine(left, goal))) / (1 + permutations))


def held_out_gains(score: Array, target: Array, controls: Controls) -> Array:
    """Return how much less the squared error of each architecture is with the score, as a share of the mean error.

    Each architecture's rank is predicted by linear regression on all others: from the controls, and with the score.
    """
    design, goal = _design(controls), _ranks(target)
    errors = [np.square(_left_out(d, goal)) for d in (design, np.column_stack([design, _ranks(score)]))]
    return (errors[0] - errors[1]) / errors[0].mean()


def _left_out(design: Float[np.ndarray, "a c"], target: Array) -> Array:
    """Return the error at each row of a regression on all other rows."""
    hat = design @ np.linalg.pinv(design)
    return (target - hat @ target) / (1 - np.diag(hat))


@dataclass(frozen=True)
class PredictionResults:
    """One row per architecture and start; without rows nothing was run or recorded."""

    part: Prediction
    rows: pd.DataFrame

    @cached_property
    def architectures(self) -> pd.DataFrame:
        """One row per architecture: means over its starts."""
        keys = ["depth", "activation", "width", "parameters"]
        return self.rows.groupby(keys, sort=False)[[*SCORES, *REFERENCE, "test"]].mean().reset_index()

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """By score: each architecture's pseudo-value and held-out gain, and one row of correlations."""
        if self.rows.empty:
            return {}
        origin = self.rows["origin"].iloc[0]
        each = [self._each(score) for score in (*SCORES, *REFERENCE)]
        found = pd.DataFrame([self._correlations(score) for score in (*SCORES, *REFERENCE)])
        tables = {"forecasts": pd.concat(each, ignore_index=True), "forecast correlations": found}
        return {name: table.assign(origin=origin) for name, table in tables.items()}

    def _values(self, score: str) -> tuple[Array, Array, Controls]:
        found = self.architectures
        columns = (found[name].to_numpy(dtype=float) for name in (score, "test"))
        return *columns, found[list(CONTROLS)].to_numpy(dtype=float)

    def _each(self, score: str) -> pd.DataFrame:
        values = self._values(score)
        columns = {"partial": pseudo_values(*values), "gain": held_out_gains(*values)}
        return pd.DataFrame({"architecture": np.arange(len(values[0])), "score": score, **columns})

    def _correlations(self, score: str) -> Mapping[str, object]:
        values = self._values(score)
        seed = derive(self.part.seed, STUDY, "prediction", score)
        return {
            "score": score,
            "plain": float(stats.spearmanr(*values[:2]).statistic),
            "partial": partial_rank_correlation(*values),
            "p": permutation_p(*values, self.part.permutations, seed),
            "tied": int((values[0] == values[0].min()).sum()),
        }


def measure_prediction(part: Prediction, driver: Driver) -> PredictionResults:
    """Train and score all architectures, or look them up."""
    found = looked_up(driver, part.contests(), contest_rows, "vq: sixty architectures", part.computed)
    parts = [rows.assign(depth=spec.depth, activation=spec.activation) for spec, rows in found.items()]
    return PredictionResults(part, pd.concat(parts, ignore_index=True) if parts else pd.DataFrame())
