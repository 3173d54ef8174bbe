"""The faults: each is tried so many times on one study, and returns what came of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

from faults.lives import REFUSED, Tally, World, ended, started, tree
from metriscope.runs import Store

__all__ = ["FAULTS", "MOUNTED", "WRITER", "killed_writer"]

WRITER = "SIGKILL while a page, patterns or an estimator are saved"
YEAR = 365 * 86_400.0


def killed(how: signal.Signals, world: World, times: int) -> Tally:
    """Kill lives at random moments, each on what the one before it left, until so many still lived."""
    tally, root = Tally(), world.fresh()
    while tally.tried < times:
        before = world.finished(root)
        pid = world.life(root)
        if world.kill(pid, how):
            tally.tried += 1
            world.check(tally, root, before)
        else:
            world.finish(tally, root)
            root = world.fresh()
    world.finish(tally, root)
    return tally


def shared(count: int, world: World, times: int) -> Tally:
    """Let several processes perform one plan on one store at the same time."""
    tally = Tally()
    for _ in range(times):
        root = world.fresh()
        pids = [world.life(root) for _ in range(count)]
        statuses = [ended(pid) for pid in pids]
        tally.add("wrong", [f"a process ended with {status}" for status in statuses if status])
        tally.tried += 1
        world.finish(tally, root)
    return tally


def bereaved(world: World, times: int) -> Tally:
    """Kill one of three processes on one store at a random moment: the others take over what it had leased."""
    tally = Tally()
    while tally.tried < times:
        root = world.fresh()
        victim, *others = (world.life(root) for _ in range(3))
        tally.tried += world.kill(victim, signal.SIGKILL)
        statuses = [ended(pid) for pid in others]
        tally.add("wrong", [f"a process ended with {status}" for status in statuses if status])
        tally.add("lost", [name for name in world.expected if not (root / name).exists()])
        world.finish(tally, root)
    return tally


def flipped(world: World, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[world.random.randrange(len(data))] ^= 1 << world.random.randrange(8)
    path.write_bytes(data)


def truncated(world: World, path: Path) -> None:
    os.truncate(path, world.random.randrange(path.stat().st_size))


def deleted(world: World, path: Path) -> None:
    path.unlink()


def swapped(world: World, path: Path) -> None:
    """Swap a file with the same file of another run, or with another checkpoint."""
    beside = path.parent.glob("[0-9a-f]*.safetensors")
    others = beside if path.parent.name == "checkpoints" else path.parents[2].glob(f"*/*/{path.name}")
    different = [other for other in sorted(others) if other.read_bytes() != path.read_bytes()]
    if different:
        other = world.random.choice(different)
        kept = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(kept)
    else:
        flipped(world, path)


Harm = Callable[[World, Path], None]


def damaged(harm: Harm, world: World, times: int) -> Tally:
    """Damage a random file of a finished store: verify has to name its run, and only that has to be computed again."""
    tally = Tally()
    for _ in range(times):
        root = world.whole()
        path = world.random.choice(sorted(root.glob("[0-9a-f][0-9a-f]/*/*")))
        harm(world, path)
        tally.tried += 1
        if path.parent.name not in {problem.address for problem in Store(root).verify()}:
            tally.add("wrong", [f"verify does not name {path.name} after {harm.__name__} in {world.tiny.name}"])
        world.finish(tally, root, damaged=True)
    return tally


def removed(world: World, times: int) -> Tally:
    """Remove whole runs, and with them everything that says that they were there."""
    tally = Tally()
    for _ in range(times):
        root = world.whole()
        for path in world.random.sample(sorted(root.glob("[0-9a-f][0-9a-f]/*")), 2):
            shutil.rmtree(path)
        tally.tried += 1
        world.finish(tally, root, damaged=True)
    return tally


def spoiled_checkpoint(harm: Harm, world: World, times: int) -> Tally:
    """Spoil a checkpoint: it has to be named, set aside, and its run computed from the start."""
    tally = Tally()
    for _ in range(times if world.steps > 1 else 0):
        root = world.begun()
        paths = sorted((root / "checkpoints").glob("[0-9a-f]*.safetensors"))
        if not paths:
            continue
        path = world.random.choice(paths)
        harm(world, path)
        tally.tried += 1
        # Only the plan knows how many steps a run has: verify cannot name a checkpoint of another length.
        if harm is not foreign and path.stem not in {problem.address for problem in Store(root).verify()}:
            tally.add("wrong", [f"verify does not name a checkpoint of {world.tiny.name} after {harm.__name__}"])
        world.finish(tally, root, damaged=True)
    return tally


def foreign(world: World, path: Path) -> None:
    """Put the checkpoint of another run, of another format or of another length under this one's name."""
    from metriscope.runs.checkpoint import decode, encode

    tensors, meta = decode(path.read_bytes())
    changes = [{"address": "0" * 40}, {"format": 1}, {"last": meta["last"] + 1, "step": meta["last"]}, {"step": 0}]
    changed = meta | world.random.choice(changes)
    path.write_bytes(b"".join(encode(tensors, changed)))


def skewed(world: World, times: int) -> Tally:
    """Let three lives with different clocks share a store in which all files are of other times, and kill one."""
    tally = Tally()
    while tally.tried < times:
        root = world.begun()
        for path in root.rglob("*"):
            moment = time.time() + world.random.uniform(-50, 50) * YEAR
            os.utime(path, (moment, moment))
        shifts = [world.random.uniform(-30, 30) * YEAR for _ in range(3)]
        victim, *others = (started(partial(late, world, root, shift)) for shift in shifts)
        tally.tried += world.kill(victim, signal.SIGKILL)
        statuses = [ended(pid) for pid in others]
        tally.add("wrong", [f"a process ended with {status}" for status in statuses if status])
        world.finish(tally, root)
    return tally


