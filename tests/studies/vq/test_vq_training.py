"""Training in groups: as torch does it, each network as it would be alone, and resumed where it stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from metriscope.nn import stack_state, stacked_forward
from metriscope.rng import derive, stream
from metriscope.runs import Deadline, Driver, Store
from metriscope.runs.shards import CHECKPOINT_SECONDS
from metriscope.studies.vq import train as training
from metriscope.studies.vq.networks import PLANE, STUDY, Group, Images, MLPShape, VQRecipe
from metriscope.studies.vq.train import WORK, Networks, cohort, mlp, sample, stacked_mlp, start
from metriscope.train import Cohort

SHORT = VQRecipe(epochs=12, loss="bce", kept=(2, 5))
GROUP = Group("moons", MLPShape(2, 2, 8), SHORT, ("first", "turned"), (0, 1), replace(PLANE, count=30))
OTHER = replace(GROUP, shape=MLPShape(2, 1, 8), recipe=replace(SHORT, kept=()))


def train(groups, root, **settings):
    """Return the stored networks of groups."""
    runs = Driver(Store(root), **settings).perform(groups, WORK, "training")
    return [Networks(group, runs[group]) for group in groups]


@pytest.fixture
def small_digits(monkeypatch):
    """Sixty images of two classes in place of a data set."""
    pixels = torch.randint(256, (60, 784), generator=stream(0, "pixels")).to(torch.uint8)
    monkeypatch.setattr(training, "_pool", lambda name: (pixels, torch.arange(60) % 2))
    training._digits.cache_clear()
    yield
    training._digits.cache_clear()


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
    shape = MLPShape(3, 2, 5, 2, activation)
    models = [mlp(shape, stream(seed, "start")) for seed in range(3)]
    x = torch.randn(3, 7, 3, generator=stream(0, "x"))
    state = stack_state(models)
    torch.testing.assert_close(stacked_mlp(shape, state, x), stacked_forward(models[0])(state, x))


def test_a_group_ends_where_torchs_adam_ends_on_each_networks_own_points(tmp_path):
    (networks,) = train((GROUP,), tmp_path)
    for number, role in GROUP.members:
        own = sample(GROUP, number, role)
        alone = plain_adam(
            start(GROUP, number, role), own.x, own.y, 12,
            lambda out, y: F.binary_cross_entropy_with_logits(out[:, 0], y), lambda epoch: [torch.arange(30)],
        )  # fmt: skip
        for one, other in zip(networks.network(number, role).parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one, other.detach(), rtol=1e-4, atol=1e-6)


def test_mini_batches_come_from_each_networks_own_stream(tmp_path, small_digits):
    shape, recipe = MLPShape(784, 1, 4, 10), VQRecipe(epochs=2, loss="cross-entropy", batch=16)
    group = Group("digits", shape, recipe, ("first", "second"), (0, 1), Images("any", "", 40, 10))
    (networks,) = train((group,), tmp_path)
    for number, role in group.members:
        own, seed = sample(group, number, role), derive(0, STUDY, "batches", number, role)
        alone = plain_adam(
            start(group, number, role), own.x, own.y, 2, F.cross_entropy,
            lambda epoch, seed=seed: torch.randperm(40, generator=stream(seed, "batches", epoch)).split(16),
        )  # fmt: skip
        for one, other in zip(networks.network(number, role).parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one, other.detach(), rtol=1e-3, atol=1e-5)


def test_roles_share_points_and_differ_in_rotation_labels_and_start():
    first, rotated = (sample(GROUP, 0, role) for role in ("first", "turned"))
    back = torch.linalg.lstsq(first.x, rotated.x).solution
    cosine, sine = torch.cos(torch.tensor(GROUP.angle)), torch.sin(torch.tensor(GROUP.angle))
    torch.testing.assert_close(back, torch.stack([cosine, sine, -sine, cosine]).reshape(2, 2), rtol=1e-4, atol=1e-5)
    shuffled = sample(GROUP, 0, "shuffled")
    assert shuffled.x.equal(first.x)
    assert not shuffled.y.equal(first.y)
    assert shuffled.y.sort().values.equal(first.y.sort().values)
    assert not start(GROUP, 0, "first")[0].weight.equal(start(GROUP, 0, "turned")[0].weight)
    assert not first.x.equal(first.test_x)


def test_kept_epochs_are_those_of_a_training_that_stops_there(tmp_path):
    (whole,) = train((GROUP,), tmp_path / "whole")
    assert GROUP.epochs == (0, 2, 5, 12)
    stopped = cohort(GROUP)
    stopped.advance(5)
    kept = whole.network(1, "first", 5)
    assert kept[0].weight.equal(stopped.parameters["0.weight"][GROUP.members.index((1, "first"))])
    assert whole.network(1, "first", 0)[0].weight.equal(start(GROUP, 1, "first")[0].weight)
    assert whole.tensors["5/0.weight"].shape[0] == len(GROUP.seeds)


def bits(networks):
    return [(some.run.path / "weights.safetensors").read_bytes() for some in networks]


def test_weights_are_bit_identical_whether_a_group_trains_alone_or_with_others(tmp_path):
    together = train((GROUP, OTHER), tmp_path / "together")
    alone = [train((group,), tmp_path / "alone")[0] for group in (OTHER, GROUP)][::-1]
    assert bits(together) == bits(alone)


@pytest.mark.parametrize("calls", [2, 5, 7])
def test_a_training_that_was_stopped_and_resumed_is_bit_identical(tmp_path, monkeypatch, calls):
    whole = train((GROUP, OTHER), tmp_path / "whole")
    monkeypatch.setenv(CHECKPOINT_SECONDS, "0")
    advance, met = Cohort.advance, []

    def stop(self, epochs):
        met.append(self.epoch)
        if len(met) > calls:
            raise KeyboardInterrupt
        advance(self, epochs)

    monkeypatch.setattr(Cohort, "advance", stop)
    with pytest.raises(KeyboardInterrupt):
        train((GROUP, OTHER), tmp_path / "stopped")
    assert list((tmp_path / "stopped" / "checkpoints").glob("*.safetensors"))
    monkeypatch.setattr(Cohort, "advance", lambda self, epochs: (met.append(self.epoch), advance(self, epochs))[1])
    met.clear()
    assert bits(train((GROUP, OTHER), tmp_path / "stopped")) == bits(whole)
    assert min(met) > 0


def test_a_second_call_trains_nothing(tmp_path, monkeypatch):
    lines = []
    train((GROUP,), tmp_path, announce=lines.append)
    monkeypatch.setattr(Cohort, "advance", lambda *_: pytest.fail("trained again"))
    train((GROUP,), tmp_path, announce=lines.append)
    assert lines == ["training (runs: 1 computed, 0 from the store)", "training (runs: 0 computed, 1 from the store)"]


def test_a_budget_that_is_over_trains_nothing_and_says_so(tmp_path):
    found = Driver(Store(tmp_path), deadline=Deadline(0.0)).perform((GROUP,), WORK, "training")
    assert len(found) == 0


def test_torch_has_as_many_threads_after_training_as_before(tmp_path):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        train((GROUP, OTHER), tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
