"""Layers may be named by their activation or by the layer that feeds it."""

import numpy as np
import pytest
import torch
from torch import nn

from metriscope.reading.layer_names import activations_of
from metriscope.reading.networks import Reading, read_network
from metriscope.reading.points import UserPoints

X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
NET = """
from torch import nn
def make():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.Tanh())
"""


class Blocks(nn.Module):
    """Two linear layers whose activations are functions."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["1"], ["1"]),
        (["0"], ["1"]),
        (["2", "0"], ["3", "1"]),
        (["0", "1"], ["1"]),
        (["*"], ["1", "3"]),
        (["7"], ["7"]),
    ],
)
def test_an_activation_is_found_by_its_name_or_by_the_layer_before_it(wanted, found):
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.Tanh())
    assert activations_of(net, torch.from_numpy(X), wanted) == found


def test_an_activation_that_is_a_function_is_found_by_the_layer_before_it():
    net = Blocks()
    (found,) = activations_of(net, torch.from_numpy(X), ["second"])
    assert found != "second"
    assert activations_of(net, torch.from_numpy(X), [found]) == [found]


def test_the_command_takes_the_names_that_its_page_shows(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(NET)
    named = f"{tmp_path / 'net.py'}:make"
    patterns, _ = read_network(named, UserPoints(X), how=Reading(layers=("2",)))
    assert [(layer.name, layer.kind, layer.width) for layer in patterns.layers] == [("3", "tanh", 2)]
    with pytest.raises(ValueError, match="conv7"):
        read_network(named, UserPoints(X), how=Reading(layers=("conv7",)))
