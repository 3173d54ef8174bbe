import hashlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import metriscope.runs.store as module
from metriscope.runs.address import address
from metriscope.runs.store import Store, StoreError

CURVES = pd.DataFrame({"epoch": [0, 1], "loss": [1.0, 0.5]})
FILES = {
    "spec.json",
    "record.json",
    "provenance.json",
    "weights.safetensors",
    "manifest.json",
    "curves.parquet",
}


@dataclass(frozen=True)
class Training:
    seed: int
    rate: float = 1e-3


def put(store, spec, value=1.0):
    return store.put(spec, {"w": torch.full((2,), value)}, {"loss": value}, {"curves": CURVES})


@settings(max_examples=15)
@given(
    seed=st.integers(),
    rate=st.floats(allow_nan=False, allow_infinity=False),
    values=st.lists(st.floats(width=32), max_size=5),
)
def test_a_run_comes_back_as_it_was_put(seed, rate, values):
    spec, weights, record = Training(seed, rate), torch.tensor(values), {"loss": values, "name": "moons"}
    with tempfile.TemporaryDirectory() as root:
        put_run = Store(Path(root)).put(spec, {"w": weights}, record, {"curves": CURVES})
        run = Store(Path(root)).get(spec)
        assert run is not None
        assert repr(run) == repr(put_run)
        assert run.spec == {"kind": "Training", "seed": seed, "rate": rate}
        assert repr(run.record) == repr(record)
        assert run.tensors()["w"].view(torch.int32).equal(weights.view(torch.int32))
        pd.testing.assert_frame_equal(run.table("curves"), CURVES)


def test_a_run_lies_at_its_address_and_its_specification_hashes_to_it(tmp_path):
    run = put(Store(tmp_path), Training(7))
    assert run.path == tmp_path / run.address[:2] / run.address
    assert {path.name for path in run.path.iterdir()} == FILES
    assert hashlib.sha256((run.path / "spec.json").read_bytes()).hexdigest()[:40] == run.address


def test_the_manifest_lists_the_size_and_the_sha256_of_every_other_file(tmp_path):
    run = put(Store(tmp_path), Training(7))
    listed = json.loads((run.path / "manifest.json").read_bytes())["files"]
    assert listed == {
        name: {
            "bytes": (run.path / name).stat().st_size,
            "sha256": hashlib.sha256((run.path / name).read_bytes()).hexdigest(),
        }
        for name in FILES - {"manifest.json"}
    }


def test_a_specification_read_from_a_run_finds_that_run(tmp_path):
    run = put(Store(tmp_path), Training(7))
    assert Store(tmp_path).get(run.spec) == run


def test_the_same_content_gives_the_same_bytes_in_two_stores(tmp_path):
    one, two = (put(Store(tmp_path / name), Training(7)) for name in ("one", "two"))
    for name in ("spec.json", "record.json", "weights.safetensors", "curves.parquet"):
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes()


def test_a_run_is_written_once(tmp_path):
    store = Store(tmp_path)
    first, second = put(store, Training(7), value=1.0), put(store, Training(7), value=2.0)
    assert second == first
    assert second.record == {"loss": 1.0}


def test_putting_a_run_leaves_nothing_but_the_run(tmp_path):
    run = put(Store(tmp_path), Training(7))
    assert [path.name for path in tmp_path.iterdir()] == [run.address[:2]]


def test_a_store_that_does_not_exist_is_empty_and_is_not_made_by_looking(tmp_path):
    store = Store(tmp_path / "none")
    assert store.get(Training(7)) is None
    assert store.runs() == []
    assert store.verify() == []
    store.sweep()
    assert not store.root.exists()


def test_runs_are_listed_by_kind_and_address(tmp_path):
    store = Store(tmp_path)
    specs = [{"kind": kind, "seed": seed} for kind in ("b", "a") for seed in range(3)]
    for spec in (*specs, {"seed": 0}):
        put(store, spec)
    expected = sorted((spec["kind"], address(spec)) for spec in specs)
    assert [(run.kind, run.address) for run in store.runs()] == [("", address({"seed": 0})), *expected]


def test_a_run_is_found_by_the_beginning_of_its_address(tmp_path):
    store = Store(tmp_path)
    run = put(store, Training(7))
    assert store.find(run.address[:6].upper()) == run == store.find(run.address)


def test_an_address_that_no_run_or_several_runs_begin_with_is_an_error_that_says_so(tmp_path):
    store = Store(tmp_path)
    for seed in range(17):  # more runs than first digits: two of them must share theirs
        put(store, Training(seed))
    first = [run.address[0] for run in store.runs()]
    shared = max(first, key=first.count)
    with pytest.raises(StoreError, match=rf"{first.count(shared)} runs in .* begin with '{shared}', among them"):
        store.find(shared)
    with pytest.raises(StoreError, match=r"no run in .* has an address that begins with 'xyz'"):
        store.find("xyz")


def test_a_table_that_is_not_there_is_an_error_that_names_the_others(tmp_path):
    run = put(Store(tmp_path), Training(7))
    assert run.tables == ("curves",)
    with pytest.raises(StoreError, match="has no table 'losses'; it has curves"):
        run.table("losses")


@pytest.mark.parametrize("name", ["", "../up", "a/b", "Curves", ".hidden", "a b", "a.b"])
def test_a_table_name_that_is_no_plain_file_name_is_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(ValueError, match="a table is named"):
        Store(tmp_path).put(Training(7), {}, {}, {name: CURVES})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"loss": {"test": torch.zeros(1)}}, r"record\.loss\.test is a Tensor"),
        ([1.0], "the record is a list"),
    ],
)
def test_a_record_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path, record, message):
    with pytest.raises(ValueError, match=message):
        Store(tmp_path).put(Training(7), {}, record, {})
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_a_file_is_one_clear_sentence(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for act in (lambda store: put(store, Training(7)), Store.runs, Store.verify):
        with pytest.raises(StoreError, match=r"cannot .*file: there is a file where a folder should be$"):
            act(Store(file))


def test_putting_a_run_clears_its_checkpoint_and_no_other(tmp_path):
    store = Store(tmp_path)
    for seed in (7, 8):
        store.checkpoint(Training(seed)).save({"w": torch.ones(1)}, 5, 9)
    put(store, Training(7))
    assert store.checkpoint(Training(7)).load(9, {"w": torch.ones(1)}) is None
    assert store.checkpoint(Training(8)).load(9, {"w": torch.ones(1)}) is not None


def test_listing_runs_loads_no_heavy_package(tmp_path):
    put(Store(tmp_path), Training(7))
    script = (
        "import sys, metriscope; before = set(sys.modules)\n"
        "from metriscope.runs.store import Store\n"
        "assert len(Store(sys.argv[1]).runs()) == 1 and Store(sys.argv[1]).get({}) is None\n"
        "heavy = {'torch', 'numpy', 'pandas', 'pyarrow', 'safetensors'} & (set(sys.modules) - before)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    source = str(Path(module.__file__).parents[2])
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": source})
    assert done.returncode == 0, done.stderr
