"""How similar the layers of two networks are: sign patterns, CKA, Procrustes, distances and neighbors.

Axes: N points, D and E features of two layers, L and M layers of two networks, P permutations, G groups of points.
Every value comes with its distribution under permuted points and an interval over points. Nothing is clamped.

With centered features S and T, C = Sᵀ T, and squared row lengths d and e, debiased CKA needs the inner product of the
kernels without their diagonals (Song et al. 2007): it and all its leave-one-out values follow from C, d, e and one
product of each point's rows, in time linear in the points.

Laws: every measure ignores the order of features; all but ``vq`` a rotation, a shift and a common scale. ``vq`` ignores
a positive scale of each feature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64
from torch import nn

from metriscope.common.validation import integer, number, one_of
from metriscope.reading.features import layer_features
from metriscope.rng import stream
from metriscope.vq import alignment, capture
from metriscope.vq.measures.resampling import LeaveOneOut, interval_around

__all__ = ["MEASURES", "PairMeasure", "Similarity", "similarity"]

Features: TypeAlias = Float64[np.ndarray, "n d"]

MEASURES = ("vq", "cka", "procrustes", "rsa", "mutual-knn")
# Points whose pairs are compared by rsa and mutual-knn, neighbors of a point, and groups of the jackknife.
_PAIRED, _NEIGHBORS, _GROUPS = 1000, 10, 20
# Two values closer than this count as equal: they may differ only because they were summed in different orders.
_ROUNDING = 1e-10


class PairMeasure(NamedTuple):
    """One measure of all pairs of layers, first network's layers as rows.

    Attributes
    ----------
    value : array of shape (l, m)
        The similarity; NaN where it is undefined, as for a layer that is constant.
    null : array of shape (permutations, l, m)
        The values with the second network's points permuted.
    p_value : array of shape (l, m)
        The share of the permuted values that reach the value, where the value itself is counted as one of them; NaN
        without permutations.
    interval : array of shape (2, l, m)
        The ends of the jackknife interval over points; NaN without one.
    first, second : tuple of str
        The names of the layers.

    Examples
    --------
    >>> one = np.ones((1, 1))
    >>> PairMeasure(one, np.zeros((9, 1, 1)), one / 10, np.stack([one, one]), ("act",), ("act",)).p_value
    array([[0.1]])
    """

    value: Float64[np.ndarray, "l m"]
    null: Float64[np.ndarray, "p l m"]
    p_value: Float64[np.ndarray, "l m"]
    interval: Float64[np.ndarray, "2 l m"]
    first: tuple[str, ...]
    second: tuple[str, ...]


@dataclass(frozen=True)
class Similarity:
    """Similarities of every layer of one network with every layer of another.

    Parameters
    ----------
    measures : mapping of str to PairMeasure
        Values, nulls and intervals by the name of the measure.
    points : int
        The number of points.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> similarity(model, model, np.random.default_rng(0).normal(size=(20, 2))).matrix("cka").round(6)
         1
    1  1.0
    """

    measures: Mapping[str, PairMeasure] = field(repr=False)
    points: int

    def matrix(self, measure: str) -> pd.DataFrame:
        """Return the values of one measure, one row per layer of the first network."""
        found = self.measures[one_of(measure, "measure", self.measures)]
        return pd.DataFrame(found.value, index=list(found.first), columns=list(found.second))

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per measure and pair of layers: value, ends of its interval, mean of the null, p-value."""
        parts = []
        for name, found in self.measures.items():
            shape, null = found.value.shape, found.null
            middle = null.mean(0) if len(null) else np.full(shape, np.nan)
            columns = {"first": np.repeat(found.first, shape[1]), "second": np.tile(found.second, shape[0])}
            numbers = {"value": found.value, "low": found.interval[0], "high": found.interval[1], "null": middle}
            flat = {key: each.ravel() for key, each in {**numbers, "p_value": found.p_value}.items()}
            parts.append(pd.DataFrame({"measure": name, **columns, **flat}))
        return pd.concat(parts, ignore_index=True)


