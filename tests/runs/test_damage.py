import hashlib
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
    assert [problem.path for problem in store.verify()] == [relative(run, name)]
    assert_repaired_by_a_new_run(store, run)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def listed(run, change):
    """Change the fields of a run's manifest."""
    path = run.path / "manifest.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields, indent=1) + "\n")


HOSTILE = {
    "no number": lambda run: (run.path / "manifest.json").write_text('{"$float": null}'),
    "a list": lambda run: (run.path / "manifest.json").write_text('{"$float": [1]}'),
    "nan": lambda run: (run.path / "manifest.json").write_text('{"files": NaN}'),
    "deep": lambda run: (run.path / "manifest.json").write_text("[" * 100_000),
    "nul in a name": lambda run: listed(run, lambda m: m["files"].update({"a\0b": m["files"]["spec.json"]})),
    "lone surrogate": lambda run: listed(run, lambda m: m["files"].update({"\ud800": m["files"]["spec.json"]})),
    "parent": lambda run: listed(run, lambda m: m["files"].update({"..": m["files"]["spec.json"]})),
    "long name": lambda run: listed(run, lambda m: m["files"].update({"x" * 10_000: m["files"]["spec.json"]})),
    "a boolean": lambda run: listed(run, lambda m: m["files"]["spec.json"].update({"bytes": True})),
    "one more field": lambda run: listed(run, lambda m: m.update({"note": 1})),
    "written otherwise": lambda run: (run.path / "manifest.json").write_text(
        json.dumps(json.loads((run.path / "manifest.json").read_text()))
    ),
    "too large": lambda run: os.truncate(run.path / "manifest.json", 1 << 36),
    "large weights": lambda run: os.truncate(run.path / "weights.safetensors", 1 << 36),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_run_is_named_and_stops_no_other(store, how):
    run, other = store.find(""), put(store, {"seed": 8})
    HOSTILE[how](run)
    assert {problem.address for problem in store.verify()} == {run.address}
    assert other in store.runs()
    assert store.get({"seed": 8}) == other
    store.sweep()
    with pytest.raises(StoreError, match="is damaged"):
        store.find(run.address)
    assert_repaired_by_a_new_run(store, run)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are those of POSIX")
@pytest.mark.parametrize("name", FILES)
def test_a_pipe_or_a_device_in_place_of_a_file_is_named_and_not_waited_for(store, name):
    run = store.find("")
    (run.path / name).unlink()
    os.mkfifo(run.path / name)
    assert only(store).reason == "expected a file, found a pipe"
    assert_repaired_by_a_new_run(store, run)
    run = store.find("")
    (run.path / name).unlink()
    (run.path / name).symlink_to("/dev/zero")
    assert only(store).reason == "expected a file, found a device"
    assert_repaired_by_a_new_run(store, run)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are those of POSIX")
def test_what_is_no_checkpoint_or_lease_is_named_and_moved_by_repair(store):
    run = store.find("")
    for folder in ("checkpoints", "leases"):
        (store.root / folder).mkdir(exist_ok=True)
        os.mkfifo(store.root / folder / ("ab" * 20 + (".safetensors" if folder == "checkpoints" else "")))
    (store.root / "checkpoints" / f"{run.address}.safetensors").mkdir()
    (store.root / "leases" / ("cd" * 20)).mkdir()
    store.sweep()
    assert len(store.verify()) == 4
    assert store.get(SPEC) == run
    assert store.repair() == []
    assert (len(list((store.root / "damaged").iterdir())), store.verify(), store.runs()) == (4, [], [run])


def test_repair_moves_what_is_damaged_and_keeps_a_run_with_an_extra_file(store):
    kept = store.find("")
    damaged = [put(store, {"seed": seed}) for seed in range(2)]
    (kept.path / "notes.txt").write_text("mine")
    (store.root / "stray").write_text("")
    (damaged[0].path / "record.json").unlink()
    (damaged[0].path / "notes.txt").write_text("mine too")
    (damaged[1].path / "manifest.json").write_text("")
    assert store.repair() == []
    assert (store.verify(), store.runs()) == ([], [kept])
    moved = {path.name.rpartition("-")[0] for path in (store.root / "damaged").iterdir()}
    # Whole runs keep the beginning of their names.
    assert {run.address for run in damaged} <= moved
    assert sorted(path.read_text() for path in store.root.glob("damaged/**/notes*")) == ["mine", "mine too"]


def test_repair_moves_nothing_that_only_cannot_be_read(store, monkeypatch):
    run = store.find("")

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.read_bytes", refuse)
        assert [problem.reason for problem in store.repair()] == ["cannot be read: no permission"]
    assert store.get(SPEC) == run


def edited(run):
    """Edit a record and its manifest, as somebody would who knows the format."""
    (run.path / "record.json").write_text('{\n "loss": 0.5\n}\n')
    data = (run.path / "record.json").read_bytes()
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    listed(run, lambda manifest: manifest["files"].update({"record.json": entry}))


def test_without_a_key_an_edit_of_the_manifest_too_passes_and_changes_the_fingerprint(store):
    before = store.fingerprint()
    assert before == store.fingerprint()
    edited(store.find(""))
    assert store.verify() == []
    assert store.fingerprint() != before


def test_with_a_key_an_edit_of_the_manifest_too_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("METRISCOPE_STORE_KEY", "a secret")
    store = Store(tmp_path / "runs")
    run = put(store)
    assert (store.verify(), store.get(SPEC)) == ([], run)
    edited(run)
    assert only(store).reason == f"run {run.address[:12]} is not signed with the key in METRISCOPE_STORE_KEY"
    with pytest.raises(StoreError, match="not signed with the key"):
        store.get(SPEC)
    assert store.runs() == []


def test_a_wrong_key_loses_no_run_and_without_it_a_signed_run_is_read(tmp_path, monkeypatch):
    store = Store(tmp_path / "runs")
    monkeypatch.setenv("METRISCOPE_STORE_KEY", "a secret")
    run = put(store)
    monkeypatch.setenv("METRISCOPE_STORE_KEY", "another")
    with pytest.raises(StoreError, match="not signed with the key"):
        store.get(SPEC)
    monkeypatch.delenv("METRISCOPE_STORE_KEY")
    assert (store.get(SPEC), store.verify()) == (run, [])


def test_a_specification_that_is_nested_too_deep_to_be_printed_is_named_and_stops_no_listing(store, monkeypatch):
    from metriscope.runs.run import table

    nested: object = 0
    for _ in range(90):
        nested = [nested]
    with pytest.raises(StoreError, match="nested more than 64 deep"):
        store.put({"kind": "Deep", "x": nested}, {}, {}, {})
    assert store.verify() == []
    with monkeypatch.context() as patch:
        patch.setattr("metriscope.runs.integrity._DEEPEST", 1000)
        store.put({"kind": "Deep", "x": nested}, {}, {}, {})
    assert only(store).reason.startswith("nested more than 64 deep")
    assert [text.split()[1] for text in table(store.runs())] == ["Training"]


def test_a_specification_cannot_send_escapes_to_a_terminal(store):
    from metriscope.runs.run import describe, table

    run = store.put({"kind": "\x1b]0;owned\x07", "name\u202e": "\x1b[2J\r\ud800\x9b"}, {}, {"a\x1b": "\n\x7f"}, {})
    (run.path / "\x1b[31m\n").write_text("")
    (line,) = table([run])
    texts = (line, describe(run), str(only(store)))
    assert all(one.isprintable() or one == "\n" for text in texts for one in text)
    assert (line.count("\n"), str(only(store)).count("\n")) == (0, 0)
    assert "\\x1b[2J" in line
    "".join(texts).encode()


def test_a_run_moved_to_the_address_of_another_is_found(store):
    run = store.find("")
    other = "0" * 40
    (store.root / "00").mkdir()
    run.path.rename(store.root / "00" / other)
    manifest = store.root / "00" / other / "manifest.json"
    assert only(store).reason == f"belongs to run {run.address}, not to this folder"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "address": other}, indent=1) + "\n")
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
