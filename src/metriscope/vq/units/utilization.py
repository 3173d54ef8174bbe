"""Which units a network uses: those that are dead, rarely on or always on, and duplicates of others.

Axes: ``n`` points, ``u`` bits of a layer, ``c`` units as they are counted (bits, or channels of ``q`` bits).
A unit is on at a point where its bit is 1, that is where its pre-activation is >= 0.

Range: ``active`` lies in [0, 1]. Utilization is invariant to the order of the points, to repeating every point, and to
a positive scale of a unit; reordering units reorders the rows. Flipping a unit's sign changes its share ``a`` into
``1 - a``, dead into always on, and duplicates into opposites.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64, Int64, UInt8

from metriscope.common.threads import row_slices
from metriscope.common.validation import instance, integer, number, one_of
from metriscope.vq.capture.capture import capture
from metriscope.vq.capture.patterns import Layer, Patterns

__all__ = ["STATUSES", "By", "Utilization", "UtilizationTracker", "utilization"]

By: TypeAlias = Literal["unit", "channel"]
Counts = Int64[np.ndarray, " u"]

STATUSES = ("dead", "rare", "always on", "active")

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
        Share of the unit's bits that are 1.
    status : array of str
        ``"dead"``, ``"rare"``, ``"always on"`` or ``"active"``.
    duplicate_of : array of int64
        The first earlier unit of the same layer with the same bit at every point; -1 if there is none, and for dead
        and always-on units.
    opposite_of : array of int64
        The first unit of the same layer with the opposite bit at every point; -1 likewise.

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

    def __len__(self) -> int:
        return len(self.unit)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per unit; ``duplicate_of`` and ``opposite_of`` are NA for units that have none."""
        columns = {name: getattr(self, name) for name in ("layer", "unit", "active", "status")}
        partners = {name: _or_missing(getattr(self, name)) for name in ("duplicate_of", "opposite_of")}
        return pd.DataFrame(columns | partners)

    def summary(self) -> pd.DataFrame:
        """Return one row per layer: its numbers of units, of units of each status, of duplicates and of opposites."""
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
        A unit with several bits, one per threshold, has one row per bit.

    Returns
    -------
    Utilization
        Activity, status, duplicate and opposite of each unit.

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
    _check(rare, by)
    parts = [_layer_table(p.packed[:, span], layer, rare, by) for span, layer in zip(p.spans, p.layers, strict=True)]
    names = [np.full(len(part["unit"]), layer.name, dtype=object) for part, layer in zip(parts, p.layers, strict=True)]
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return Utilization(points=len(p), rare=rare, layer=np.concatenate(names), **columns)


def _check(rare: float, by: str) -> None:
    number(rare, "rare", "[0, 1]")
    one_of(by, "by", get_args(By))


def _groups(layer: Layer, by: str) -> Int64[np.ndarray, "c q"]:
    """Return the numbers of the bits of each unit: one bit, or a channel's bit of one kind at all positions."""
    bits = np.arange(layer.width)
    if by == "unit" or layer.channel_axis is None:
        return bits[:, None]
    by_place = bits.reshape(*layer.shape[: len(layer.shape) - (layer.bits_per_unit > 1)], layer.bits_per_unit)
    by_channel = np.moveaxis(by_place, (layer.channel_axis, -1), (0, 1))
    return by_channel.reshape(by_channel.shape[0] * by_channel.shape[1], -1)


def _layer_table(packed: UInt8[np.ndarray, "n b"], layer: Layer, rare: float, by: By) -> dict[str, np.ndarray]:
    groups = _groups(layer, by)
    counts, digests = _count_and_hash(packed, layer.width)
    # Integers decide: a share that rounds to 0 or 1 must not make a unit dead or always on.
    on, bits = counts[groups].sum(1), groups.shape[1] * len(packed)
    active = on / bits
    status = np.select([on == 0, on == bits, active < rare], ["dead", "always on", "rare"], "active")
    start = np.unpackbits(packed[0], count=layer.width).astype(bool)
    same, opposite = _partners(digests[groups], start[groups], (on > 0) & (on < bits))
    found = {"unit": np.arange(len(groups)), "active": active, "status": status.astype(object)}
    return {**found, "duplicate_of": same, "opposite_of": opposite}


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

    Compared with its own first value, a column equals its opposite, so one digest finds both.
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
    digests: UInt8[np.ndarray, "c q h"], start: Bool[np.ndarray, "c q"], varies: Bool[np.ndarray, " c"]
) -> tuple[Counts, Counts]:
    """Return the first earlier unit with the same columns, and the first with the opposite ones; -1 for none."""
    same, opposite = np.full((2, len(digests)), -1)
    flipped = start ^ start[:, :1]
    units = np.flatnonzero(varies).tolist()
    sides = {unit: (digests[unit].tobytes(), flipped[unit].tobytes(), bool(start[unit, 0])) for unit in units}
    # Written last to first, so that the first unit of each kind stays.
    first = {sides[unit]: unit for unit in reversed(units)}
    for unit, (columns, places, side) in sides.items():
        same[unit] = first[columns, places, side] if first[columns, places, side] != unit else -1
        opposite[unit] = first.get((columns, places, not side), -1)
    return same, opposite


def _or_missing(partner: Int64[np.ndarray, " c"]) -> pd.Series[int]:
    return pd.Series(partner, dtype="Int64").mask(pd.Series(partner < 0))


class UtilizationTracker:
    """Follow a model's units through its training: call it with each step, and read the tables at the end.

    Parameters
    ----------
    model : torch.nn.Module
        The model that is being trained; it is not changed.
    x : tensor, array, data set or loader
        The points to measure on, as for :func:`capture`.
    every : int
        Measure every so many steps.
    rare : float
        Share of points below which a unit is ``"rare"``, as for :func:`utilization`.
    by : {"unit", "channel"}
        What counts as a unit, as for :func:`utilization`.
    **options
        Further arguments of :func:`capture`.

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
        _check(rare, by)
        self.rare, self.by, self.options = rare, by, options
        self.records: dict[int, Utilization] = {}

    def __call__(self, step: int) -> Utilization | None:
        """Measure and return the model's utilization, or None if this step is not one to measure."""
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
