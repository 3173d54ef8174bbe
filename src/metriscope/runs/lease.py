"""Leases: which process computes a run, so that several processes on one store share the work.

A lease is a lock on the file ``leases/<address>`` below the store. The operating system gives it up when its
process ends, however it ends, so a dead process never keeps a run from being computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from metriscope.common.errors import explained
from metriscope.common.files import entries

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["held", "sweep_leases"]

FOLDER = "leases"


def _acquired(path: Path) -> BaseFileLock | None:
    """Return a lock on the file, or None if another process, or another part of this one, holds it."""
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock


def _released(lock: BaseFileLock, path: Path) -> None:
    # Removed while it is still held: whoever locks the removed file in that moment computes a run twice, which
    # costs time and changes nothing.
    with suppress(OSError):
        path.unlink()
    lock.release()


@contextmanager
def held(root: Path, addresses: list[str]) -> Iterator[list[str]]:
    """Yield those of the addresses that nobody else holds, and hold them while the block runs."""
    locks: dict[str, BaseFileLock] = {}
    folder = Path(root) / FOLDER
    try:
        with explained(f"lease runs in {root}"):
            folder.mkdir(parents=True, exist_ok=True)
            for address in addresses:
                if (lock := _acquired(folder / address)) is not None:
                    locks[address] = lock
        yield list(locks)
    finally:
        for address, lock in locks.items():
            _released(lock, folder / address)


def sweep_leases(root: Path) -> None:
    """Remove the lease files that no process holds."""
    for path in entries(Path(root) / FOLDER):
        if (lock := _acquired(path)) is not None:
            _released(lock, path)