def late(world: World, root: Path, shift: float) -> None:
    """Perform the plan with a clock that is wrong by ``shift`` seconds."""
    clock = time.time
    time.time = lambda: clock() + shift
    world.perform(root)


@contextmanager
def mounted(world: World, size: int) -> Iterator[Path]:
    """Yield a small disk of its own."""
    place = world.folder / "disk"
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def full_disk(world: World, times: int) -> Tally:
    """Perform a plan on a full disk with a little more room each time: a sentence, and nothing changes."""
    tally = Tally()
    size = 4 * sum(len(data) + 8192 for data in tree(world.folder / "undisturbed").values() if data is not None)
    while tally.tried < times:
        with mounted(world, size + (1 << 20)) as disk:
            root, filling = world.fresh(disk), disk / "filling"
            fill(filling)
            status = REFUSED
            while status:
                before = world.finished(root)
                status = ended(world.life(root))
                tally.tried += status == REFUSED
                if status not in (0, REFUSED):
                    tally.add("wrong", [f"{world.tiny.name} ended with {status} on a full disk"])
                    break
                world.check(tally, root, before)
                os.truncate(filling, int(filling.stat().st_size * world.random.uniform(0.75, 0.98)))
            filling.unlink()
            world.finish(tally, root)
    return tally


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return


def read_only(world: World, times: int) -> Tally:
    """Perform a plan on what a killed life left on a disk that has become read-only: a sentence, and no change."""
    tally = Tally()
    while tally.tried < times:
        with mounted(world, 1 << 28) as disk:
            root = world.fresh(disk)
            if not world.kill(world.life(root), signal.SIGKILL):
                continue
            before = tree(disk)
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            status = ended(world.life(root))
            if status != REFUSED or tree(disk) != before:
                tally.add("wrong", [f"{world.tiny.name} ended with {status} on a read-only disk"])
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            tally.tried += 1
            world.finish(tally, root)
    return tally


def write_everything(folder: Path) -> None:
    """Write a page with its tables, patterns and an estimator, each by its own way of saving."""
    import numpy as np
    import pandas as pd

    from metriscope.report import Page, Section, Table, write_report
    from metriscope.sklearn import MahalanobisNovelty
    from metriscope.vq import Patterns
    from metriscope.vq.capture.patterns import Layer

    table = Table("numbers", "Numbers", pd.DataFrame({"x": [1.0, 2.0]}))
    write_report(Page("Page", "of a fault", (Section("Section", (table,)),)), folder)
    if (folder / "patterns").exists():
        Patterns.load(folder / "patterns", verify=True)
    else:
        packed = np.arange(40, dtype=np.uint8)[:, None]
        Patterns((Layer("act", 8, "relu"),), packed).save(folder / "patterns", shard_bytes=160)
    MahalanobisNovelty().fit(np.random.default_rng(0).normal(size=(20, 2))).save(folder / "estimator")


def killed_writer(folder: Path, random: Random, times: int) -> Tally:
    """Kill a writer of files that are no runs just before one of its syncs, then write them again."""
    tally = Tally()
    write_everything(folder / "undisturbed")  # here, so that no life has to import everything again
    expected = tree(folder / "undisturbed")
    for number in range(times):
        place = folder / f"place-{number}"
        while ended(started(partial(dying_writer, place, random.randrange(1, 24)))) == 0:
            shutil.rmtree(place)
        tally.tried += 1
        if status := ended(started(partial(write_everything, place))):
            tally.add("wrong", [f"the writer ended with {status}"])
        found = tree(place)
        tally.add("lost", [name for name in expected if name not in found])
        tally.add("left", [name for name in found if name not in expected])
        tally.add("wrong", [name for name in found if name in expected and found[name] != expected[name]])
    return tally


def dying_writer(folder: Path, step: int) -> None:
    sync, calls = os.fsync, iter(range(1, 10_000))

    def fsync(handle: int) -> None:
        if next(calls) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(handle)

    os.fsync = fsync
    write_everything(folder)


# Each with the share of the number of kills that it is tried.
FAULTS: dict[str, tuple[Callable[[World, int], Tally], float]] = {
    "SIGKILL at a random moment": (partial(killed, signal.SIGKILL), 0.36),
    "SIGTERM at a random moment": (partial(killed, signal.SIGTERM), 0.32),
    "SIGINT at a random moment": (partial(killed, signal.SIGINT), 0.32),
    "two processes on one store": (partial(shared, 2), 0.12),
    "three processes on one store": (partial(shared, 3), 0.12),
    "three processes, one killed": (bereaved, 0.12),
    "a bit flipped in a run": (partial(damaged, flipped), 0.12),
    "a file of a run truncated": (partial(damaged, truncated), 0.12),
    "a file of a run deleted": (partial(damaged, deleted), 0.12),
    "whole runs deleted": (removed, 0.12),
    "files of two runs swapped": (partial(damaged, swapped), 0.12),
    "a bit flipped in a checkpoint": (partial(spoiled_checkpoint, flipped), 0.12),
    "a checkpoint truncated": (partial(spoiled_checkpoint, truncated), 0.12),
    "two checkpoints swapped": (partial(spoiled_checkpoint, swapped), 0.12),
    "a foreign checkpoint": (partial(spoiled_checkpoint, foreign), 0.12),
    "clocks wrong by years": (skewed, 0.12),
}
# These need a disk of their own, which not every machine lets a test mount.
MOUNTED: dict[str, tuple[Callable[[World, int], Tally], float]] = {
    "a full disk": (full_disk, 0.12),
    "a read-only store": (read_only, 0.12),
}
