"""Sign patterns of many points, bit-packed: the binary code that a network assigns to each point.

Axes: N points, H bits, B bytes. A bit is 1 where the pre-activation is >= 0 (sign +1), else 0 (sign -1). Each layer
starts at a new byte; the padding bits of its last byte are 0 in every row, so they add nothing to a Hamming distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int8, UInt8
from torch import Tensor

from metriscope.common.validation import described, instance, whole_array
from metriscope.vq.capture.missed import Missed
from metriscope.vq.capture.storage import Shards, load_arrays, parts_of, save_arrays

__all__ = ["Layer", "Patterns", "check_same_points", "point_ids"]


@dataclass(frozen=True)
class Layer:
    """One captured activation: its name, its number of bits, its kind, and how it was called.

    Parameters
    ----------
    name : str
        Name of the module, followed by the function where it is no module of its own, as in ``"block.relu()"``.
    width : int
        Number of bits per point.
    kind : str
        The activation, such as ``"relu"``.
    piecewise_affine : bool
        False for smooth activations, which are read by the sign of their pre-activation.
    shape : tuple of int
        Shape of one point's bits: that of the activation, followed by ``bits_per_unit`` if that is more than one.
    seen : str
        How it was called: as a ``"module"``, a ``"function"``, a tensor's ``"method"``, an ``"operator"`` of the
        dispatcher, or a ``"formula"`` written by hand.
    bits_per_unit : int
        Number of bits of each unit.
    channel_axis : int or None
        Axis of ``shape`` that counts channels; None if the layer has no positions.

    Examples
    --------
    >>> Layer("act", 10, "relu").bytes
    2
    """

    name: str
    width: int
    kind: str
    piecewise_affine: bool = True
    shape: tuple[int, ...] = ()
    seen: str = "module"
    bits_per_unit: int = 1
    channel_axis: int | None = None

    @property
    def bytes(self) -> int:
        """Return the number of bytes per point."""
        return -(-self.width // 8)

    @property
    def units(self) -> int:
        """Return the number of units: each has ``bits_per_unit`` bits, and one value."""
        return self.width // self.bits_per_unit


class Patterns:
    """The packed signs of N points in every captured layer, with the points' ids.

    ``p[rows]`` selects points by an integer, a slice, integers or a mask of N booleans, and keeps their ids.
    ``np.asarray(p)`` is the N x H array of booleans that are True where the sign is +1.

    Parameters
    ----------
    layers : tuple of Layer
        The layers, in the order of their bytes.
    packed : array of uint8, shape (n, bytes)
        Eight signs per byte, the first one highest. Each layer begins at a byte of its own and ends in zero bits.
    ids : array of int or str, optional
        One id per point; 0, 1, ... if not given.
    missed : Missed, optional
        What ran in the model and was not captured.
    values : array of float, shape (n, units), optional
        One value per unit, units in the order of the layers.

    Raises
    ------
    ValueError
        If ``packed`` is not of the layers' width, ``values`` not of their units, or ``ids`` not of its length.

    Examples
    --------
    >>> p = Patterns((Layer("act", 3, "relu"),), np.array([[0b10100000], [0b01000000]], np.uint8), ids=["a", "b"])
    >>> p
    Patterns(2 points, 1 layer, 3 bits per point)
    >>> p[1].ids.tolist(), p[1].signs().tolist()
    (['b'], [[-1, 1, -1]])
    >>> np.asarray(p)
    array([[ True, False,  True],
           [False,  True, False]])
    """

    def __init__(
        self,
        layers: tuple[Layer, ...],
        packed: UInt8[np.ndarray, "n b"] | Shards,
        ids: np.ndarray | None = None,
        missed: Missed | None = None,
        values: Float[np.ndarray, "n u"] | Shards | None = None,
    ) -> None:
        self.layers, self._checked = tuple(layers), False
        self.missed = Missed(len(self.layers)) if missed is None else instance(missed, "missed", Missed)
        self._packed = packed = packed if isinstance(packed, Shards) else _checked_bytes(packed)
        self.ids = np.arange(len(packed)) if ids is None else np.asarray(ids)
        row = sum(layer.bytes for layer in self.layers)
        if packed.ndim != 2 or packed.shape[1] != row or packed.dtype != np.uint8:
            raise ValueError(
                f"packed must be uint8 of shape (n, {row}), got {packed.dtype} of shape {tuple(packed.shape)}"
            )
        if self.ids.shape != (len(packed),):
            raise ValueError(f"there are {len(packed)} points, but the ids have the shape {self.ids.shape}")
        self._values, units = values, sum(layer.units for layer in self.layers)
        if values is not None and tuple(values.shape) != (len(packed), units):
            raise ValueError(f"values must be of shape ({len(packed)}, {units}), got {tuple(values.shape)}")

    @property
    def packed(self) -> UInt8[np.ndarray, "n b"]:
        """Return the bytes of every point; for patterns loaded from several shards, this reads the disk.

        Bits that fill up a layer's last byte would count in every distance: a ValueError says so if one of them is set.
        """
        if isinstance(self._packed, Shards):
            self._packed = self._packed.whole()
        if not self._checked:
            _check_padding(self)
            self._checked = True
        return self._packed

    def __len__(self) -> int:
        return len(self._packed)

    def __repr__(self) -> str:
        layers = f"{len(self.layers)} layer{'' if len(self.layers) == 1 else 's'}"
        return f"Patterns({len(self):,} point{'' if len(self) == 1 else 's'}, {layers}, {self.width:,} bits per point)"

    def __getitem__(self, rows: Any) -> Patterns:
        chosen = _rows(rows, len(self))
        values = None if self._values is None else self._values[chosen]
        return Patterns(self.layers, self._packed[chosen], self.ids[chosen], self.missed, values)

    @property
    def width(self) -> int:
        """Return the number of bits of a point, over all layers."""
        return sum(layer.width for layer in self.layers)

    @property
    def spans(self) -> tuple[slice, ...]:
        """Return the bytes of each layer, in the order of ``layers``."""
        ends = np.cumsum([layer.bytes for layer in self.layers]).tolist()
        return tuple(slice(end - layer.bytes, end) for end, layer in zip(ends, self.layers, strict=True))

    def layer(self, name: str) -> Patterns:
        """Return the patterns of one layer, by its name."""
        place = self._place(name)
        values = None if self._values is None else self._values[:, self._unit_spans[place]]
        return Patterns((self.layers[place],), self._packed[:, self.spans[place]], self.ids, self.missed, values)

    def values(self, name: str) -> Float[np.ndarray, "n ..."]:
        """Return the values of the layer with this name: one per point and unit, in the layer's shape.

        There are values if :func:`capture` was asked for them. They are mapped from a file, and read where they are
        used.

        Raises
        ------
        ValueError
            If there is no such layer, or values were not captured.
        """
        place = self._place(name)
        if self._values is None:
            raise ValueError('these patterns have no values; capture(..., values="float16") keeps them')
        if isinstance(self._values, Shards):
            found = self._values[:, self._unit_spans[place]].whole()
        else:
            found = self._values[:, self._unit_spans[place]]
        layer = self.layers[place]
        shape = layer.shape[:-1] if layer.bits_per_unit > 1 else layer.shape
        return found.reshape(len(self), *(shape or (layer.units,)))

    @property
    def _unit_spans(self) -> tuple[slice, ...]:
        ends = np.cumsum([layer.units for layer in self.layers]).tolist()
        return tuple(slice(end - layer.units, end) for end, layer in zip(ends, self.layers, strict=True))

    def _place(self, name: str) -> int:
        names = [layer.name for layer in self.layers]
        if name not in names:
            raise ValueError(f"there is no layer {name!r}; there are {', '.join(map(repr, names))}")
        return names.index(name)

    def signs(self) -> Int8[np.ndarray, "n h"]:
        """Return +1 where the pre-activation is >= 0, else -1, units in the order of ``layers``."""
        parts = [
            np.unpackbits(self.packed[:, span], axis=1, count=layer.width)
            for span, layer in zip(self.spans, self.layers, strict=True)
        ]
        bits = np.concatenate(parts, axis=1) if parts else np.zeros((len(self), 0), np.uint8)
        return (bits.astype(np.int8) << 1) - 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("patterns are stored as packed bits: unpacking them into an array needs a copy")
        found = self.signs() > 0
        return found if dtype is None else found.astype(dtype)

    def equals(self, other: Patterns) -> bool:
        """Return whether layers, ids and every bit are the same."""
        same = self.layers == other.layers and np.array_equal(self.ids, other.ids)
        return bool(same and np.array_equal(self.packed, other.packed))

    @staticmethod
    def concatenate(parts: Sequence[Patterns], ids: Any = None, lazy: bool = False) -> Patterns:
        """Return the points of all parts, one after the other; they must have the same layers.

        Ids must be unique; ``ids`` replaces them where they repeat. If ``lazy``, nothing is read or copied: the parts
        stay where they are, and :meth:`shards` yields them.

        Raises
        ------
        ValueError
            If there are no parts, their layers differ, or ids are of two kinds.
        """
        parts = list(parts)
        if not parts:
            raise ValueError("concatenating needs at least one Patterns, got none")
        for part in parts[1:]:
            _check_same_layers(parts[0], part)
        if len({part.ids.dtype.kind == "U" for part in parts if len(part)}) > 1:
            raise ValueError("some of the ids to concatenate are words and some are numbers; expected one kind")
        count = sum(len(part) for part in parts)
        named = np.concatenate([part.ids for part in parts]) if ids is None else ids
        missed, held = Missed.joined([part.missed for part in parts]), [part._values for part in parts]
        rows, there = Shards.joined([part._packed for part in parts]), [one for one in held if one is not None]
        values = Shards.joined(there) if len(there) == len(parts) else None
        if lazy:
            return Patterns(parts[0].layers, rows, point_ids(named, count), missed, values)
        arrays = rows.whole(), None if values is None else values.whole()
        return Patterns(parts[0].layers, arrays[0], point_ids(named, count), missed, arrays[1])

    def shards(self) -> Iterator[Patterns]:
        """Yield the points of each file in turn, read when they are used; all at once if they are in memory."""
        first = 0
        for part in self._packed.parts if isinstance(self._packed, Shards) else (self._packed,):
            yield self[first : first + len(part)]
            first += len(part)

    def save(self, path: str | PathLike[str], shard_bytes: int = 256 << 20) -> None:
        """Write a new folder of safetensors shards with an index, atomically."""
        records = [asdict(layer) for layer in self.layers]
        index = {"layers": records, "missed": self.missed.to_record(), "values": self._values is not None}
        arrays = {"packed": self._packed} | ({} if self._values is None else {"values": self._values})
        save_arrays(Path(path), index, arrays, self.ids, shard_bytes)

    @classmethod
    def load(cls, path: str | PathLike[str], verify: bool = False) -> Patterns:
        """Return saved patterns, mapped into memory: rows are read from disk when they are asked for.

        A folder of such folders, as :func:`capture_shards` writes, is loaded as one, in the order of their names.

        Names, sizes and headers of the files are always checked; ``verify`` reads every byte and checks its SHA-256,
        and that no bit outside the layers is set, which is checked otherwise when the bytes are first used.
        """
        if parts := parts_of(Path(path)):
            return cls.concatenate([cls.load(part, verify) for part in parts], lazy=True)
        index, arrays, ids = load_arrays(Path(path), verify)
        mapped = {name: one.whole() if len(one.parts) == 1 else one for name, one in arrays.items()}
        layers = tuple(Layer(**{**record, "shape": tuple(record["shape"])}) for record in index["layers"])
        missed = Missed.from_record(index["missed"]) if "missed" in index else None
        found = cls(layers, mapped["packed"], ids, missed, mapped.get("values"))
        for part in found.shards() if verify else ():
            _check_padding(part)
        return found


def _check_padding(p: Patterns) -> None:
    """Raise ValueError if bits are set that belong to no unit."""
    packed = p._packed.whole() if isinstance(p._packed, Shards) else p._packed
    for layer, span in zip(p.layers, p.spans, strict=True):
        spare = (1 << (-layer.width % 8)) - 1
        if spare and (packed[:, span.stop - 1] & spare).any():
            raise ValueError(f"layer {layer.name!r} has {layer.width} bits per point, but bits beyond them are set")


def _checked_bytes(packed: Any) -> UInt8[np.ndarray, "n b"]:
    """Return an array as it is; of anything else, check that it holds whole numbers up to 255."""
    if isinstance(packed, np.ndarray) and not isinstance(packed, np.ma.MaskedArray):
        return np.asarray(packed)
    return np.asarray(whole_array(packed, "packed", "points bytes", high=256), np.uint8)


def check_same_points(p: Patterns, q: Patterns) -> None:
    """Check that two sets of patterns are of the same points in the same order.

    Parameters
    ----------
    p, q : Patterns
        The patterns of two networks.

    Raises
    ------
    ValueError
        If their numbers of points or their ids differ; the message names the first difference.

    Examples
    --------
    >>> p = Patterns((Layer("act", 8, "relu"),), np.array([[3], [1]], np.uint8))
    >>> check_same_points(p, p)
    >>> check_same_points(p, p[::-1])
    Traceback (most recent call last):
    ValueError: the patterns are of different points: 2 of 2 ids differ, the first at row 0: 0 against 1
    """
    instance(p, "p", Patterns)
    instance(q, "q", Patterns)
    if len(p) != len(q):
        raise ValueError(f"the patterns are of different points: {len(p)} of them against {len(q)}")
    comparable = (p.ids.dtype.kind == "U") == (q.ids.dtype.kind == "U")
    different = np.flatnonzero(p.ids != q.ids) if comparable else np.arange(len(p))
    if len(different):
        at = int(different[0])
        raise ValueError(
            f"the patterns are of different points: {len(different)} of {len(p)} ids differ, "
            f"the first at row {at}: {p.ids[at].item()!r} against {q.ids[at].item()!r}"
        )


def point_ids(ids: Any, count: int | None = None) -> np.ndarray:
    """Return the ids of ``count`` points, or of as many as there are: whole numbers or words, none of them twice.

    >>> point_ids(["a", "b"], 2).tolist()
    ['a', 'b']
    """
    found = _plain_ids(ids)
    if found.dtype == object and all(isinstance(one, str) for one in found.flat):
        found = found.astype(np.str_)
    if found.ndim != 1 or count not in (None, len(found)):
        raise ValueError(f"there are {count or 'some'} points, but the ids have the shape {found.shape}")
    if found.dtype.kind not in "iuU" and len(found):
        raise ValueError(f"ids must be whole numbers or words, got {found.dtype}")
    if found.dtype.kind == "u" and len(found) and int(found.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"ids must be below 2^63, got {found.max()}")
    kept = found if found.dtype.kind == "U" else found.astype(np.int64)
    names, times = np.unique(kept, return_counts=True)
    if len(names) < len(kept):
        twice = names[times > 1][0].item()
        raise ValueError(f"ids must be unique, but {twice!r} occurs more than once")
    return kept


def _plain_ids(ids: Any) -> np.ndarray:
    if isinstance(ids, Tensor | np.ma.MaskedArray):
        return whole_array(ids, "ids", low=np.iinfo(np.int64).min)
    try:
        return np.asarray(ids)
    except (TypeError, ValueError):
        raise ValueError(f"ids must be whole numbers or words, got {described(ids)}, which is not an array") from None


def _rows(rows: Any, count: int) -> Any:
    """Return rows as a slice or an array that keeps the axis of points."""
    if isinstance(rows, slice):
        return rows
    if isinstance(rows, tuple):
        raise IndexError("patterns are indexed by rows alone; choose a layer by its name, with layer(name)")
    chosen = np.asarray(rows)
    if chosen.dtype == bool and chosen.shape != (count,):
        raise IndexError(f"a mask needs one boolean for each of the {count} points, got the shape {chosen.shape}")
    if chosen.ndim > 1 or (chosen.size and chosen.dtype.kind not in "iub"):
        raise IndexError(f"rows must be an integer, a slice, integers or booleans, got {chosen.dtype} {chosen.shape}")
    return np.atleast_1d(chosen if chosen.dtype == bool else chosen.astype(np.intp))


def _check_same_layers(p: Patterns, q: Patterns) -> None:
    ours, theirs = (", ".join(f"{one.name} ({one.kind}, {one.width})" for one in part.layers) for part in (p, q))
    if ours != theirs:
        raise ValueError(f"the patterns are of different layers: {ours} against {theirs}")