def similarity(
    a: nn.Module,
    b: nn.Module,
    data: Any,
    measures: Sequence[str] = ("vq", "cka"),
    permutations: int = 99,
    interval: float | None = 0.95,
    *,
    seed: int = 0,
    batch_size: int = 1024,
) -> Similarity:
    """Return how similar each layer of one network is to each layer of another on the same points.

    - ``"vq"``: debiased alignment of sign patterns, :func:`metriscope.alignment`, of every captured layer.
    - ``"cka"``: debiased linear CKA (Kornblith et al. 2019; Song et al. 2007). Time linear in points.
    - ``"procrustes"``: the cosine of the Procrustes angle, the nuclear norm of ``Sᵀ T`` with S and T centered and of
      norm 1 (Williams et al. 2021). It has no debiased form: compare it with its null.
    - ``"rsa"``: Spearman's correlation of Euclidean distances between points (Kriegeskorte et al. 2008).
    - ``"mutual-knn"``: the mean share of common points among the 10 nearest (Huh et al. 2024).

    All but ``"vq"`` use the outputs of activations, with positions of a convolution and tokens averaged. The last two
    use at most 1,000 points, evenly chosen, because they compare all pairs.

    Parameters
    ----------
    a, b : torch.nn.Module
        Two networks that run on the same data; they are not changed.
    data : tensor, array, mapping, data set or loader
        The points, in the same order each time they are read.
    measures : sequence of str
        The measures to compute.
    permutations : int
        How many values to compute with the points of ``b`` permuted; 0 for none.
    interval : float or None
        The confidence level of a jackknife interval over points: leave-one-out for ``"vq"`` and ``"cka"``, by 20
        groups of points for the others. None for no intervals.
    seed : int
        The seed of the permutations.
    batch_size : int
        How many points to run at once, unless the data comes in batches.

    Returns
    -------
    Similarity
        The measures of all pairs of layers.

    Raises
    ------
    ValueError
        If a measure is unknown, there are fewer than four points, or a network cannot run on the data.

    Examples
    --------
    >>> one, two = (nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4), nn.Tanh()) for _ in range(2))
    >>> found = similarity(one, two, np.random.default_rng(0).normal(size=(50, 3)), permutations=9)
    >>> found.to_pandas().columns.tolist()
    ['measure', 'first', 'second', 'value', 'low', 'high', 'null', 'p_value']
    """
    names = [one_of(name, "a measure", MEASURES) for name in ([measures] if isinstance(measures, str) else measures)]
    if not names:
        raise ValueError("similarity needs at least one measure, got none")
    asked = _Asked(integer(permutations, "permutations", 0), interval, seed)
    if interval is not None:
        number(interval, "interval", "(0, 1)")
    found: dict[str, PairMeasure] = {}
    points = 0
    if "vq" in names:
        p, q = (capture(model, data, batch_size=batch_size) for model in (a, b))
        points, found["vq"] = len(p), _of_signs(p, q, asked)
    if set(names) - {"vq"}:
        sides = [layer_features(model, data, integer(batch_size, "batch_size")) for model in (a, b)]
        points = _check(sides)
        found |= {name: _of_features(name, sides[0], sides[1], asked) for name in names if name != "vq"}
    return Similarity({name: found[name] for name in names}, points)


class _Asked(NamedTuple):
    permutations: int
    level: float | None
    seed: int


def _check(sides: list[dict[str, torch.Tensor]]) -> int:
    counts = [len(next(iter(side.values()))) for side in sides]
    if counts[0] != counts[1]:
        raise ValueError(f"both networks must be run on the same points, got {counts[0]} and {counts[1]}")
    if counts[0] < 4:
        raise ValueError(f"a similarity needs at least four points, got {counts[0]}")
    return counts[0]


def _of_signs(p: Any, q: Any, asked: _Asked) -> PairMeasure:
    found = alignment(p, q, permutations=asked.permutations, interval=asked.level, by_layer=True, seed=asked.seed)
    value, p_value = np.asarray(found.value), np.asarray(found.p_value)
    return PairMeasure(value, found.null, p_value, found.interval, found.first, found.second)


