"""Images as points for networks, and readers of image data sets: IDX files, CIFAR-10 batches, embedded digits.

Axes: N images, C channels, H rows, W columns, D = C H W features. Each ``*_parts`` function takes the path of each file
by its name and returns the training and the test part.
"""

from __future__ import annotations

import gzip
import math
import struct
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from jaxtyping import Float32, UInt8

from metriscope.common.validation import number, one_of, whole_array
from metriscope.data.dataset import DataError, Labeled, Parts, every_fifth, split

__all__ = [
    "cifar_parts", "digits_parts", "folder_parts", "idx_parts", "mnist_5k_parts", "opened_picture", "pixels",
    "read_idx",
]  # fmt: skip

_CIFAR = (3, 32, 32)
_MNIST_5K = Path(__file__).parent / "mnist_5k.npy.gz"
_BLOCK, _READ = 4096, 1 << 20
# Types of values in IDX files.
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: "i2", 0x0C: "i4", 0x0D: "f4", 0x0E: "f8"}
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm")
_GZIP = b"\x1f\x8b"


def pixels(
    images: UInt8[np.ndarray, "n ..."],
    form: Literal["raw", "unit", "normalized"],
    train: UInt8[np.ndarray, "m ..."] | None = None,
    white: int = 255,
) -> Float32[np.ndarray, "n d"]:
    """Return images as points, one row per image.

    Parameters
    ----------
    images : uint8 array of shape (n, rows, columns) or (n, channels, rows, columns)
        Gray or color images.
    form : {"raw", "unit", "normalized"}
        ``"raw"`` keeps the stored numbers and ``"unit"`` divides them by ``white``. ``"normalized"`` subtracts the
        mean over all pixels of the training images and divides by their standard deviation, for color images channel
        by channel.
    train : uint8 array, optional
        Training images, needed for ``"normalized"``, also when ``images`` are the training images themselves: test
        images are never normalized by their own mean.
    white : int
        Largest level: 255, or 16 for the data set ``digits``.

    Returns
    -------
    float32 array of shape (n, d)
        The points.

    Raises
    ------
    ValueError
        If ``images`` are no images of whole numbers from 0 to 255, ``form`` is unknown, or ``train`` is missing, empty
        or all of one gray where it is needed.

    Examples
    --------
    >>> pixels(np.array([[[0, 255]]], dtype=np.uint8), "unit")
    array([[0., 1.]], dtype=float32)
    """
    images = _checked(images, "images")
    one_of(form, "form", ("raw", "unit", "normalized"))
    points = images.astype(np.float32)
    if form == "normalized":
        if train is None:
            raise ValueError("train must hold the training images for normalized pixels, got None")
        mean, deviation = _brightness(_checked(train, "train"))
        points -= mean.astype(np.float32)
        points /= deviation.astype(np.float32)
    elif form == "unit":
        points /= np.float32(number(white, "white", "(0, inf)"))
    return points.reshape(len(images), math.prod(images.shape[1:]))


def _checked(images: Any, name: str) -> UInt8[np.ndarray, "n ..."]:
    plain = isinstance(images, np.ndarray) and images.dtype == np.uint8 and not np.ma.isMaskedArray(images)
    found = np.asarray(images) if plain else whole_array(images, name, "...", low=0, high=256).astype(np.uint8)
    # Zeros and ones in floating point may well be fractions of white, not levels.
    if "float" in str(getattr(images, "dtype", "")):
        raise ValueError(f"{name} must hold whole numbers from 0 to 255, got {images.dtype}")
    if found.ndim not in (3, 4) or not all(found.shape[1:]):
        raise ValueError(f"{name} must have 3 or 4 axes (images, rows, columns), got the shape {found.shape}")
    return found


