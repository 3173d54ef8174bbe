import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

import metriscope.runs.store as module
from faults.table import namespace
from metriscope.common.files import abandoned, temporary
from metriscope.runs.store import Store, StoreError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills, limits and mounts are those of POSIX")
SCRIPT = Path(__file__).with_name("scenarios.py")
MOUNT = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" "$3" "$1" full_disk read_only_disk'
ERRORS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than the system allows",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "no permission",
}


def play(*command):
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    names = ("killed_at_random", "killed_at_every_sync", "written_by_four_at_once", "sweep_spares_the_living")
    spoilt = ("file_size_limited", "without_permission")
    return play(sys.executable, str(SCRIPT), str(tmp_path_factory.mktemp("lives")), *names, *spoilt)


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("disk")
    command = namespace(folder)
    if command is None:
        pytest.skip("this machine does not let a test mount a small disk of its own")
    return play(*command, "sh", "-c", MOUNT, "sh", str(folder), sys.executable, str(SCRIPT))


def test_a_writer_killed_at_random_moments_leaves_a_whole_store(lives):
    life = lives["killed_at_random"]
    assert (life["problems"], life["status"]) == ([], 0)
    assert life["swept"]


def test_a_writer_killed_before_any_sync_leaves_a_whole_store_and_the_last_one_gets_through(lives):
    life = lives["killed_at_every_sync"]
    assert (life["problems"], life["status"]) == ([], 0)
    # Six files and their folder are synced before the rename, two folders after it; those last two kills find
    # the run in place, so that the try after the first of them already gets through.
    assert life["steps"] == 9
    # Each write removes what the one before it left behind.
    assert life["left"] == 7
    assert life["swept"]


def test_four_processes_that_put_the_same_runs_at_once_all_succeed_and_leave_each_run_once(lives):
    assert lives["written_by_four_at_once"] == {"statuses": [0] * 4, "problems": [], "runs": 5, "left": []}


def test_sweeping_spares_a_process_in_the_middle_of_a_write_until_it_is_gone(lives):
    assert lives["sweep_spares_the_living"] == {"spared": True, "left": [], "runs": 1}


def test_a_file_larger_than_the_system_allows_is_one_sentence_and_changes_nothing(lives):
    life = lives["file_size_limited"]
    assert life["sentence"].endswith(": the file is larger than the system allows")
    assert (life["same"], life["problems"]) == (True, 0)


def test_a_user_who_may_only_read_can_read_and_is_told_why_not_write(lives):
    life = lives["without_permission"]
    assert life["found"] == life["address"]
    assert life["sentence"].endswith(": no permission")
    assert life["same"]


def test_a_disk_that_is_really_full_is_one_sentence_each_time_and_changes_nothing(small_disk):
    life = small_disk["full_disk"]
    *refused, accepted = life["sentences"]
    assert len(refused) > 3
    assert all(sentence.endswith(": the disk is full") for sentence in refused)
    assert accepted is None
    assert all(life["same"])
    assert (life["problems"], life["epoch"]) == ([], 1)


def test_a_read_only_disk_can_be_read_and_says_why_it_cannot_be_written(small_disk):
    life = small_disk["read_only_disk"]
    assert (life["whole"], life["lost"], life["same"]) == (True, None, True)
    assert life["new"].endswith(": the file system is read-only")
    assert life["again"].endswith(": the file system is read-only")


def put(store, seed=7):
    return store.put({"seed": seed}, {"w": torch.ones(3)}, {}, {"curves": pd.DataFrame({"x": [1.0]})})


def tree(root):
    return {path: path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.mark.parametrize("step", range(1, 8))
@pytest.mark.parametrize("code", ERRORS)
def test_a_failure_to_write_any_file_is_one_sentence_and_changes_nothing(tmp_path, monkeypatch, code, step):
    store, calls = Store(tmp_path), iter(range(1, 100))
    put(store, seed=0)
    before = tree(tmp_path)

    def fsync(_):
        if next(calls) == step:
            raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fsync)
        with pytest.raises(StoreError, match=rf"^cannot write run \w{{12}} to .*: {ERRORS[code]}$"):
            put(store)
    assert tree(tmp_path) == before
    assert put(store).path.is_dir()


@pytest.mark.parametrize("code", ERRORS)
def test_a_failure_to_rename_is_one_sentence_and_changes_nothing(tmp_path, monkeypatch, code):
    store = Store(tmp_path)
    put(store, seed=0)
    before = tree(tmp_path)

    def rename(path, target):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.rename", rename)
        with pytest.raises(StoreError, match=ERRORS[code]):
            put(store)
    assert tree(tmp_path) == before


def test_an_interrupt_while_writing_changes_nothing(tmp_path, monkeypatch):
    store = Store(tmp_path)
    put(store, seed=0)
    before = tree(tmp_path)

    def interrupt(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            put(store)
    assert tree(tmp_path) == before


def test_a_run_that_another_process_finishes_first_is_returned_as_that_process_wrote_it(tmp_path, monkeypatch):
    store, sync = Store(tmp_path), os.fsync
    theirs = []

    def fsync(handle):
        sync(handle)
        if not theirs:
            theirs.append(None)
            theirs[0] = store.put({"seed": 7}, {"w": torch.zeros(3)}, {"by": "them"}, {})

    monkeypatch.setattr("os.fsync", fsync)
    assert put(store) == theirs[0]
    assert store.runs() == theirs
    assert list(tmp_path.glob(".tmp-*")) == []


def test_what_stands_in_the_way_and_cannot_be_moved_is_named(tmp_path):
    store = Store(tmp_path)
    shard = put(store).path.parent
    shard.rename(tmp_path / "elsewhere")
    shard.write_text("")
    with pytest.raises(StoreError, match=rf"cannot write run \w{{12}}: {shard}\S+ is in the way"):
        put(store)


def test_temporary_files_of_another_machine_are_left_alone_for_a_day(tmp_path):
    path = tmp_path / f".tmp-{'0' * 8}-1-{'0' * 8}"
    path.mkdir()
    assert not abandoned(path)
    day_before_yesterday = path.stat().st_mtime - 2 * 86_400
    os.utime(path, (day_before_yesterday, day_before_yesterday))
    assert abandoned(path)


def test_temporary_files_of_this_process_and_files_with_other_names_are_not_abandoned(tmp_path):
    with temporary(tmp_path) as path:
        path.write_text("")
        assert not abandoned(path)
    assert not path.exists()
    assert not abandoned(tmp_path / "notes.txt")
    assert not abandoned(tmp_path / ".tmp-notes")


def test_sweeping_removes_the_checkpoint_of_a_finished_run_and_keeps_the_others(tmp_path):
    store = Store(tmp_path)
    put(store)
    for seed in (7, 8):
        store.checkpoint({"seed": seed}).save({"w": torch.ones(1)}, 1, 2)
    store.sweep()
    assert store.checkpoint({"seed": 7}).load(2, {"w": torch.ones(1)}) is None
    assert store.checkpoint({"seed": 8}).load(2, {"w": torch.ones(1)}) is not None
