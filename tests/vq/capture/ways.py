"""Ways to write an activation, each with what a capture must say of it: a layer of a kind, or a name among the missed.

Run as a script, it prints the table of ``docs/capture.md``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope.nn import Abs
from metriscope.vq import Patterns, capture
from vq.capture.networks import Calls, drawn, points


@dataclass(frozen=True)
class Way:
    """One way to write an activation: its code as text, the network, and its expected kind and missed names.

    ``inputs`` is the shape of one point.
    """

    code: str
    build: Callable[[], nn.Module]
    seen: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    inputs: tuple[int, ...] = (4,)
    group: str = "by hand"

    def capture(self) -> Patterns:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            network = drawn(self.build())
            # A ReLU at the end: a network without any known activation is refused.
            return capture(Ends(network), points(5, *self.inputs))

    @property
    def found(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the kinds that were captured and the names that were missed."""
        p = self.capture()
        names = [one.what for one in p.missed.operations if one.role in ("missed", "dropped")]
        return tuple(layer.kind for layer in p.layers[:-1]), tuple(dict.fromkeys(names))


class Ends(nn.Module):
    """A network, followed by a ReLU of its output."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.last = network, nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.network(x)
        return self.last(y[0] if isinstance(y, tuple) else y)


def calls(function: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    return lambda: Calls(function)


def scripted(module: nn.Module) -> Callable[[], nn.Module]:
    return lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 6), module))


def _scripted_relu(x: Tensor) -> Tensor:
    return torch.relu(x) + 1.0


def _scripted_where(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.zeros_like(x))


def in_place(x: Tensor) -> Tensor:
    x = x.clone()
    x[x < 0] = 0
    return x


def selected(x: Tensor) -> Tensor:
    mask = x > 0
    y = torch.zeros_like(x)
    y[mask] = x[mask]
    return y


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return torch.where(x > 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad


def sequence(module: nn.Module) -> Callable[[], nn.Module]:
    return lambda: module


def exported() -> nn.Module:
    network = nn.Sequential(nn.Linear(4, 6), nn.Softsign(), nn.Tanhshrink(), nn.SELU()).eval()
    return torch.export.export(network, (torch.zeros(5, 4),), dynamic_shapes=({0: torch.export.Dim("n")},)).module()


def frozen() -> nn.Module:
    return torch.jit.freeze(torch.jit.script(nn.Sequential(nn.Linear(4, 6), nn.ELU()).eval()))


def quantized() -> nn.Module:
    import torch.ao.quantization as ao

    network = nn.Sequential(ao.QuantStub(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), ao.DeQuantStub())
    network.eval().qconfig = ao.get_default_qconfig(torch.backends.quantized.engine)
    network = ao.fuse_modules(network, [["1", "2"]])
    ao.prepare(network, inplace=True)
    network(points(20, 4))
    ao.convert(network, inplace=True)
    return network


class Jagged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        ragged = torch.nested.nested_tensor_from_jagged(x.flatten(0, 1), torch.arange(0, len(x) * 3 + 1, 3))
        return F.gelu(self.linear(ragged)).values().unflatten(0, (len(x), 3))


class Beside(nn.Module):
    """A fused encoder layer beside a scripted module."""

    def __init__(self) -> None:
        super().__init__()
        self.scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(self.scripted(x))


class Cells(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        found = self.cell(x)
        return found[0] if isinstance(found, tuple) else found


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.full((len(x),), 2), batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


class Routed(nn.Module):
    """A mixture of experts: each point goes to the expert that its router prefers."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(4, 2), nn.ModuleList(nn.Linear(4, 6) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        choice, out = self.router(x).argmax(-1), x.new_zeros(len(x), 6)
        for number, expert in enumerate(self.experts):
            rows = torch.where(choice == number)[0]
            out[rows] = torch.where(expert(x[rows]) > 0, 1.0, 0.5)
        return out


def gelu_by_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