def _brightness(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of gray images, or of each channel of color images, ready to broadcast."""
    channels = images[:, None] if images.ndim == 3 else images
    counts = np.array([_counts(channels[:, channel]) for channel in range(channels.shape[1])])
    levels, total = np.arange(256), counts.sum(axis=1)
    if not total.all():
        raise ValueError("train must hold at least one image, got none")
    mean = counts @ levels / total
    deviation = np.sqrt((counts * (levels - mean[:, None]) ** 2).sum(axis=1) / total)
    if not deviation.all():
        raise ValueError("train must hold pixels of more than one value to normalize by, got a single value")
    return mean[:, None, None], deviation[:, None, None]


def _counts(images: np.ndarray) -> np.ndarray:
    """Return how often each of the 256 levels occurs: exact, and without a float64 copy of the images."""
    blocks = (images[start : start + _BLOCK].ravel() for start in range(0, len(images), _BLOCK))
    return sum((np.bincount(block, minlength=256) for block in blocks), start=np.zeros(256, dtype=np.int64))


def read_idx(path: Path, dtype: str | None = None, ndim: int | None = None) -> np.ndarray:
    """Return the array in an IDX file, the format in which MNIST is published.

    Parameters
    ----------
    path : Path
        A plain or gzipped IDX file; the first bytes decide which, not the name.
    dtype : str, optional
        Expected type of the values, such as ``"uint8"``.
    ndim : int, optional
        Expected number of axes.

    Returns
    -------
    array
        The values, in the machine's own byte order.

    Raises
    ------
    DataError
        If the file cannot be read, is not an IDX file, is shorter or longer than its header says, or does not have the
        expected type or number of axes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "labels"
    ...     count = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    ...     read_idx(path, "uint8", ndim=1)
    array([7, 8, 9], dtype=uint8)
    """
    try:
        with path.open("rb") as plain:
            zipped = plain.read(2) == _GZIP
            plain.seek(0)
            return _read_idx(gzip.GzipFile(fileobj=plain) if zipped else plain, path, dtype, ndim)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file: {error}") from None
    except MemoryError:
        raise DataError(f"{path} holds more values than fit into memory") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


def _read_idx(file: BinaryIO | gzip.GzipFile, path: Path, dtype: str | None, ndim: int | None) -> np.ndarray:
    """Return the array in an open file; nothing beyond what its header promises is unpacked."""
    kind, shape = _header(file, path)
    if dtype is not None and kind != np.dtype(dtype):
        raise DataError(f"{path} holds {kind.name} values, expected {np.dtype(dtype).name}")
    if ndim is not None and len(shape) != ndim:
        raise DataError(f"{path} holds an array of {len(shape)} axes, expected {ndim}")
    values, expected = bytearray(), math.prod(shape) * kind.itemsize
    while len(values) <= expected and (block := file.read(min(_READ, expected + 1 - len(values)))):
        values += block
    if len(values) < expected:
        raise DataError(f"{path} is truncated: {len(values)} of {expected} bytes of values for shape {shape}")
    if len(values) > expected:
        raise DataError(f"{path} has extra bytes after the {expected} bytes of values for shape {shape}")
    try:
        return np.frombuffer(values, kind.newbyteorder(">")).reshape(shape).astype(kind, copy=False)
    except ValueError:
        raise DataError(f"{path} declares the shape {shape}, which no array can have") from None


def _header(file: BinaryIO | gzip.GzipFile, path: Path) -> tuple[np.dtype, tuple[int, ...]]:
    magic = file.read(4)
    if len(magic) < 4:
        raise DataError(f"{path} is truncated: {len(magic)} of the 4 bytes every IDX file begins with")
    if magic[:2] != b"\0\0" or magic[3] == 0:
        raise DataError(
            f"{path} is not an IDX file: it begins with {magic.hex()}, expected 0000, a type, a number of axes"
        )
    if magic[2] not in _TYPES:
        known = ", ".join(f"{code:02x}" for code in _TYPES)
        raise DataError(f"{path} holds values of the unknown type {magic[2]:02x}, expected one of {known}")
    lengths = file.read(4 * magic[3])
    if len(lengths) < 4 * magic[3]:
        raise DataError(f"{path} is truncated: {len(lengths)} of {4 * magic[3]} bytes for the lengths of its axes")
    return np.dtype(_TYPES[magic[2]]), struct.unpack(f">{magic[3]}I", lengths)


def idx_parts(paths: Mapping[str, Path]) -> Parts:
    """Return the images and labels of the four files in which MNIST and Fashion-MNIST are published."""
    train, test = (_idx_part(paths, start) for start in ("train", "t10k"))
    return train, test


def _idx_part(paths: Mapping[str, Path], start: str) -> Labeled:
    images = read_idx(paths[f"{start}-images-idx3-ubyte.gz"], "uint8", ndim=3)
    labels = paths[f"{start}-labels-idx1-ubyte.gz"]
    numbers = read_idx(labels, "uint8", ndim=1).astype(np.int64)
    if len(numbers) != len(images):
        raise DataError(f"{labels} holds {len(numbers)} labels for {len(images)} images")
    return Labeled(images, numbers)


def mnist_5k_parts(paths: Mapping[str, Path]) -> Parts:
    """Return the 5,000 MNIST digits that come with the package, 4,000 and 1,000; they need no files."""
    with gzip.open(_MNIST_5K) as file:
        images = np.load(file, allow_pickle=False)
    labels = np.repeat(np.arange(10), len(images) // 10)
    return split(images, labels, every_fifth(labels))


def digits_parts(paths: Mapping[str, Path]) -> Parts:
    """Return scikit-learn's 8 x 8 digits, levels 0 to 16; they need no files."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return split(found.images.astype(np.uint8), found.target, every_fifth(found.target))


def cifar_parts(paths: Mapping[str, Path]) -> Parts:
    """Return the training batches that are there, in their order, and the test batch."""
    batches = [_cifar_batch(paths[name]) for name in sorted(paths) if name.startswith("data_batch")]
    train = Labeled(np.concatenate([b.x for b in batches]), np.concatenate([b.y for b in batches]))
    return train, _cifar_batch(paths["test_batch.bin"])


def _cifar_batch(path: Path) -> Labeled:
    """Return the images of one file: for each, one byte of label, then the red, green and blue planes."""
    content, record = path.read_bytes(), 1 + math.prod(_CIFAR)
    if not content or len(content) % record:
        raise DataError(f"{path} holds {len(content)} bytes, expected a multiple of {record}")
    rows = np.frombuffer(bytearray(content), np.uint8).reshape(-1, record)
    return Labeled(rows[:, 1:].reshape(-1, *_CIFAR), rows[:, 0].astype(np.int64))


@contextmanager
def opened_picture(path: Path, refused: type[Exception] = DataError) -> Iterator[Any]:
    """Yield the opened picture in a file; raise ``refused`` if it is damaged or has too many pixels."""
    # A dependency of matplotlib, which plots load too.
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # A small file can hold more pixels than memory; Pillow warns about large pictures and refuses larger ones.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                yield image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise refused(f"{path} holds more than {Image.MAX_IMAGE_PIXELS or 0:,} pixels: make it smaller") from None
    except (OSError, SyntaxError, ValueError, EOFError, MemoryError) as error:
        # Pillow's readers raise a different type for each kind of damage.
        raise refused(f"{path} is not a picture that can be read: {error}") from None


def folder_parts(folder: Path, side: int = 32) -> Parts:
    """Return the images of a folder with one subfolder per class, as ImageNet is stored.

    Subfolders ``train`` and ``val`` (or ``test``) give the two parts; without them every fifth image of a class is for
    testing. Images are scaled to ``side`` x ``side`` pixels and are in color; classes are sorted by name.
    """
    first = folder / "train"
    second = next((folder / name for name in ("val", "test") if (folder / name).is_dir()), None)
    if not first.is_dir() or second is None:
        x, y = _class_folders(folder, _class_names(folder), side)
        return split(x, y, every_fifth(y))
    names = _class_names(first)
    if strange := sorted(set(_folders(second)) - set(names)):
        raise DataError(f"{second} holds the class {strange[0]}, which {first} does not")
    train, test = (Labeled(*_class_folders(part, names, side)) for part in (first, second))
    return train, test


def _folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _class_names(folder: Path) -> list[str]:
    names = _folders(folder)
    if len(names) < 2:
        raise DataError(f"{folder} should hold one subfolder of images for each of two or more classes")
    return names


def _class_folders(folder: Path, names: Sequence[str], side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of all classes, (n, 3, side, side), and their labels."""
    from PIL import Image

    found, labels = [], []
    for label, name in enumerate(names):
        for path in sorted((folder / name).glob("*")):
            if path.suffix.lower() in _SUFFIXES:
                with opened_picture(path) as image:
                    small = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
                found.append(np.asarray(small).transpose(2, 0, 1))
                labels.append(label)
    if not found:
        raise DataError(f"{folder} holds no image ({', '.join(_SUFFIXES)}) in its subfolders")
    return np.stack(found), np.array(labels, np.int64)
