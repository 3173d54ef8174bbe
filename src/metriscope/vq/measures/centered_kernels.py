"""Inner products of the centered sign kernels of two networks, biased and debiased, linear in points.

Axes: N points, U, V bits of the networks, L, M groups of them (layers, or the whole network). With centered signs S and
T, and squared lengths of their rows d and e (mean d̄, ē), the inner product of the centered kernels S Sᵀ and T Tᵀ is
the energy |Sᵀ T|². It is biased, because the diagonal of a kernel compares each point with itself. Without the diagonal
and with the centering for this case (Song et al. 2007) the inner product is

    |Sᵀ T|² - N / (N - 2) Σ (d - d̄)(e - ē) - N² / (N - 1) d̄ ē.

Both are computed from products of units, or from distances between points where these are cheaper. With μ and ν the
means of the uncentered signs, d = constant - 2 S μ: so Σ (d - d̄)(e - ē) = 4 μᵀ Sᵀ T ν needs no further pass over the
points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, UInt8

from metriscope.common.threads import in_parallel, row_slices
from metriscope.vq.capture.patterns import Patterns
from metriscope.vq.measures.hamming import Columns, columns_of, compact_dtype, write_distances
from metriscope.vq.measures.kernel import Weights, layer_weights
from metriscope.vq.measures.sign_products import Differences, products_and_sums, project, tables_of, unit_sums

__all__ = [
    "ESTIMATORS",
    "LEAST_POINTS",
    "NEGLIGIBLE",
    "Distances",
    "KernelPair",
    "Signs",
    "Totals",
    "by_points",
    "ratio",
    "row_lengths",
    "scale",
    "side_of",
    "totals_of",
    "units_at_once",
]

ESTIMATORS = ("debiased", "biased")
# The debiased inner product of two kernels of fewer points is 0 / 0.
LEAST_POINTS = {"debiased": 4, "biased": 2}
# A squared norm smaller than this share of the energy from which it was computed is only rounding error.
NEGLIGIBLE = 1e-10
# Products of units, and distances of points, held at once.
_PRODUCTS, _DISTANCES = 1 << 24, 1 << 21
# Products of units that are kept for an interval.
_KEPT = 1 << 22

Matrix = Float64[np.ndarray, "l m"]


@dataclass(frozen=True)
class Signs:
    """One network's bytes and the groups of them that are compared: all layers together, or layer by layer.

    ``roots`` are the square roots of the units' weights, which scale the columns of signs; None if all weights are 1.
    """

    packed: UInt8[np.ndarray, "n b"]
    spans: tuple[slice, ...]
    widths: tuple[int, ...]
    names: tuple[str, ...]
    roots: Float64[np.ndarray, " u"] | None = None

    @property
    def starts(self) -> list[int]:
        """Return the first bit of each group."""
        return [8 * span.start for span in self.spans]

    @property
    def bits(self) -> int:
        """Return the number of bits of a point, including padding bits."""
        return 8 * self.packed.shape[1]

    def groups(self) -> list[Signs]:
        """Return each group as a separate side."""
        parts = zip(self.spans, self.widths, self.names, strict=True)
        return [
            Signs(self.packed[:, s], (slice(0, s.stop - s.start),), (width,), (name,), self._roots_of(s))
            for s, width, name in parts
        ]

    def _roots_of(self, span: slice) -> Float64[np.ndarray, " u"] | None:
        return None if self.roots is None else self.roots[8 * span.start : 8 * span.stop]

    def scaled(self, sums: np.ndarray, units: slice = slice(None)) -> Float64[np.ndarray, " u"]:
        """Return the means of the scaled signs of some units from the sums of their signs."""
        means: np.ndarray = sums / max(1, len(self.packed))
        return means if self.roots is None else means * self.roots[units]


def side_of(p: Patterns, by_layer: bool, weights: Weights = None) -> Signs:
    """Return a network as one group, its layers weighted, or as one group per layer."""
    if by_layer:
        widths, names = [layer.width for layer in p.layers], [layer.name for layer in p.layers]
        return Signs(p.packed, p.spans, tuple(widths), tuple(names))
    roots = None
    if weights is not None:
        roots = np.repeat(np.sqrt(layer_weights(p.layers, weights)), [8 * layer.bytes for layer in p.layers])
    return Signs(p.packed, (slice(0, p.packed.shape[1]),), (p.width,), ("all layers",), roots)


@dataclass(frozen=True)
class Totals:
    """Sums from which both estimators of the inner product are computed, for each pair of groups.

    ``energy`` is |Sᵀ T|², ``lengths`` is Σ (d - d̄)(e - ē), ``first`` and ``second`` are d̄ and ē of each group. ``kept``
    are Sᵀ T, μ and ν of small networks, which an interval needs again.
    """

    points: int
    energy: Matrix
    lengths: Matrix
    first: Float64[np.ndarray, " l"]
    second: Float64[np.ndarray, " m"]
    kept: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def product(self, estimator: str) -> Matrix:
        """Return the inner product of each pair of kernels, up to a factor that depends on the points alone."""
        n = self.points
        if n < LEAST_POINTS[estimator]:
            return np.full(self.energy.shape, np.nan)
        if estimator == "biased":
            return self.energy
        return self.energy - n / (n - 2) * self.lengths - n**2 / (n - 1) * np.multiply.outer(self.first, self.second)

    def squared_norm(self, estimator: str) -> float:
        """Return the inner product of one group with itself; NaN if it is zero up to rounding."""
        found, energy = self.product(estimator).item(), self.energy.item()
        return float(found) if found > NEGLIGIBLE * energy else np.nan


def ratio(cross: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosines: inner products divided by the norms; ``first`` has the last axis L, ``second`` M."""
    return cross / (np.sqrt(first)[..., :, None] * np.sqrt(second)[..., None, :])


