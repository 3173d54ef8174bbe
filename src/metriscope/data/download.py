"""The files of data sets: in which folders they may be, whether they are complete, and how they are downloaded."""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from metriscope.common.files import replaced, sha256
from metriscope.common.progress import Bars, DownloadBar
from metriscope.data.dataset import DataError

__all__ = ["ENVIRONMENT", "File", "Place", "cache_folder", "damage", "download", "find", "places", "unpack"]

ENVIRONMENT = "METRISCOPE_DATA"
# Seconds to connect, and to wait for the next bytes.
_TIMEOUT = (10, 60)
_BLOCK = 1 << 16


@dataclass(frozen=True)
class File:
    """A file of a data set.

    ``path`` is relative to any data folder, with ``/`` between its parts. Of the files that are ``optional``, a set
    needs at least one.
    """

    path: str
    sha256: str
    size: int
    urls: tuple[str, ...] = ()
    optional: bool = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Place:
    """A folder that may hold data; ``label`` says why it is searched."""

    label: str
    folder: Path

    def __str__(self) -> str:
        return f"{self.folder} ({self.label})"


def cache_folder() -> Path:
    """Return the user's folder for downloads; it need not exist yet."""
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("metriscope"))


def places(data_dir: str | Path | None = None) -> tuple[Place, ...]:
    """Return the folders to search, in order: ``data_dir``, ``METRISCOPE_DATA``, the cache."""
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
    """Return the first place that has the file, and its path there; its content is not checked."""
    for place in among:
        path = place.folder / file.path
        # In a folder without read permission os.path returns False, where pathlib may raise.
        if os.path.isfile(path):  # noqa: PTH113
            return place, path
    return None


def damage(path: Path, file: File) -> str:
    """Return what is wrong with the file at ``path``, in one sentence, or an empty string if it is complete."""
    try:
        found = sha256(path)
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
    if found == file.sha256:
        return ""
    return f"{path} is damaged and not used: its SHA-256 should be {file.sha256} and is {found}"


def download(file: File, folder: Path, bars: Bars) -> tuple[str, ...]:
    """Download a file from the first mirror that has it; if all fail, return the reason of each."""
    reasons: list[str] = []
    for url in file.urls:
        reason = _try(url, file, folder, bars)
        if not reason:
            return ()
        reasons.append(f"{url} {reason}")
    return tuple(reasons)


def _try(url: str, file: File, folder: Path, bars: Bars) -> str:
    """Return why a mirror failed, or an empty string if the file is there now."""
    try:
        with bars(file.name) as bar:
            _write(folder / file.path, lambda stream: _fill(stream, url, bar), file)
    except (DataError, OSError, ValueError) as error:
        # Network errors have no errno; disk errors have one, and no other mirror would help.
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"cannot write {folder / file.path}: {error.strerror}") from None
        return _reason(error)
    return ""


def _write(path: Path, fill: Callable[[IO[bytes]], None], file: File) -> None:
    """Write a file that replaces the one at ``path`` only if its SHA-256 is right."""
    with replaced(path) as stream:
        fill(stream)
        stream.flush()
        found = sha256(Path(stream.name))
        if found != file.sha256:
            raise DataError(f"gave a {file.name} whose SHA-256 should be {file.sha256} and is {found}")


def _fill(stream: IO[bytes], url: str, bar: DownloadBar | None) -> None:
    import pooch

    # With a content encoding, the received bytes would be decoded on arrival and have another SHA-256.
    plain = {"Accept-Encoding": "identity"}
    pooch.HTTPDownloader(progressbar=bar, chunk_size=_BLOCK, timeout=_TIMEOUT, headers=plain)(url, stream, None)


def _reason(error: Exception) -> str:
    if isinstance(error, DataError):
        return str(error)
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"answered {status}"
    kind = type(error).__name__
    return "did not answer in time" if "Timeout" in kind else f"could not be read ({kind})"


def unpack(archive: Path, inside: File, files: Sequence[File], folder: Path) -> None:
    """Write the given files of a gzipped tar archive into ``folder``.

    A file's name in the archive is its path relative to the archive's own folder. Other members are not read, so no
    name in the archive can lead to another place.
    """
    root = PurePosixPath(inside.path).parent
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for file in files:
                _unpack_one(tar, str(PurePosixPath(file.path).relative_to(root)), file, folder)
    except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is damaged or incomplete: {error}") from None
    except DataError as error:
        raise DataError(f"{archive} {error}") from None
    except OSError as error:
        raise DataError(f"cannot unpack {archive}: {error.strerror or error}") from None


def _unpack_one(tar: tarfile.TarFile, member: str, file: File, folder: Path) -> None:
    content = tar.extractfile(member)
    if content is None:
        raise KeyError(f"{member} is not a regular file")
    with content:
        _write(folder / file.path, lambda stream: shutil.copyfileobj(content, stream), file)
