"""Hard lives of a store, each played in processes of its own; prints what is left as JSON.

Usage: ``scenarios.py FOLDER SCENARIO ...``; every scenario works in a folder of its own name. Children are
forked, because importing torch again for each would take longer than all the rest.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import torch

from metriscope.rng import stream
from metriscope.runs.store import Store, StoreError

TABLE = pd.DataFrame({"epoch": range(50), "loss": [1 / (1 + epoch) for epoch in range(50)]})


def put(store, seed, size=1000):
    return store.put({"kind": "Training", "seed": seed}, {"w": torch.ones(size)}, {"seed": seed}, {"curves": TABLE})


def tree(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def left_over(root):
    return [name for name in tree(root) if Path(name).name.startswith(".tmp-")]


def refusal(action, *arguments):
    """Return the sentence with which the store refuses, or None if it does not."""
    try:
        action(*arguments)
    except StoreError as error:
        return str(error)
    return None


def child(action, *arguments):
    """Start an action in a process of its own, which ends with it."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    with suppress(BaseException):
        action(*arguments)
        status = 0
    os._exit(status)


def ended_by(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def write_for_ever(store, first):
    seed = first
    while True:
        store.checkpoint({"seed": seed}).save({"w": torch.ones(1000)}, seed + 1, seed + 9)
        put(store, seed)
        seed += 1


def killed_at_random(root):
    """Kill a writer at random moments; after each kill the store has to be whole."""
    store, problems, left = Store(root), [], 0
    delays = (0.002 + 0.08 * torch.rand(25, generator=stream(7, "delays"))).tolist()
    for turn, delay in enumerate(delays):
        pid = child(write_for_ever, store, 1000 * turn)
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
        ended_by(pid)
        left = max(left, len(left_over(root)))
        problems += map(str, store.verify())
    store.sweep()
    status, swept = ended_by(child(put, store, -1)), left_over(root) == []
    return {"problems": problems, "status": status, "left": left, "swept": swept}


def die_at_sync(step, store):
    sync, calls = os.fsync, iter(range(1, 1000))

    def fsync(handle):
        if next(calls) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(handle)

    os.fsync = fsync
    put(store, 7)


def killed_at_every_sync(root):
    """Kill a writer just before each of its syncs in turn, until one gets through."""
    store, problems, step, left, status = Store(root), [], 0, 0, -signal.SIGKILL
    while status == -signal.SIGKILL:
        step += 1
        status = ended_by(child(die_at_sync, step, store))
        problems += map(str, store.verify())
        left += len(left_over(root))
    return {"problems": problems, "status": status, "steps": step, "left": left, "swept": left_over(root) == []}


def put_at(store, moment):
    time.sleep(max(0.0, moment - time.time()))
    for seed in range(5):
        put(store, seed)


def written_by_four_at_once(root):
    """Let four processes put the same five runs at the same moment."""
    store, moment = Store(root), time.time() + 0.2
    statuses = [ended_by(pid) for pid in [child(put_at, store, moment) for _ in range(4)]]
    problems = [str(problem) for problem in store.verify()]
    return {"statuses": statuses, "problems": problems, "runs": len(store.runs()), "left": left_over(root)}


def sweep_spares_the_living(root):
    """Sweep beside a process that is in the middle of a write, and again when it is gone."""
    store = Store(root)
    put(store, 0)
    pid = child(stop_at_sync, store)
    os.waitpid(pid, os.WUNTRACED)
    store.sweep()
    spared = len(left_over(root)) > 0
    os.kill(pid, signal.SIGKILL)
    ended_by(pid)
    store.sweep()
    return {"spared": spared, "left": left_over(root), "runs": len(store.runs())}


def stop_at_sync(store):
    os.fsync = lambda _: os.kill(os.getpid(), signal.SIGSTOP)
    put(store, 7)


def in_child(action, *arguments):
    """Return what an action returns in a process that it may spoil."""
    reader, writer = os.pipe()
    pid = child(lambda: os.write(writer, json.dumps(action(*arguments)).encode()))
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = json.loads(pipe.read() or "null")
    ended_by(pid)
    return answer


def file_size_limited(root):
    """Write a run whose weights are larger than the system lets a file be."""
    store = Store(root)
    put(store, 0)
    before = tree(root)
    sentence = in_child(with_small_files, store)
    return {"sentence": sentence, "same": tree(root) == before, "problems": len(store.verify())}


def with_small_files(store):
    import resource  # not on every system that collects this file

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    return refusal(put, store, 7, 100_000)


def without_permission(root):
    """Write and read as a user who may only read."""
    store = Store(root)
    run = put(store, 0)
    before = tree(root)
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    answer = in_child(as_nobody, store)
    for path in (root, *root.rglob("*")):
        path.chmod(0o755)
    return {**answer, "same": tree(root) == before, "address": run.address}


def as_nobody(store):
    os.chdir(store.root)  # the folders above it may be closed to others
    if os.getuid() == 0:
        os.setuid(65534)
    here = Store(Path())
    found = here.get({"kind": "Training", "seed": 0})
    return {"sentence": refusal(put, here, 7), "found": found and found.address}


def full_disk(root):
    """Put a run on a full disk with ever more room until it fits; before that nothing may change."""
    store, sentences, problems, same = Store(root / "runs"), [], [], []
    put(store, 0)
    store.checkpoint({"seed": 7}).save({"w": torch.ones(10)}, 1, 9)
    fill(root / "filling")
    before = tree(store.root)
    sentences.append(refusal(store.checkpoint({"seed": 7}).save, {"w": torch.ones(5000)}, 2, 9))
    while sentences[-1] and len(sentences) < 100:
        same.append(tree(store.root) == before)
        problems += map(str, store.verify())
        os.truncate(root / "filling", (root / "filling").stat().st_size - 4096)
        sentences.append(refusal(put, store, 7))
    _, step = store.checkpoint({"seed": 7}).load(9, {"w": torch.ones(10)})
    after = [str(problem) for problem in store.verify()]
    (root / "filling").unlink()
    return {"sentences": sentences, "same": same, "problems": problems + after, "epoch": step}


def fill(path):
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def read_only_disk(root):
    """Read whole and damaged runs from a disk that nobody can write to, and try to write."""
    store = Store(root / "runs")
    run, damaged = put(store, 0), put(store, 1)
    (damaged.path / "record.json").write_text("")
    before = tree(root)
    subprocess.run(["mount", "-o", "remount,ro", root.parent], check=True)
    found, lost = (store.get({"kind": "Training", "seed": seed}) for seed in (0, 1))
    new, again = (refusal(put, store, seed) for seed in (7, 1))
    whole = found is not None and found.address == run.address
    return {"whole": whole, "lost": lost, "new": new, "again": again, "same": tree(root) == before}


def main(folder, *names):
    answers = {}
    for name in names:
        root = folder / name
        root.mkdir()
        answers[name] = globals()[name](root)
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), *sys.argv[2:])