def by_points(first: Signs, second: Signs) -> bool:
    """Return whether distances of points are cheaper than products of units; distances do not support weights."""
    cheaper = len(first.packed) * (first.bits + second.bits) < first.bits * second.bits
    return cheaper and first.roots is None and second.roots is None


def totals(first: Signs, second: Signs) -> Totals:
    """Return the totals of each group of the first side with each group of the second, computed in the cheaper way."""
    return _by_points(first, second) if by_points(first, second) else _by_units(first, second)


@dataclass(frozen=True)
class KernelPair:
    """The kernels of two networks: their signs, and the totals of groups across them and of each group alone."""

    sides: tuple[Signs, Signs]
    cross: Totals
    alone: tuple[list[Totals], list[Totals]]
    estimator: str

    @classmethod
    def of(cls, first: Signs, second: Signs, estimator: str) -> KernelPair:
        """Return the pair of two sides, with all totals."""
        own, other = ([totals(group, group) for group in side.groups()] for side in (first, second))
        return cls((first, second), totals(first, second), (own, other), estimator)

    def cosines(self, products: np.ndarray) -> np.ndarray:
        """Return inner products of all pairs of groups, divided by the norms of both."""
        return ratio(products, *(np.array([one.squared_norm(self.estimator) for one in side]) for side in self.alone))


