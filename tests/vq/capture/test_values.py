"""Values that are kept beside the bits are those that a hook sees, wherever they are stored."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from metriscope.vq import Patterns, capture
from metriscope.vq.capture import packing
from metriscope.vq.capture.storage import sealed
from vq.capture.networks import NETWORKS, Text, drawn, points

MODEL = drawn(nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 5)))
MODEL.append(nn.Hardtanh())
X, BATCH = points(13, 2, 6, 6), 4


def hooked(model, data):
    """Return what each module of a network is given and returns, by its name."""
    given, returned = {}, {}

    def hook(name):
        def before(_, args):
            given.setdefault(name, []).append(args[0].detach().clone())

        def after(_, __, output):
            returned.setdefault(name, []).append(output.detach().clone())

        return before, after

    handles = []
    for name, module in model.named_modules():
        before, after = hook(name)
        handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    # In the same batches: the last bit of a convolution depends on their number of points.
    with torch.no_grad():
        for batch in data.split(BATCH):
            model.eval()(batch)
    for handle in handles:
        handle.remove()
    return tuple({name: torch.cat(parts) for name, parts in seen.items()} for seen in (given, returned))


@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_values_are_those_that_a_hook_sees(precision):
    given, returned = hooked(MODEL, X)
    before, after = (capture(MODEL, X, batch_size=BATCH, values=precision, after=late) for late in (False, True))
    for name in ("1", "5"):
        assert np.array_equal(before.values(name), given[name].numpy().astype(precision))
        assert np.array_equal(after.values(name), returned[name].numpy().astype(precision))
        assert before.values(name).dtype == precision
    # Of a pool there is one value per window, whether before or after: the winner.
    assert np.array_equal(before.values("2"), after.values("2"))
    assert np.array_equal(after.values("2"), returned["2"].numpy().astype(precision))
    assert before.equals(capture(MODEL, X, batch_size=BATCH))


@pytest.mark.parametrize("name", NETWORKS)
def test_signs_of_values_are_the_bits(name):
    kind, shape = NETWORKS[name]
    p = capture(drawn(kind()), points(9, *shape), batch_size=4, values="float32")
    for layer in p.layers:
        if layer.kind not in ("max_pool", "hardtanh", "relu6", "clamp"):
            assert ((p.values(layer.name) >= 0).reshape(len(p), -1) == (p.layer(layer.name).signs() > 0)).all()


def test_values_are_saved_beside_the_bits_and_mapped_again(tmp_path):
    p = capture(MODEL, X, values="float16", ids=[f"image {n}" for n in range(13)])
    for number, size in enumerate((400, 1 << 20)):
        p.save(tmp_path / str(number), shard_bytes=size)
        q = Patterns.load(tmp_path / str(number), verify=True)
        assert q.equals(p)
        for layer in p.layers:
            assert np.array_equal(q.values(layer.name), p.values(layer.name))
            rows = [3, 1, 12]
            assert np.array_equal(q[rows].values(layer.name), p.values(layer.name)[rows])
    assert len(list((tmp_path / "0").glob("*.safetensors"))) > 1
    assert np.array_equal(p.layer("5").values("5"), p.values("5"))
    assert np.array_equal(Patterns.concatenate([p[:4], p[4:]]).values("1"), p.values("1"))


def test_a_shard_that_lacks_values_is_damaged(tmp_path):
    p = capture(MODEL, X)
    p.save(tmp_path / "p")
    path = tmp_path / "p" / "index.json"
    index = json.loads(path.read_text())
    del index["format"], index["sha256"]
    path.write_bytes(sealed(index | {"values": True}))
    with pytest.raises(Exception, match="does not hold the arrays of a shard"):
        Patterns.load(tmp_path / "p")


def test_values_that_come_in_an_unknown_number_of_batches_are_whole(monkeypatch):
    expected = capture(MODEL, X, batch_size=2, values="float32")
    for resized in (packing._resized, lambda *memory: packing._copied(*memory)):
        monkeypatch.setattr(packing, "_resized", resized)
        monkeypatch.setattr(packing, "_SMALL", 0)
        found = capture(MODEL, (X[start : start + 2] for start in range(0, 13, 2)), values="float32")
        assert np.array_equal(found.values("1"), expected.values("1"))
        assert np.array_equal(found.values("5"), expected.values("5"))


def test_pooled_channels_have_the_value_that_their_bit_has():
    given, _ = hooked(MODEL, X)
    p = capture(MODEL, X, batch_size=BATCH, values="float32", conv="channels")
    assert np.array_equal(p.values("1"), given["1"].amax((2, 3)).numpy())
    assert ((p.values("1") >= 0) == (p.layer("1").signs() > 0)).all()


@pytest.mark.parametrize("tokens", ["any", "first", "last", "mean"])
def test_pooled_tokens_leave_out_those_that_are_masked(tokens):
    model, words = drawn(Text()), torch.arange(30).reshape(6, 5) % 13
    mask = torch.ones(6, 5, dtype=torch.long)
    mask[:3, 3:], mask[3:, 0] = 0, 0
    with torch.no_grad():
        z = model.intermediate(model.embedding(words)).numpy()
    kept = [z[i][mask[i].numpy() > 0] for i in range(6)]
    expected = {
        "any": lambda k: k.max(0),
        "first": lambda k: k[0],
        "last": lambda k: k[-1],
        "mean": lambda k: k.mean(0),
    }
    p = capture(model, {"input_ids": words, "attention_mask": mask}, tokens=tokens, values="float32")
    np.testing.assert_allclose(p.values("act"), np.stack([expected[tokens](k) for k in kept]), rtol=1e-5, atol=1e-6)


def test_a_layer_with_its_points_elsewhere_has_its_values_by_point():
    model = drawn(nn.Sequential(nn.Linear(4, 6), nn.Tanh()))
    x = points(5, 9, 4)
    p = capture(model, x, points_axis=1, values="float32", after=True)
    with torch.no_grad():
        assert np.array_equal(p.values("1"), model(x).transpose(0, 1).numpy())


def test_values_beyond_a_precision_are_refused():
    with pytest.raises(ValueError, match=r"layer 'relu' \(relu\) has values that float16 cannot hold"):
        capture(nn.ReLU(), torch.full((2, 2), 1e6), values="float16")
    assert capture(nn.ReLU(), torch.full((2, 2), 1e6), values="float32").values("relu").max() == 1e6


def test_patterns_without_values_say_so():
    with pytest.raises(ValueError, match=r'these patterns have no values; capture\(..., values="float16"\) keeps them'):
        capture(MODEL, X).values("1")
    with pytest.raises(ValueError, match="there is no layer 'x'"):
        capture(MODEL, X, values="float16").values("x")
    with pytest.raises(ValueError, match="values must be"):
        capture(MODEL, X, values="int8")
    with pytest.raises(ValueError, match=r"values must be of shape \(1, 1\), got \(2, 1\)"):
        Patterns(capture(nn.ReLU(), torch.ones(1)).layers, np.zeros((1, 1), np.uint8), values=np.zeros((2, 1)))


def test_what_a_formula_or_a_recurrent_layer_returns_cannot_be_kept():
    for model in (drawn(nn.LSTM(4, 6, batch_first=True)), ByHand()):
        x = points(5, 3, 4)
        assert capture(model, x, values="float32").width > 0
        with pytest.raises(ValueError, match="returns cannot be read; leave it out with layers="):
            capture(model, x, values="float32", after=True)


class ByHand(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, 0)


class Two(nn.Module):
    """A network of two inputs, and an option."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 6), nn.Linear(3, 6)

    def forward(self, left, right, scale=1.0):
        return F.relu(self.left(left) + scale * self.right(right))


