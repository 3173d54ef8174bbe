"""A model that was captured is exactly as it was before, whatever happened; and memory holds one batch at a time."""

from __future__ import annotations

import random
import tracemalloc
import weakref
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as global_hooks
from torch.utils.data import DataLoader, TensorDataset

from metriscope.common.model_state import Runner
from metriscope.vq.capture import packing
from metriscope.vq.capture.capture import capture, describe
from metriscope.vq.capture.packing import RowBuffer
from vq.capture.networks import NETWORKS, ResidualConvolutions, drawn, points

HOOKS = [name for name in vars(nn.Module()) if "hook" in name]


def everything(model):
    """Return all that a capture could change, in a form that can be compared."""
    numpy_state = np.random.get_state()  # noqa: NPY002  the legacy state is one of those that must be kept
    return {
        "training": [module.training for module in model.modules()],
        "hooks": [{name: _copy(getattr(module, name)) for name in HOOKS} for module in model.modules()],
        "global hooks": [_copy(value) for name, value in vars(global_hooks).items() if name.startswith("_global_")],
        "weights": [
            (name, weight.data_ptr(), weight.device) for name, weight in model.state_dict(keep_vars=True).items()
        ],
        "values": [weight.tolist() for weight in model.state_dict().values()],
        "gradients": [(w.requires_grad, w.grad is not None and w.grad.tolist()) for w in model.parameters()],
        "identities": [id(weight) for weight in (*model.parameters(), *model.buffers())],
        "random": (torch.get_rng_state().tolist(), random.getstate(), [np.asarray(p).tolist() for p in numpy_state]),
        "modes": (torch.is_grad_enabled(), len(torch.overrides._get_current_function_mode_stack())),
    }


def _copy(value):
    return list(value.items()) if isinstance(value, dict | OrderedDict) else value


@pytest.fixture
def model():
    """A model in mixed modes, with hooks of its own, gradients, and a frozen weight."""
    model = drawn(ResidualConvolutions())
    model.norm.eval()
    model.first.register_forward_hook(lambda module, args, output: None)
    model.register_forward_pre_hook(lambda module, args: None)
    model(points(3, 2, 6, 6)).sum().backward()
    model.second.weight.requires_grad_(False)
    return model


X = points(7, 2, 6, 6)


def test_a_model_is_as_it_was(model):
    before = everything(model)
    capture(model, X, batch_size=3)
    assert everything(model) == before


def test_a_model_that_draws_and_a_shuffling_loader_leave_every_random_state_alone(undrawn):
    class Noisy(nn.Module):
        def forward(self, x):
            noise = torch.randn_like(x) + random.random() + np.random.rand()  # noqa: NPY002  what a model may do
            return F.relu(F.dropout(x + noise, training=True))

    capture(Noisy(), DataLoader(TensorDataset(points(9, 3)), batch_size=2, shuffle=True))
    describe(Noisy(), points(2, 3))


