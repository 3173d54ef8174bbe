"""Statistics of a layer's units that are gathered batch by batch: moments by class, nearest points, a sample of rows.

Axes: N points, P positions, R rows (positions of all points), K units, C classes, D inputs, M kept points or rows.
Powers are summed around the first batch's mean, so that moments lose no digits where the mean is large.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from metriscope.probes.linear import MetricRank, metric_rank
from metriscope.rng import derive

__all__ = [
    "KEPT",
    "ClassCovariances",
    "ClassMoments",
    "NearestPoints",
    "RowSample",
    "gaussian_count",
    "input_metric",
    "near_share",
    "nearest_axes",
    "partners",
    "shifted_products",
]

# The number of points listed as nearest to a zero set, and of rows kept for distributions.
KEPT, _ROWS = 5, 4096
# The narrowest Gaussian of a mixture, as a share of the variance of all rows.
_NARROW = 1e-3
_EM_STEPS = 60
_BINS = 8
# Units whose correlation is at least this, and whose zero sets are this close in deviations, have the same zero set.
_SAME, _CLOSE = 0.999, 0.05
# A direction is lost if its eigenvalue in the metric is at most this share of the largest.
_LOST = 0.01


def _one_hot(codes: Int64[Tensor, " r"], classes: int) -> Float64[Tensor, "c r"]:
    return torch.nn.functional.one_hot(codes, classes).double().T


def shifted_products(
    products: Float64[Tensor, "k k"], total: Float64[Tensor, " k"], count: Tensor, by: Float64[Tensor, " k"]
) -> Float64[Tensor, "k k"]:
    """Return ``Σ (c + by)(c + by)ᵀ`` from ``Σ c cᵀ``, the total ``Σ c`` and the number of rows ``c``.

    >>> shifted_products(torch.tensor([[4.0]]), torch.tensor([2.0]), torch.tensor(1.0), torch.tensor([1.0]))
    tensor([[9.]])
    """
    return products + torch.outer(total, by) + torch.outer(by, total) + count * torch.outer(by, by)


@dataclass
class ClassMoments:
    """Sums of powers of pre-activations by class and unit, their products, extremes and how often they are >= 0."""

    classes: int
    shift: Float64[Tensor, " k"] | None = None
    counts: Float64[Tensor, " c"] = field(init=False)
    sums: Float64[Tensor, "3 c k"] = field(init=False)
    products: Float64[Tensor, "k k"] = field(init=False)
    positive: Float64[Tensor, "c k"] = field(init=False)
    extremes: Float64[Tensor, "2 k"] = field(init=False)

    def add(self, z: Float64[Tensor, "r k"], codes: Int64[Tensor, " r"]) -> None:
        """Add rows and the classes of their points."""
        if self.shift is None:
            k = z.shape[1]
            self.shift, self.counts = z.mean(0), torch.zeros(self.classes).double()
            self.sums, self.products = torch.zeros(3, self.classes, k).double(), torch.zeros(k, k).double()
            self.positive = torch.zeros(self.classes, k).double()
            self.extremes = torch.stack([torch.full((k,), torch.inf), torch.full((k,), -torch.inf)]).double()
        which, centered = _one_hot(codes, self.classes), z - self.shift
        self.counts += which.sum(1)
        self.sums += torch.stack([which @ centered, which @ centered**2, which @ centered**3])
        self.products += centered.T @ centered
        self.positive += which @ (z >= 0).double()
        self.extremes = torch.stack(
            [torch.minimum(self.extremes[0], z.amin(0)), torch.maximum(self.extremes[1], z.amax(0))]
        )

    def merge(self, other: ClassMoments) -> None:
        """Add the rows of other moments with the same classes and units."""
        if self.shift is None or other.shift is None:
            vars(self).update(vars(self) if other.shift is None else vars(deepcopy(other)))
            return
        by, (one, two, three), n = other.shift - self.shift, other.sums, other.counts[:, None]
        moved = one + n * by, two + 2 * by * one + n * by**2, three + 3 * by * two + 3 * by**2 * one + n * by**3
        self.products += shifted_products(other.products, one.sum(0), other.counts.sum(), by)
        self.sums += torch.stack(moved)
        self.counts += other.counts
        self.positive += other.positive
        low, high = torch.minimum(self.extremes, other.extremes), torch.maximum(self.extremes, other.extremes)
        self.extremes = torch.stack([low[0], high[1]])

    def moments(self, pooled: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return means, standard deviations and skewness, of all rows or by class; NaN where they are undefined."""
        assert self.shift is not None
        counts, sums = (self.counts.sum()[None], self.sums.sum(1, keepdim=True)) if pooled else (self.counts, self.sums)
        first, second, third = sums / counts.masked_fill(counts == 0, torch.nan)[:, None]
        variance = (second - first**2).clamp(min=0)
        # For equal values only the rounding error of their squares remains.
        variance = torch.where(variance <= 1e-12 * (first + self.shift) ** 2, 0.0, variance)
        central = third - 3 * first * second + 2 * first**3
        skewness = central / variance.masked_fill(variance == 0, torch.nan) ** 1.5
        found = ((first + self.shift).numpy(), variance.sqrt().numpy(), skewness.numpy())
        return tuple(each[0] for each in found) if pooled else found

    def correlations(self) -> Float64[np.ndarray, "k k"]:
        """Return the correlations of units over all rows; NaN for a unit that is constant."""
        count, first = self.counts.sum(), self.sums[0].sum(0)
        cov = (self.products / count - torch.outer(first, first) / count**2).numpy()
        _, sd, _ = self.moments(pooled=True)
        sd = np.where(sd > 0, sd, np.nan)
        return cov / np.outer(sd, sd)