def _of_features(name: str, first: Mapping[str, Any], second: Mapping[str, Any], asked: _Asked) -> PairMeasure:
    """Return one measure of all pairs of layers; orders of points are the same for all pairs."""
    points = len(next(iter(first.values())))
    rows = np.arange(points)
    if name in ("rsa", "mutual-knn"):
        rows = np.unique(np.linspace(0, points - 1, min(points, _PAIRED)).round().astype(int))
    prepare, compare = _PREPARED[name]
    left, right = ([prepare(each[rows].double().numpy()) for each in side.values()] for side in (first, second))
    draws = [stream(asked.seed, "permutation", i) for i in range(asked.permutations)]
    orders = [torch.randperm(len(rows), generator=draw).numpy() for draw in draws]
    shape = len(left), len(right)
    value, null, ends = np.empty(shape), np.empty((len(orders), *shape)), np.full((2, *shape), np.nan)
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            value[i, j] = compare(one, other)
            null[:, i, j] = [compare(one, other.taken(order)) for order in orders]
            if asked.level is not None:
                ends[:, i, j] = _interval(name, one, other, float(value[i, j]), asked.level)
    reached = (null >= value - _ROUNDING).sum(0)
    p_value = np.where(np.isnan(value) | (not orders), np.nan, (1 + reached) / (1 + len(orders)))
    return PairMeasure(value, null, p_value, ends, tuple(first), tuple(second))


def _interval(name: str, one: Any, other: Any, value: float, level: float) -> tuple[float, float]:
    if name == "cka":
        left = cka_without(one, other) - value
        spread = (len(left) - 1) * left.var()
        found = LeaveOneOut(np.array([[np.sqrt(spread)]]), np.array([[float(np.isnan(left).sum())]]))
        ends = interval_around(np.array([[value]]), found, len(left), "debiased", level)
        return float(ends[0, 0, 0]), float(ends[1, 0, 0])
    return _grouped_interval(name, one, other, value, level)


