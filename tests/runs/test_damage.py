import json
import logging
import os

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metriscope.runs.store import Problem, Store, StoreError

SPEC = {"kind": "Training", "seed": 7}
FILES = [
    "spec.json",
    "record.json",
    "provenance.json",
    "weights.safetensors",
    "curves.parquet",
    "manifest.json",
]


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "runs")
    put(store)
    return store


def put(store, spec=SPEC):
    return store.put(spec, {"w": torch.arange(4.0)}, {"loss": 1.0}, {"curves": pd.DataFrame({"x": [1.0]})})


def only(store):
    (problem,) = store.verify()
    return problem


def relative(run, name):
    return f"{run.address[:2]}/{run.address}/{name}"


def assert_repaired_by_a_new_run(store, run):
    assert store.get(SPEC) is None
    assert not run.path.exists()
    assert store.verify() == []
    put(store)
    assert store.verify() == []
    again = store.get(SPEC)
    assert again is not None
    assert again.tensors()["w"].equal(torch.arange(4.0))


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named_and_the_run_is_computed_again(store, name):
    run = store.find("")
    (run.path / name).unlink()
    assert only(store) == Problem(relative(run, name), run.address, only(store).reason)
    assert only(store).reason in ("missing", "not listed in the manifest")
    assert_repaired_by_a_new_run(store, run)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0, 1, -1])
def test_a_truncated_file_is_named_and_the_run_is_computed_again(store, name, keep):
    run = store.find("")
    data = (run.path / name).read_bytes()
    os.truncate(run.path / name, len(data[:keep]))
    expected = [] if name == "manifest.json" and keep == -1 else [relative(run, name)]
    assert [problem.path for problem in store.verify()] == expected
    if expected:
        assert_repaired_by_a_new_run(store, run)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_byte_in_any_file_is_found(store, data):
    run = store.find("")
    name = data.draw(st.sampled_from([name for name in FILES if name != "manifest.json"]))
    content = (run.path / name).read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[place] ^= data.draw(st.integers(1, 255))
    (run.path / name).write_bytes(changed)
    try:
        assert str(only(store)) == f"{relative(run, name)}: edited: its content is not what the manifest lists"
    finally:
        (run.path / name).write_bytes(content)


def test_an_extra_file_is_named_and_kept_when_the_run_is_computed_again(store):
    run = store.find("")
    (run.path / "notes.txt").write_text("mine")
    assert only(store) == Problem(relative(run, "notes.txt"), run.address, "extra file")
    assert_repaired_by_a_new_run(store, run)
    assert [path.read_text() for path in store.root.glob("damaged/*/notes.txt")] == ["mine"]


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_place_of_a_file_is_named_and_the_run_is_computed_again(store, name):
    run = store.find("")
    (run.path / name).unlink()
    (run.path / name).mkdir()
    assert str(only(store)) == f"{relative(run, name)}: expected a file, found a folder"
    assert_repaired_by_a_new_run(store, run)


def test_a_file_in_place_of_the_run_folder_is_named_and_the_run_is_computed_again(store):
    run = store.find("")
    for path in run.path.iterdir():
        path.unlink()
    run.path.rmdir()
    run.path.write_text("")
    assert only(store).reason == "not a folder"
    assert store.runs() == []
    assert_repaired_by_a_new_run(store, run)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "not a manifest"),
        ('{"files": {"spec.json": 3}}', "not a manifest"),
        ('{"files": {"../spec.json": {"sha256": "", "bytes": 0}}}', "not a manifest"),
        ('{"address": "abc", "files": {}}', "belongs to run abc, not to this folder"),
    ],
)
def test_a_manifest_that_is_none_is_named_and_the_run_is_computed_again(store, text, reason):
    run = store.find("")
    (run.path / "manifest.json").write_text(text)
    assert only(store) == Problem(relative(run, "manifest.json"), run.address, reason)
    assert_repaired_by_a_new_run(store, run)


def test_a_run_moved_to_the_address_of_another_is_found(store):
    run = store.find("")
    other = "0" * 40
    (store.root / "00").mkdir()
    run.path.rename(store.root / "00" / other)
    manifest = store.root / "00" / other / "manifest.json"
    assert only(store).reason == f"belongs to run {run.address}, not to this folder"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "address": other}))
    assert only(store).path == f"00/{other}/spec.json"
    assert only(store).reason == "the address of the specification is not the name of its folder"


def test_a_stray_file_in_the_store_is_an_extra_file_but_a_hidden_one_at_the_top_is_not(store):
    shard = store.find("").path.parent
    (store.root / "notes.txt").write_text("")
    (store.root / ".nfs0001").write_text("")
    (shard / "other").mkdir()
    assert store.verify() == [
        Problem("notes.txt", "", "extra file"),
        Problem(f"{shard.name}/other", "", "extra file"),
    ]


def test_every_damaged_run_is_found_and_the_whole_ones_are_still_listed(store):
    runs = [put(store, {"seed": seed}) for seed in range(3)]
    for run in runs[:2]:
        (run.path / "record.json").write_text("")
    assert {problem.address for problem in store.verify()} == {run.address for run in runs[:2]}
    assert {run.address for run in store.runs()} == {runs[2].address, store.get(SPEC).address}
    with pytest.raises(StoreError, match=r"cannot look for .*record\.json is damaged: truncated to 0 of"):
        store.find(runs[0].address)


def test_damage_is_logged_in_one_line_that_names_the_file_and_what_is_wrong(store, caplog):
    run = store.find("")
    os.truncate(run.path / "weights.safetensors", 3)
    size = json.loads((run.path / "manifest.json").read_text())["files"]["weights.safetensors"]["bytes"]
    with caplog.at_level(logging.WARNING, logger="metriscope.runs"):
        assert store.get(SPEC) is None
    (line,) = caplog.messages
    assert line.startswith(f"{run.path / 'weights.safetensors'} is damaged: truncated to 3 of {size} bytes; ")


def test_putting_over_a_damaged_run_repairs_it_without_a_get(store):
    run = store.find("")
    (run.path / "weights.safetensors").unlink()
    assert put(store).tensors()["w"].equal(torch.arange(4.0))
    assert store.verify() == []


def test_a_run_that_is_damaged_after_it_was_read_says_so_when_its_content_is_asked_for(store):
    run = store.find("")
    os.truncate(run.path / "weights.safetensors", 0)
    (run.path / "curves.parquet").write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=r"cannot read .*weights\.safetensors: truncated to 0 of"):
        run.tensors()
    with pytest.raises(StoreError, match=r"cannot read .*curves\.parquet: truncated to 4 of"):
        run.table("curves")


def test_an_error_that_says_nothing_about_the_file_is_not_damage(store, monkeypatch):
    run = store.find("")

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.read_bytes", refuse)
        assert only(store) == Problem(relative(run, "manifest.json"), run.address, "cannot be read: no permission")
        with pytest.raises(StoreError, match=r"cannot read run \w+ in .*: no permission$"):
            store.get(SPEC)
    assert store.get(SPEC) == run


def test_a_bad_sector_is_damage(store, monkeypatch):
    run, read = store.find(""), type(store.root).read_bytes

    def fail(path):
        if path.name == "weights.safetensors":
            raise OSError(5, "Input/output error", str(path))
        return read(path)

    monkeypatch.setattr("pathlib.Path.read_bytes", fail)
    assert only(store).reason == "the disk reports an error"
    assert store.get(SPEC) is None
    assert not run.path.exists()
