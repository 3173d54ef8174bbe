"""What a killed run leaves behind, and how the next call goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from metriscope.runs import Store
from metriscope.studies.mahalanobis import plan
from metriscope.studies.mahalanobis.spec import Plan

ARGUMENTS = ("--dims", "10", "--trials", "8", "--epochs", "12000", "--activations", "abs", "relu")
PLAN = plan("quick", dims=(10,), trials=8, epochs=12_000, activations=("abs", "relu"))


def start(out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "metriscope", "reproduce", "mahalanobis", *ARGUMENTS, "--out", str(out)]
    environment = {**os.environ, "METRISCOPE_CHECKPOINT_SECONDS": "0"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(out: Path) -> str:
    process = start(out)
    text, errors = process.communicate()
    assert process.returncode == 0, errors
    return text


def weights(out: Path, of: Plan) -> dict[str, bytes]:
    store = Store(out / "runs")
    groups = [g for start in of.starts for g in of.groups(10, start)]
    runs = [store.get(group) for group in groups]
    assert all(runs)
    return {run.address: (run.path / "weights.safetensors").read_bytes() for run in runs}


def finished(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (out / "runs").glob("??/*/manifest.json")}


def kill_after_a_checkpoint(out: Path, rest: float) -> None:
    """Kill -9 some time after the run has saved something new, or finished a group; let nothing be cleaned up."""
    process = start(out)
    before = {p: p.stat().st_mtime_ns for p in (out / "runs").rglob("*") if p.exists()} if out.exists() else {}
    while process.poll() is None:
        if any(before.get(p) != p.stat().st_mtime_ns for p in (out / "runs").glob("checkpoints/*.safetensors")):
            break
        time.sleep(0.02)
    time.sleep(rest)
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_run_killed_three_times_ends_in_the_same_bits_and_repeats_no_finished_group(tmp_path):
    finish(tmp_path / "whole")
    moments = random.Random(time.time_ns())
    kept: dict[Path, int] = {}
    for _ in range(3):
        kill_after_a_checkpoint(tmp_path / "killed", rest=moments.uniform(0, 1.5))
        assert Store(tmp_path / "killed" / "runs").verify() == []
        kept |= finished(tmp_path / "killed")
    finish(tmp_path / "killed")
    assert weights(tmp_path / "killed", PLAN) == weights(tmp_path / "whole", PLAN)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert list((tmp_path / "killed" / "runs" / "checkpoints").glob("*")) == []
    again = finish(tmp_path / "killed")
    assert again.count("groups: 0 computed, 2 from the store") == len(PLAN.starts)


def test_a_damaged_run_is_named_and_repaired(tmp_path):
    from metriscope.cli import main

    small = ["reproduce", "mahalanobis", "--dims", "2", "--trials", "2", "--epochs", "30", "--activations", "abs"]
    assert main([*small, "--out", str(tmp_path)]) == 0
    store = Store(tmp_path / "runs")
    asked = plan("quick", dims=(2,), trials=2, epochs=30, activations=("abs",)).groups(2, "random")[0]
    victim = store.get(asked).path / "weights.safetensors"
    original = victim.read_bytes()
    victim.write_bytes(original[:-5])
    assert [problem.path for problem in store.verify()] == [str(victim.relative_to(store.root))]
    assert main(["runs", "verify", "--out", str(tmp_path)]) == 1
    assert main([*small, "--out", str(tmp_path)]) == 0
    assert store.verify() == []
    assert victim.read_bytes() == original