def units_at_once(second: Signs) -> int:
    """Return how many units, in whole bytes, are multiplied with all units of ``second`` at once."""
    return 8 * max(1, _PRODUCTS // max(1, 8 * second.bits))


def _by_units(first: Signs, second: Signs) -> Totals:
    energies, lengths, means = [], [], []
    other, kept = np.empty(0), None
    for part in row_slices(first.packed.shape[1], units_at_once(second) // 8):
        whole = first is second and part.stop - part.start == first.packed.shape[1]
        found = products_and_sums(first.packed[:, part], None if whole else second.packed)
        units = slice(8 * part.start, 8 * part.stop)
        products = scale(found.centered, first, second, units)
        means.append(first.scaled(found.left, units))
        other = second.scaled(found.right)
        if products.size == first.bits * second.bits <= _KEPT:
            kept = products.copy(), means[-1], other
        length, energy = _summed(products, means[-1], other, second)
        lengths.append(length)
        energies.append(energy)
    energy, length = (np.add.reduceat(np.concatenate(each), first.starts) for each in (energies, lengths))
    middles = _mean_lengths(first, np.concatenate(means)), _mean_lengths(second, other)
    return Totals(len(first.packed), energy, 4 * length, *middles, kept)


def _summed(
    products: Float64[np.ndarray, "k v"], mean: np.ndarray, other: np.ndarray, second: Signs
) -> tuple[Float64[np.ndarray, "k m"], Float64[np.ndarray, "k m"]]:
    """Return what some units add to the lengths and energy of each group of ``second``; ``products`` is overwritten."""
    lengths = mean[:, None] * np.add.reduceat(products * other, second.starts, axis=1)
    return lengths, np.add.reduceat(np.square(products, out=products), second.starts, axis=1)


def totals_of(found: Differences, first: Signs, second: Signs) -> Totals:
    """Return the totals from differences counted before; the sides only give the groups, and all weights are 1.

    ``found.different`` is overwritten.
    """
    products, left, right = found.products()
    means = left / found.points, right / found.points
    parts = _summed(products, *means, second)
    length, energy = (np.add.reduceat(part, first.starts) for part in parts)
    return Totals(found.points, energy, 4 * length, _mean_lengths(first, means[0]), _mean_lengths(second, means[1]))


def scale(
    products: Float64[np.ndarray, "k v"], first: Signs, second: Signs, units: slice = slice(None)
) -> Float64[np.ndarray, "k v"]:
    """Return the products of some units, in place, with the weights of both sides."""
    if first.roots is not None:
        products *= first.roots[units, None]
    if second.roots is not None:
        products *= second.roots
    return products


def _mean_lengths(side: Signs, means: Float64[np.ndarray, " u"]) -> Float64[np.ndarray, " l"]:
    """Return the mean squared length of a centered row: the sum of the variances of the units."""
    squares = 1.0 if side.roots is None else np.square(side.roots)
    return np.add.reduceat(squares - np.square(means), side.starts)


def row_lengths(side: Signs) -> Float64[np.ndarray, "l n"]:
    """Return the squared length of each point's centered signs, group by group."""
    found = []
    for group in side.groups():
        weights = np.ones(group.bits) if group.roots is None else np.square(group.roots)
        means = unit_sums(group.packed) / len(group.packed)
        linear = project(np.ascontiguousarray(group.packed), tables_of((weights * means)[:, None]))[:, 0]
        found.append(weights @ (1 + np.square(means)) - 2 * linear)
    return np.array(found)


def _by_points(first: Signs, second: Signs) -> Totals:
    """Return the totals from distances D and E of points, as S Sᵀ = -2 (I - J/N) D (I - J/N).

    Centering comes last: <Dc, Ec> = <D, E> - 2 a·b / N + (1·a) (1·b) / N², where a and b are sums of rows.
    """
    tables = [Distances.of(side) for side in (first, second)]
    count, groups = len(first.packed), [len(side.spans) for side in (first, second)]

    def add(part: slice) -> tuple[Matrix, list[np.ndarray]]:
        found = [table.rows(part) for table in tables]
        products = found[0].reshape(groups[0], -1) @ found[1].reshape(groups[1], -1).T
        return products, [distances.sum(2) for distances in found]

    step = max(1, _DISTANCES // (count * sum(groups)))
    products, sums = zip(*in_parallel(add, row_slices(count, step)), strict=True)
    a, b = (np.concatenate(each, axis=1) for each in zip(*sums, strict=True))
    centered = sum(products) - 2 * (a @ b.T) / count
    energy = 4 * (centered + np.multiply.outer(a.sum(1), b.sum(1)) / count**2)
    d, e = row_lengths(first), row_lengths(second)
    middles = d.mean(1), e.mean(1)
    return Totals(count, energy, (d - middles[0][:, None]) @ (e - middles[1][:, None]).T, *middles)


@dataclass(frozen=True)
class Distances:
    """One network's distances per group, minus a constant near their mean, so that centering rounds less."""

    packed: UInt8[np.ndarray, "n b"]
    spans: tuple[slice, ...]
    columns: list[Columns]
    middle: Float64[np.ndarray, "l 1 1"]

    @classmethod
    def of(cls, side: Signs) -> Distances:
        """Return the distances of all points of a side, computed on demand, except those of the first point."""
        parts = zip(side.spans, side.widths, strict=True)
        columns = [columns_of(side.packed[:, span], compact_dtype(width)) for span, width in parts]
        bare = cls(side.packed, side.spans, columns, np.zeros((len(columns), 1, 1)))
        return replace(bare, middle=np.round(bare.rows(slice(0, 1)).mean(2, keepdims=True)))

    def rows(self, part: slice) -> Float64[np.ndarray, "l k n"]:
        """Return the distances of some points to all points, minus the constant."""
        out = np.empty((len(self.spans), part.stop - part.start, len(self.packed)))
        for span, columns, room in zip(self.spans, self.columns, out, strict=True):
            found = np.empty(room.shape, columns.dtype)
            write_distances(self.packed[part, span], columns, found)
            room[:] = found
        return out - self.middle
