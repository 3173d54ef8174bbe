"""A user's points: arrays, named arrays or a folder of images, in batches for a network and as something to look at.

Axes: N points. A point can be looked at as a picture, as a row of numbers, as text, or as its number only.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Float64, UInt8

from metriscope.common.validation import require_text
from metriscope.data.images import opened_picture

__all__ = ["ImageFiles", "UserPoints", "checked_labels", "load_labels", "load_points"]

Index = np.ndarray | slice
Pictures = UInt8[np.ndarray, "n h w c"]

_LABELS = ("labels", "label", "y", "targets", "target")
_TEXTS = ("texts", "text", "sentences", "sentence")
_COLUMNS = ("columns", "feature_names")
_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# Sizes of a flat point that are those of well-known pictures, and their shapes.
_FLAT = {784: (1, 28, 28), 3072: (3, 32, 32)}
# Side of the smallest square that counts as a picture; points whose range of values is looked at.
_SMALLEST, _SAMPLE = 8, 256
# Values that are shown as white, where pixels are whole numbers.
_WHITES = (1, 16, 255)
_LARGEST_SIDE = 4096
_KINDS = {"U": "words", "S": "bytes", "c": "complex numbers", "M": "dates", "m": "durations", "V": "records"}
_KINDS |= {"O": "Python objects, which are not read"}


class ImageFiles:
    """Pictures in files, read when they are needed: channels first, pixels from 0 to 1."""

    def __init__(self, paths: list[Path], size: tuple[int, int], channels: int) -> None:
        self.paths, self.size, self.channels = paths, size, channels

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Index) -> np.ndarray:
        return np.stack([self._read(self.paths[row]) for row in np.arange(len(self))[rows]])

    def _read(self, path: Path) -> np.ndarray:
        from PIL import Image

        with opened_picture(path, ValueError) as image:
            # Pillow would cut the levels of 16 bits off at 255.
            deep = image.mode.startswith("I;16")
            found = image.convert("F" if deep else "L" if self.channels == 1 else "RGB")
        if found.size != self.size:
            found = found.resize(self.size, Image.Resampling.BILINEAR)
        pixels = np.asarray(found, np.float32).reshape(*self.size[::-1], -1)
        wide = np.broadcast_to(pixels, (*pixels.shape[:2], self.channels))
        return np.ascontiguousarray(wide.transpose(2, 0, 1) / (65_535 if deep else 255))

    @classmethod
    def of(cls, folder: Path, side: int | None) -> tuple[ImageFiles, np.ndarray | None]:
        """Return the pictures of a folder, and the names of their folders as labels if they lie in several."""
        if side is not None and not 1 <= side <= _LARGEST_SIDE:
            raise ValueError(f"--image-size must be from 1 to {_LARGEST_SIDE:,} pixels, got {side}")
        paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS and path.is_file())
        if not paths:
            raise ValueError(f"{folder} holds no pictures ({', '.join(_ENDINGS)})")
        sizes: dict[tuple[int, int], Path] = {}
        gray = True
        for path in paths:
            with opened_picture(path, ValueError) as image:
                sizes.setdefault(image.size, path)
                gray &= image.mode in ("L", "1") or image.mode.startswith("I;16")
                if image.mode in ("I", "F"):
                    raise ValueError(f"{path} holds 32-bit pixels, and the value of white is not known: use an array")
        if side is None and len(sizes) > 1:
            (a, one), (b, two) = list(sizes.items())[:2]
            raise ValueError(
                f"the pictures have different sizes, {a[0]} x {a[1]} ({one}) and {b[0]} x {b[1]} ({two}): "
                "--image-size resizes them to one"
            )
        size = next(iter(sizes)) if side is None else (side, side)
        places = [path.relative_to(folder).parent.as_posix() for path in paths]
        labels = np.array(places) if len(set(places)) > 1 else None
        return cls(paths, size, 1 if gray else 3), labels


@dataclass(frozen=True)
class UserPoints:
    """The points that a network reads, in its own form, and the labels, texts and column names that came with them.

    Parameters
    ----------
    inputs : array, pictures in files, or mapping of str to array
        What the network is called with; a mapping is handed over by name.
    labels, texts, columns : array, optional
        Labels and texts of the points, and names of the columns of a table.

    Examples
    --------
    >>> points = UserPoints(np.zeros((5, 3)))
    >>> len(points), [len(batch) for batch in points.batches(2)]
    (5, [2, 2, 1])
    """

    inputs: np.ndarray | ImageFiles | Mapping[str, np.ndarray]
    labels: np.ndarray | None = None
    texts: np.ndarray | None = None
    columns: np.ndarray | None = None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())) if isinstance(self.inputs, Mapping) else self.inputs)

    def take(self, rows: Index) -> Any:
        """Return what the network reads of some points."""
        if not isinstance(self.inputs, Mapping):
            return self.inputs[rows]
        return {name: each[rows] if len(each) == len(self) else each for name, each in self.inputs.items()}

    def batches(self, size: int) -> Iterator[Any]:
        """Yield the points in batches."""
        return (self.take(slice(start, min(start + size, len(self)))) for start in range(0, len(self), size))

    @property
    def hint(self) -> str:
        """Return a hint on why a network may not accept points of this type; empty if there is none."""
        if not isinstance(self.inputs, np.ndarray) or self.inputs.dtype.kind not in "iub":
            return ""
        return f"; the points are {self.inputs.dtype}: most networks need float32, scaled as in training"

    @property
    def _pixels(self) -> np.ndarray | ImageFiles | None:
        """Return what may be pictures."""
        return self.inputs.get("pixel_values") if isinstance(self.inputs, Mapping) else self.inputs

    def pictures(self, rows: np.ndarray) -> Pictures | None:
        """Return points as pictures, pixels from 0 to 255, channels last; None if they are none."""
        shape, pixels = self.picture_shape, self._pixels
        if shape is None or pixels is None:
            return None
        found = np.asarray(pixels[rows], np.float64).reshape(len(rows), *shape)
        if shape[0] in (1, 3, 4):
            found = found.transpose(0, 2, 3, 1)
        low, high = self._range
        scaled = ((found[..., :3] - low) / (high - low)).clip(0, 1)
        return np.round(255 * scaled).astype(np.uint8)

    @cached_property
    def _range(self) -> tuple[float, float]:
        """Return the values that are shown as black and white."""
        if not isinstance(found := self._pixels, np.ndarray):
            return 0.0, 1.0
        some = found[:: -(-len(found) // _SAMPLE)]
        low, high = float(some.min()), float(some.max())
        if low >= 0 and found.dtype.kind in "iub":
            return 0.0, float(next((white for white in _WHITES if high <= white), high))
        if low >= 0:
            return 0.0, 1.0 if high <= 1 else max(high, 16.0)
        return low, high if high > low else low + 1

    @property
    def picture_shape(self) -> tuple[int, int, int] | None:
        """Return the shape of a point as a picture, channels first or last; None if it is not a picture."""
        pixels = self._pixels
        if isinstance(pixels, ImageFiles):
            return pixels.channels, pixels.size[1], pixels.size[0]
        if pixels is None:
            return None
        shape = pixels.shape[1:]
        if len(shape) == 1:
            return _FLAT.get(shape[0])
        if len(shape) == 2 and shape[0] == shape[1] >= _SMALLEST:
            return 1, shape[0], shape[1]
        if len(shape) == 3 and (shape[0] in (1, 3, 4) or shape[2] in (1, 3, 4)):
            return shape[0], shape[1], shape[2]
        return None

    @property
    def table(self) -> Float64[np.ndarray, "n d"] | None:
        """Return the points as rows of a table of numbers; None if they are none."""
        if isinstance(self.inputs, np.ndarray) and self.inputs.ndim == 2 and self.picture_shape is None:
            return np.asarray(self.inputs, np.float64) if self.inputs.dtype.kind == "f" else None
        return None

    def words(self, rows: np.ndarray) -> list[str] | None:
        """Return the texts of points, or the numbers of their tokens without padding; None if they are neither."""
        if self.texts is not None:
            return [str(text) for text in self.texts[rows]]
        if isinstance(self.inputs, Mapping):
            ids = self.inputs.get("input_ids")
            mask = self.inputs.get("attention_mask")
        else:
            ids, mask = (self.inputs if isinstance(self.inputs, np.ndarray) else None), None
        if ids is None or ids.ndim != 2 or ids.dtype.kind not in "iu" or self.picture_shape is not None:
            return None
        kept = np.ones(ids.shape, bool) if mask is None or mask.shape != ids.shape else mask.astype(bool)
        return ["tokens " + " ".join(map(str, ids[row][kept[row]].tolist())) for row in rows]


def load_points(path: Path, image_size: int | None = None) -> UserPoints:
    """Return the points in a ``.npy`` file, an ``.npz`` file of named arrays, or a folder of pictures."""
    if path.is_dir():
        images, labels = ImageFiles.of(path, image_size)
        return UserPoints(images, labels)
    found = _loaded(path)
    if isinstance(found, np.ndarray):
        _check_numbers(found, str(path))
        if found.ndim == 1 and found.dtype.kind == "f":
            # A linear layer would treat all of them as the features of a single point.
            count = len(found)
            raise ValueError(f"{path} has the shape ({count},): save {count} points of one number as ({count}, 1)")
        return UserPoints(found)
    extras = {kind: _first(found, names) for kind, names in zip(("labels", "texts", "columns"), _EXTRAS, strict=True)}
    inputs = {name: array for name, array in found.items() if not any(array is each for each in extras.values())}
    if not inputs:
        raise ValueError(f"{path} holds no points: beside labels and texts it has no array")
    for name, array in inputs.items():
        _check_numbers(array, f"{name} of {path}")
    lengths = {name: len(array) for name, array in inputs.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the arrays of {path} have different numbers of points: {lengths}")
    first = next(iter(inputs.values()))
    _check_words(extras["texts"], f"texts of {path}", len(first), "points")
    _check_words(extras["columns"], f"columns of {path}", first.shape[1] if first.ndim > 1 else 1, "columns")
    return UserPoints(first if len(inputs) == 1 else inputs, **extras)


_EXTRAS = (_LABELS, _TEXTS, _COLUMNS)


def _first(arrays: Mapping[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray | None:
    return next((arrays[name] for name in names if name in arrays), None)


def _loaded(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """Return the array of a ``.npy`` file, or the arrays of an ``.npz`` file by name.

    No array is made before its header fits the size of the file: a header can promise more than any memory holds.
    """
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    kind = path.suffix if path.suffix in (".npy", ".npz") else ".npy"
    try:
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                file.seek(0)
                return _array(file, path.stat().st_size, str(path))
            file.seek(0)
            with zipfile.ZipFile(file) as members:
                found = {info.filename: _member(members, info, path) for info in members.infolist()}
                return {name.removesuffix(".npy"): array for name, array in found.items()}
    except _Refused as error:
        raise ValueError(str(error)) from None
    except MemoryError:
        raise ValueError(f"{path} holds more numbers than fit into memory") from None
    except Exception as error:
        # Damage inside a zip file can raise any error of its compression method.
        raise ValueError(f"{path} is not a complete {kind} file of numbers: {error}") from None


class _Refused(ValueError):
    """An array that is not read; the message says why."""


def _member(members: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> np.ndarray:
    if not info.filename.endswith(".npy"):
        raise _Refused(f"{path} holds {info.filename!r}, which is not an array: write it with numpy.savez")
    with members.open(info) as file:
        return _array(file, info.file_size, f"{info.filename.removesuffix('.npy')} of {path}")


def _array(file: IO[bytes], size: int, what: str) -> np.ndarray:
    """Return the array in an open file of ``size`` bytes."""
    shape, fortran, dtype = _header(file, what)
    if dtype.kind not in "fiubUScMmV" or dtype.hasobject:
        raise _Refused(f"{what} holds {_KINDS['O']}: save numbers")
    if not all(type(length) is int and length >= 0 for length in shape):
        raise _Refused(f"{what} declares the shape {shape}, which no array can have")
    promised, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    if promised != held:
        text = f"{shape} of {dtype}" if len(str(shape)) < 100 else f"of {len(shape)} axes"
        wanted = f"{promised:,}" if promised < 10**30 else "far more"
        raise _Refused(f"{what} declares the shape {text}, which takes {wanted} bytes, but holds {held:,}")
    if not promised:
        return np.zeros(shape, dtype)
    values = bytearray(file.read(promised))
    if len(values) < promised:
        raise _Refused(f"{what} ends after {len(values):,} of its {promised:,} bytes")
    return np.frombuffer(values, dtype).reshape(shape, order="F" if fortran else "C")


def _header(file: IO[bytes], what: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    from numpy.lib import format as npy

    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        if version > (2, 0):
            raise _Refused(f"{what} holds {_KINDS['V']}, not numbers")
        return read(file)
    except _Refused:
        raise
    except Exception:
        # numpy's parser of headers can raise any error of Python's tokenizer and evaluator.
        why = "its header cannot be read; numpy.save writes such files"
        raise _Refused(f"{what} is not a complete .npy file of numbers: {why}") from None


def _check_numbers(array: np.ndarray, what: str) -> None:
    if array.ndim == 0 or len(array) == 0:
        raise ValueError(f"{what} holds no points")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{what} holds {_KINDS[array.dtype.kind]}, not numbers")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{what} holds NaN or infinite values")


def _check_words(array: np.ndarray | None, what: str, count: int, of: str) -> None:
    if array is not None and (array.shape != (count,) or array.dtype.kind != "U"):
        held = f"{_KINDS.get(array.dtype.kind, 'numbers')} of shape {array.shape}"
        raise ValueError(f"{what} must be words, one for each of {count} {of}, got {held}")
    if array is not None:
        require_text(array.tolist(), what)


def load_labels(path: Path | None, points: int) -> np.ndarray | None:
    """Return one label per point from a ``.npy`` file, or None if no file is named."""
    if path is None:
        return None
    labels = _loaded(path)
    if not isinstance(labels, np.ndarray):
        raise ValueError(f"{path} holds several arrays, not one array of labels")
    return checked_labels(labels, points, str(path))


def checked_labels(labels: np.ndarray, points: int, what: str) -> np.ndarray:
    """Return labels after checking that there is one per point, and that none of them is NaN."""
    if labels.shape != (points,):
        raise ValueError(f"{what} holds an array of shape {labels.shape}, not one label for each of {points} points")
    if labels.dtype.kind not in "fiubU":
        raise ValueError(f"{what} holds {_KINDS[labels.dtype.kind]}, not numbers or words")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(f"{what} holds NaN or infinite values")
    if labels.dtype.kind == "U":
        require_text(labels.tolist(), what)
    return labels
