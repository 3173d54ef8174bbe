"""The short form of ``./test --faults``: two studies, a few kills, and proof that the counts can be other than zero."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.faults import FAULTS, MOUNTED, WRITER
from faults.lives import Tally
from faults.plans import PLANS
from faults.table import BEGIN, PAGE, namespace, table, total
from metriscope.studies import STUDIES

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills, forks and mounts are those of POSIX")

# The faults that involve checkpoints are tried on the first study, which has some; all others on the second.
SCRIPT = """
import json, sys, tempfile
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random
import torch
torch.set_num_threads(1)
from faults.faults import FAULTS, MOUNTED, WRITER, killed_writer, shared
from faults.lives import World
from metriscope.runs import Store
from metriscope.runs.checkpoint import Checkpoint

@contextmanager
def free(self, addresses):
    yield list(addresses)

seed, mounts = int(sys.argv[1]), sys.argv[2] == "True"
found = {}
for name, steps in (("vq", True), ("initialization", False)):
    with tempfile.TemporaryDirectory() as folder:
        world = World.of(name, Path(folder), Random(f"{seed} {name}"))
        for fault, (act, _) in (FAULTS | (MOUNTED if mounts else {})).items():
            if ("checkpoint" in fault or fault.startswith("SIGKILL")) == steps:
                found[fault] = asdict(act(world, 1))
        if not steps:
            leased, Store.leased = Store.leased, free
            found["without leases"] = asdict(shared(2, world, 1))
            Store.leased = leased
            world.expected = {path: data + b"." for path, data in world.expected.items()}
            found["other bytes"] = asdict(shared(1, world, 1))
with tempfile.TemporaryDirectory() as folder:
    found[WRITER] = asdict(killed_writer(Path(folder), Random(seed), 2))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    own = namespace(tmp_path_factory.mktemp("probe"))
    seed = int.from_bytes(os.urandom(2), "big")
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), str(tests.parent / "src")])
    command = [*(own or ()), sys.executable, "-c", SCRIPT, str(seed), str(own is not None)]
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    return {fault: Tally(**counts) for fault, counts in json.loads(done.stdout.splitlines()[-1]).items()}, seed


@pytest.mark.parametrize("fault", [*FAULTS, *MOUNTED, WRITER])
def test_nothing_is_lost_doubled_wrong_or_left_over(outcomes, fault):
    found, seed = outcomes
    if fault not in found:
        pytest.skip("this machine does not let a test mount a small disk of its own")
    assert found[fault].notes == [], f"seed {seed}"
    assert found[fault].clean
    assert found[fault].tried >= 1


def test_without_leases_runs_are_computed_twice_and_counted(outcomes):
    assert outcomes[0]["without leases"].doubled > 0


def test_other_bytes_are_counted_as_wrong(outcomes):
    assert outcomes[0]["other bytes"].wrong > 0


def test_every_study_has_a_small_plan():
    assert PLANS.keys() == STUDIES.keys()


def test_outcomes_are_added_up_and_shown_in_a_table():
    sums = total([{"a": Tally(3), "b": Tally(1, lost=2, notes=["x"])}, {"a": Tally(2, wrong=1)}])
    assert (sums["a"], sums["all"]) == (Tally(5, wrong=1), Tally(6, lost=2, wrong=1, notes=["x"]))
    assert not sums["all"].clean
    assert list(table(sums))[2].split() == ["|", "a", "|", "5", "|", "0", "|", "0", "|", "1", "|", "0", "|"]


def test_the_page_holds_the_table_of_a_run_without_a_fault():
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].splitlines()]
    counts = {row[0].strip(): [int(cell) for cell in row[1:]] for row in rows if row and row[1].strip().isdigit()}
    assert counts.keys() == {*FAULTS, *MOUNTED, WRITER, "all"}
    assert all(tried > 0 and others == [0, 0, 0, 0] for tried, *others in counts.values())
    assert counts["all"][0] == sum(tried for fault, (tried, *_) in counts.items() if fault != "all")


@pytest.mark.slow
def test_the_long_form_ends_without_a_fault():
    command = [sys.executable, str(Path(__file__).with_name("table.py")), "--faults"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
