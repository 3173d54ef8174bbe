"""Which units a network uses: those that are dead, rarely on, always on or saturated, and duplicates of others.

Axes: ``n`` points, ``u`` bits of a layer, ``c`` units as they are counted (of one position, or channels of ``q``
positions), ``k`` bits per unit. A unit is on at a point where its pre-activation is >= 0. A unit with two thresholds is
on from the lower one, and saturated from the upper one; a shrinking unit (hardshrink, softshrink) is on outside
of them. The elements of a max pool are not units: its windows are counted in a separate table.

Range: ``active`` lies in [0, 1]. Utilization is invariant to the order of the points, to repeating every point, and to
a positive scale of a unit; reordering units reorders the rows. Flipping a unit's sign changes its share ``a`` into
``1 - a``, dead into always on, and duplicates into opposites.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64, Int64, UInt8

from metriscope.common.threads import row_slices
from metriscope.common.validation import instance, integer, number, one_of
from metriscope.vq.capture.capture import capture
from metriscope.vq.capture.patterns import Layer, Patterns

__all__ = [
    "STATUSES",
    "By",
    "UnitColumns",
    "Utilization",
    "UtilizationTracker",
    "check_rare_and_by",
    "partner_column",
    "tabulated",
    "utilization",
]

By: TypeAlias = Literal["unit", "channel"]
Counts = Int64[np.ndarray, " u"]

STATUSES = ("dead", "rare", "always on", "saturated", "active")
_POOLS = ("max_pool", "adaptive_max_pool", "maxout")
_SHRINK = ("hardshrink", "softshrink")
# Kinds whose thresholds lie at equal distances from zero.
_SYMMETRIC = (*_SHRINK, "hardtanh", "hardsigmoid")

# Rows and bytes of a block: its unpacked bits stay in the CPU cache while they are transposed.
_ROWS = 4096
_BYTES = 32


@dataclass(frozen=True)
class Utilization:
    """How each unit is used: arrays of one entry per unit, in the order of the captured layers.

    Parameters
    ----------
    points : int
        Number of points.
    rare : float
        Share of points below which a unit that is on at some points is ``"rare"``.
    layer : array of str
        Name of the unit's layer.
    unit : array of int64
        Number of the unit within its layer.
    active : array of float
        Share of points, and positions if they are counted together, at which the unit is on.
    status : array of str
        ``"dead"``: never on. ``"rare"``: on at some points, but at less than the share ``rare`` of them.
        ``"always on"``. ``"saturated"``: above its upper threshold at every point. Otherwise ``"active"``.
    duplicate_of : array of int64
        The first earlier unit of the same layer with the same bits at every point; -1 if there is none, and for units
        that are never on or always on.
    opposite_of : array of int64
        The first unit of the same layer that is on the opposite side at every point; -1 in the same cases.
    saturated : array of float
        Share of points at which the unit is at or above its upper threshold, such as 6 for ReLU6; NaN for a unit
        without one.
    pools : pandas.DataFrame
        One row per window of a max pool: ``layer``, ``window``, its number of ``elements``, how many of them are the
        largest at some point (``winners``), and the share of points of the most frequent winner (``top``).

    Examples
    --------
    >>> p = Patterns((Layer("act", 2, "relu"),), np.array([[128], [192]], np.uint8))
    >>> utilization(p).summary()[["layer", "units", "always on", "active"]]
      layer  units  always on  active
    0   act      2          1       1
    """

    points: int
    rare: float
    layer: np.ndarray
    unit: Int64[np.ndarray, " c"]
    active: Float64[np.ndarray, " c"]
    status: np.ndarray
    duplicate_of: Int64[np.ndarray, " c"]
    opposite_of: Int64[np.ndarray, " c"]
    saturated: Float64[np.ndarray, " c"]
    pools: pd.DataFrame

    def __len__(self) -> int:
        return len(self.unit)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per unit; ``duplicate_of`` and ``opposite_of`` are NA for units that have none."""
        columns = {name: getattr(self, name) for name in ("layer", "unit", "active", "status")}
        partners = {name: partner_column(getattr(self, name)) for name in ("duplicate_of", "opposite_of")}
        return pd.DataFrame(columns | partners | {"saturated": self.saturated})

    def summary(self) -> pd.DataFrame:
        """Return one row per layer: its numbers of units, of each status, of duplicates and of opposites."""
        table = self.to_pandas()
        flags = {status: table["status"] == status for status in STATUSES}
        flags |= {"duplicates": table["duplicate_of"].notna(), "opposites": table["opposite_of"].notna()}
        counted = pd.DataFrame({"layer": table["layer"], "units": 1} | flags)
        return counted.groupby("layer", sort=False).sum().astype(np.int64).reset_index()


