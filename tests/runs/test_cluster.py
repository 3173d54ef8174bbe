"""A real Ray cluster of two nodes on the loopback address: losing one of them while it computes changes no byte."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import metriscope as ms
from metriscope.vq import Layer, Patterns

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'metriscope[cluster]'")

pytestmark = pytest.mark.slow

OPTIONS = ("--dims", "3", "--activations", "abs", "relu", "--trials", "8", "--samples", "1000", "--epochs", "20000")
MAY_DIFFER = {"provenance.json", "manifest.json"}
NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20, "include_dashboard": False}


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "metriscope", "reproduce", "mahalanobis", *OPTIONS, "--out", str(out), *more]


def files(out: Path) -> dict[str, bytes]:
    """Return weights, tables, specifications and records of all runs, and the tables of the report."""
    found = [path for path in sorted((out / "runs").glob("??/*/*")) if path.name not in MAY_DIFFER]
    # The index of the tables holds the SHA-256 of pages, which show a date.
    found += [path for path in sorted((out / "tables").iterdir()) if path.name != "index.json"]
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


@pytest.fixture
def cluster(monkeypatch):
    # Read when the processes of the cluster start. A worker saves checkpoints as often as it can.
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())
    monkeypatch.setenv("METRISCOPE_CHECKPOINT_SECONDS", "0")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args=NODE)
    yield made
    made.shutdown()


@pytest.fixture
def doomed(cluster, monkeypatch, tmp_path):
    """Return a second node, and the folder in which its workers, and no others, keep their unfinished jobs."""
    folder = tmp_path / "doomed"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    node = cluster.add_node(**NODE)
    monkeypatch.delenv("TMPDIR")
    return node, folder


def test_pairs_are_counted_block_by_block_as_the_documentation_says(tmp_path, cluster):
    cluster.add_node(**NODE)
    rng = np.random.default_rng(0)
    saved = [Patterns((Layer("act", 64, "relu"),), rng.integers(0, 256, (2_500, 8), np.uint8)) for _ in range(2)]
    for patterns, name in zip(saved, ("first", "second"), strict=True):
        patterns.save(tmp_path / name)
    text = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")
    (tmp_path / "pairs.py").write_text(next(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))[1])
    env = {**os.environ, "RAY_ADDRESS": cluster.address}
    ran = [sys.executable, "pairs.py"]
    done = subprocess.run(ran, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [float(word) for word in done.stdout.split()]
    np.testing.assert_allclose(found, ms.heat_cosine(*saved, [100.0, 1_000.0]), rtol=1e-12)


def unfinished(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*/checkpoints/*") if not path.name.startswith(".")]


def test_a_node_that_is_killed_while_it_computes_changes_no_byte(tmp_path, cluster, doomed):
    here, there = tmp_path / "here", tmp_path / "there"
    node, folder = doomed
    sent = command(there, "--executor", "ray", "--address", cluster.address)
    running = subprocess.Popen(sent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not unfinished(folder):
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    cluster.remove_node(node, allow_graceful=False)
    lost = unfinished(folder)
    _, wrong = running.communicate()
    assert running.returncode == 0, wrong
    # A worker that ends its job removes its folder: what is left was cut off in the middle, and computed elsewhere.
    assert lost
    assert unfinished(folder) == lost
    subprocess.run(command(here), check=True, capture_output=True, env=os.environ)
    assert files(there) == files(here) != {}
    assert {"spec.json", "record.json", "weights.safetensors"} <= {Path(name).name for name in files(there)}
    assert "tables/verdicts.csv" in files(there)
    assert any(lost[0].name.startswith(Path(name).parts[2]) for name in files(there) if name.startswith("runs"))
