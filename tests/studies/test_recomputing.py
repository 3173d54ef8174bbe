"""Runs that are computed again: equal bits here, a tolerance elsewhere, and edits that no manifest shows are found."""

from __future__ import annotations

import hashlib
import json
import shutil
from importlib import import_module

import pytest
import torch
from safetensors.torch import load_file, save_file

from metriscope.cli import main
from metriscope.runs import Driver, Store
from metriscope.studies import recomputing
from metriscope.studies.contract import study
from metriscope.studies.recomputing import TOLERANCE, recomputable, recomputed
from studies.vq.tiny import tiny

JOBS = tiny().jobs()[:2]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("made")
    Driver(Store(out / "runs")).perform(JOBS, study("vq").train.WORK, "trainings")
    return out


@pytest.fixture
def out(made, tmp_path):
    shutil.copytree(made, tmp_path / "out")
    return tmp_path / "out"


def rewrite(run, name, data):
    """Change a file and its manifest, as somebody would who knows the format."""
    (run.path / name).write_bytes(data)
    path = run.path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(manifest, indent=1) + "\n")


def doctor_weight(run, change):
    path = run.path / "weights.safetensors"
    tensors = load_file(path)
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    tensors[name].view(-1)[0] = change(tensors[name].view(-1)[0])
    save_file(tensors, path)
    rewrite(run, path.name, path.read_bytes())


def doctor_processor(run):
    provenance = run.provenance | {"platform": {**run.provenance["platform"], "cpu": "another"}}
    rewrite(run, "provenance.json", (json.dumps(provenance, indent=1) + "\n").encode())


def record(out):
    return json.loads((out / "recomputed.json").read_text())


def test_untouched_runs_have_equal_bits_and_the_record_says_on_which_processor(out, capsys):
    assert main(["runs", "verify", "--recompute", "5", "--out", str(out)]) == 0
    assert "computed again: 2, different: 0 (2 of 2 runs can be computed again" in capsys.readouterr().out
    assert [(one["compared"], one["difference"], one["fault"]) for one in record(out)["runs"]] == [
        ("bits", 0.0, "")
    ] * 2
    assert record(out)["platform"] == Store(out / "runs").runs()[0].provenance["platform"]


def test_a_doctored_weight_that_its_manifest_agrees_with_is_found(out, capsys):
    run, other = Store(out / "runs").runs()
    doctor_weight(run, lambda value: torch.nextafter(value, torch.tensor(torch.inf)))
    assert Store(out / "runs").verify() == []
    assert main(["runs", "verify", "--recompute", "2", "--out", str(out)]) == 1
    assert f"{run.address[:12]}  Group  differs by " in capsys.readouterr().out
    faults = {one["address"]: one["fault"] for one in record(out)["runs"]}
    assert faults[run.address].endswith("on the same kind of processor: weights.safetensors")
    assert faults[other.address] == ""


@pytest.mark.parametrize(("change", "differs"), [(1 + TOLERANCE / 100, False), (3.0, True)])
def test_a_run_of_another_processor_is_compared_within_a_tolerance(out, change, differs):
    store = Store(out / "runs")
    run = store.runs()[0]
    doctor_weight(run, lambda value: value * change)
    doctor_processor(run)
    found = recomputed(store.find(run.address), store)
    assert found.compared == "tolerance"
    assert (found.difference > TOLERANCE, bool(found.fault)) == (differs, differs)
    assert found.difference > 0
    assert ("more than the tolerance" if differs else "another processor or other versions") in str(found)


def test_what_cannot_be_computed_again_says_why(tmp_path):
    store = Store(tmp_path)
    spec = {"kind": "Group", "study": "vq", "nonsense": 1}
    run = store.put(spec, {}, {}, {})
    assert recomputed(run, store).fault.startswith("cannot be computed again: ")
    store.put({"kind": "MyOwn", "study": "mine"}, {}, {}, {})
    assert recomputable(store) == [run]


@pytest.mark.parametrize("where", [*recomputing._TRAININGS.values(), *recomputing._READINGS.values()])
def test_what_computes_a_kind_of_run_exists(where):
    module, _, name = where.partition(":")
    assert getattr(import_module(f"metriscope.studies.{module}"), name)


def test_at_least_one_run_is_computed_again(out, capsys):
    assert main(["runs", "verify", "--recompute", "-1", "--out", str(out)]) == 2
    assert "--recompute must be at least 1, not -1" in capsys.readouterr().err
