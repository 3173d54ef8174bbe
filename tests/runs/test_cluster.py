"""A real Ray cluster on the loopback address: its runs are byte-identical to those of one process, also without a node."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'metriscope[cluster]'")

SMALL = ("--dims", "3", "--activations", "abs", "relu", "--trials", "2", "--samples", "50", "--epochs", "40")
LONG = ("--dims", "3", "--activations", "abs", "relu", "--trials", "8", "--samples", "2000", "--epochs", "20000")
MAY_DIFFER = {"provenance.json", "manifest.json"}
NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20, "include_dashboard": False}


def command(out: Path, options: tuple[str, ...], *more: str) -> list[str]:
    return [sys.executable, "-m", "metriscope", "reproduce", "mahalanobis", *options, "--out", str(out), *more]


def files(out: Path) -> dict[str, bytes]:
    """Return weights, tables, specifications and records of all runs."""
    found = [path for path in sorted((out / "runs").glob("??/*/*")) if path.name not in MAY_DIFFER]
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


@pytest.fixture
def cluster(monkeypatch):
    # Both must be set before the cluster's processes start.
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args=NODE)
    yield made
    made.shutdown()


def tasks_of(node) -> list[str]:
    """Return the titles of a node's worker processes that are computing a task."""
    from ray._private.ray_constants import PROCESS_TYPE_RAYLET

    raylet = node.all_processes[PROCESS_TYPE_RAYLET][0].process.pid
    pids = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
    titles = [Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace") for pid in pids]
    return [title for title in titles if title.startswith("ray::answer")]


def finished(running: subprocess.Popen) -> str:
    said, wrong = running.communicate()
    assert running.returncode == 0, wrong
    return said


def test_a_study_on_a_cluster_of_one_node_is_byte_identical(tmp_path, cluster):
    here, there = tmp_path / "here", tmp_path / "there"
    subprocess.run(command(here, SMALL), check=True, capture_output=True)
    sent = command(there, SMALL, "--executor", "ray", "--address", cluster.address)
    finished(subprocess.Popen(sent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    assert files(there) == files(here) != {}


@pytest.mark.slow
def test_a_node_that_is_killed_while_it_computes_changes_no_byte(tmp_path, cluster):
    here, there = tmp_path / "here", tmp_path / "there"
    doomed = cluster.add_node(**NODE)
    sent = command(there, LONG, "--executor", "ray", "--address", cluster.address)
    running = subprocess.Popen(sent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not tasks_of(doomed):
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    time.sleep(2)  # into the computation: the task has begun, and its worker has loaded PyTorch
    assert tasks_of(doomed)
    cluster.remove_node(doomed, allow_graceful=False)
    finished(running)
    subprocess.run(command(here, LONG), check=True, capture_output=True, env=os.environ)
    assert files(there) == files(here) != {}
