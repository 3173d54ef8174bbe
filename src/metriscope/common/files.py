"""Files that are either whole or absent: synced writes, and temporary names that tell whose they are."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from metriscope.common.errors import Damage, reason

__all__ = [
    "DAMAGED",
    "TEMPORARY",
    "abandoned",
    "entries",
    "read",
    "remove",
    "set_aside",
    "sync_folder",
    "temporary",
    "write",
]

TEMPORARY = ".tmp-"
DAMAGED = "damaged"
_NAME = re.compile(re.escape(TEMPORARY) + r"(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}")
_DAY = 86_400.0


def write(path: Path, *chunks: bytes | memoryview) -> None:
    """Write a new file and wait until the disk has it."""
    with path.open("xb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> bytes:
    """Return the bytes of a file.

    What no second try can mend is ``Damage``; any other failure stays an ``OSError``.
    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise Damage("missing") from None
    except OSError as error:
        if path.is_dir():
            raise Damage("a folder stands where a file should be") from None
        # A bad sector stays bad; "too many open files" or "no permission" say nothing about the file.
        if error.errno != errno.EIO:
            raise
        raise Damage(reason(error)) from error


def sync_folder(path: Path) -> None:
    """Wait until the disk has the names in a folder, where the system can do that at all."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def entries(folder: Path) -> list[Path]:
    """Return what a folder holds, by name; a folder that is not there holds nothing."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def remove(path: Path) -> None:
    """Remove a file or a whole folder, as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def set_aside(path: Path, root: Path) -> None:
    """Move a damaged file or folder to ``root/damaged``, as far as that is possible.

    Kept, not deleted: an extra file in a run folder may be somebody's notes. In a store that cannot be written it
    stays where it is; writing there will say why.
    """
    with suppress(OSError):
        (root / DAMAGED).mkdir(exist_ok=True)
        path.rename(root / DAMAGED / f"{path.stem}-{secrets.token_hex(4)}{path.suffix}")


@contextmanager
def temporary(folder: Path) -> Iterator[Path]:
    """Yield a fresh name inside ``folder`` and remove whatever still stands there afterwards."""
    path = folder / f"{TEMPORARY}{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        yield path
    finally:
        remove(path)


def abandoned(path: Path) -> bool:
    """Say whether a temporary file or folder was left behind by a process that is gone.

    Process numbers of another machine on a shared disk mean nothing here; its files are left alone for a day,
    far longer than any run takes to be written.
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        return False
    # On Windows signal 0 would interrupt the process instead of asking for it, so age decides there too.
    if match["machine"] == _machine() and os.name != "nt":
        return not _alive(int(match["pid"]))
    try:
        return time.time() - path.stat().st_mtime > _DAY
    except OSError:
        return False


def _machine() -> str:
    """Return a digest of the machine and its space of process numbers; containers on one machine differ."""
    space = ""
    with suppress(OSError):
        space = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
