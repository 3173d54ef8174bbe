"""IDX files, plain or gzipped: the format in which MNIST and Fashion-MNIST are published.

An IDX file is two zero bytes, a code of its type, its number of axes, the length of each axis as a big-endian
32-bit number, then the values, last axis fastest.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from metriscope.data.errors import DataError

__all__ = ["read_idx"]

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: "i2", 0x0C: "i4", 0x0D: "f4", 0x0E: "f8"}
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20


def read_idx(path: Path, dtype: str | None = None, ndim: int | None = None) -> np.ndarray:
    """Return the array in an IDX file, in the machine's own byte order.

    What the file is, gzip or plain, is read from its first bytes, never from its name. ``dtype`` (such as
    ``"uint8"``) and ``ndim`` say what is expected; anything else, and any byte too few or too many, is a
    ``DataError``.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            if not packed:
                return _parse(file, path, dtype, ndim)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return _parse(cast(BinaryIO, unpacked), path, dtype, ndim)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


def _parse(file: BinaryIO, path: Path, dtype: str | None, ndim: int | None) -> np.ndarray:
    kind, shape = _header(file, path)
    if dtype is not None and kind != np.dtype(dtype):
        raise DataError(f"{path} holds {kind.name} values, expected {np.dtype(dtype).name}")
    if ndim is not None and len(shape) != ndim:
        raise DataError(f"{path} holds an array of {len(shape)} axes, expected {ndim}")
    expected = math.prod(shape) * kind.itemsize
    content = _read(file, expected)
    if len(content) < expected:
        raise DataError(f"{path} is truncated: {len(content)} of {expected} bytes of values for shape {shape}")
    # A gzip stream compares its checksum only when it is read past its end, so this look is the check too.
    if file.read(1):
        raise DataError(f"{path} goes on after the {expected} bytes of values for shape {shape}")
    return _array(content, kind, shape, path)


def _header(file: BinaryIO, path: Path) -> tuple[np.dtype, tuple[int, ...]]:
    magic = _read(file, 4)
    if len(magic) < 4:
        raise DataError(f"{path} is truncated: {len(magic)} of the 4 bytes every IDX file begins with")
    if magic[:2] != b"\0\0" or magic[3] == 0:
        raise DataError(f"{path} is no IDX file: it begins with {magic.hex()}, expected 0000, a type, a number of axes")
    if magic[2] not in _TYPES:
        known = ", ".join(f"{code:02x}" for code in _TYPES)
        raise DataError(f"{path} holds values of the unknown type {magic[2]:02x}, expected one of {known}")
    lengths = _read(file, 4 * magic[3])
    if len(lengths) < 4 * magic[3]:
        raise DataError(f"{path} is truncated: {len(lengths)} of {4 * magic[3]} bytes for the lengths of its axes")
    return np.dtype(_TYPES[magic[2]]), struct.unpack(f">{magic[3]}I", lengths)


def _read(file: BinaryIO, count: int) -> bytearray:
    """Return up to ``count`` bytes; a header that lies about the size must not reserve memory for it."""
    content = bytearray()
    while block := file.read(min(count - len(content), _BLOCK)):
        content += block
    return content


def _array(content: bytearray, kind: np.dtype, shape: tuple[int, ...], path: Path) -> np.ndarray:
    try:
        return np.frombuffer(content, kind.newbyteorder(">")).reshape(shape).astype(kind, copy=False)
    except ValueError:
        raise DataError(f"{path} asks for the shape {shape}, which no array can have") from None