@dataclass
class NearestPoints:
    """The points with the smallest scores, for each unit; points with an infinite score are left out."""

    scores: Float64[Tensor, "k m"] | None = None
    points: Int64[Tensor, "k m"] | None = None

    def add(self, scores: Float64[Tensor, "n k"], first: int) -> None:
        """Add points numbered from ``first``."""
        numbers = torch.arange(first, first + len(scores)).expand(scores.shape[1], -1)
        own = scores.T if self.scores is None else torch.cat([self.scores, scores.T], 1)
        numbers = numbers if self.points is None else torch.cat([self.points, numbers], 1)
        order = own.argsort(dim=1, stable=True)[:, :KEPT]
        self.scores, self.points = own.gather(1, order), numbers.gather(1, order)

    def merge(self, other: NearestPoints) -> None:
        """Add the points of others; of equal scores, the point with the smaller number comes first."""
        if self.scores is None or other.scores is None or self.points is None or other.points is None:
            vars(self).update(vars(self) if other.scores is None else vars(other))
            return
        scores, points = torch.cat([self.scores, other.scores], 1), torch.cat([self.points, other.points], 1)
        by_number = points.argsort(dim=1)
        scores, points = scores.gather(1, by_number), points.gather(1, by_number)
        order = scores.argsort(dim=1, stable=True)[:, :KEPT]
        self.scores, self.points = scores.gather(1, order), points.gather(1, order)

    def tuples(self) -> list[tuple[int, ...]]:
        """Return the points of each unit, the nearest first."""
        assert self.scores is not None
        assert self.points is not None
        pairs = zip(self.points.tolist(), self.scores.isfinite().tolist(), strict=True)
        return [tuple(point for point, there in zip(*each, strict=True) if there) for each in pairs]


class RowSample:
    """A random sample of rows, the same however the points are divided into batches and shards.

    The priority of row r of all points is the r-th number of a random stream, and the rows of smallest priority are
    kept. Where the number of positions differs between batches, two rows can have the same number; then the row of the
    earlier point comes first.
    """

    def __init__(self, count: int = _ROWS) -> None:
        self._count, self._seed = count, derive(0, "reading", "rows")
        self._keys: Float64[np.ndarray, " m"] = np.zeros(0)
        self._points: Int64[np.ndarray, " m"] = np.zeros(0, np.int64)
        self.z: Float64[Tensor, "m k"] | None = None
        self.codes = torch.zeros(0, dtype=torch.int64)

    def add(self, z: Float64[Tensor, "n p k"], codes: Int64[Tensor, " n"], first: int) -> None:
        """Offer the rows of points numbered from ``first``."""
        count, positions = z.shape[:2]
        # One number of the stream takes one step of its generator.
        stream = np.random.Generator(np.random.PCG64(self._seed).advance(first * positions))
        points = np.repeat(np.arange(first, first + count), positions)
        self._keep(stream.random(len(points)), points, z.flatten(0, 1), codes.repeat_interleave(positions))

    def merge(self, other: RowSample) -> None:
        """Offer the rows that another sample kept, of other points."""
        if other.z is not None:
            self._keep(other._keys, other._points, other.z, other.codes)

    def _keep(self, keys: np.ndarray, points: np.ndarray, z: Tensor, codes: Tensor) -> None:
        highest = self._keys[-1] if len(self._keys) == self._count else np.inf
        near = np.flatnonzero(keys <= highest)
        keys, points = np.concatenate([self._keys, keys[near]]), np.concatenate([self._points, points[near]])
        z = z[near] if self.z is None else torch.cat([self.z, z[near]])
        codes = torch.cat([self.codes, codes[near]])
        kept = np.lexsort((points, keys))[: self._count]
        self._keys, self._points, self.z, self.codes = keys[kept], points[kept], z[kept], codes[kept]


