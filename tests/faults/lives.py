"""Processes that perform a plan on a store and meet with faults; what they computed is noted outside of the store.

A life is a forked process, because importing and compiling everything again for each would take longer than the rest.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from faults.plans import Tiny, tiny
from metriscope.runs import Driver, Run, Store, StoreError, driver
from metriscope.runs.address import address
from metriscope.runs.shards import Running

__all__ = ["REFUSED", "Tally", "World", "content", "ended", "started", "tree"]

# Where and when a run was computed may differ, and with it the manifest, which lists the SHA-256 of both.
MAY_DIFFER = {"provenance.json", "manifest.json"}
REFUSED, FAILED = 3, 4  # exit statuses of a life: by a sentence of the store, by anything else
NOTES = "METRISCOPE_NOTES"
# Signals in a row that may come after the end of a life.
_PATIENCE = 100


@dataclass
class Tally:
    """How often a fault was tried, and what came of it; everything but ``tried`` has to stay zero."""

    tried: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    left: int = 0
    notes: list[str] = field(default_factory=list)

    def __add__(self, other: Tally) -> Tally:
        counts = [getattr(self, name) + getattr(other, name) for name in ("tried", *self.COUNTS)]
        return Tally(*counts, [*self.notes, *other.notes])

    COUNTS = ("lost", "doubled", "wrong", "left")

    @property
    def clean(self) -> bool:
        return not any(getattr(self, name) for name in self.COUNTS)

    def add(self, name: str, what: list[str]) -> None:
        """Count some faults, and note which they are."""
        setattr(self, name, getattr(self, name) + len(what))
        self.notes += [f"{name}: {one}" for one in what]


def content(root: Path) -> dict[str, bytes]:
    """Return specifications, records, weights and tables of all runs."""
    found = [path for path in sorted(root.glob("[0-9a-f][0-9a-f]/*/*")) if path.name not in MAY_DIFFER]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def tree(root: Path) -> dict[str, bytes | None]:
    """Return everything in a folder."""
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def started(action: Callable[[], None]) -> int:
    """Start a life and return its process id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = FAILED
    try:
        # A process that was started in the background may ignore interrupts, and its children with it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        action()
        status = 0
    except StoreError:
        status = REFUSED
    except BaseException as error:
        with suppress(OSError):
            note(f"failed {type(error).__name__}: {' '.join(str(error).split())}")
    os._exit(status)


