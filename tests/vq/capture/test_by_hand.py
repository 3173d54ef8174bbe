"""Activations that are written by hand, and recurrent layers, have the bits of their definition."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from metriscope.vq.capture.capture import capture
from vq.capture.networks import Calls, drawn, flat, points

X = points(23, 4)


def captured(function, units=11, **options):
    """Return the patterns of a function of a linear layer, and what the function is given."""
    network = Calls(function, units=units)
    drawn(network.linear)
    with torch.no_grad():
        return capture(network, X, batch_size=7, **options), network.linear(X)


def overwritten(x):
    x = x.clone()
    x[x < 0] = 0
    return x


RELUS = {
    "where": lambda x: torch.where(x > 0, x, 0),
    "where, other way": lambda x: torch.where(x <= 0, torch.zeros_like(x), x),
    "where, reversed": lambda x: torch.where(torch.zeros(()) < x, x, 0),
    "where, leaky": lambda x: torch.where(x >= 0, x, 0.1 * x),
    "elu": lambda x: torch.where(x > 0, x, 2.0 * (torch.exp(x) - 1)),
    "maximum": lambda x: torch.maximum(torch.zeros(11), x),
    "max": lambda x: torch.max(x, x.new_zeros(())),
    "max of two slopes": lambda x: torch.maximum(x, 0.1 * x),
    "product": lambda x: x * (x > 0),
    "product in place": lambda x: x.mul_((x > 0).to(x.dtype)),
    "masked_fill": lambda x: x.masked_fill(x < 0, 0.0),
    "masked_fill in place": lambda x: x.masked_fill_(x.lt(0), 0.0),
    "assignment": overwritten,
    "clamp by a tensor": lambda x: x.clamp(min=torch.zeros(11)),
    "clip by a tensor": lambda x: torch.clip(x, torch.zeros(())),
    "sign": lambda x: x * (x.sign() + 1),
    "step": lambda x: (x > 0).float() @ torch.ones(11, 2),
    "heaviside": lambda x: torch.heaviside(x, torch.ones(())),
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "silu, in pieces": lambda x: x * (torch.exp(-1 * x) + 1).reciprocal(),
    "softplus": lambda x: torch.log1p(torch.exp(x)),
    "softplus, in pieces": lambda x: torch.log(1 + x.exp()),
    "softplus by logaddexp": lambda x: torch.logaddexp(x, torch.zeros(())),
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5)),
}
SMOOTH = {"elu", "silu", "silu, in pieces", "softplus", "softplus, in pieces", "softplus by logaddexp", "gelu"}


@pytest.mark.parametrize("name", RELUS)
def test_a_kink_at_zero_that_is_written_by_hand_is_read_by_the_sign(name):
    p, z = captured(RELUS[name], strict=True)
    assert (p.signs() == flat(z >= 0)).all()
    assert [layer.piecewise_affine for layer in p.layers] == [name not in SMOOTH]


@pytest.mark.parametrize(
    ("function", "bits"),
    [
        (lambda x: torch.where(x > 0.5, x, 0.5), lambda z: z >= 0.5),
        (lambda x: torch.where(x > torch.arange(11) / 11, x, 0.0), lambda z: z >= torch.arange(11) / 11),
        (lambda x: torch.maximum(x, -torch.arange(11.0)), lambda z: z >= -torch.arange(11.0)),
        (lambda x: torch.minimum(x, torch.arange(11.0)), lambda z: z >= torch.arange(11.0)),
        (lambda x: x.clamp(max=torch.ones(())), lambda z: z >= 1),
        (
            lambda x: x.clamp(-torch.ones(()), torch.ones(())),
            lambda z: torch.stack([z >= -1, z >= 1], -1),
        ),
        (lambda x: torch.maximum(x[:, :5], x[:, 5:10]), lambda z: z[:, :5] >= z[:, 5:10]),
        (lambda x: torch.where(x[:, :5] < x[:, 5:10], 1.0, 2.0), lambda z: z[:, :5] >= z[:, 5:10]),
    ],
    ids=["number", "per unit", "maximum", "minimum", "upper bound", "two bounds", "of two units", "two units compared"],
)
def test_other_thresholds_are_those_that_are_written(function, bits):
    p, z = captured(function, strict=True)
    assert (p.signs() == flat(bits(z))).all()


@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize("how", ["amax", "max", "two axes"])
def test_maxout_tells_which_of_its_values_wins(how, smallest):
    def function(x):
        parts = x.unflatten(1, (3, 2, 2))
        if how == "two axes":
            return (parts.amin if smallest else parts.amax)((1, 3))
        flatter = parts.flatten(2)
        if how == "amax":
            return (flatter.amin if smallest else flatter.amax)(1, keepdim=True)
        return (flatter.min if smallest else flatter.max)(1).values

    p, z = captured(function, units=12, strict=True)
    parts = z.numpy().reshape(-1, 3, 2, 2)
    # Alternatives last: of two axes, in row-major order.
    ranked = (
        parts.transpose(0, 2, 1, 3).reshape(-1, 2, 6) if how == "two axes" else parts.reshape(-1, 3, 4).swapaxes(1, 2)
    )
    best = (ranked.argmin if smallest else ranked.argmax)(-1)
    assert (p.signs() == flat(F.one_hot(torch.from_numpy(best), ranked.shape[-1]) > 0)).all()
    assert (p.layers[0].kind, p.layers[0].bits_per_unit) == ("maxout", ranked.shape[-1])


class Own(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, torch.zeros_like(x))


@pytest.mark.parametrize("way", ["module", "scripted", "traced", "frozen", "exported", "compiled"])
def test_a_module_of_ones_own_is_seen_however_it_runs(way):
    network = drawn(nn.Sequential(nn.Linear(4, 6), Own(), nn.Linear(6, 5), nn.ReLU())).eval()
    with torch.no_grad():
        z = network[0](X)
        expected = np.concatenate([flat(z >= 0), flat(network[:3](X) >= 0)], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if way in ("scripted", "frozen"):
            network = torch.jit.script(network)
        if way == "frozen":
            network = torch.jit.freeze(network)
        if way == "traced":
            network = torch.jit.trace(network, X)
        if way == "exported":
            shapes = ({0: torch.export.Dim("n")},)
            network = torch.export.export(network, (X,), dynamic_shapes=shapes).module()
        if way == "compiled":
            network = torch.compile(network, backend="eager")
        p = capture(network, X, batch_size=9, strict=True)
    assert (p.signs() == expected).all()
    assert [layer.kind for layer in p.layers] == ["where", "relu"]
    if way == "module":
        assert [(layer.name, layer.seen) for layer in p.layers] == [("1", "module"), ("3", "module")]


def test_several_activations_by_hand_in_one_module_have_names_of_their_own():
    p, _ = captured(lambda x: torch.where(x > 0, x, 0) + x * (x > 1) + torch.where(x > 2, 1.0, 0.0))
    assert [layer.name for layer in p.layers] == ["where()", "product()", "where()#2"]
    assert {layer.seen for layer in p.layers} == {"formula"}


def test_branches_may_run_in_some_batches_only_without_moving_the_others():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = Calls(lambda x: torch.maximum(x, 0.5 * x), 4, 4), Own()

        def forward(self, x):
            if len(x) == 9:
                x = x + (x.amax() > 100).float() * (x > 3)
            return self.last(self.first(x))

    network = drawn(Branching())
    p = capture(network, X, batch_size=9)
    with torch.no_grad():
        assert (p.layer("last").signs() == flat(network.first(X) >= 0)).all()


def softmax(x):
    z = torch.exp(x - x.amax(-1, keepdim=True))
    return z / z.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (softmax, "exp x1"),
        (lambda x: x / x.abs().amax(-1, keepdim=True), ""),
        (lambda x: x.clamp(min=torch.full((), 0.5)), "clamp x1"),
        (lambda x: torch.maximum(x, torch.full((), 1e-6)), "maximum x1"),
        (lambda x: torch.maximum(x, torch.tensor(torch.finfo(x.dtype).min)), "maximum x1"),
        (lambda x: torch.where(x == 0, 1.0, x), "where x1"),
        (lambda x: torch.where((x - torch.inf) > 0, 1.0, 0.0), "where x1"),
        (lambda x: torch.exp(-x * x), "exp x1"),
        (lambda x: x.max() + x, "max x1"),
    ],
    ids=["softmax", "normalization", "bound", "guard", "remote", "equality", "infinite", "gaussian", "whole batch"],
)
def test_what_is_no_threshold_of_a_unit_is_not_taken_but_named(function, named):
    p, _ = captured(lambda x: F.relu(function(x)))
    assert "relu()" in [layer.name for layer in p.layers]
    assert not {"maxout", "exp", "where", "maximum", "clamp"} & {layer.kind for layer in p.layers}
    assert named in str(p.missed)


def test_a_comparison_of_positions_or_of_weights_is_no_activation():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x):
            place = torch.arange(4.0)
            kept = torch.where(place > 1, 1.0, 0.5) * torch.where(self.weight > 0, self.weight, 0)
            return F.relu(x * kept)

    p = capture(Positions(), X, strict=True)
    assert [layer.kind for layer in p.layers] == ["relu"]


def test_a_mask_that_is_handed_over_by_name_is_no_activation():
    class Masked(nn.Module):
        def forward(self, x, mask):
            return F.relu(x.masked_fill(mask < 0.5, 0.0))

    p = capture(Masked(), {"x": X, "mask": (points(23, 4, seed=1) > 0).float()}, strict=True)
    assert [layer.kind for layer in p.layers] == ["relu"]


def gates_by_hand(rnn, x):
    """Return the pre-activations of every layer and direction, step by step, by the formulas of PyTorch's docs."""
    kind = type(rnn).__name__
    ways = 2 if rnn.bidirectional else 1
    found = []
    for layer in range(rnn.num_layers):
        outputs = []
        for way in range(ways):
            end = f"_l{layer}{'_reverse' if way else ''}"
            into, over = getattr(rnn, f"weight_ih{end}"), getattr(rnn, f"weight_hh{end}")
            bias, last = getattr(rnn, f"bias_ih{end}", 0), getattr(rnn, f"bias_hh{end}", 0)
            project = getattr(rnn, f"weight_hr{end}", torch.eye(rnn.hidden_size, dtype=x.dtype))
            h, c = x.new_zeros(x.shape[1], len(project)), x.new_zeros(x.shape[1], rnn.hidden_size)
            gates, states = [None] * len(x), [None] * len(x)
            for step in range(len(x))[:: -1 if way else 1]:
                a, b = x[step] @ into.T + bias, h @ over.T + last
                if kind == "LSTM":
                    i, f, g, o = (a + b).chunk(4, -1)
                    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                    h, gates[step] = (o.sigmoid() * c.tanh()) @ project.T, torch.cat([a + b, c], -1)
                elif kind == "GRU":
                    (ar, az, an), (br, bz, bn) = a.chunk(3, -1), b.chunk(3, -1)
                    n = an + (ar + br).sigmoid() * bn
                    z = (az + bz).sigmoid()
                    h, gates[step] = (1 - z) * n.tanh() + z * h, torch.cat([ar + br, az + bz, n], -1)
                else:
                    gates[step] = a + b
                    h = (a + b).tanh() if rnn.nonlinearity == "tanh" else torch.relu(a + b)
                states[step] = h
            found.append(torch.stack(gates))
            outputs.append(torch.stack(states))
        x = torch.cat(outputs, -1)
    return found


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTM, {}),
        (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
        (nn.LSTM, {"num_layers": 3, "bias": False, "dropout": 0.5}),
        (nn.LSTM, {"proj_size": 3, "bidirectional": True}),
        (nn.GRU, {}),
        (nn.GRU, {"num_layers": 2, "bidirectional": True}),
        (nn.RNN, {"num_layers": 2}),
        (nn.RNN, {"nonlinearity": "relu", "bidirectional": True}),
    ],
    ids=str,
)
def test_a_recurrent_layer_is_read_by_its_gates_at_every_step(kind, options, batch_first):
    network = drawn(kind(4, 6, batch_first=batch_first, **options)).double()
    x = points(9, 5, 4).double()
    given = x if batch_first else x.transpose(0, 1)
    p = capture(network, given, batch_size=4, points_axis=0 if batch_first else 1, strict=True)
    with torch.no_grad():
        gates = gates_by_hand(network, x.transpose(0, 1))
    expected = np.concatenate([flat(one.transpose(0, 1) >= 0) for one in gates], axis=1)
    assert (p.signs() == expected).all()
    assert {layer.shape for layer in p.layers} == {(5, gates[0].shape[-1])}
    assert {layer.channel_axis for layer in p.layers} == {1}


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_cell_is_read_as_one_step_of_its_layer(kind):
    cell = drawn({nn.LSTM: nn.LSTMCell, nn.GRU: nn.GRUCell, nn.RNN: nn.RNNCell}[kind](4, 6)).double()
    layer = kind(4, 6).double()
    layer.load_state_dict({f"{name}_l0": weight for name, weight in cell.state_dict().items()})
    x = points(9, 4).double()
    with torch.no_grad():
        (gates,) = gates_by_hand(layer, x[None])
    assert (capture(cell, x).signs() == flat(gates[0] >= 0)).all()


def test_the_output_of_a_recurrent_network_is_not_changed_by_capturing_it():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(4, 6, 2, batch_first=True), nn.Linear(6, 3)

        def forward(self, x):
            out.append(F.relu(self.head(self.rnn(x)[0][:, -1])))
            return out[-1]

    out, network, x = [], drawn(Keeps()), points(9, 5, 4)
    with torch.no_grad():
        network(x)
    capture(network, x, strict=True)
    assert torch.equal(out[0], out[1])
