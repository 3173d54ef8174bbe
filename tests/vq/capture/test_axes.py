"""Which axis of an activation holds the points, however the network arranges them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from metriscope.vq import capture
from metriscope.vq.capture import packing
from vq.capture.networks import drawn, points


class Arranged(nn.Module):
    """A linear layer on tokens, and an activation of its output in another arrangement."""

    def __init__(self, arrange):
        super().__init__()
        self.linear, self.arrange = nn.Linear(4, 6), arrange

    def forward(self, x):
        return F.relu(self.arrange(self.linear(x)))


ARRANGED = {
    "points first": lambda z: z,
    "tokens first": lambda z: z.transpose(0, 1),
    "folded, points first": lambda z: z.flatten(0, 1),
    "folded, tokens first": lambda z: z.transpose(0, 1).flatten(0, 1),
}


@pytest.mark.parametrize("tokens", [1, 3, 5, 7])
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("name", ARRANGED)
def test_rows_are_points_in_every_arrangement(name, count, tokens):
    network, x = drawn(Arranged(ARRANGED[name])), points(count, tokens, 4)
    p = capture(network, x, strict=True)
    with torch.no_grad():
        z = network.linear(x)
    assert (p.signs() > 0).tolist() == (z >= 0).flatten(1).tolist()


@pytest.mark.parametrize("name", ARRANGED)
def test_a_last_batch_of_another_size_is_read_in_the_same_way(name):
    network, x = drawn(Arranged(ARRANGED[name])), points(11, 3, 4)
    assert (capture(network, x, batch_size=4).packed == capture(network, x).packed).all()


def test_windows_are_put_back_to_their_points():
    class Windows(nn.Module):
        def forward(self, x):
            n, c, h, w = x.shape
            windows = x.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, c)
            return F.gelu(windows)

    x = points(4, 3, 4, 4)
    p = capture(Windows(), x, strict=True)
    assert p.layers[0].shape == (4, 4, 3)
    assert p.signs().sum(1).tolist() == np.where(x >= 0, 1, -1).reshape(4, -1).sum(1).tolist()


@pytest.mark.parametrize("size", [3, 4, 9])
def test_data_with_tokens_first_is_read_along_its_axis_of_points(size):
    network, x = drawn(nn.Sequential(nn.Linear(4, 6), nn.ReLU())), points(size, 7, 4)
    p = capture(network, x, points_axis=1, batch_size=3, strict=True)
    with torch.no_grad():
        z = network[0](x)
    assert (p.signs() > 0).tolist() == (z >= 0).transpose(0, 1).flatten(1).tolist()
    named = capture(network, {"input": x}, points_axis=1, batch_size=3, strict=True)
    assert (named.packed == p.packed).all()


def test_data_without_such_an_axis_is_refused():
    with pytest.raises(ValueError, match=r"data must have its points on axis 2, got the shape \(5, 4\)"):
        capture(nn.ReLU(), points(5, 4), points_axis=2)


def test_points_that_depend_on_each_other_are_told():
    # Attention along the axis that was taken for the points, as if tokens came second.
    layer = drawn(nn.TransformerEncoderLayer(4, 2, 8, batch_first=False))
    p = capture(layer, points(5, 3, 4))
    assert str(p.missed) == "1 layer taken; rows of 1 layer change with the other points of a batch, or by chance"
    with pytest.raises(ValueError, match=r"strict: .* change with the other points"):
        capture(layer, points(5, 3, 4), strict=True)
    assert not capture(layer, points(5, 3, 4), points_axis=1).missed


def test_a_pool_along_the_points_is_dropped():
    class Pooled(nn.Module):
        def forward(self, x):
            return F.max_pool1d(F.relu(x).T, 2)

    p = capture(Pooled(), points(6, 3))
    assert [layer.kind for layer in p.layers] == ["relu"]
    assert "dropped: 1 (rows are not points)" in str(p.missed)


POOLED = {
    "any": lambda on: on.any(0),
    "first": lambda on: on[0],
    "last": lambda on: on[-1],
    "mean": lambda on: 2 * on.sum(0) >= len(on),
}


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.linear = nn.Embedding(20, 4), nn.Linear(4, 6)

    def forward(self, input_ids, attention_mask=None):
        return F.gelu(self.linear(self.embedding(input_ids)))


@pytest.mark.parametrize("tokens", POOLED)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_tokens_are_pooled_and_padding_does_not_vote(tokens, elsewhere, monkeypatch):
    if elsewhere:
        monkeypatch.setattr(packing, "in_numpy", lambda values: False)
    network = drawn(Words())
    ids = torch.arange(35).reshape(7, 5) % 20
    mask = torch.ones(7, 5)
    mask[2, 3:], mask[4, 0], mask[5] = 0, 0, 0
    with torch.no_grad():
        on = (network.linear(network.embedding(ids)) >= 0).numpy()
    plain = capture(network, {"input_ids": ids}, tokens=tokens)
    assert plain.layers[0].shape == (6,)
    assert (np.asarray(plain) == np.array([POOLED[tokens](one) for one in on])).all()
    padded = capture(network, {"input_ids": ids, "attention_mask": mask}, tokens=tokens, batch_size=3)
    expected = [
        POOLED[tokens](one[some]) if some.any() else np.zeros(6) for one, some in zip(on, mask > 0, strict=True)
    ]
    assert (np.asarray(padded) == np.array(expected)).all()


def test_pooled_tokens_leave_convolutions_alone():
    network = drawn(nn.Sequential(nn.Conv1d(3, 4, 1), nn.ReLU(), nn.Linear(5, 2), nn.GELU()))
    assert [layer.shape for layer in capture(network, points(6, 3, 5), tokens="mean").layers] == [(4, 5), (2,)]
    with pytest.raises(ValueError, match="tokens"):
        capture(network, points(6, 3, 5), tokens="median")