@dataclass
class ClassCovariances:
    """Mean and covariance of a layer's inputs, over all rows and, if memory allows, by class."""

    classes: int
    room: int
    shift: Float64[Tensor, " d"] | None = None
    counts: Float64[Tensor, " c"] = field(init=False)
    sums: Float64[Tensor, "c d"] = field(init=False)
    products: Float64[Tensor, "g d d"] = field(init=False)

    @property
    def by_class(self) -> bool:
        """Whether covariances are kept class by class."""
        return len(self.products) == self.classes

    def add(self, x: Float64[Tensor, "r d"], codes: Int64[Tensor, " r"]) -> None:
        """Add rows of inputs."""
        if self.shift is None:
            d = x.shape[1]
            groups = self.classes if self.classes * d**2 <= self.room else 1
            self.shift, self.counts = x.mean(0), torch.zeros(self.classes).double()
            self.sums, self.products = torch.zeros(self.classes, d).double(), torch.zeros(groups, d, d).double()
        centered, which = x - self.shift, _one_hot(codes, self.classes)
        self.counts += which.sum(1)
        self.sums += which @ centered
        for group in range(len(self.products)):
            part = centered if len(self.products) == 1 else centered[codes == group]
            self.products[group] += part.T @ part

    def merge(self, other: ClassCovariances) -> None:
        """Add the rows of other covariances with the same classes and inputs."""
        if self.shift is None or other.shift is None:
            vars(self).update(vars(self) if other.shift is None else vars(deepcopy(other)))
            return
        by = other.shift - self.shift
        apart = zip(other.sums, other.counts, strict=True)
        groups = apart if other.by_class else [(other.sums.sum(0), other.counts.sum())]
        for group, (total, count) in enumerate(groups):
            self.products[group] += shifted_products(other.products[group], total, count, by)
        self.sums += other.sums + other.counts[:, None] * by
        self.counts += other.counts

    def of(self, group: int | None) -> tuple[Float64[Tensor, " d"], Float64[Tensor, "d d"]]:
        """Return mean and covariance of a class, or of all rows."""
        assert self.shift is not None
        counts, sums = (
            (self.counts.sum(), self.sums.sum(0)) if group is None else (self.counts[group], self.sums[group])
        )
        products = self.products.sum(0) if group is None else self.products[group]
        mean, cov = sums / counts, products / counts
        # A product of many rows with themselves is asymmetric by rounding.
        return mean + self.shift, (cov + cov.T) / 2 - torch.outer(mean, mean)


def gaussian_count(z: Float64[np.ndarray, "m k"]) -> Int64[np.ndarray, " k"]:
    """Return, for each column, which has the smaller BIC: one Gaussian (1) or a mixture of two (2); 0 if constant.

    The mixture is fitted by expectation maximization from the two halves of the column.

    >>> z = np.random.default_rng(0).normal(size=(400, 2)) + [[0.0, 0.0], [0.0, 9.0]] * 200
    >>> gaussian_count(z).tolist()
    [1, 2]
    """
    n, varies = len(z), z.std(0) > 1e-9 * np.abs(z).max(0)
    found = np.where(varies, 1, 0)
    if n < 10 or not varies.any():
        return found
    unit = (z[:, varies] - z[:, varies].mean(0)) / z[:, varies].std(0)
    gain = _mixture_likelihood(unit) - (-n / 2 * (np.log(2 * np.pi) + 1))
    found[varies] = np.where(2 * gain > 3 * np.log(n), 2, 1)
    return found


def _mixture_likelihood(z: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, " k"]:
    """Return the log likelihood of two Gaussians fitted to each column."""
    ranks = np.sort(z, axis=0)
    half = len(z) // 2
    mean = np.stack([ranks[:half].mean(0), ranks[half:].mean(0)])
    variance = np.maximum(np.stack([ranks[:half].var(0), ranks[half:].var(0)]), _NARROW)
    share = np.full_like(mean, 0.5)
    for _ in range(_EM_STEPS):
        logs = np.log(share)[:, None] - 0.5 * (
            np.log(2 * np.pi * variance)[:, None] + (z - mean[:, None]) ** 2 / variance[:, None]
        )
        total = np.logaddexp(*logs)
        weight = np.exp(logs - total)
        mass = np.maximum(weight.sum(1), 1e-9)
        share, mean = mass / len(z), (weight * z).sum(1) / mass
        variance = np.maximum((weight * (z - mean[:, None]) ** 2).sum(1) / mass, _NARROW)
    return total.sum(0)