def test_a_model_runs_in_eval_mode_without_gradients():
    class Watchful(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            self.seen = self.training, self.drop.training, torch.is_grad_enabled(), torch.is_inference_mode_enabled()
            return self.drop(x).relu()

    watchful, x = Watchful(), points(4, 3)
    assert (capture(watchful, x).signs() == np.where(x >= 0, 1, -1)).all()
    assert watchful.seen == (False, False, False, False)
    assert watchful.training
    assert watchful.drop.training


class Failing(nn.Module):
    """Stops at the second batch, deep inside, after some activations."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.calls = inner, 0

    def forward(self, x):
        self.calls += 1
        h = self.inner(x)
        if self.calls > 1:
            raise ZeroDivisionError("the model's own")
        return h


def failing_batches():
    yield X
    raise KeyError("the data's own")


@pytest.mark.parametrize("inside", [lambda model: model, nn.Sequential])
def test_an_error_of_the_model_passes_and_leaves_everything_as_it_was(model, inside):
    failing = inside(Failing(model))
    before = everything(failing)
    with pytest.raises(ZeroDivisionError, match="the model's own"):
        capture(failing, X, batch_size=3)
    assert everything(failing) == before


def test_an_error_of_the_data_passes_and_leaves_everything_as_it_was(model):
    before = everything(model)
    with pytest.raises(KeyError, match="the data's own"):
        capture(model, failing_batches())
    assert everything(model) == before


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_pre_activation_that_is_not_finite_is_named_and_leaves_everything_as_it_was(model, bad):
    x = X.clone()
    x[5, 0, 2, 3] = bad
    before = everything(model)
    with pytest.raises(ValueError, match="layer 'act' \\(relu\\) has pre-activations that are NaN or infinite"):
        capture(model, x, batch_size=3)
    assert everything(model) == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_finite_values_whose_sum_overflows_are_fine_and_infinite_ones_are_not(dtype):
    x = torch.full((4, 5), torch.finfo(dtype).max, dtype=dtype)
    assert (capture(nn.ReLU(), x).signs() == 1).all()
    x[2, 2] = -torch.inf
    with pytest.raises(ValueError, match="NaN or infinite"):
        capture(nn.ReLU(), x)


def test_layers_that_were_not_chosen_may_be_infinite():
    class Odd(nn.Module):
        def forward(self, x):
            return F.relu(x) + torch.sigmoid(x / 0)

    assert len(capture(Odd(), torch.ones(2, 3), "relu")) == 2


def test_a_failure_that_the_model_catches_does_not_shift_the_names():
    class Fragile(nn.Module):
        def forward(self, x):
            raise RuntimeError

    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.fragile, self.act = Fragile(), nn.ReLU()

        def forward(self, x):
            try:
                return self.fragile(x)
            except RuntimeError:
                return F.relu(self.act(x))

    assert [layer.name for layer in capture(Careful(), points(2, 3)).layers] == ["act", "relu()"]


def test_a_model_on_another_device_is_never_moved(model):
    seen = []
    model.second.register_forward_hook(lambda module, args, output: seen.append((module.weight.device, output.device)))
    before = everything(model)
    # "meta" is the one other device that every machine has.
    assert Runner(model, "meta")(X.to("meta")).device == torch.device("meta")
    assert seen == [(torch.device("meta"),) * 2]
    assert everything(model) == before


def test_a_device_without_values_is_refused(model):
    with pytest.raises(ValueError, match="'meta' have no values"):
        capture(model, X, device="meta")


def test_asking_for_the_device_a_model_is_on_changes_nothing(model):
    assert capture(model, X, device="cpu").equals(capture(model, X))


def test_only_one_batch_is_held_at_a_time():
    alive, most = weakref.WeakSet(), []

    class Big(nn.Module):
        def forward(self, x):
            hidden = x.repeat(1, 4)
            alive.add(hidden)
            return F.relu(hidden)

    def batches():
        for number in range(20):
            batch = points(50, 8, seed=number)
            alive.add(batch)
            most.append(len(alive))
            yield batch
            del batch

    p = capture(Big(), batches())
    assert max(most) == 1
    assert (len(p), p.packed.nbytes) == (1000, 1000 * 4)
    assert (p.signs()[50:100, :8] == np.where(points(50, 8, seed=1) >= 0, 1, -1)).all()


def most_memory():
    """Return the most bytes of memory that this process has held since the last :func:`forget_most_memory`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def forget_most_memory():
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("only Linux says how much memory a process has held at most, and forgets it")


def test_packed_bytes_are_held_once_while_they_arrive():
    # Far more than what other threads and the allocator give and take meanwhile.
    batch, count = np.ones((64, 4096), np.uint8), 512
    buffer = RowBuffer(4096, 64)
    forget_most_memory()
    before = most_memory()
    for number in range(count):
        batch[:, 0] = number % 251
        buffer.append([batch])
    # The room grows by less than a third beyond what is needed, and no page is touched before its rows arrive.
    assert most_memory() - before < 1.1 * count * batch.nbytes
    assert len(buffer) <= buffer.room <= 1.35 * len(buffer)
    rows = buffer.close()
    assert most_memory() - before < 1.1 * count * batch.nbytes
    assert (rows[::64, 0] == np.arange(count) % 251).all()
    assert (rows[:, 1:] == 1).all()


def test_bits_are_packed_before_the_next_batch_comes():
    class Wide(nn.Module):
        def forward(self, x):
            return F.relu(x.expand(-1, 4096))

    def peak(count):
        tracemalloc.start()
        try:
            capture(Wide(), (torch.full((16, 1), number - 10.0) for number in range(count)))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2)
    few, many = peak(10), peak(200)
    # Where a system cannot grow memory in place, old and new room are held at once, and the new is up to a third too
    # large: 2.35 times what is needed. Bits that are not packed would be eight times as much.
    assert many - few < 2.35 * (200 - 10) * 16 * 512 + 50_000


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("width", [0, 3, 40_000])
def test_rows_come_out_as_they_went_in_wherever_memory_can_grow(monkeypatch, in_place, width):
    if not in_place:
        monkeypatch.setattr(packing, "_resized", lambda *memory: packing._copied(*memory))
    rows = np.random.default_rng(0).integers(0, 256, (150, width)).astype(np.uint8)
    buffer = RowBuffer(width, 7)
    for start in range(0, 150, 11):
        buffer.append(np.array_split(rows[start : start + 11], 2, axis=1))
    assert len(buffer) == 150
    np.testing.assert_array_equal(buffer.close(), rows)


def test_a_capture_gives_rows_that_may_be_written():
    p = capture(nn.ReLU(), points(3000, 4096))
    assert p.packed.nbytes > 1 << 20
    assert p.packed.flags.writeable == capture(nn.ReLU(), points(3, 5)).packed.flags.writeable


@pytest.mark.parametrize("name", NETWORKS)
def test_the_size_of_the_batches_does_not_matter(name):
    kind, shape = NETWORKS[name]
    network, x = drawn(kind()), points(12, *shape)
    # Matrix products round differently in another batch; no pre-activation here is that close to zero.
    assert capture(network, x, batch_size=5).equals(capture(network, x, batch_size=100))