def utilization(p: Patterns, rare: float = 0.01, by: By = "unit") -> Utilization:
    """Return which units of ``p`` are dead, rarely on, always on, or redundant.

    Parameters
    ----------
    p : Patterns
        The patterns of some points.
    rare : float
        Units that are on at some points, but at less than this share of them, are ``"rare"``.
    by : {"unit", "channel"}
        ``"channel"`` counts all positions of a channel as one unit, which is dead if it is never on at any position.

    Returns
    -------
    Utilization
        Activity, status, duplicate, opposite and saturation of each unit; the windows of max pools in ``pools``.

    Raises
    ------
    ValueError
        If there are no points or no units, ``rare`` is not a share, or ``by`` is unknown.

    Examples
    --------
    >>> bits = np.array([[1, 0, 1, 0], [0, 0, 1, 1]], dtype=np.uint8)
    >>> p = Patterns((Layer("act", 4, "relu"),), np.packbits(bits, axis=1))
    >>> utilization(p).to_pandas()[["unit", "active", "status", "opposite_of"]]
       unit  active     status  opposite_of
    0     0     0.5     active            3
    1     1     0.0       dead         <NA>
    2     2     1.0  always on         <NA>
    3     3     0.5     active            0
    """
    if len(instance(p, "p", Patterns)) == 0 or p.width == 0:
        raise ValueError(f"utilization needs at least one point and one unit, got {len(p)} and {p.width}")
    check_rare_and_by(rare, by)
    counted = [_counted(p.packed[:, span], layer) for span, layer in zip(p.spans, p.layers, strict=True)]
    return tabulated(len(p), p.layers, counted, rare, by)


@dataclass(frozen=True)
class UnitColumns:
    """What was counted for each bit of a layer over all points.

    ``counts`` says how often it is 1. ``digests`` are equal for bits that are equal or opposite at every point; of
    these, the bits that are equal have the same ``side``.
    """

    counts: Counts
    digests: UInt8[np.ndarray, "u h"]
    side: Bool[np.ndarray, " u"]


def tabulated(points: int, layers: Sequence[Layer], counted: Sequence[UnitColumns], rare: float, by: By) -> Utilization:
    """Return the utilization of layers from the counts of their bits."""
    nothing = UnitColumns(np.zeros(0, np.int64), np.zeros((0, 16), np.uint8), np.zeros(0, bool))
    parts, pools = [], [_pool_table(nothing, 0, Layer("", 0, "max_pool", shape=(0,)))]
    for layer, columns in zip(layers, counted, strict=True):
        if layer.kind in _POOLS:
            pools.append(_pool_table(columns, points, layer))
        else:
            parts.append(_layer_table(columns, points, layer, rare, by))
    parts = parts or [_layer_table(nothing, points, Layer("", 0, "relu", shape=(0,)), rare, by)]
    table = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return Utilization(points=points, rare=rare, pools=pd.concat(pools, ignore_index=True), **table)


def _counted(packed: UInt8[np.ndarray, "n b"], layer: Layer) -> UnitColumns:
    if layer.kind in _POOLS:
        return UnitColumns(_counts(packed, layer.width), np.zeros((0, 16), np.uint8), np.zeros(0, bool))
    start = np.unpackbits(packed[0], count=layer.width).astype(bool)
    return UnitColumns(*_count_and_hash(packed, layer.width), start)


