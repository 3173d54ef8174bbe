"""Centred alignment of two networks' kernels on the same points, with what chance would give and how sure it is.

Axes: N points, U, V bits of the networks, L, M layers, P permutations. For centred signs S and T the alignment is
|Sᵀ T|² / (|Sᵀ S| |Tᵀ T|), Frobenius norms: 1 where the two see the same geometry, whatever their sizes. It is
found from products of units, linear in points, or from those of points where these are cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64, Int, UInt8

from metriscope.rng import stream
from metriscope.vq.bits import centred_products
from metriscope.vq.hamming import Columns, columns_of, compact_dtype, in_parallel, row_slices, write_distances
from metriscope.vq.patterns import Patterns, check_same_points

__all__ = ["Alignment", "alignment"]

# Products of units, and distances of points, held at once.
_PRODUCTS, _DISTANCES = 1 << 24, 1 << 21
# Two values closer than this are one value that was added up in another order.
_ROUNDING = 1e-12

Rows = Int[np.ndarray, " n"] | None
Matrix = Float64[np.ndarray, "l m"]


@dataclass(frozen=True)
class Alignment:
    """Alignment of two networks, or of each layer of one with each layer of the other.

    ``value`` and ``p_value`` are numbers, or matrices of ``first`` by ``second`` layers; ``null`` has the values of the
    permutations in front, ``interval`` low and high. What was not asked for is empty (``null``) or NaN.
    ``reason`` says why something is undefined; it is empty where nothing is.
    """

    value: float | Matrix
    null: np.ndarray
    p_value: float | Matrix
    interval: np.ndarray
    first: tuple[str, ...]
    second: tuple[str, ...]
    points: int
    reason: str = ""

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each pair: first, second, value, low, high, p_value."""
        shape = len(self.first), len(self.second)
        low, high = self.interval.reshape(2, -1)
        return pd.DataFrame(
            {
                "first": np.repeat(self.first, shape[1]),
                "second": np.tile(self.second, shape[0]),
                "value": np.reshape(self.value, -1),
                "low": low,
                "high": high,
                "p_value": np.reshape(self.p_value, -1),
            }
        )


def alignment(
    p: Patterns, q: Patterns, permutations: int = 0, bootstrap: int = 0, seed: int = 0, by_layer: bool = False
) -> Alignment:
    """Return the centred alignment of two networks on the same points, whole or ``by_layer``.

    ``permutations`` draws that many values with the points of ``q`` shuffled; the p-value is the share of them, and of
    the value itself, that reach the value. ``bootstrap`` draws the points that many times with replacement, the same
    for both networks; the interval holds the middle 95 % of these draws, after they are moved so that their mean is
    the value: a point drawn twice is near itself in both networks, which lifts all draws above the value.
    A network, or layer, whose pattern is the same at every point has no alignment: its value is NaN, and the reason
    says so. With few points, any two networks look more alike: compare values of the same number of points, or with
    their null.
    """
    check_same_points(p, q)
    if len(p) < 2:
        raise ValueError(f"an alignment needs at least two points, got {len(p)}")
    for name, count in (("permutations", permutations), ("bootstrap", bootstrap)):
        if count < 0:
            raise ValueError(f"{name} must not be negative, got {count}")
    sides = _side(p, by_layer), _side(q, by_layer)
    norms = _norms(sides[0], None), _norms(sides[1], None)
    value = _ratio(_energies(sides, (None, None)), norms)
    null = np.empty((permutations, *value.shape))
    for i in range(permutations):
        order = torch.randperm(len(p), generator=stream(seed, "permutation", i)).numpy()
        null[i] = _ratio(_energies(sides, (None, order)), norms)
    resampled, broken = _resampled(sides, bootstrap, seed)
    low_high = _interval(resampled, value)
    reached = (null >= value * (1 - _ROUNDING)).sum(0)
    p_value = np.where(np.isnan(value) | (permutations == 0), np.nan, (1 + reached) / (1 + permutations))
    reason = "; ".join(filter(None, [_reason(sides, norms, len(p)), broken]))
    names = sides[0].names, sides[1].names
    if by_layer:
        return Alignment(value, null, p_value, low_high, *names, len(p), reason)
    return Alignment(value.item(), null[:, 0, 0], p_value.item(), low_high[:, 0, 0], *names, len(p), reason)


@dataclass(frozen=True)
class _Side:
    """One network's bytes and the groups of them that are compared, all together or layer by layer."""

    packed: UInt8[np.ndarray, "n b"]
    spans: tuple[slice, ...]
    widths: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def starts(self) -> list[int]:
        """Return the first bit of each group."""
        return [8 * span.start for span in self.spans]

    def groups(self) -> list[_Side]:
        """Return each group as a side of its own."""
        parts = zip(self.spans, self.widths, self.names, strict=True)
        return [_Side(self.packed[:, s], (slice(0, s.stop - s.start),), (width,), (name,)) for s, width, name in parts]


def _side(p: Patterns, by_layer: bool) -> _Side:
    if by_layer:
        widths, names = [layer.width for layer in p.layers], [layer.name for layer in p.layers]
        return _Side(p.packed, p.spans, tuple(widths), tuple(names))
    return _Side(p.packed, (slice(0, p.packed.shape[1]),), (p.width,), ("all layers",))