WAYS = (
    Way("nn.ReLU()", calls(nn.ReLU()), ("relu",), group="known"),
    Way("nn.ReLU(inplace=True)", calls(nn.ReLU(inplace=True)), ("relu",), group="known"),
    Way("F.relu(x)", calls(F.relu), ("relu",), group="known"),
    Way("x.relu_()", calls(lambda x: x.relu_()), ("relu",), group="known"),
    Way("torch.ops.aten.relu(x)", calls(torch.ops.aten.relu), ("relu",), group="known"),
    Way("x.clamp(min=0)", calls(lambda x: x.clamp(min=0)), ("clamp",), group="known"),
    Way("x.clamp_min(0)", calls(lambda x: x.clamp_min(0)), ("clamp",), group="known"),
    Way("nn.ReLU6()", calls(nn.ReLU6()), ("relu6",), group="known"),
    Way("F.leaky_relu(x)", calls(F.leaky_relu), ("leaky_relu",), group="known"),
    Way("nn.PReLU()", calls(nn.PReLU()), ("prelu",), group="known"),
    Way("nn.RReLU()", calls(nn.RReLU()), ("rrelu",), group="known"),
    Way("abs(x)", calls(abs), ("abs",), group="known"),
    Way("ms.Abs()", calls(Abs()), ("abs",), group="known"),
    Way("nn.GELU()", calls(nn.GELU()), ("gelu",), group="known"),
    Way("nn.SiLU()", calls(nn.SiLU()), ("silu",), group="known"),
    Way("x * torch.sigmoid(x)", calls(lambda x: x * torch.sigmoid(x)), ("sigmoid",), group="known"),
    Way(
        "x * torch.tanh(F.softplus(x))",
        calls(lambda x: x * torch.tanh(F.softplus(x))),
        ("softplus", "tanh"),
        group="known",
    ),
    Way("nn.Mish()", calls(nn.Mish()), ("mish",), group="known"),
    Way("nn.Hardswish()", calls(nn.Hardswish()), ("hardswish",), group="known"),
    Way("x * F.relu6(x + 3) / 6", calls(lambda x: x * F.relu6(x + 3) / 6), ("relu6",), group="known"),
    Way("nn.SELU()", calls(nn.SELU()), ("selu",), group="known"),
    Way("nn.CELU()", calls(nn.CELU()), ("celu",), group="known"),
    Way("nn.Softsign()", calls(nn.Softsign()), ("softsign",), group="known"),
    Way("nn.Tanhshrink()", calls(nn.Tanhshrink()), ("tanhshrink",), group="known"),
    Way("nn.GLU()", lambda: nn.Sequential(nn.Linear(4, 6), nn.GLU()), ("glu",), group="known"),
    Way("F.relu(x).square()", calls(lambda x: F.relu(x).square()), ("relu",), ("pow",), group="known"),
    Way("nn.MaxPool1d(2)", lambda: nn.MaxPool1d(2), ("max_pool",), (), (3, 8), group="known"),
    Way("0.5 * x * (1 + torch.tanh(...))", calls(gelu_by_tanh), ("tanh",)),
    Way("torch.where(x > 0, x, 0)", calls(lambda x: torch.where(x > 0, x, 0)), ("where",)),
    Way("torch.where(x > 0, x, 0.1 * x)", calls(lambda x: torch.where(x > 0, x, 0.1 * x)), ("where",)),
    Way(
        "torch.where(x.ge(0), x, x.expm1())",
        calls(lambda x: torch.where(x.ge(0), x, x.expm1())),
        ("where",),
    ),
    Way("torch.maximum(x, torch.zeros(()))", calls(lambda x: torch.maximum(x, torch.zeros(()))), ("maximum",)),
    Way("torch.max(x, torch.zeros_like(x))", calls(lambda x: torch.max(x, torch.zeros_like(x))), ("maximum",)),
    Way("torch.maximum(x, 0.1 * x)", calls(lambda x: torch.maximum(x, 0.1 * x)), ("maximum",)),
    Way("-torch.minimum(-x, torch.zeros(()))", calls(lambda x: -torch.minimum(-x, torch.zeros(()))), ("minimum",)),
    Way("torch.fmax(x, torch.zeros(()))", calls(lambda x: torch.fmax(x, torch.zeros(()))), ("fmax",)),
    Way("x * (x > 0)", calls(lambda x: x * (x > 0)), ("product",)),
    Way("x * (x > 0).float()", calls(lambda x: x * (x > 0).float()), ("product",)),
    Way("x * x.sign()", calls(lambda x: x * x.sign()), ("sign",)),
    Way("x.masked_fill(x < 0, 0)", calls(lambda x: x.masked_fill(x < 0, 0)), ("masked_fill",)),
    Way("x[x < 0] = 0", calls(in_place), ("index_put",)),
    Way("y[x > 0] = x[x > 0]", calls(selected), ("selection",)),
    Way("x.clamp(min=torch.zeros(()))", calls(lambda x: x.clamp(min=torch.zeros(()))), ("clamp",)),
    Way("x.clamp(0.5, 2)", calls(lambda x: x.clamp(0.5, 2)), (), ("clamp",)),
    Way("(x > 0).float()", calls(lambda x: (x > 0).float() @ torch.ones(11, 3)), ("step",)),
    Way("torch.heaviside(x, torch.ones(()))", calls(lambda x: torch.heaviside(x, torch.ones(()))), ("heaviside",)),
    Way("x.sign()", calls(lambda x: x.sign()), ("sign",)),
    Way("x.round()", calls(lambda x: x.round()), (), ("round",)),
    Way("0.5 * x * (1 + torch.erf(x / 2**0.5))", calls(lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5))), ("erf",)),
    Way("x / (1 + torch.exp(-x))", calls(lambda x: x / (1 + torch.exp(-x))), ("exp",)),
    Way("torch.log1p(x.exp())", calls(lambda x: torch.log1p(x.exp())), ("exp",)),
    Way("torch.logaddexp(x, torch.zeros(()))", calls(lambda x: torch.logaddexp(x, torch.zeros(()))), ("logaddexp",)),
    Way("x + torch.sin(x) ** 2", calls(lambda x: x + torch.sin(x) ** 2), (), ("sin", "pow")),
    Way("torch.cos(x)", calls(torch.cos), (), ("cos",)),
    Way("x.atan()", calls(lambda x: x.atan()), (), ("atan",)),
    Way("x ** 2", calls(lambda x: x**2), (), ("pow",)),
    Way("x * x", calls(lambda x: x * x), (), ("square",)),
    Way("torch.exp(-x * x)", calls(lambda x: torch.exp(-x * x)), (), ("exp",)),
    Way("1 / (1 + x.exp())", calls(lambda x: 1 / (1 + x.exp())), ("exp",)),
    Way("torch.sqrt(x * x + 1)", calls(lambda x: torch.sqrt(x * x + 1)), (), ("square",)),
    Way(
        "x.unflatten(1, (3, 4)).amax(1)", lambda: Calls(lambda x: x.unflatten(1, (3, 4)).amax(1), units=12), ("maxout",)
    ),
    Way("x[:, None].max(-1).values", calls(lambda x: x[:, None].max(-1).values), ("maxout",)),
    Way("x.max()", calls(lambda x: x.max() + x), (), ("max",)),
    Way("x.sort(-1).values", calls(lambda x: x.sort(-1).values), (), ("sort",)),
    Way("x.topk(3).values", calls(lambda x: x.topk(3).values), (), ("topk",)),
    Way("x.median(-1, keepdim=True).values", calls(lambda x: x.median(-1, keepdim=True).values), (), ("median",)),
    Way("x.cummax(-1).values", calls(lambda x: x.cummax(-1).values), (), ("cummax",)),
    Way("autograd.Function", calls(Straight.apply), ("where",)),
    Way("torch.hypot(x, x + 1)", calls(lambda x: torch.hypot(x, x + 1)), (), ("hypot",)),
    Way("mixture of experts", Routed, (), ("argmax", "where")),
    Way("nn.LSTM", lambda: Cells(nn.LSTM(4, 6, batch_first=True)), ("lstm",), (), (3, 4), "recurrent"),
    Way(
        "nn.LSTM, bidirectional",
        lambda: Cells(nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True)),
        ("lstm", "lstm", "lstm", "lstm"),
        (),
        (3, 4),
        "recurrent",
    ),
    Way("nn.GRU", lambda: Cells(nn.GRU(4, 6, batch_first=True)), ("gru",), (), (3, 4), "recurrent"),
    Way("nn.RNN", lambda: Cells(nn.RNN(4, 6, batch_first=True)), ("rnn",), (), (3, 4), "recurrent"),
    Way(
        'nn.RNN(nonlinearity="relu")',
        lambda: Cells(nn.RNN(4, 6, batch_first=True, nonlinearity="relu")),
        ("rnn",),
        (),
        (3, 4),
        "recurrent",
    ),
    Way("nn.LSTM of packed sequences", Packed, (), ("LSTM",), (3, 4), "recurrent"),
    Way("nn.LSTMCell", lambda: Cells(nn.LSTMCell(4, 6)), ("lstm",), (), (4,), "recurrent"),
    Way("nn.GRUCell", lambda: Cells(nn.GRUCell(4, 6)), ("gru",), (), (4,), "recurrent"),
    Way("nn.RNNCell", lambda: Cells(nn.RNNCell(4, 6)), ("rnn",), (), (4,), "recurrent"),
    Way("torch.jit.script of nn.ReLU", scripted(nn.ReLU()), ("relu",), group="compiled"),
    Way("torch.jit.script of nn.Softsign", scripted(nn.Softsign()), ("softsign",), group="compiled"),
    Way("torch.jit.script of nn.Tanhshrink", scripted(nn.Tanhshrink()), ("tanhshrink",), group="compiled"),
    Way("torch.jit.script of nn.SELU", scripted(nn.SELU()), ("selu",), group="compiled"),
    Way("torch.jit.script of a function", lambda: Calls(torch.jit.script(_scripted_relu)), ("relu",), group="compiled"),
    Way(
        "torch.jit.script of torch.where",
        lambda: Calls(torch.jit.script(_scripted_where)),
        ("where",),
        group="compiled",
    ),
    Way("torch.jit.freeze", frozen, ("elu",), group="compiled"),
    Way(
        "torch.jit.trace",
        lambda: torch.jit.trace(nn.Sequential(nn.Linear(4, 6), nn.Mish()), torch.zeros(2, 4)),
        ("mish",),
        group="compiled",
    ),
    Way("torch.export", exported, ("softsign", "tanhshrink", "selu"), group="compiled"),
    Way("torch.compile", lambda: torch.compile(Calls(F.relu), backend="eager"), ("relu",), group="compiled"),
    Way("static quantization", quantized, (), ("quantized linear_relu", "relu"), group="compiled"),
    Way("jagged nested tensor", Jagged, (), ("gelu",), (3, 4), "compiled"),
    Way("nn.TransformerEncoder beside a scripted module", Beside, ("tanh", "gelu", "gelu"), (), (3, 4), "compiled"),
    Way(
        "nn.TransformerEncoder, fused",
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1),
        ("relu",),
        (),
        (3, 4),
        "compiled",
    ),
)


def table() -> str:
    """Return all ways as a table in Markdown."""
    lines = ["| group | written as | captured as | named as missed |", "|---|---|---|---|"]
    for way in WAYS:
        code = way.code.replace("|", "\\|")
        lines.append(f"| {way.group} | `{code}` | {', '.join(way.seen) or '–'} | {', '.join(way.missed) or '–'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())  # noqa: T201  the table of the docs
