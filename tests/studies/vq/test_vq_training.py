"""Training in groups: as torch does it, each network as it would be alone, and resumed where it stopped."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from metriscope.nn import stack_state, stacked_forward
from metriscope.rng import derive, stream
from metriscope.runs import Store
from metriscope.studies.vq import experiment
from metriscope.studies.vq.experiment import sample, start, train
from metriscope.studies.vq.networks import mlp, stacked_mlp
from metriscope.studies.vq.spec import ANGLE, NAME, Group, Recipe, Shape

SHORT = Recipe(epochs=12, loss="bce", kept=(2, 5))
GROUP = Group("moons", Shape(2, 2, 8), SHORT, ("first", "turned"), (0, 1), points=30)


@pytest.fixture
def small_digits(monkeypatch):
    """Sixty images of two classes in place of a data set."""
    pixels = torch.randint(256, (60, 784), generator=stream(0, "pixels")).to(torch.uint8)
    monkeypatch.setattr(experiment, "_pool", lambda name: (pixels, torch.arange(60) % 2))
    experiment._digits.cache_clear()
    yield
    experiment._digits.cache_clear()


def plain_adam(model, x, y, epochs, loss, batches):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for rows in batches(epoch):
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model


@pytest.mark.parametrize("activation", ["relu", "abs"])
def test_a_stack_is_each_network_by_itself(activation):
    shape = Shape(3, 2, 5, 2, activation)
    models = [mlp(shape, stream(seed, "start")) for seed in range(3)]
    x = torch.randn(3, 7, 3, generator=stream(0, "x"))
    state = stack_state(models)
    torch.testing.assert_close(stacked_mlp(shape, state, x), stacked_forward(models[0])(state, x))


def test_a_group_ends_where_torchs_adam_ends_on_each_networks_own_points(tmp_path):
    (networks,) = train((GROUP,), Store(tmp_path))
    for number, role in GROUP.members:
        own = sample(GROUP, number, role)
        alone = plain_adam(
            start(GROUP, number, role), own.x, own.y, 12,
            lambda out, y: F.binary_cross_entropy_with_logits(out[:, 0], y), lambda epoch: [torch.arange(30)],
        )  # fmt: skip
        for one, other in zip(networks.network(number, role).parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one, other.detach(), rtol=1e-4, atol=1e-6)


def test_mini_batches_come_from_each_networks_own_stream(tmp_path, small_digits):
    shape, recipe = Shape(784, 1, 4, 10), Recipe(epochs=2, loss="cross-entropy", batch=16)
    group = Group("digits", shape, recipe, ("first", "second"), (0, 1), "any", 40)
    (networks,) = train((group,), Store(tmp_path))
    for number, role in group.members:
        own, seed = sample(group, number, role), derive(0, NAME, "batches", number, role)
        alone = plain_adam(
            start(group, number, role), own.x, own.y, 2, F.cross_entropy,
            lambda epoch, seed=seed: torch.randperm(40, generator=stream(seed, "batches", epoch)).split(16),
        )  # fmt: skip
        for one, other in zip(networks.network(number, role).parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one, other.detach(), rtol=1e-3, atol=1e-5)


def test_roles_share_points_and_differ_in_turn_labels_and_start():
    first, turned = (sample(GROUP, 0, role) for role in ("first", "turned"))
    back = torch.linalg.lstsq(first.x, turned.x).solution
    cosine, sine = torch.cos(torch.tensor(ANGLE)), torch.sin(torch.tensor(ANGLE))
    torch.testing.assert_close(back, torch.stack([cosine, sine, -sine, cosine]).reshape(2, 2), rtol=1e-4, atol=1e-5)
    shuffled = sample(GROUP, 0, "shuffled")
    assert shuffled.x.equal(first.x)
    assert not shuffled.y.equal(first.y)
    assert shuffled.y.sort().values.equal(first.y.sort().values)
    assert not start(GROUP, 0, "first")[0].weight.equal(start(GROUP, 0, "turned")[0].weight)
    assert not first.x.equal(first.test_x)


def test_kept_epochs_are_those_of_a_training_that_stops_there(tmp_path):
    (whole,) = train((GROUP,), Store(tmp_path / "whole"))
    assert whole.epochs == (0, 2, 5, 12)
    cohort = experiment._cohort(GROUP)
    cohort.advance(5)
    kept = whole.network(1, "first", 5)
    assert kept[0].weight.equal(cohort.parameters["0.weight"][GROUP.members.index((1, "first"))])
    assert whole.network(1, "first", 0)[0].weight.equal(start(GROUP, 1, "first")[0].weight)


def test_a_training_that_was_stopped_goes_on_and_ends_in_the_same_bits(tmp_path, monkeypatch):
    (whole,) = train((GROUP,), Store(tmp_path / "whole"))
    monkeypatch.setattr(experiment, "CHECKPOINT_SECONDS", 0.0)
    store, ticks = Store(tmp_path / "stopped"), []

    def stop():
        ticks.append(1)
        if len(ticks) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment._compute(GROUP, store, stop)
    done = []
    run = experiment._compute(GROUP, store, lambda: done.append(1))
    assert 0 < len(done) < len(experiment._stops(GROUP))
    assert (run.path / "weights.safetensors").read_bytes() == (whole.run.path / "weights.safetensors").read_bytes()


def test_a_second_call_trains_nothing(tmp_path, monkeypatch):
    lines = []
    train((GROUP,), Store(tmp_path), lines.append)
    monkeypatch.setattr(experiment, "_compute", lambda *_: pytest.fail("trained again"))
    train((GROUP,), Store(tmp_path), lines.append)
    assert "groups: 1 computed, 0 from the store" in lines[0]
    assert "groups: 0 computed, 1 from the store" in lines[1]