def near_share(z: Float64[np.ndarray, "m k"], codes: Int64[np.ndarray, " m"]) -> tuple[np.ndarray, np.ndarray]:
    """Return each unit's information on the class, in nats, and the share of it that lies in the nearer half of rows.

    Rows are binned by their side of the zero set and by the octile of their distance from it. A bin contributes its
    share of rows times the divergence of its classes from those of all rows, minus the bias from few rows. The share
    is NaN where no information is left.
    """
    n, classes = len(z), int(codes.max()) + 1
    order = np.abs(z).argsort(0, kind="stable").argsort(0, kind="stable")
    bins = order * _BINS // n + _BINS * (z >= 0)
    overall = np.bincount(codes, minlength=classes) / n
    info, share = np.zeros(z.shape[1]), np.full(z.shape[1], np.nan)
    for k in range(z.shape[1]):
        table = np.bincount(bins[:, k] * classes + codes, minlength=2 * _BINS * classes).reshape(-1, classes)
        rows = table.sum(1)
        logs = np.log(np.where(table > 0, table / np.maximum(rows, 1)[:, None] / np.maximum(overall, 1e-300), 1.0))
        parts = (table * logs).sum(1) / n - np.where(rows > 0, (classes - 1) / (2 * n), 0.0)
        near = parts.reshape(2, _BINS)[:, : _BINS // 2].sum()
        info[k] = parts.sum()
        share[k] = near / info[k] if info[k] > 0 else np.nan
    return info, share


def partners(
    correlation: Float64[np.ndarray, "k k"], place: Float64[np.ndarray, " k"], dead: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first earlier unit with the same zero set and side, and one on the opposite side; -1 for none."""
    usable = ~dead[:, None] & ~dead
    with np.errstate(invalid="ignore"):
        same = usable & (correlation >= _SAME) & (np.abs(place[:, None] - place) <= _CLOSE)
        opposite = usable & (correlation <= -_SAME) & (np.abs(place[:, None] + place) <= _CLOSE)
    earlier = np.tril(same, -1)
    duplicate = np.where(earlier.any(1), earlier.argmax(1), -1)
    mirrored = np.full(len(place), -1)
    pairs = np.argwhere(np.triu(opposite, 1))
    for i, j in pairs[np.argsort(correlation[tuple(pairs.T)], kind="stable")]:
        if mirrored[i] < 0 and mirrored[j] < 0:
            mirrored[i], mirrored[j] = j, i
    return duplicate, mirrored


def nearest_axes(weight: Tensor, variances: Tensor, vectors: Tensor) -> dict[str, np.ndarray]:
    """Return the principal axis most parallel to each unit, from the largest variance, and the absolute cosine."""
    varies = _varying(variances)
    lengths = torch.linalg.vector_norm(weight, dim=1)
    cosines = (weight @ vectors.flip(1)[:, :varies]).abs() / lengths.masked_fill(lengths == 0, torch.nan)[:, None]
    if varies == 0:
        return {"axis": np.full(len(weight), np.nan), "axis_cosine": np.full(len(weight), np.nan)}
    best, axis = cosines.nan_to_num(-1.0).max(1)
    there = (best >= 0).numpy()
    return {"axis": np.where(there, axis.numpy(), np.nan), "axis_cosine": np.where(there, best.numpy(), np.nan)}


def _varying(variances: Tensor) -> int:
    """Return the number of directions in which the inputs vary."""
    floor = len(variances) * torch.finfo(torch.float32).eps * float(variances[-1])
    return int((variances > max(floor, 0.0)).sum())


def input_metric(
    affine: tuple[Tensor, Tensor], mean: Tensor, spectrum: tuple[Tensor, Tensor], share: Tensor
) -> MetricRank | None:
    """Return the rank of a layer's metric on the directions in which its inputs vary; None if it measures none.

    Eigenvalues are relative to the largest. ``share`` is the weight of each unit, as in ``probes.metric_rank``.
    """
    (weight, bias), (variances, vectors) = affine, spectrum
    varies = _varying(variances)
    if varies == 0:
        return None
    basis, kept = vectors[:, -varies:], variances[-varies:]
    scale = torch.linalg.matrix_norm(share.sqrt()[:, None] * (weight @ basis) * kept.sqrt(), 2)
    if not float(scale) > 0:
        return None
    inner = weight @ basis / scale, (weight @ mean + bias) / scale
    return metric_rank(inner, torch.zeros(varies), torch.diag(kept), share, _LOST)