def _ratio(cross: Matrix, norms: tuple[np.ndarray, np.ndarray]) -> Matrix:
    """Return the alignment of each pair; NaN where a norm is zero."""
    size = np.multiply.outer(np.sqrt(norms[0]), np.sqrt(norms[1]))
    return np.divide(cross, size, out=np.full(cross.shape, np.nan), where=size > 0)


def _norms(side: _Side, rows: Rows) -> Float64[np.ndarray, " l"]:
    """Return |Sᵀ S|² of each group."""
    return np.array([_energies((group, group), (rows, rows)).item() for group in side.groups()])


def _reason(sides: tuple[_Side, _Side], norms: tuple[np.ndarray, np.ndarray], points: int) -> str:
    found = [
        f"{name} of the {which} network"
        for side, norm, which in zip(sides, norms, ("first", "second"), strict=True)
        for name, size in zip(side.names, norm, strict=True)
        if size == 0
    ]
    return f"the pattern is the same at all {points} points in {', '.join(found)}" if found else ""


def _resampled(sides: tuple[_Side, _Side], draws: int, seed: int) -> tuple[Float64[np.ndarray, "p l m"], str]:
    """Return the alignments of points drawn with replacement, and why some of them are undefined."""
    points, values = len(sides[0].packed), np.empty((draws, len(sides[0].spans), len(sides[1].spans)))
    for i in range(draws):
        rows = torch.randint(points, (points,), generator=stream(seed, "bootstrap", i)).numpy()
        norms = _norms(sides[0], rows), _norms(sides[1], rows)
        values[i] = _ratio(_energies(sides, (rows, rows)), norms)
    broken = int(np.isnan(values).any((1, 2)).sum())
    return values, f"{broken} of {draws} bootstrap draws took points of one and the same pattern" if broken else ""


def _interval(draws: Float64[np.ndarray, "p l m"], value: Matrix) -> Float64[np.ndarray, "2 l m"]:
    if not len(draws):
        return np.full((2, *value.shape), np.nan)
    return np.percentile(draws - draws.mean(0) + value, [2.5, 97.5], axis=0)


def _energies(sides: tuple[_Side, _Side], rows: tuple[Rows, Rows]) -> Matrix:
    """Return |Sᵀ T|² for each group of the first side and each of the second, in the cheaper way."""
    count = len(sides[0].packed)
    first, second = (8 * side.packed.shape[1] for side in sides)
    if count * (first + second) < first * second:
        return _by_points(sides, rows)
    return _by_units(sides, rows)


def _by_units(sides: tuple[_Side, _Side], rows: tuple[Rows, Rows]) -> Matrix:
    first, second = sides
    itself = first is second and rows[0] is rows[1]
    parts = []
    for part in row_slices(first.packed.shape[1], max(1, _PRODUCTS // max(1, 64 * second.packed.shape[1]))):
        whole = itself and part.stop - part.start == first.packed.shape[1]
        products = centred_products(first.packed[:, part], None if whole else second.packed, rows)
        parts.append(np.add.reduceat(np.square(products, out=products), second.starts, axis=1))
    return np.add.reduceat(np.concatenate(parts), first.starts, axis=0)


def _by_points(sides: tuple[_Side, _Side], rows: tuple[Rows, Rows]) -> Matrix:
    """Return the same from distances D and E of points, as Sc Scᵀ = -2 (I - J/N) D (I - J/N).

    Centring is left to the end: <Dc, Ec> = <D, E> - 2 d·e / N + (1·d) (1·e) / N², where d and e are sums of rows.
    """
    tables = [_Distances.of(side, taken) for side, taken in zip(sides, rows, strict=True)]
    count, groups = len(tables[0].packed), [len(side.spans) for side in sides]

    def add(part: slice) -> tuple[Matrix, list[np.ndarray]]:
        found = [table.rows(part) for table in tables]
        products = found[0].reshape(groups[0], -1) @ found[1].reshape(groups[1], -1).T
        return products, [distances.sum(2) for distances in found]

    step = max(1, _DISTANCES // (count * sum(groups)))
    products, sums = zip(*in_parallel(add, row_slices(count, step)), strict=True)
    first, second = (np.concatenate(each, axis=1) for each in zip(*sums, strict=True))
    centred = sum(products) - 2 * (first @ second.T) / count
    return 4 * (centred + np.multiply.outer(first.sum(1), second.sum(1)) / count**2)


@dataclass(frozen=True)
class _Distances:
    """One network's distances, group by group, less a constant near their mean: less is lost when they are centred."""

    packed: UInt8[np.ndarray, "n b"]
    spans: tuple[slice, ...]
    columns: list[Columns]
    middle: Float64[np.ndarray, "l 1 1"]

    @classmethod
    def of(cls, side: _Side, taken: Rows) -> _Distances:
        packed = side.packed if taken is None else side.packed[taken]
        parts = zip(side.spans, side.widths, strict=True)
        columns = [columns_of(packed[:, span], compact_dtype(width)) for span, width in parts]
        bare = cls(packed, side.spans, columns, np.zeros((len(columns), 1, 1)))
        return replace(bare, middle=np.round(bare.rows(slice(0, 1)).mean(2, keepdims=True)))

    def rows(self, part: slice) -> Float64[np.ndarray, "l k n"]:
        """Return the distances of some points to all."""
        out = np.empty((len(self.spans), part.stop - part.start, len(self.packed)))
        for span, columns, room in zip(self.spans, self.columns, out, strict=True):
            found = np.empty(room.shape, columns.dtype)
            write_distances(self.packed[part, span], columns, found)
            room[:] = found
        return out - self.middle