def _grouped_interval(name: str, one: Any, other: Any, value: float, level: float) -> tuple[float, float]:
    """Return the interval of the jackknife that leaves out one of several groups of points at a time."""
    from scipy.special import stdtrit

    count, compare = len(one.rows), _PREPARED[name][1]
    groups = min(_GROUPS, count // 4)
    if groups < 2:
        return np.nan, np.nan
    number_of = np.arange(count) % groups
    left = [compare(*(side.taken(np.flatnonzero(number_of != g)) for side in (one, other))) for g in range(groups)]
    margin = stdtrit(groups - 1, (1 + level) / 2) * np.sqrt((groups - 1) * np.var(left))
    return value - margin, value + margin


@dataclass(frozen=True)
class _Centered:
    """Centered features and the squared lengths of their rows."""

    rows: Features
    lengths: Float64[np.ndarray, " n"]

    @classmethod
    def of(cls, x: Features) -> _Centered:
        centered = x - x.mean(0)
        # Differences of equal values are only rounding errors.
        centered = np.where(np.ptp(x, axis=0) > 0, centered, 0.0)
        if centered.shape[1] > len(x):
            # A rotation changes no measure, and leaves no more features than there are points.
            left, values, _ = np.linalg.svd(centered, full_matrices=False)
            centered = left * values
        return cls(centered, np.square(centered).sum(1))

    def taken(self, rows: np.ndarray) -> _Centered:
        """Return some points, or all in another order, centered again if some are missing."""
        if len(rows) == len(self.rows):
            return _Centered(self.rows[rows], self.lengths[rows])
        return _Centered.of(self.rows[rows])


def _product(one: _Centered, other: _Centered) -> float:
    """Return the inner product of two kernels without their diagonals, up to a factor of the points alone."""
    n, d, e = len(one.rows), one.lengths, other.lengths
    energy = float(np.square(one.rows.T @ other.rows).sum())
    return energy - n / (n - 2) * float((d - d.mean()) @ (e - e.mean())) - n**2 / (n - 1) * d.mean() * e.mean()


def _cosine(cross: Any, first: Any, second: Any) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((first > 0) & (second > 0), cross / np.sqrt(first * second), np.nan)


def cka(one: _Centered, other: _Centered) -> float:
    """Return debiased linear CKA; NaN if either side has no debiased norm."""
    return float(_cosine(_product(one, other), *(_positive(side) for side in (one, other))))


def _positive(side: _Centered) -> float:
    """Return the squared norm of a kernel; NaN if it is zero up to rounding."""
    found = _product(side, side)
    return found if found > _ROUNDING * float(np.square(side.rows.T @ side.rows).sum()) else np.nan


def cka_without(one: _Centered, other: _Centered) -> Float64[np.ndarray, " n"]:
    """Return debiased linear CKA with each point left out in turn."""
    return np.asarray(_cosine(_without(one, other), _without(one, one), _without(other, other)))


def _without(one: _Centered, other: _Centered) -> Float64[np.ndarray, " n"]:
    """Return the inner product with each point left out in turn; the rows of a centered kernel sum to zero."""
    s, t, d, e = one.rows, other.rows, one.lengths, other.lengths
    n, c, de = len(s), s.T @ t, d * e
    own = np.einsum("nd,nd->n", s @ c, t)
    off_diagonal = np.square(c).sum() - de.sum() - 2 * (own - de)
    sums = (2 * d - d.sum()) * (2 * e - e.sum())
    row_sums = de.sum() - 4 * de + t @ (d @ t) + s @ (e @ s) + own
    return np.asarray(off_diagonal + sums / ((n - 2) * (n - 3)) - 2 / (n - 3) * row_sums)


def procrustes(one: _Centered, other: _Centered) -> float:
    """Return the cosine of the Procrustes angle; NaN if either side is constant."""
    norms = [np.sqrt(side.lengths.sum()) for side in (one, other)]
    if not all(norm > 0 for norm in norms):
        return np.nan
    return float(np.linalg.svd(one.rows.T @ other.rows, compute_uv=False).sum() / (norms[0] * norms[1]))


@dataclass(frozen=True)
class _Pairs:
    """All distances between points, and what a measure derives from them: ranks, or nearest neighbors."""

    rows: Float64[np.ndarray, "n n"]
    derive: Callable[[np.ndarray], np.ndarray]
    derived: np.ndarray

    @classmethod
    def of(cls, x: Features, derive: Callable[[np.ndarray], np.ndarray]) -> _Pairs:
        from scipy.spatial.distance import pdist, squareform

        distances = squareform(pdist(x))
        return cls(distances, derive, derive(distances))

    def taken(self, rows: np.ndarray) -> _Pairs:
        """Return some points, or all in another order."""
        chosen = np.ix_(rows, rows)
        whole = len(rows) == len(self.rows)
        distances = self.rows[chosen]
        return _Pairs(distances, self.derive, self.derived[chosen] if whole else self.derive(distances))


def _centered_ranks(distances: Float64[np.ndarray, "n n"]) -> Float64[np.ndarray, "n n"]:
    from scipy.spatial.distance import squareform
    from scipy.stats import rankdata

    ranks = rankdata(squareform(distances, checks=False))
    return np.asarray(squareform(ranks - ranks.mean(), checks=False))


def rsa(one: _Pairs, other: _Pairs) -> float:
    """Return Spearman's correlation of two sets of distances; NaN if either is constant."""
    x, y = one.derived.ravel(), other.derived.ravel()
    return float(_cosine(x @ y, x @ x, y @ y))


def _neighbors(distances: Float64[np.ndarray, "n n"]) -> np.ndarray:
    apart = distances + np.diag(np.full(len(distances), np.inf))
    chosen = np.zeros(distances.shape, bool)
    k = min(_NEIGHBORS, len(distances) - 1)
    np.put_along_axis(chosen, np.argsort(apart, axis=1, kind="stable")[:, :k], True, axis=1)
    return chosen


def mutual_neighbors(one: _Pairs, other: _Pairs) -> float:
    """Return the mean share of the nearest points of a point that are the same on both sides."""
    return float((one.derived & other.derived).sum() / one.derived.sum())


_PREPARED: Mapping[str, tuple[Callable[[Features], Any], Callable[[Any, Any], float]]] = {
    "cka": (_Centered.of, cka),
    "procrustes": (_Centered.of, procrustes),
    "rsa": (partial(_Pairs.of, derive=_centered_ranks), rsa),
    "mutual-knn": (partial(_Pairs.of, derive=_neighbors), mutual_neighbors),
}
