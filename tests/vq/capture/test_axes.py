"""Which axis of an activation holds the points, however the network arranges them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from metriscope.vq import capture
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
    with pytest.raises(ValueError, match="strict: .* change with the other points"):
        capture(layer, points(5, 3, 4), strict=True)
    assert not capture(layer, points(5, 3, 4), points_axis=1).missed


def test_a_pool_along_the_points_is_dropped():
    class Pooled(nn.Module):
        def forward(self, x):
            return F.max_pool1d(F.relu(x).T, 2)

    p = capture(Pooled(), points(6, 3))
    assert [layer.kind for layer in p.layers] == ["relu"]
    assert "dropped: 1 (rows are not points)" in str(p.missed)
