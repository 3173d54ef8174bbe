"""What a killed run leaves behind, and how the next call goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from metriscope.cli import main
from metriscope.runs import Driver, Store
from metriscope.studies.mahalanobis.plan import MahalanobisOptions, MahalanobisPlan, plan
from metriscope.studies.mahalanobis.train import WORK

# 3-D is not in the paper: it has no further Gaussians, and is diagnosed in no time.
ARGUMENTS = ("--dims", "3", "--trials", "4", "--epochs", "10000", "--activations", "abs")
PLAN = plan(MahalanobisOptions(dims=(3,), trials=4, epochs=10_000, activations=("abs",)))
SMALL = ("reproduce", "mahalanobis", "--dims", "3", "--trials", "2", "--epochs", "30", "--activations", "abs")


# The training alone: no diagnoses and no page.
SCRIPT = """
import sys
from pathlib import Path
from metriscope.runs import Driver, Store
from metriscope.studies.mahalanobis.plan import MahalanobisOptions, plan
from metriscope.studies.mahalanobis.train import WORK
asked = plan(MahalanobisOptions(dims=(3,), trials=4, epochs=10_000, activations=("abs",)))
Driver(Store(Path(sys.argv[1]) / "runs"), print).perform(asked.jobs(), WORK, "training")
"""
TRAINING = ("-c", SCRIPT)
WHOLE = ("-m", "metriscope", "reproduce", "mahalanobis", *ARGUMENTS, "--out")


def start(out: Path, words: tuple[str, ...]) -> subprocess.Popen[str]:
    command = [sys.executable, *words, str(out)]
    environment = {**os.environ, "METRISCOPE_CHECKPOINT_SECONDS": "0"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(out: Path, words: tuple[str, ...]) -> str:
    process = start(out, words)
    text, errors = process.communicate()
    assert process.returncode == 0, errors
    return text


def weights(out: Path, of: MahalanobisPlan) -> dict[str, bytes]:
    runs = [Store(out / "runs").get(job) for job in of.jobs()]
    assert all(runs)
    return {run.address: (run.path / "weights.safetensors").read_bytes() for run in runs}


def finished(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (out / "runs").glob("??/*/manifest.json")}


def kill_after_a_checkpoint(out: Path, words: tuple[str, ...], rest: float) -> None:
    """Kill -9 some time after the run has saved something new, or finished a group; let nothing be cleaned up."""
    process = start(out, words)
    before = {p: p.stat().st_mtime_ns for p in (out / "runs").rglob("*") if p.exists()} if out.exists() else {}
    while process.poll() is None:
        if any(before.get(p) != modified(p) for p in (out / "runs").glob("checkpoints/*.safetensors")):
            break
        time.sleep(0.02)
    time.sleep(rest)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def modified(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # a group that finished takes its checkpoint away
        return None


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize(("words", "kills"), [(TRAINING, 1), pytest.param(WHOLE, 3, marks=pytest.mark.slow)])
def test_a_killed_run_ends_bit_identical_and_repeats_no_finished_job(tmp_path, words, kills):
    Driver(Store(tmp_path / "whole" / "runs"), lambda _: None).perform(PLAN.jobs(), WORK, "training")
    moments = random.Random(time.time_ns())
    kept: dict[Path, int] = {}
    for _ in range(kills):
        kill_after_a_checkpoint(tmp_path / "killed", words, rest=moments.uniform(0, 0.5))
        assert Store(tmp_path / "killed" / "runs").verify() == []
        kept |= finished(tmp_path / "killed")
    finish(tmp_path / "killed", words)
    assert weights(tmp_path / "killed", PLAN) == weights(tmp_path / "whole", PLAN)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert list((tmp_path / "killed" / "runs" / "checkpoints").glob("*")) == []
    lines: list[str] = []
    Driver(Store(tmp_path / "killed" / "runs"), lines.append).perform(PLAN.jobs(), WORK, "training")
    assert lines == [f"training (runs: 0 computed, {len(PLAN.jobs())} from the store)"]


def test_a_budget_ends_cleanly_and_the_same_command_goes_on(tmp_path, capsys):
    long = [*SMALL[:7], "1000000", *SMALL[8:], "--out", str(tmp_path)]
    assert long[6:8] == ["--epochs", "1000000"]
    assert main([*long, "--budget", "0.5s"]) == 0
    assert "the budget is used up; run the same command to continue" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The budget ended before this study was done: 0 of 3 runs are finished." in page
    assert main([*SMALL, "--out", str(tmp_path)]) == 0
    assert "budget ended" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_damaged_run_is_named_and_repaired(tmp_path):
    assert main([*SMALL, "--out", str(tmp_path)]) == 0
    store = Store(tmp_path / "runs")
    asked = plan(MahalanobisOptions(dims=(3,), trials=2, epochs=30, activations=("abs",))).group(3, "random")[0]
    victim = store.get(asked).path / "weights.safetensors"
    original = victim.read_bytes()
    victim.write_bytes(original[:-5])
    assert [problem.path for problem in store.verify()] == [str(victim.relative_to(store.root))]
    assert main(["runs", "verify", "--out", str(tmp_path)]) == 1
    assert main([*SMALL, "--out", str(tmp_path)]) == 0
    assert store.verify() == []
    assert victim.read_bytes() == original
