"""Networks that were compiled, exported or scripted show the same patterns as the network they were made from."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from metriscope.vq.capture import packing
from metriscope.vq.capture.capture import capture
from metriscope.vq.capture.packing import _pack_bits
from vq.capture.networks import NETWORKS, drawn, points

KIND, SHAPE = NETWORKS["residual convolutions"]
X = points(9, *SHAPE)


@pytest.fixture
def model():
    return drawn(KIND()).eval()


def test_packing_on_another_device_gives_the_same_bytes():
    for width in (1, 7, 8, 9, 64, 100):
        bits = points(5, width) >= 0
        assert (_pack_bits(bits).numpy() == np.packbits(bits.numpy(), axis=1)).all()


@pytest.mark.parametrize("conv", ["positions", "channels"])
@pytest.mark.parametrize("name", NETWORKS)
def test_bits_that_are_read_without_numpy_are_the_same(name, conv, monkeypatch):
    kind, shape = NETWORKS[name]
    network, x = drawn(kind()), points(11, *shape)
    expected = capture(network, x, conv=conv)
    monkeypatch.setattr(packing, "in_numpy", lambda values: False)
    monkeypatch.setattr(packing, "_CHUNK_ELSEWHERE", 1000)
    assert capture(network, x, conv=conv).equals(expected)
    x[3] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        capture(network, x, conv=conv)


@pytest.mark.parametrize("conv", ["positions", "channels"])
@pytest.mark.parametrize("name", NETWORKS)
def test_bits_that_are_read_a_few_points_at_a_time_are_the_same(name, conv, monkeypatch):
    kind, shape = NETWORKS[name]
    network, x = drawn(kind()), points(50, *shape)
    expected = capture(network, x, conv=conv)
    monkeypatch.setattr(packing, "_CHUNK", 100)
    assert capture(network, x, conv=conv).equals(expected)


def test_an_exported_network_shows_the_same_bits(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(model, (X,)).module()
    p = capture(exported, X)
    assert (p.signs() == capture(model, X).signs()).all()
    assert {layer.seen for layer in p.layers} == {"operator"}


def test_a_scripted_network_shows_the_same_bits(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(model)
        p = capture(scripted, X, batch_size=4)
    assert (p.signs() == capture(model, X).signs()).all()
    assert {layer.seen for layer in p.layers} == {"operator"}


def test_a_network_with_a_scripted_part_shows_all_its_layers(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part = torch.jit.script(nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU()))
        p = capture(nn.Sequential(part, nn.ReLU()), X)
    assert [layer.name for layer in p.layers] == ["0.relu()", "1"]


def test_a_compiled_network_is_run_as_it_was_written(model):
    expected = capture(model, X)
    compiled = torch.compile(model, backend="eager")
    assert capture(compiled, X).equals(expected)
    assert capture(nn.Sequential(compiled), X).packed.tolist() == expected.packed.tolist()


def test_an_activation_inside_vmap_is_refused():
    class Mapped(nn.Module):
        def forward(self, x):
            return torch.vmap(torch.relu)(x)

    with pytest.raises(ValueError, match=r"an activation runs inside torch.vmap or torch.func"):
        capture(Mapped(), X)


def test_a_network_spread_over_devices_goes_by_its_own_names(model):
    assert capture(nn.DataParallel(model), X).equals(capture(model, X))