def test_a_model_of_several_inputs_takes_them_from_a_tuple():
    model, left, right, labels = drawn(Two()), points(11, 4), points(11, 3, seed=1), torch.arange(11)
    with torch.no_grad():
        expected = np.where(model.left(left) + model.right(right) >= 0, 1, -1)
    loader = DataLoader(TensorDataset(left, right, labels), batch_size=4)
    nested = [((left[:6], right[:6]), labels[:6]), ((left[6:], right[6:]), labels[6:])]
    named = {"left": left, "right": right}
    for data in ((left, right), (left.numpy(), right.numpy()), (left, right, labels), loader, nested, named):
        assert (capture(model, data, batch_size=4).signs() == expected).all()


def test_the_workers_of_a_loader_load():
    loader = DataLoader(TensorDataset(X), batch_size=4, num_workers=1)
    assert capture(MODEL, loader).equals(capture(MODEL, X, batch_size=4))


def test_autocast_runs_the_model_in_its_precision():
    model, x = drawn(nn.Sequential(nn.Linear(40, 60), nn.ReLU())), points(50, 40)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        z = model[0](x)
    p = capture(model, x, values="float32", autocast=torch.bfloat16)
    assert np.array_equal(p.values("1"), z.float().numpy())
    assert not np.array_equal(p.values("1"), capture(model, x, values="float32").values("1"))
    with torch.autocast("cpu", torch.bfloat16):
        assert capture(model, x).equals(p)