def ended(pid: int) -> int:
    """Return the exit status of a life once it has ended; minus the signal if it was killed."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def note(line: str) -> None:
    """Add a line to the notes: one write, so that lives do not mix theirs."""
    handle = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def noting(finish: Callable[[Running], Mapping[object, Run]]) -> Callable[[Running], Mapping[object, Run]]:
    """Return ``Running.finish`` that notes which runs it begins and stores."""

    def noted(running: Running) -> Mapping[object, Run]:
        for job in running.jobs:
            there = running.store.get(job) is not None
            note(f"{'again' if there else 'begun'} {address(job)}")
        found = finish(running)
        for job in found:
            note(f"stored {address(job)}")
        return found

    return noted


@dataclass
class World:
    """A study's small plan, what an undisturbed life computes of it, and a place for disturbed ones."""

    tiny: Tiny
    folder: Path
    random: Random
    expected: dict[str, bytes] = field(default_factory=dict)
    seconds: float = 0.0
    steps: int = 1
    stores: int = 0
    missed: int = 0

    @classmethod
    def of(cls, name: str, folder: Path, random: Random) -> World:
        """Perform a plan undisturbed, twice: the first time compiles what all later ones use."""
        logging.disable(logging.CRITICAL)
        os.environ["METRISCOPE_CHECKPOINT_SECONDS"] = "0"  # whenever there is something to save
        os.environ[NOTES] = str(folder / "notes")
        driver.POLL_SECONDS = 0.02  # lives that wait for others look often
        found = cls(tiny(name), folder, random)
        Running.finish = noting(Running.finish) if Running.finish.__name__ == "finish" else Running.finish
        found.perform(folder / "first")
        began = time.monotonic()
        status = ended(found.life(folder / "undisturbed"))
        found.seconds = time.monotonic() - began
        found.expected = content(folder / "undisturbed")
        found.steps = max(run.record["steps"] for run in Store(folder / "undisturbed").runs())
        if status or not found.expected or found.expected != content(folder / "first"):
            raise AssertionError(f"{name} does not repeat itself undisturbed")
        return found

    def perform(self, root: Path) -> None:
        """Perform the plan as the command does: sweep first."""
        store = Store(root)
        store.sweep()
        self.tiny.perform(Driver(store))

    def life(self, root: Path) -> int:
        """Start a life on a store."""
        return started(lambda: self.perform(root))

    def fresh(self, parent: Path | None = None) -> Path:
        """Return the folder of a new store, and forget the notes."""
        self.stores += 1
        self.forget()
        return (parent or self.folder) / f"store-{self.stores}"

    def forget(self) -> None:
        Path(os.environ[NOTES]).write_text("")

    def whole(self, parent: Path | None = None) -> Path:
        """Return a copy of the undisturbed store."""
        root = self.fresh(parent)
        shutil.copytree(self.folder / "undisturbed", root)
        return root

    def begun(self, parent: Path | None = None) -> Path:
        """Return a store with checkpoints, if the plan has any: of a life that was killed at a random moment."""
        for _ in range(20):
            root = self.fresh(parent)
            pid = self.life(root)
            self.kill(pid, signal.SIGKILL)
            if self.steps == 1 or any((root / "checkpoints").glob("[!.]*")):
                break
        return root

    def kill(self, pid: int, how: signal.Signals) -> bool:
        """Kill a life at a random moment; return whether it still lived."""
        began, wait = time.monotonic(), self.random.uniform(0, 0.9 * self.seconds)
        while time.monotonic() < began + wait:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                # The machine is less busy than it was, or this life had less left to do.
                self.seconds = max(time.monotonic() - began, 0.7 * self.seconds)
                break
            time.sleep(0.002)
        os.kill(pid, how)
        killed = ended(pid) not in (0, REFUSED)
        self.missed = 0 if killed else self.missed + 1
        if self.missed > _PATIENCE:
            raise AssertionError(f"{how.name} came too late {self.missed} times in a row")
        return killed

    def finished(self, root: Path) -> dict[str, tuple[int, int]]:
        """Return the finished runs, by what changes when one is written again."""
        found = root.glob("[0-9a-f][0-9a-f]/*/manifest.json")
        return {path.parent.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}

    def check(self, tally: Tally, root: Path, before: Mapping[str, tuple[int, int]]) -> None:
        """Check a store between two lives: nothing that was there is gone or was written again, nothing is damaged."""
        after = self.finished(root)
        tally.add("lost", [f"{key} of {self.tiny.name}" for key in before if before[key] != after.get(key)])
        tally.add("wrong", [str(problem) for problem in Store(root).verify()])
        self.count(tally)

    def count(self, tally: Tally) -> None:
        """Count what lives noted: runs computed although they were there, or to the end by two lives, and failures."""
        lines = Path(os.environ[NOTES]).read_text().splitlines()
        times = Counter(line for line in lines if line.startswith("stored "))
        tally.add("doubled", [f"{line} in {self.tiny.name}" for line in lines if line.startswith("again ")])
        tally.add("doubled", [f"{line} {n} times in {self.tiny.name}" for line, n in times.items() if n > 1])
        interrupted = ("failed KeyboardInterrupt", "failed SystemExit")
        failed = [line for line in lines if line.startswith("failed ") and not line.startswith(interrupted)]
        tally.add("wrong", [f"{line} in {self.tiny.name}" for line in failed])
        self.forget()

    def finish(self, tally: Tally, root: Path, damaged: bool = False) -> None:
        """Let an undisturbed life finish a store, and compare every byte; then remove the store."""
        before = {} if damaged else self.finished(root)
        status = ended(self.life(root))
        if status:
            tally.add("wrong", [f"{self.tiny.name} could not be finished: status {status}"])
        self.check(tally, root, before)
        found = content(root)
        tally.add("lost", [f"{name} of {self.tiny.name}" for name in self.expected.keys() - found.keys()])
        other = [name for name in found if found[name] != self.expected.get(name)]
        tally.add("wrong", [f"{name} of {self.tiny.name}" for name in other])
        Store(root).sweep()
        tally.add("left", [f"{name} of {self.tiny.name}" for name in left_over(root, damaged)])
        shutil.rmtree(root)


def left_over(root: Path, damaged: bool) -> list[str]:
    """Return what is in a store besides runs; ``damaged`` says that something was to be set aside."""
    found = [path for path in root.rglob("*") if path.name.startswith(".tmp-")]
    found += [path for folder in ("checkpoints", "leases") for path in (root / folder).glob("*")]
    if not damaged:
        found += (root / "damaged").glob("*")
    return [str(path.relative_to(root)) for path in dict.fromkeys(found)]
