"""What the study computes and stores, and what is left after a kill or at the end of a budget."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from metriscope.runs import Driver, Store
from metriscope.studies.representation import train
from metriscope.studies.representation.plan import RepresentationOptions, RepresentationTraining, plan

SMALL = plan(
    RepresentationOptions(models=("abs2-neg", "relu2", "relu-l2"), seeds=2, epochs=5, train_size=60, pixels="unit")
)


class Ticks:
    """A deadline that comes after so many looks at it, which is the same on every machine."""

    def __init__(self, looks):
        self.looks = looks

    @property
    def over(self):
        self.looks -= 1
        return self.looks < 0

    left = 0.0


def perform(jobs, store, looks=10**9):
    lines = []
    found = Driver(store, lines.append, Ticks(looks)).perform(jobs, train.WORK, "training")
    return found, lines


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
    return store, *perform(SMALL.jobs(), store)


def test_every_training_is_stored_once_and_found_again(done):
    store, runs, lines = done
    assert len(runs) == len(store.runs()) == 6
    assert lines == ["training (runs: 6 computed, 0 from the store)"]
    again, lines = perform(SMALL.jobs(), store)
    assert {t: r.address for t, r in again.items()} == {t: r.address for t, r in runs.items()}
    assert lines == ["training (runs: 0 computed, 6 from the store)"]
    assert store.verify() == []


def test_a_stored_network_scores_what_its_history_says(done):
    _, runs, _ = done
    for job, run in runs.items():
        last, model = run.table("history").iloc[-1], train.network(job, run)
        for part, images in zip(("train", "test"), train.images(job), strict=True):
            output, labels = model(torch.from_numpy(images.x)), torch.from_numpy(images.y)
            assert last[f"{part}_loss"] == pytest.approx(F.cross_entropy(output, labels).item(), rel=1e-5)
            assert last[f"{part}_accuracy"] == pytest.approx((output.argmax(1) == labels).double().mean().item())
        assert last["epoch"] == job.epochs


def test_a_history_begins_with_the_start_and_has_no_gaps(done):
    _, runs, _ = done
    for job, run in runs.items():
        history = run.table("history")
        assert history["epoch"].tolist() == list(range(6))
        assert history.notna().all(axis=None)
        images, _ = train.images(job)
        loss = F.cross_entropy(train.start(job)(torch.from_numpy(images.x)), torch.from_numpy(images.y))
        assert history["train_loss"].iloc[0] == pytest.approx(loss.item(), rel=1e-5)


def test_idle_units_are_counted_as_pytorch_would(done):
    _, runs, _ = done
    for job, run in runs.items():
        dead = run.table("dead")
        assert dead.columns.tolist() == ["epoch", "part", "layer", "never", "under_1", "under_5", "units"]
        model, last = train.network(job, run), dead[dead["epoch"] == job.epochs]
        for part, images in zip(("train", "test"), train.images(job), strict=True):
            x = torch.from_numpy(images.x)
            for layer, values in (("hidden", model[:2](x)), ("output", model(x))):
                share = (values.abs() > 1e-6).double().mean(0)
                counts = [int((share == 0).sum()), int((share < 0.01).sum()), int((share < 0.05).sum()), len(share)]
                row = last[(last["part"] == part) & (last["layer"] == layer)].iloc[0]
                assert row[["never", "under_1", "under_5", "units"]].tolist() == counts


def test_networks_of_a_seed_begin_with_the_same_first_layer():
    jobs = plan(RepresentationOptions(models=("abs", "relu2-bias", "abs-l2"), seeds=2, pixels="raw")).jobs()
    first = [train.start(job).state_dict() for job in jobs]
    assert all(s["0.weight"].equal(first[0]["0.weight"]) and s["0.bias"].equal(first[0]["0.bias"]) for s in first[:3])
    assert not first[3]["0.weight"].equal(first[0]["0.weight"])
    assert first[0]["0.weight"].abs().max() <= 1 / 28
    assert first[2]["2.alpha"].eq(1).all()
    assert float(first[2]["2.mu"].std()) == pytest.approx(0.1, rel=0.1)


def test_trainings_share_a_pass_only_where_all_but_network_and_start_agree():
    jobs = plan(RepresentationOptions(seeds=2)).jobs()
    shards = train.WORK.shards(jobs)
    assert [len(shard) for shard in shards] == [16, 16, 12]
    assert all(len({job.pixels for job in shard}) == 1 for shard in shards)


def test_a_run_is_the_same_in_another_grouping_and_is_not_computed_again(done, tmp_path):
    store, _, _ = done
    other = Store(tmp_path)
    perform([job for job in SMALL.jobs() if (job.model, job.number) == ("relu-l2", 0)], other)
    _, lines = perform(SMALL.jobs(), other)
    assert lines == ["training (runs: 5 computed, 1 from the store)"]
    assert files(other) == files(store)


def test_when_the_budget_is_used_up_the_next_call_goes_on(done, tmp_path):
    store, _, _ = done
    short = Store(tmp_path)
    # The loop, the pass and its first step each look at the deadline; the fourth look ends the call.
    found, _ = perform(SMALL.jobs(), short, looks=2)
    assert (found, found.asked) == ({}, 6)
    assert len(list((tmp_path / "checkpoints").glob("*.safetensors"))) == 6
    calls = 0
    while len(short.runs()) < 6:
        perform(SMALL.jobs(), short, looks=2)
        calls += 1
    assert calls > 1
    assert files(short) == files(store)
    assert list((tmp_path / "checkpoints").glob("*")) == []


def test_networks_that_stand_at_different_epochs_catch_up(done, tmp_path):
    store, _, _ = done
    other = Store(tmp_path)
    ahead = [job for job in SMALL.jobs() if (job.model, job.number) == ("relu2", 0)]
    for _ in range(2):
        assert perform(ahead, other, looks=2)[0] == {}
    perform(SMALL.jobs(), other)
    assert files(other) == files(store)


@pytest.mark.parametrize("epochs", [1, 5, 400, 5_000, 50_000])
def test_observed_epochs_are_few_and_hold_both_ends(epochs):
    job = RepresentationTraining("abs", 0, "mnist", 60_000, "raw", epochs)
    seen, counted = train.observed(job), train.counted(job)
    assert seen[0] == counted[0] == 0
    assert seen[-1] == counted[-1] == epochs
    assert set(counted) <= set(seen)
    assert len(seen) <= 113
    assert len(counted) <= 13


SCRIPT = """
import sys
from pathlib import Path
from metriscope.runs import Driver, Store
from metriscope.studies.representation.plan import RepresentationOptions, plan
from metriscope.studies.representation.train import WORK
asked = plan(RepresentationOptions(models=("abs", "relu-l2"), seeds=1, epochs=400, train_size=200, pixels="normalized"))
Driver(Store(Path(sys.argv[1])), print).perform(asked.jobs(), WORK, "training")
"""


@pytest.mark.slow  # three compilations; the driver's own tests kill jobs too
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_killed_call_resumes_to_bit_identical_weights(tmp_path):
    environment = {**os.environ, "METRISCOPE_CHECKPOINT_SECONDS": "0.2"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "killed")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    while process.poll() is None and len(list((tmp_path / "killed" / "checkpoints").glob("*.safetensors"))) < 2:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert Store(tmp_path / "killed").runs() == []
    assert len(list((tmp_path / "killed" / "checkpoints").glob("*.safetensors"))) == 2
    asked = plan(
        RepresentationOptions(models=("abs", "relu-l2"), seeds=1, epochs=400, train_size=200, pixels="normalized")
    )
    for name in ("killed", "whole"):
        perform(asked.jobs(), Store(tmp_path / name))
    assert files(Store(tmp_path / "killed")) == files(Store(tmp_path / "whole"))


def test_images_of_a_subset_are_normalized_by_that_subset():
    images, test = train.images(plan(RepresentationOptions(train_size=100, pixels="normalized")).jobs()[0])
    assert (len(images), len(test)) == (100, 1_000)
    assert float(images.x.mean(dtype=np.float64)) == pytest.approx(0, abs=1e-5)
    assert float(images.x.std(dtype=np.float64)) == pytest.approx(1, abs=1e-5)
    assert pd.Series(images.y).nunique() == 10
