"""Files that are complete or absent: atomic writes, SHA-256, and temporary names that say which process owns them.

A process that writes to a folder also removes the temporary files that killed processes left in it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from metriscope.common.errors import Damage, reason

__all__ = [
    "abandoned", "entries", "read", "remove", "replaced", "set_aside", "sha256", "sweep", "sync_folder", "temporary",
    "write",
]  # fmt: skip

TEMPORARY = ".tmp-"
DAMAGED = "damaged"
_NAME = re.compile(re.escape(TEMPORARY) + r"(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}")
_DAY = 86_400.0
_STEM = 40  # characters of a name that are kept; a file system allows about 255 in all
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
_CHUNK = 1 << 20


def sha256(content: bytes | Path) -> str:
    """Return the SHA-256 of bytes, or of the file at a path, as 64 hexadecimal digits.

    >>> sha256(b"abc")[:16]
    'ba7816bf8f01cfea'
    """
    if not isinstance(content, Path):
        return hashlib.sha256(content).hexdigest()
    digest = hashlib.sha256()
    with content.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def write(path: Path, data: bytes) -> None:
    """Write a new file and wait until it is on the disk."""
    with path.open("xb") as file:
        file.write(data)
        _sync(file)


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write that replaces the one at ``path`` when the block ends without an error.

    The content is first written to a temporary file in the same folder; readers see the old file or the complete new
    one, never a part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary(path.parent) as draft:
        with draft.open("xb") as file:
            yield file
            _sync(file)
        draft.replace(path)
    sync_folder(path.parent)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def read(path: Path, most: int | None = None) -> bytes:
    """Return the bytes of a file; one of more than ``most`` bytes is refused as damaged.

    A failure that would happen again on a second try raises ``Damage``; any other stays an ``OSError``.
    """
    try:
        found = path.stat()
        # Reading a pipe or a device would never end.
        if not stat.S_ISREG(found.st_mode):
            raise Damage(f"expected a file, found {_KINDS.get(stat.S_IFMT(found.st_mode), 'a device')}")
        if most is not None and found.st_size > most:
            raise Damage(f"it has {found.st_size} bytes, expected at most {most}")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise Damage("missing") from None
    except ValueError:
        raise Damage("not a name that a file can have") from None
    except MemoryError:
        raise Damage("too large for memory") from None
    except OSError as error:
        # A bad sector stays bad; "too many open files" or "no permission" say nothing about the file.
        if error.errno not in (errno.EIO, errno.ELOOP, errno.ENAMETOOLONG):
            raise
        raise Damage(reason(error)) from error


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, on systems that can do that."""
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
    """Return the sorted paths in a folder; none if the folder does not exist."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def remove(path: Path) -> None:
    """Remove a file or a whole folder; failures are ignored."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def set_aside(path: Path, root: Path) -> None:
    """Move a damaged file or folder to ``root/damaged``; failures are ignored.

    It is kept, not deleted, because an extra file in a run folder may be somebody's notes. In a read-only store it
    stays where it is, and the next write explains why.
    """
    with suppress(OSError):
        (root / DAMAGED).mkdir(exist_ok=True)
        path.rename(root / DAMAGED / f"{path.stem[:_STEM]}-{secrets.token_hex(4)}{path.suffix[:_STEM]}")


@contextmanager
def temporary(folder: Path) -> Iterator[Path]:
    """Yield an unused path inside ``folder`` and remove whatever is still there afterwards."""
    sweep(folder)
    path = folder / f"{TEMPORARY}{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        yield path
    finally:
        remove(path)


def sweep(folder: Path) -> None:
    """Remove the temporary files and folders of processes that have ended; failures are ignored."""
    with suppress(OSError):
        for path in folder.iterdir():
            if abandoned(path):
                remove(path)


def abandoned(path: Path) -> bool:
    """Return whether a temporary file or folder was left behind by a process that has ended.

    On a shared disk, process ids of another machine cannot be checked; its files are kept for a day, which is far
    longer than writing a run takes.
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        return False
    # On Windows signal 0 would interrupt the process instead of testing for it, so age decides there too.
    if match["machine"] == _machine() and os.name != "nt":
        return not _alive(int(match["pid"]))
    try:
        return time.time() - path.stat().st_mtime > _DAY
    except OSError:
        return False


def _machine() -> str:
    """Return a digest of the machine and its process namespace; containers on one machine differ."""
    space = ""
    with suppress(OSError):
        space = str(Path("/proc/self/ns/pid").readlink())
    return sha256(f"{platform.node()} {space}".encode())[:8]


def _alive(pid: int) -> bool:
    try:
        with suppress(PermissionError):  # another user's process, which is alive
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True