def check_rare_and_by(rare: float, by: str) -> None:
    """Check that ``rare`` is a share, and ``by`` a listed choice."""
    number(rare, "rare", "[0, 1]")
    one_of(by, "by", get_args(By))


def _groups(layer: Layer, by: str) -> Int64[np.ndarray, "c q k"]:
    """Return the numbers of the bits of each unit: at one position, or at all positions of a channel."""
    bits = np.arange(layer.width).reshape(-1, 1, layer.bits_per_unit)
    if by == "unit" or layer.channel_axis is None:
        return bits
    by_place = bits.reshape(*layer.shape[: len(layer.shape) - (layer.bits_per_unit > 1)], layer.bits_per_unit)
    channels = by_place.shape[layer.channel_axis]
    return np.moveaxis(by_place, layer.channel_axis, 0).reshape(channels, -1, layer.bits_per_unit)


def _layer_table(columns: UnitColumns, points: int, layer: Layer, rare: float, by: By) -> dict[str, np.ndarray]:
    groups = _groups(layer, by)
    # Integers are compared: a share that rounds to 0 or 1 must not make a unit dead or always on.
    by_bit, cases = columns.counts[groups].sum(1), groups.shape[1] * points
    lower, upper = by_bit[:, 0], by_bit[:, -1]
    shrinks, ends = layer.kind in _SHRINK, layer.bits_per_unit > 1 and layer.kind not in _SHRINK
    on = cases - lower + upper if shrinks else lower
    active = on / cases
    conditions = [on == 0, (upper == cases) & ends, on == cases, active < rare]
    status = np.select(conditions, ["dead", "saturated", "always on", "rare"], "active")
    same, opposite = _partners(columns.digests[groups], columns.side[groups], (on > 0) & (on < cases), layer.kind)
    found = {"layer": np.full(len(groups), layer.name, dtype=object), "unit": np.arange(len(groups)), "active": active}
    saturated = upper / cases if ends else np.full(len(groups), np.nan)
    return {
        **found,
        "status": status.astype(object),
        "duplicate_of": same,
        "opposite_of": opposite,
        "saturated": saturated,
    }


def _pool_table(found: UnitColumns, points: int, layer: Layer) -> pd.DataFrame:
    """Return how many elements of each window of a pool ever win, and how often the most frequent winner does."""
    wins = found.counts.reshape(-1, layer.bits_per_unit)
    columns = {"layer": np.full(len(wins), layer.name, dtype=object), "window": np.arange(len(wins))}
    columns |= {"elements": np.full(len(wins), layer.bits_per_unit), "winners": (wins > 0).sum(1)}
    return pd.DataFrame({**columns, "top": wins.max(1, initial=0) / max(points, 1)})


def _counts(packed: UInt8[np.ndarray, "n b"], width: int) -> Counts:
    """Return how often every bit is 1."""
    total = np.zeros(width, np.int64)
    for rows in row_slices(len(packed), _ROWS):
        total += np.unpackbits(packed[rows], axis=1, count=width).sum(0, dtype=np.int64)
    return total


def _count_and_hash(packed: UInt8[np.ndarray, "n b"], width: int) -> tuple[Counts, UInt8[np.ndarray, "u h"]]:
    """Return how often every bit is 1, and a digest of where it differs from its first value."""
    counts, digests = [np.zeros(0, np.int64)], []
    for start in range(0, packed.shape[1], _BYTES):
        on, columns = _columns(packed[:, start : start + _BYTES])
        counts.append(on)
        digests += [hashlib.blake2b(column, digest_size=16).digest() for column in columns]
    found = np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), 16)
    return np.concatenate(counts)[:width], found[:width]


