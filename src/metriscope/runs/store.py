"""The store: each run has its own folder ``<first two digits>/<address>``, written once and atomically.

A run folder holds ``spec.json`` (the canonical text, whose SHA-256 begins with the address), ``record.json``,
``provenance.json``, ``weights.safetensors``, a ``<name>.parquet`` for each table, and ``manifest.json``.

Several processes can share the work on one store through leases: a lease is a lock on the file ``leases/<address>``.
The operating system releases it when its process ends, however it ends, so a dead process never blocks a run.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metriscope.common.errors import Damage, StoreError, explained, printable
from metriscope.common.files import entries, set_aside, sweep, sync_folder, temporary, write
from metriscope.runs.address import address, canonical
from metriscope.runs.checkpoint import CHECKPOINTS, Checkpoint
from metriscope.runs.codec import to_json, to_parquet, to_tensors
from metriscope.runs.integrity import (
    EXTRA,
    LEASES,
    MANIFEST,
    NAME,
    UNREADABLE,
    Problem,
    faults,
    fingerprint,
    manifest,
    problems,
    read_fields,
    run_folders,
)  # fmt: skip
from metriscope.runs.mirror import Mirror
from metriscope.runs.provenance import provenance
from metriscope.runs.run import Run, read_run

if TYPE_CHECKING:
    from filelock import BaseFileLock
    from pandas import DataFrame
    from torch import Tensor

__all__ = ["Problem", "Run", "Store", "StoreError"]

LOG = logging.getLogger("metriscope.runs")
_TABLE_FILE = re.compile(NAME.pattern + r"\.parquet")
_FILES = ("spec.json", "record.json", "provenance.json", "weights.safetensors")
_ATTEMPTS = 8  # other processes may write, repair or remove the run in between, but not forever
_IN_THE_WAY = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.ENOENT}


@dataclass(frozen=True)
class Store:
    """A folder of runs, which is created when the first run is written.

    Parameters
    ----------
    root : Path
        The folder.
    mirror : Mirror, optional
        Where every run is copied to, and where runs are looked for that are not in the folder.

    Examples
    --------
    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(Path(folder))
    ...     run = store.put({"seed": 7}, {"weight": torch.ones(1)}, {"loss": 0.5}, {})
    ...     store.get({"seed": 7}).record, store.get({"seed": 8}), store.verify()
    ({'loss': 0.5}, None, [])
    """

    root: Path
    mirror: Mirror | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))

    def put(
        self,
        spec: object,
        tensors: Mapping[str, Tensor],
        record: Mapping[str, Any],
        tables: Mapping[str, DataFrame],
    ) -> Run:
        """Write a run and remove its checkpoint; if the complete run is already there, return it unchanged.

        After a failure the store is what it was before.
        """
        return self.adopt(spec, _encode(spec, tensors, record, tables))

    def adopt(self, spec: object, files: Mapping[str, bytes]) -> Run:
        """Write a run from the bytes of its files, as another store wrote them, without its manifest.

        Raises
        ------
        StoreError
            If files are missing or belong to another specification, or the run cannot be written.
        """
        key = address(spec)
        tables = files.keys() - set(_FILES)
        if set(_FILES) - files.keys() or not all(_TABLE_FILE.fullmatch(name) for name in tables):
            raise StoreError(f"cannot adopt run {key[:12]}: its files are {', '.join(sorted(files))}")
        if files["spec.json"] != canonical(spec).encode():
            raise StoreError(f"cannot adopt run {key[:12]}: its files are those of another specification")
        with explained(f"write run {key[:12]} to {self.root}"):
            for name in _FILES[:3]:
                read_fields(files[name])  # what could not be read again is not written
            run = self._present(key) or self._write(key, files)
        self.checkpoint(spec).clear()
        if self.mirror is not None:
            self.mirror.push(key, files)
        return run

    def get(self, spec: object) -> Run | None:
        """Return the run after checking every byte; None if there is none, or only a damaged one.

        A damaged run is logged and moved to ``damaged/``, so that :meth:`put` can write it again. A run that only the
        mirror has is copied from there; one that the mirror lacks is copied to it.
        """
        key = address(spec)
        with explained(f"read run {key[:12]} in {self.root}"):
            run = self._whole(key)
            held = run.files() if run and self.mirror and key not in self.mirror.addresses else {}
        if self.mirror is None:
            return run
        if run is not None:
            self.mirror.push(key, held)
        elif files := self.mirror.pull(key):
            return self.adopt(spec, files)
        return run

    def runs(self) -> list[Run]:
        """Return the runs sorted by kind and address; :meth:`verify` reports those that cannot be read."""
        found = []
        with explained(f"list the runs in {self.root}"):
            for folder in run_folders(self.root):
                with suppress(Damage, StoreError, OSError):
                    found.append(read_run(folder))
        return sorted(found, key=lambda run: (run.kind, run.address))

    def find(self, prefix: str) -> Run:
        """Return the one run whose address begins with ``prefix``, after checking every byte.

        Raises
        ------
        StoreError
            If no run, or more than one, has such an address, or the store cannot be read.
        """
        with explained(f"look for {prefix!r} in {self.root}"):
            found = [folder for folder in run_folders(self.root) if folder.name.startswith(prefix.lower())]
            if len(found) > 1:
                some = ", ".join(folder.name for folder in found[:3])
                raise StoreError(f"{len(found)} runs in {self.root} begin with {prefix!r}, among them {some}")
            run = _checked(found[0]) if found else None
        if run is None:
            raise StoreError(f"no run in {self.root} has an address that begins with {prefix!r}")
        return run

    def verify(self) -> list[Problem]:
        """Return everything in the store that is not as it was written, without changing anything."""
        with explained(f"verify {self.root}"):
            return list(problems(self.root))

    def fingerprint(self) -> str:
        """Return the SHA-256 of all manifests: compared with a copy, it shows whether any run has changed."""
        with explained(f"read {self.root}"):
            return fingerprint(self.root)

    def sweep(self) -> None:
        """Remove what killed processes left behind: temporary files, leases, and checkpoints of finished runs."""
        with explained(f"sweep {self.root}"):
            for folder in (self.root, self.root / CHECKPOINTS):
                sweep(folder)
            for run in self.runs():
                with suppress(IsADirectoryError, PermissionError):  # no checkpoint: verify names it
                    Checkpoint(self.root, run.address).path.unlink(missing_ok=True)
            for path in entries(self.root / LEASES):
                if path.is_file() and (lock := _acquired(path)) is not None:
                    _released(lock, path)

    def repair(self) -> list[Problem]:
        """Remove temporary files, move what :meth:`verify` finds to ``damaged/``, and return what is still wrong.

        If the only problem of a run is an extra file, only that file is moved. Any other run has to be computed
        again.
        """
        self.sweep()
        with explained(f"repair {self.root}"):
            for problem in list(problems(self.root)):
                if problem.reason.startswith(UNREADABLE):
                    continue  # the file itself may be intact
                path = self.root / problem.path
                home = self._home(problem.address) if problem.address else path
                inside = home in path.parents and problem.reason != EXTRA
                set_aside(home if inside else path, self.root)
            return list(problems(self.root))

    def checkpoint(self, spec: object) -> Checkpoint:
        """Return the checkpoint of a run, which need not exist yet."""
        return Checkpoint(self.root, address(spec))

    @contextmanager
    def leased(self, addresses: list[str]) -> Iterator[list[str]]:
        """Hold leases on those of the addresses that nobody else holds, and yield these addresses."""
        locks: dict[str, BaseFileLock] = {}
        folder = self.root / LEASES
        try:
            with explained(f"lease runs in {self.root}"):
                folder.mkdir(parents=True, exist_ok=True)
                for address in addresses:
                    if (lock := _acquired(folder / address)) is not None:
                        locks[address] = lock
            yield list(locks)
        finally:
            for address, lock in locks.items():
                _released(lock, folder / address)

    def _home(self, key: str) -> Path:
        return self.root / key[:2] / key

    def _present(self, key: str) -> Run | None:
        with suppress(Damage):
            return _checked(self._home(key))
        return None

    def _whole(self, key: str) -> Run | None:
        try:
            return _checked(self._home(key))
        except Damage as damage:
            LOG.warning("%s; the run is set aside and has to be computed again", printable(str(damage)))
            set_aside(self._home(key), self.root)
            return None

    def _write(self, key: str, files: Mapping[str, bytes]) -> Run:
        self.root.mkdir(parents=True, exist_ok=True)
        with temporary(self.root) as temp:
            temp.mkdir()
            for name, data in files.items():
                write(temp / name, data)
            write(temp / MANIFEST, manifest(key, files))
            sync_folder(temp)
            return self._publish(temp, key)

    def _publish(self, temp: Path, key: str) -> Run:
        """Rename a finished folder to its address, unless another process has written the same run meanwhile."""
        home = self._home(key)
        for _ in range(_ATTEMPTS):
            if self._moved(temp, home):
                sync_folder(home.parent)
                sync_folder(self.root)
                return read_run(home)
            if run := self._whole(key):
                return run
        raise StoreError(f"cannot write run {key[:12]}: {home} is in the way and cannot be moved")

    def _moved(self, temp: Path, home: Path) -> bool:
        try:
            home.parent.mkdir(exist_ok=True)
            temp.rename(home)
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                return False
            with suppress(OSError):
                home.parent.rmdir()  # only succeeds on the empty folder that was made for this run
            raise
        return True


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
    # Removed while it is still held: a process that locks the removed file at this moment computes a run twice, which
    # costs time and changes nothing.
    with suppress(OSError):
        path.unlink()
    lock.release()


def _checked(folder: Path) -> Run | None:
    """Return the run in a folder after checking every byte; None if nothing is there."""
    if not os.path.lexists(folder):
        return None
    for name, why in faults(folder):
        raise Damage(f"{folder / name} is damaged: {why}")
    return read_run(folder)


def _encode(
    spec: object, tensors: Mapping[str, Tensor], record: Mapping[str, Any], tables: Mapping[str, DataFrame]
) -> dict[str, bytes]:
    """Return the files of a run as bytes, so that content that cannot be stored never reaches the disk."""
    for name in tables:
        if not NAME.fullmatch(name):
            raise ValueError(f"a table is named {name!r}; expected lower-case letters, digits, '-' and '_'")
    if not isinstance(record, Mapping):
        raise ValueError(f"the record is a {type(record).__name__}; expected a mapping")
    return {
        "spec.json": canonical(spec).encode(),
        "record.json": to_json(record, "record"),
        "provenance.json": to_json(provenance(), "provenance"),
        "weights.safetensors": to_tensors(tensors),
        **{f"{name}.parquet": to_parquet(name, table) for name, table in tables.items()},
    }
