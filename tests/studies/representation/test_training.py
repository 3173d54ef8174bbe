"""What the study computes and stores, and what is left after a kill."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from metriscope.runs import Store
from metriscope.studies.representation import experiment, plan
from metriscope.studies.representation.spec import Part

SMALL = plan("quick", models=("abs2-neg", "relu2", "relu-l2"), seeds=2, epochs=5, train_size=60, pixels="unit")


def said():
    lines = []
    return lines, lines.append


def files(store):
    """Return the bytes that must be alike whenever and wherever a run is computed."""
    found = {}
    for run in store.runs():
        found[run.address] = [(run.path / name).read_bytes() for name in ("weights.safetensors", "spec.json")]
        found[run.address] += [run.table(name).to_csv() for name in ("history", "dead")]
    return found


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("done"))
    lines, announce = said()
    return store, experiment.compute(SMALL, store, announce), lines


def test_every_training_is_stored_once_and_found_again(done):
    store, runs, lines = done
    assert len(runs) == len(store.runs()) == 6
    assert lines == [
        "unit pixels: 3 networks, 2 seeds, 5 epochs, 60 images of mnist-5k (runs: 6 computed, 0 from the store)"
    ]
    lines, announce = said()
    again = experiment.compute(SMALL, store, announce)
    assert {t: r.address for t, r in again.items()} == {t: r.address for t, r in runs.items()}
    assert "(runs: 0 computed, 6 from the store)" in lines[0]
    assert store.verify() == []


def test_a_stored_network_scores_what_its_history_says(done):
    _, runs, _ = done
    for training, run in runs.items():
        last, model = run.table("history").iloc[-1], experiment.network(training, run)
        for part, images in zip(("train", "test"), experiment.images(training), strict=True):
            output, labels = model(torch.from_numpy(images.x)), torch.from_numpy(images.y)
            assert last[f"{part}_loss"] == pytest.approx(F.cross_entropy(output, labels).item(), rel=1e-5)
            assert last[f"{part}_accuracy"] == pytest.approx((output.argmax(1) == labels).double().mean().item())
        assert last["epoch"] == training.epochs


def test_a_history_begins_with_the_start_and_has_no_gaps(done):
    _, runs, _ = done
    for training, run in runs.items():
        history = run.table("history")
        assert history["epoch"].tolist() == list(range(6))
        assert history.notna().all(axis=None)
        train, _ = experiment.images(training)
        loss = F.cross_entropy(experiment.start(training)(torch.from_numpy(train.x)), torch.from_numpy(train.y))
        assert history["train_loss"].iloc[0] == pytest.approx(loss.item(), rel=1e-5)


def test_idle_units_are_counted_as_pytorch_would(done):
    _, runs, _ = done
    for training, run in runs.items():
        dead = run.table("dead")
        assert dead.columns.tolist() == ["epoch", "part", "layer", "never", "under_1", "under_5", "units"]
        model, last = experiment.network(training, run), dead[dead["epoch"] == training.epochs]
        for part, images in zip(("train", "test"), experiment.images(training), strict=True):
            x = torch.from_numpy(images.x)
            for layer, values in (("hidden", model[:2](x)), ("output", model(x))):
                share = (values.abs() > 1e-6).double().mean(0)
                counts = [int((share == 0).sum()), int((share < 0.01).sum()), int((share < 0.05).sum()), len(share)]
                row = last[(last["part"] == part) & (last["layer"] == layer)].iloc[0]
                assert row[["never", "under_1", "under_5", "units"]].tolist() == counts


def test_networks_of_a_seed_begin_with_the_same_first_layer():
    trainings = plan("quick", seeds=2).trainings(Part(("abs", "relu2-bias", "abs-l2")))
    first = [experiment.start(t).state_dict() for t in trainings]
    assert all(s["0.weight"].equal(first[0]["0.weight"]) and s["0.bias"].equal(first[0]["0.bias"]) for s in first[:3])
    assert not first[3]["0.weight"].equal(first[0]["0.weight"])
    assert first[0]["0.weight"].abs().max() <= 1 / 28
    assert first[2]["2.alpha"].eq(1).all()
    assert float(first[2]["2.mu"].std()) == pytest.approx(0.1, rel=0.1)


def test_a_run_is_the_same_in_another_grouping_and_is_not_computed_again(done, tmp_path):
    store, _, _ = done
    other = Store(tmp_path)
    one = replace(SMALL, parts=(Part(("relu-l2",), "unit"),), seeds=1)
    lines, announce = said()
    experiment.compute(one, other, announce)
    experiment.compute(SMALL, other, announce)
    assert "(runs: 5 computed, 1 from the store)" in lines[1]
    assert files(other) == files(store)


def test_when_the_budget_is_used_up_the_next_call_goes_on(done, tmp_path):
    store, _, _ = done
    short = Store(tmp_path)
    lines, announce = said()
    assert experiment.compute(replace(SMALL, budget=1e-3), short, announce) == {}
    assert "budget" in lines[-1]
    assert len(list((tmp_path / "checkpoints").glob("*.safetensors"))) == 6
    steps = 0
    while len(short.runs()) < 6:
        experiment.compute(replace(SMALL, budget=1e-3), short, announce)
        steps += 1
    assert steps > 1
    assert files(short) == files(store)
    assert list((tmp_path / "checkpoints").glob("*")) == []


def test_networks_that_stand_at_different_epochs_catch_up(done, tmp_path):
    store, _, _ = done
    other = Store(tmp_path)
    ahead = replace(SMALL, parts=(Part(("relu2",), "unit"),), seeds=1, budget=1e-3)
    for _ in range(2):
        experiment.compute(ahead, other, lambda line: None)
    experiment.compute(SMALL, other, lambda line: None)
    assert files(other) == files(store)


def test_observed_epochs_are_few_and_hold_both_ends():
    for epochs in (1, 5, 400, 5_000, 50_000):
        seen, counted = experiment.observed(epochs), experiment.snapshots(epochs)
        assert seen[0] == counted[0] == 0
        assert seen[-1] == counted[-1] == epochs
        assert set(counted) <= set(seen)
        assert len(seen) <= 113
        assert len(counted) <= 13


SCRIPT = """
import sys
from pathlib import Path
from metriscope.runs import Store
from metriscope.studies.representation import plan
from metriscope.studies.representation.experiment import compute
asked = plan("quick", models=("abs", "relu-l2"), seeds=1, epochs=900, train_size=200, pixels="normalized")
compute(asked, Store(Path(sys.argv[1])), print)
"""


def run_script(out):
    environment = {**os.environ, "METRISCOPE_CHECKPOINT_SECONDS": "0.2"}
    command = [sys.executable, "-c", SCRIPT, str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_killed_call_goes_on_to_the_same_bits(tmp_path):
    process = run_script(tmp_path / "killed")
    while process.poll() is None and len(list((tmp_path / "killed" / "checkpoints").glob("*.safetensors"))) < 2:
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert Store(tmp_path / "killed").runs() == []
    saved = [path.stat().st_size for path in (tmp_path / "killed" / "checkpoints").glob("*.safetensors")]
    assert len(saved) == 2
    asked = plan("quick", models=("abs", "relu-l2"), seeds=1, epochs=900, train_size=200, pixels="normalized")
    for name in ("killed", "whole"):
        experiment.compute(asked, Store(tmp_path / name), lambda line: None)
    assert files(Store(tmp_path / "killed")) == files(Store(tmp_path / "whole"))


def test_images_of_a_subset_are_normalised_by_that_subset():
    asked = plan("quick", train_size=100, pixels="normalized")
    train, test = experiment.images(asked.trainings(asked.parts[0])[0])
    assert (len(train), len(test)) == (100, 1_000)
    assert float(train.x.mean(dtype=np.float64)) == pytest.approx(0, abs=1e-5)
    assert float(train.x.std(dtype=np.float64)) == pytest.approx(1, abs=1e-5)
    assert pd.Series(train.y).nunique() == 10
