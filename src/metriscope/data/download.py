"""Files from public mirrors into a folder: each mirror in turn, checked, whole or not at all."""

from __future__ import annotations

import shutil
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from metriscope.common.progress import Bar, Bars
from metriscope.data.locations import DataError, File, write_whole

__all__ = ["download", "unpack"]

# Seconds to connect, and to wait for the next bytes.
_TIMEOUT = (10, 60)
_BLOCK = 1 << 16


def download(file: File, folder: Path, bars: Bars) -> tuple[str, ...]:
    """Get a file from the first mirror that has it whole; return why each mirror failed, if all did."""
    reasons: list[str] = []
    for url in file.urls:
        reason = _try(url, file, folder, bars)
        if not reason:
            return ()
        reasons.append(f"{url} {reason}")
    return tuple(reasons)


def _try(url: str, file: File, folder: Path, bars: Bars) -> str:
    """Return why a mirror failed, or nothing if the file is there now."""
    try:
        with bars(file.name) as bar:
            write_whole(folder / file.path, lambda stream: _fill(stream, url, bar), file)
    except (DataError, OSError, ValueError) as error:
        # A failure of the network has no number; one of the disk has, and no other mirror mends it.
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"cannot write {folder / file.path}: {error.strerror}") from None
        return _reason(error)
    return ""


def _fill(stream: IO[bytes], url: str, bar: Bar | None) -> None:
    import pooch  # type: ignore[import-untyped]

    # A mirror that packs what it sends would have the packing undone on the way, and the sum would not fit.
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
    """Write the named files of a gzipped tar archive into ``folder``.

    A file's name in the archive is its path without that of the archive's own folder. Nothing else of the archive
    is looked at, so no name in it can lead anywhere.
    """
    root = PurePosixPath(inside.path).parent
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for file in files:
                _unpack_one(tar, str(PurePosixPath(file.path).relative_to(root)), file, folder)
    except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} does not hold what it should: {error}") from None
    except DataError as error:
        raise DataError(f"{archive} {error}") from None
    except OSError as error:
        raise DataError(f"cannot unpack {archive}: {error.strerror or error}") from None


def _unpack_one(tar: tarfile.TarFile, member: str, file: File, folder: Path) -> None:
    content = tar.extractfile(member)
    if content is None:
        raise KeyError(f"{member} is no plain file")
    with content:
        write_whole(folder / file.path, lambda stream: shutil.copyfileobj(content, stream), file)
