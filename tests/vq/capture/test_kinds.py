"""Every kind of activation, written every way, gives the bits of its plain definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from metriscope.nn import Abs
from metriscope.vq.capture.capture import capture, describe
from vq.capture.networks import NETWORKS, Calls, drawn, flat, points, signs_by_hand

AT_ZERO = (0.0,)
# Kind, thresholds, and every way to write it.
WAYS = {
    "relu": (
        AT_ZERO,
        [nn.ReLU(), nn.ReLU(inplace=True), F.relu, torch.relu, torch.relu_, lambda x: x.relu(), lambda x: x.relu_()],
    ),
    "leaky_relu": (AT_ZERO, [nn.LeakyReLU(), nn.LeakyReLU(0.3, inplace=True), F.leaky_relu, F.leaky_relu_]),
    "prelu": (AT_ZERO, [nn.PReLU(), nn.PReLU(11), lambda x: F.prelu(x, torch.ones(1)), lambda x: x.prelu(x[0, :1])]),
    "rrelu": (AT_ZERO, [nn.RReLU(), nn.RReLU(inplace=True), F.rrelu]),
    "abs": (AT_ZERO, [Abs(), torch.abs, torch.absolute, abs, lambda x: x.abs(), lambda x: x.abs_()]),
    "threshold": ((0.25,), [nn.Threshold(0.25, 0.0), lambda x: F.threshold_(x, 0.25, 0.0)]),
    "hardtanh": ((-1.0, 1.0), [nn.Hardtanh(), nn.Hardtanh(inplace=True), F.hardtanh, F.hardtanh_]),
    "relu6": ((0.0, 6.0), [nn.ReLU6(), F.relu6, lambda x: F.hardtanh(x, 0.0, 6.0)]),
    "hardsigmoid": ((-3.0, 3.0), [nn.Hardsigmoid(), F.hardsigmoid]),
    "hardshrink": ((-0.5, 0.5), [nn.Hardshrink(), F.hardshrink, lambda x: x.hardshrink(0.5)]),
    "softshrink": ((-0.5, 0.5), [nn.Softshrink(), F.softshrink]),
    "clamp": (
        (0.0, 2.0),
        [lambda x: x.clamp(0, 2), lambda x: torch.clamp(x, max=2, min=0), lambda x: x.clip_(0.0, 2.0)],
    ),
    "gelu": (AT_ZERO, [nn.GELU(), nn.GELU("tanh"), F.gelu]),
    "silu": (AT_ZERO, [nn.SiLU(), nn.SiLU(inplace=True), F.silu]),
    "mish": (AT_ZERO, [nn.Mish(), F.mish]),
    "hardswish": (AT_ZERO, [nn.Hardswish(), F.hardswish]),
    "elu": (AT_ZERO, [nn.ELU(), nn.ELU(inplace=True), F.elu, F.elu_]),
    "selu": (AT_ZERO, [nn.SELU(), F.selu, torch.selu_]),
    "celu": (AT_ZERO, [nn.CELU(), F.celu]),
    "sigmoid": (AT_ZERO, [nn.Sigmoid(), torch.sigmoid, lambda x: x.sigmoid_(), torch.special.expit]),
    "logsigmoid": (AT_ZERO, [nn.LogSigmoid(), F.logsigmoid]),
    "tanh": (AT_ZERO, [nn.Tanh(), torch.tanh, lambda x: x.tanh_()]),
    "softplus": (AT_ZERO, [nn.Softplus(), F.softplus]),
    "softsign": (AT_ZERO, [nn.Softsign(), F.softsign]),
    "tanhshrink": (AT_ZERO, [nn.Tanhshrink(), F.tanhshrink]),
}
SMOOTH = {"gelu", "silu", "mish", "hardswish", "elu", "selu", "celu", "sigmoid", "logsigmoid", "tanh", "softplus"}
SMOOTH |= {"softsign", "tanhshrink"}
CASES = [(kind, levels, way) for kind, (levels, ways) in WAYS.items() for way in ways]


@pytest.mark.parametrize(("kind", "levels", "way"), CASES, ids=lambda value: str(value)[:40])
def test_a_kind_has_the_same_bits_however_it_is_written(kind, levels, way):
    network = Calls(way)
    drawn(network.linear)
    x = 6 * points(20, 4)
    p = capture(network, x, batch_size=7)
    with torch.no_grad():
        z = network.linear(x)
    assert (p.signs() == flat(torch.stack([z >= level for level in levels], -1))).all()
    (layer,) = p.layers
    assert (layer.kind, layer.piecewise_affine) == (kind, kind not in SMOOTH)
    assert (layer.bits_per_unit, layer.width) == (len(levels), 11 * len(levels))
    assert layer.seen == ("module" if isinstance(way, nn.Module) else layer.seen)
    assert layer.name == ("function" if isinstance(way, nn.Module) else f"{kind}()")


@pytest.mark.parametrize(
    ("way", "seen"),
    [(nn.ReLU(), "module"), (F.relu, "function"), (torch.relu_, "function"), (lambda x: x.relu_(), "method")],
)
def test_a_layer_says_which_way_it_was_seen(way, seen):
    assert capture(Calls(way), points(3, 4)).layers[0].seen == seen


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_a_network_has_the_bits_worked_out_by_hand(name, seed):
    kind, shape = NETWORKS[name]
    network, x = drawn(kind(), seed), points(23, *shape, seed=seed)
    p = capture(network, x, batch_size=10)
    assert (p.signs() == signs_by_hand(network, x)).all()


def test_a_reused_in_place_module_has_a_layer_for_each_use():
    kind, shape = NETWORKS["residual convolutions"]
    layers = capture(kind(), points(4, *shape)).layers
    assert [layer.name for layer in layers] == ["act", "act#2", "pool", "relu()"]
    assert [layer.shape for layer in layers] == [(5, 6, 6), (5, 6, 6), (5, 3, 3, 4), (7,)]
    assert [layer.channel_axis for layer in layers] == [0, 0, 0, None]


def test_both_bits_of_a_unit_stand_side_by_side_the_lower_first():
    p = capture(nn.Hardtanh(), torch.tensor([[-2.0, 0.0, 2.0]]))
    assert p.signs().tolist() == [[-1, -1, 1, -1, 1, 1]]
    assert p.layers[0].shape == (3, 2)


def test_minus_zero_and_zero_are_on_the_positive_side():
    assert capture(nn.ReLU(), torch.tensor([[0.0, -0.0, -1e-40]])).signs().tolist() == [[1, 1, -1]]


@pytest.mark.parametrize("guard", [lambda x: x.clamp(min=1e-6), lambda x: x.clamp(-3, -1), lambda x: x.clamp(min=x)])
def test_a_clamp_whose_interval_does_not_hold_zero_is_no_activation(guard):
    network = nn.Sequential(Calls(guard, units=4), nn.ReLU())
    assert [layer.name for layer in capture(network, points(3, 4)).layers] == ["1"]


def test_a_gated_linear_unit_is_read_by_its_gate():
    x = points(9, 6)
    p = capture(nn.GLU(), x)
    assert (p.signs() == flat(x[:, 3:] >= 0)).all()
    assert not p.layers[0].piecewise_affine


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_precision_is_read(dtype):
    x = points(9, 5).to(dtype)
    assert (capture(nn.Hardtanh(), x).signs() == flat(torch.stack([x >= -1, x >= 1], -1))).all()


def test_memory_that_is_not_contiguous_is_read_in_the_order_of_its_axes():
    x = points(6, 3, 4, 5)
    expected = flat(x >= 0)
    assert (capture(nn.ReLU(), x.contiguous(memory_format=torch.channels_last)).signs() == expected).all()
    turned = x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    assert (capture(nn.ReLU(), turned).signs() == expected).all()


def test_activations_that_are_larger_than_a_chunk_are_whole():
    x = points(3, 300_001)
    assert (capture(nn.ReLU(), x).signs() == flat(x >= 0)).all()


def test_channels_pooled_over_positions_are_on_where_any_position_is():
    kind, shape = NETWORKS["residual convolutions"]
    network, x = drawn(kind()), points(17, *shape)
    network.eval()
    with torch.no_grad():
        z1, z2, winners, z3 = network.by_hand(x)
    anywhere = [z1.flatten(2).any(2), z2.flatten(2).any(2), winners.flatten(2, 3).any(2), z3]
    p = capture(network, x, conv="channels")
    assert (p.signs() == np.concatenate([flat(bits) for bits in anywhere], axis=1)).all()
    assert [layer.shape for layer in p.layers] == [(5,), (5,), (5, 4), (7,)]
    assert {layer.channel_axis for layer in p.layers} == {None}


def test_channels_of_a_sequence_of_tokens_are_on_its_last_axis():
    network, x = drawn(nn.Sequential(nn.Linear(4, 6), nn.GELU())), points(8, 5, 4)
    with torch.no_grad():
        z = network[0](x)
    assert (capture(network, x, conv="channels").signs() == flat((z >= 0).any(1))).all()
    (layer,) = capture(network, x).layers
    assert (layer.shape, layer.channel_axis) == ((5, 6), 1)


def test_an_encoder_that_could_take_a_fused_path_shows_its_activations():
    encoder = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True)
    x = points(5, 3, 8)
    caught = []
    encoder.linear1.register_forward_hook(lambda _, __, output: caught.append(output.detach().clone()))
    p = capture(encoder, x)
    assert (p.signs() == flat(caught[0] >= 0)).all()
    assert p.layers[0].name == "gelu()"


def test_weights_that_pass_through_an_activation_are_no_activations():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(5))
            self.register_buffer("shift", torch.ones(3))

        def forward(self, x):
            factor = F.softplus(self.scale) + torch.sigmoid(2 * self.scale) + torch.abs(self.scale[None])[0]
            return F.relu(x * factor[:3] + self.shift.abs())

    # Three points, three features: shapes alone could not tell the buffer from an activation.
    assert [layer.name for layer in capture(Scaled(), points(3, 3)).layers] == ["relu()"]
    assert "sigmoid()" in str(describe(Scaled(), points(3, 3)))


def test_whole_numbers_and_nothing_at_all_are_no_activations():
    class Counts(nn.Module):
        def forward(self, x):
            return F.relu(x) + torch.abs(x.long()) + F.gelu(x[:, :0]).sum()

    assert [layer.kind for layer in capture(Counts(), points(3, 3)).layers] == ["relu"]