def _columns(packed: UInt8[np.ndarray, "n b"]) -> tuple[Counts, UInt8[np.ndarray, "u m"]]:
    """Return how often each bit is 1, and where its column differs from its first value, packed along points.

    Relative to its own first value, a column is the same as its opposite, so one digest finds both.
    """
    n, units = len(packed), 8 * packed.shape[1]
    on = np.zeros(units, np.int64)
    columns = np.empty((units, -(-n // 8)), np.uint8)
    first = np.unpackbits(packed[0])
    for rows in row_slices(n, _ROWS):
        bits = np.unpackbits(packed[rows], axis=1)
        on += bits.sum(0, dtype=np.int64)
        transposed = np.ascontiguousarray((bits ^ first).T)
        columns[:, rows.start // 8 : -(-rows.stop // 8)] = np.packbits(transposed, axis=1)
    return on, columns


def _partners(
    digests: UInt8[np.ndarray, "c q k h"], start: Bool[np.ndarray, "c q k"], varies: Bool[np.ndarray, " c"], kind: str
) -> tuple[Counts, Counts]:
    """Return the first earlier unit with the same columns, and the first on the opposite side; -1 for none.

    The opposite of a unit with symmetric thresholds has its bits in reverse order; for other units only the first bit
    counts.
    """
    same, opposite = np.full((2, len(digests)), -1)
    units = np.flatnonzero(varies).tolist()
    order = slice(None, None, -1) if kind in _SYMMETRIC else slice(1)
    some = slice(None) if kind in _SYMMETRIC else slice(1)
    # Written from last to first, so that the first unit of each kind remains.
    equal = {(digests[unit].tobytes(), start[unit].tobytes()): unit for unit in reversed(units)}
    facing = {(digests[unit, :, some].tobytes(), start[unit, :, some].tobytes()): unit for unit in reversed(units)}
    for unit in units:
        first = equal[digests[unit].tobytes(), start[unit].tobytes()]
        same[unit] = first if first != unit else -1
        mirrored = digests[unit, :, order].tobytes(), (~start[unit, :, order]).tobytes()
        opposite[unit] = facing.get(mirrored, -1)
    return same, opposite


def partner_column(partner: Int64[np.ndarray, " c"]) -> pd.Series[int]:
    """Return numbers of partner units as a nullable column; negative ones (no partner) become NA.

    >>> partner_column(np.array([3, -1])).tolist()
    [3, <NA>]
    """
    return pd.Series(partner, dtype="Int64").mask(pd.Series(partner < 0))


class UtilizationTracker:
    """Measures a model's units during training: call it with each step, and read the tables at the end.

    Parameters
    ----------
    model : torch.nn.Module
        The model that is being trained; it is not changed.
    x : tensor, array, data set or loader
        The points to measure on, as for :func:`capture`.
    every : int
        Number of steps between two measurements.
    rare : float
        Share of points below which a unit is ``"rare"``, as for :func:`utilization`.
    by : {"unit", "channel"}
        What counts as a unit, as for :func:`utilization`.
    **options
        Further arguments of :func:`capture`.

    Raises
    ------
    ValueError
        If ``every`` is not a positive integer.

    Examples
    --------
    >>> import torch
    >>> tracker = UtilizationTracker(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()), np.eye(2), every=10)
    >>> for step in range(20):
    ...     _ = tracker(step)
    >>> tracker.summary()["step"].tolist()
    [0, 10]
    """

    def __init__(self, model: Any, x: Any, every: int = 1, rare: float = 0.01, by: By = "unit", **options: Any) -> None:
        self.model, self.x, self.every = model, x, integer(every, "every")
        check_rare_and_by(rare, by)
        self.rare, self.by, self.options = rare, by, options
        self.records: dict[int, Utilization] = {}

    def __call__(self, step: int) -> Utilization | None:
        """Measure and return the model's utilization, or None if this step is not measured."""
        if step % self.every:
            return None
        self.records[step] = utilization(capture(self.model, self.x, **self.options), self.rare, self.by)
        return self.records[step]

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per measured step and unit."""
        return self._stack({step: record.to_pandas() for step, record in self.records.items()})

    def summary(self) -> pd.DataFrame:
        """Return one row per measured step and layer."""
        return self._stack({step: record.summary() for step, record in self.records.items()})

    def _stack(self, tables: dict[int, pd.DataFrame]) -> pd.DataFrame:
        if not tables:
            raise ValueError("the tracker has measured nothing yet; call it with a step first")
        return pd.concat(tables, names=["step"]).reset_index("step").reset_index(drop=True)
