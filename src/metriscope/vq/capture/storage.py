"""Packed bits and ids on disk: a folder of safetensors shards that can be mapped into memory, and a JSON index.

Axes: N points, B bytes, V values. Every shard holds some points' ``packed`` bytes, their ``values`` if they were kept,
and their ids: ``ids`` if they are whole numbers; if they are words, ``text`` (their UTF-8 bytes, joined) and ``ends``
(where each word ends in ``text``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from metriscope.common.errors import Damage, explained
from metriscope.common.files import read, sha256, sync_folder, temporary, write
from metriscope.runs.codec import from_json, to_json

__all__ = ["INDEX", "Shards", "load_arrays", "parts_of", "save_arrays", "sealed"]

INDEX = "index.json"
_FORMAT = "metriscope patterns 2"
_UNSEALED = "metriscope patterns 1"  # whose index has no SHA-256 of its own
_SHARD_NAME = re.compile(r"shard-\d{5,9}\.safetensors")
_DTYPES: dict[str, np.dtype[Any]] = {"U8": np.dtype(np.uint8), "I64": np.dtype("<i8")}
_DTYPES |= {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}


@dataclass(frozen=True)
class Shards:
    """The rows of several arrays as if they were one, each read only when it is asked for."""

    parts: tuple[np.ndarray, ...]

    @classmethod
    def joined(cls, arrays: Iterable[np.ndarray | Shards]) -> Shards:
        """Return all rows of several arrays; nothing is read or copied."""
        return cls(tuple(part for one in arrays for part in (one.parts if isinstance(one, Shards) else (one,))))

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return self.parts[0].ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of all rows together."""
        return (len(self), *self.parts[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of the numbers."""
        return self.parts[0].dtype

    def whole(self) -> np.ndarray:
        """Return one array; it is read into memory unless there is only one part."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)

    def __getitem__(self, index: Any) -> Any:
        """Return some rows, or some columns of all rows; the parts are joined only where that is necessary."""
        if isinstance(index, tuple):
            return Shards(tuple(part[index] for part in self.parts))
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return self[np.arange(start, stop, step)]
            found = [part[rows] for part, rows in self._within(start, stop)] or [self.parts[0][:0]]
            return found[0] if len(found) == 1 else Shards(tuple(found))
        rows = np.flatnonzero(index) if index.dtype == bool else index
        return self._gather(rows)

    def _within(self, start: int, stop: int) -> Iterator[tuple[np.ndarray, slice]]:
        """Yield the parts that hold the rows from start to stop, with the rows inside each."""
        first = 0
        for part in self.parts:
            low, high = max(start - first, 0), min(stop - first, len(part))
            if low < high:
                yield part, slice(low, high)
            first += len(part)

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        count = len(self)
        if len(rows) and (rows.min() < -count or rows.max() >= count):
            raise IndexError(f"there are {count} points, but row {rows[np.abs(rows + 0.5).argmax()]} was asked for")
        rows = np.where(rows < 0, rows + count, rows)
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        ends = np.cumsum([len(part) for part in self.parts])
        owner = np.searchsorted(ends, rows, side="right")
        for number, part in enumerate(self.parts):
            here = owner == number
            found[here] = part[rows[here] - (ends[number] - len(part))]
        return found


def parts_of(path: Path) -> list[Path]:
    """Return the folders of patterns inside a folder that is none itself, in the order of their names."""
    return [] if (path / INDEX).exists() else sorted(found.parent for found in path.glob(f"part-*/{INDEX}"))


def save_arrays(
    path: Path, records: Mapping[str, Any], arrays: Mapping[str, Any], ids: np.ndarray, shard_bytes: int = 256 << 20
) -> None:
    """Write rows and ids as shards of at most ``shard_bytes`` each (but at least one row) into a new folder.

    ``records`` go into the index: the ``layers``, and what was ``missed``. ``arrays`` are ``packed``, and ``values`` if
    there are any.
    """
    if ids.dtype.kind not in "iuU" and len(ids):
        raise ValueError(f"ids must be whole numbers or words to be saved, got {ids.dtype}")
    packed = arrays["packed"]
    row = (
        sum(one.shape[1] * one.dtype.itemsize for one in arrays.values()) + (ids.dtype.itemsize if len(ids) else 0) + 8
    )
    step = max(1, shard_bytes // row)
    with explained(f"save the patterns to {path}"):
        if path.exists():
            raise Damage("the path already exists")
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary(path.parent) as folder:
            folder.mkdir()
            shards = [
                _write_shard(folder, number, slice(start, start + step), arrays, ids)
                for number, start in enumerate(range(0, max(len(packed), 1), step))
            ]
            write(folder / INDEX, sealed({"points": len(packed), **records, "shards": shards}))
            sync_folder(folder)
            folder.rename(path)
        sync_folder(path.parent)


def sealed(index: Mapping[str, Any]) -> bytes:
    """Return an index as JSON, with its format and the SHA-256 of all that it holds."""
    return to_json({"format": _FORMAT, **index, "sha256": _seal(index)}, INDEX)


def _seal(index: Mapping[str, Any]) -> str:
    return sha256(json.dumps(index, sort_keys=True).encode())


def _write_shard(folder: Path, number: int, rows: slice, arrays: Mapping[str, Any], ids: np.ndarray) -> dict[str, Any]:
    from safetensors.numpy import save

    name = f"shard-{number:05d}.safetensors"
    some = {key: one[rows] for key, one in arrays.items()}
    held = {key: np.ascontiguousarray(one.whole() if isinstance(one, Shards) else one) for key, one in some.items()}
    data = save({**held, **_ids_to_arrays(ids[rows])})
    write(folder / name, data)
    return {"file": name, "points": len(held["packed"]), "bytes": len(data), "sha256": sha256(data)}


def _ids_to_arrays(ids: np.ndarray) -> dict[str, np.ndarray]:
    if ids.dtype.kind != "U":
        return {"ids": np.ascontiguousarray(ids, "<i8")}
    words = [word.encode("utf-8", "surrogatepass") for word in ids.tolist()]
    ends = np.cumsum([len(word) for word in words], dtype="<i8")
    return {"text": np.frombuffer(b"".join(words), np.uint8), "ends": ends}


def _ids_from_arrays(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    if "ids" in arrays:
        return arrays["ids"]
    text, ends = arrays["text"].tobytes(), [0, *arrays["ends"].tolist()]
    if any(b < a for a, b in pairwise(ends)) or ends[-1] != len(text):
        raise Damage("the ends of the ids do not fit their text")
    words = [text[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(ends)]
    return np.array(words, np.str_)


def load_arrays(path: Path, verify: bool) -> tuple[dict[str, Any], dict[str, Shards], np.ndarray]:
    """Return the index with its records, the mapped arrays and the ids that :func:`save_arrays` was given."""
    with explained(f"load the patterns from {path}"):
        index = _read_index(path)
        row = sum(-(-int(layer["width"]) // 8) for layer in index["layers"])
        units = sum(_units(layer) for layer in index["layers"]) if index.get("values") else None
        shards = [_read_shard(path, shard, (row, units), verify) for shard in index["shards"]]
        ids = Shards(tuple(_ids_from_arrays(found) for found in shards)).whole()
        if len(ids) != index["points"]:
            raise Damage(f"{INDEX} lists {index['points']} points, its shards hold {len(ids)}")
    names = ["packed"] if units is None else ["packed", "values"]
    return index, {name: Shards(tuple(found[name] for found in shards)) for name in names}, ids


def _units(layer: Mapping[str, Any]) -> int:
    """Return the number of values that a layer has per point."""
    return int(layer["width"]) // max(int(layer["bits_per_unit"]), 1)


def _read_index(path: Path) -> dict[str, Any]:
    try:
        index = from_json(read(path / INDEX))
    except Damage as damage:
        raise Damage(f"{INDEX}: {damage}") from None
    if not isinstance(index, dict) or index.get("format") not in (_FORMAT, _UNSEALED):
        raise Damage(f"{INDEX}: not an index of patterns")
    content = {name: value for name, value in index.items() if name not in ("format", "sha256")}
    if index["format"] == _FORMAT and index.get("sha256") != _seal(content):
        raise Damage(f"{INDEX}: edited: its content does not match its SHA-256")
    if not all(_is_list(index.get(name), fields) for name, fields in _FIELDS.items()) or not index["shards"]:
        raise Damage(f"{INDEX}: fields are missing")
    if not all(map(_is_layer, index["layers"])) or not all(
        _SHARD_NAME.fullmatch(one["file"]) for one in index["shards"]
    ):
        raise Damage(f"{INDEX}: a layer or a shard is not valid")
    missed = index.get("missed", {"taken": 0, "operations": [], "doubts": []})
    if (
        not isinstance(missed, dict)
        or not _is_list([missed], _MISSED)
        or not _is_list(missed["operations"], _MISSED_OPERATION)
    ):
        raise Damage(f"{INDEX}: what was missed is not a record")
    return index


_MOST = 1 << 48  # largest number of bits of a layer: no memory holds more
_LAYER: dict[str, Any] = {"name": str, "width": int, "kind": str, "piecewise_affine": bool, "shape": list}
_LAYER |= {"seen": str, "bits_per_unit": int, "channel_axis": int | None}
_MISSED: dict[str, Any] = {"taken": int, "operations": list, "doubts": list}
_MISSED_OPERATION: dict[str, Any] = {"what": str, "role": str, "reason": str, "count": int, "where": str}
_FIELDS = {"layers": _LAYER, "shards": {"file": str, "points": int, "bytes": int, "sha256": str}}


def _is_layer(layer: Mapping[str, Any]) -> bool:
    """Return whether a layer's width, units and shape fit together."""
    width, bits, shape = layer["width"], layer["bits_per_unit"], layer["shape"]
    counts = all(type(one) is int and 0 <= one < _MOST for one in (width, bits, *shape))
    return counts and bits > 0 and width % bits == 0 and (not shape or prod(shape) == width)


def _is_list(entries: Any, fields: Mapping[str, Any]) -> bool:
    """Return whether all entries are records of exactly these fields."""
    return isinstance(entries, list) and all(
        isinstance(entry, dict)
        and entry.keys() == fields.keys()
        and all(isinstance(entry[name], kind) for name, kind in fields.items())
        for entry in entries
    )


def _read_shard(
    folder: Path, shard: Mapping[str, Any], sizes: tuple[int, int | None], verify: bool
) -> dict[str, np.ndarray]:
    """Return the memory-mapped arrays of a shard; ``sizes`` are bytes, and values if there are any, per point."""
    name, points, (row, units) = shard["file"], shard["points"], sizes
    path = folder / Path(name).name
    try:
        arrays = _map_arrays(path, shard["bytes"], units is not None)
        if verify and sha256(path) != shard["sha256"]:
            raise Damage("its content is not what was written")
        ids = _ids_from_arrays(arrays)
        if arrays["packed"].shape != (points, row) or len(ids) != points:
            raise Damage(f"expected {points} points of {row} bytes")
        if units is not None and arrays["values"].shape != (points, units):
            raise Damage(f"expected {units} values for each of {points} points")
    except Damage as damage:
        raise Damage(f"{name}: {damage}") from None
    except (KeyError, TypeError, ValueError, OverflowError):
        raise Damage(f"{name}: not a shard of patterns") from None
    return arrays


def _map_arrays(path: Path, size: int, valued: bool) -> dict[str, np.ndarray]:
    """Return every array of a shard, mapped: only the header is read, after safetensors has checked it."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise Damage("missing")
    if path.stat().st_size != size:
        raise Damage(f"it has {path.stat().st_size} bytes, {size} were written")
    try:
        # Offsets and shapes that do not fit each other and the size of the file are refused here.
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, ValueError, OverflowError, MemoryError):
        raise Damage("not safetensors") from None
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        fields = from_json(file.read(min(length, size)))
    kinds = {name: entry["dtype"] for name, entry in fields.items() if name != "__metadata__"}
    named = {"ids": "I64"} if "ids" in kinds else {"text": "U8", "ends": "I64"}
    expected = {"packed": "U8", **named} | ({"values": kinds.get("values")} if valued else {})
    if kinds != expected or (valued and kinds["values"] not in ("F16", "F32")):
        raise Damage("it does not hold the arrays of a shard of patterns")
    return {name: _map_array(path, 8 + length, fields[name]) for name in kinds}


def _map_array(path: Path, start: int, entry: Mapping[str, Any]) -> np.ndarray:
    dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
    if 0 in shape:
        return np.zeros(shape, dtype)
    # Copy-on-write does not change the file, and torch.from_numpy does not warn about read-only arrays.
    mapped = np.memmap(path, dtype, mode="c", offset=start + entry["data_offsets"][0], shape=shape)
    return np.asarray(mapped)
