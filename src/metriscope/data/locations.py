"""Where a data file may be, and whether it is the file it should be."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["ENVIRONMENT", "DataError", "File", "Place", "cache_folder", "damage", "find", "places", "write_whole"]

ENVIRONMENT = "METRISCOPE_DATA"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class File:
    """A file that a data set is made of.

    ``path`` is where it stands inside any data folder, with ``/`` between its parts. Of the files that are
    ``optional``, a set needs at least one.
    """

    path: str
    sha256: str
    size: int
    urls: tuple[str, ...] = ()
    optional: bool = False

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Place:
    """A folder that may hold data, and how it came to be looked at."""

    label: str
    folder: Path

    def __str__(self) -> str:
        return f"{self.folder} ({self.label})"


def cache_folder() -> Path:
    """Return the user's own folder for downloads; it need not exist yet."""
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("metriscope"))


def places(data_dir: str | Path | None = None) -> tuple[Place, ...]:
    """Return the folders to look in, in order: the one asked for, ``METRISCOPE_DATA``, the cache."""
    found = []
    if data_dir is not None:
        folder = Path(data_dir).expanduser()
        if not folder.is_dir():
            raise DataError(f"there is no data folder {folder}")
        found.append(Place("data-dir", folder))
    if named := os.environ.get(ENVIRONMENT):
        found.append(Place(ENVIRONMENT, Path(named).expanduser()))
    return (*found, Place("cache", cache_folder()))


def find(file: File, among: Sequence[Place]) -> tuple[Place, Path] | None:
    """Return the first place that has a file of this name, and its path there; whether it is whole is not asked."""
    for place in among:
        path = place.folder / file.path
        # os.path answers no, where pathlib may raise, for a folder that nobody may look into.
        if os.path.isfile(path):  # noqa: PTH113
            return place, path
    return None


def damage(path: Path, file: File) -> str:
    """Return what is wrong with the file at ``path``, in one sentence, or nothing if it is whole."""
    try:
        found = _sha256(path)
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
    if found == file.sha256:
        return ""
    return f"{path} is damaged and not used: its SHA-256 should be {file.sha256} and is {found}"


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def write_whole(path: Path, fill: Callable[[IO[bytes]], None], file: File) -> None:
    """Write a file and check it, whole or not at all: beside its place first, renamed when the disk has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream)
            stream.flush()
            os.fsync(stream.fileno())
        found = _sha256(temporary)
        if found != file.sha256:
            raise DataError(f"gave a {file.name} whose SHA-256 should be {file.sha256} and is {found}")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class DataError(RuntimeError):
    """One sentence about data that are not there, or not what they should be."""
