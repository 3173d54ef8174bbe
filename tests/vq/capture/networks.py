"""Networks that also say by hand, step by step and without any hook, which bits each of their activations has."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from metriscope.rng import stream


def drawn(module: nn.Module, seed: int = 0) -> nn.Module:
    """Return a module with weights, running means and variances that depend on the seed alone."""
    generator = stream(seed, "weights")
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point():
            scale = 1.0 / max(1, tensor[0].numel() if tensor.ndim > 1 else 1) ** 0.5
            tensor.data.normal_(0.0, scale, generator=generator)
            if name.endswith("running_var"):
                tensor.data.abs_().add_(0.5)
    return module


def points(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=stream(seed, "points"))


def flat(bits: torch.Tensor) -> np.ndarray:
    """Return bits as the signs of points x units."""
    return np.where(bits.flatten(1).numpy(), 1, -1).astype(np.int8)


def signs_by_hand(network: nn.Module, x: torch.Tensor) -> np.ndarray:
    network.eval()
    with torch.no_grad():
        return np.concatenate([flat(bits) for bits in network.by_hand(x)], axis=1)


def positive(x: torch.Tensor) -> torch.Tensor:
    """Return relu(x), written so that nothing could take it for an activation."""
    return torch.where(x > 0, x, torch.zeros_like(x))


class Calls(nn.Module):
    """One linear layer and a function of it, called inside ``forward``."""

    def __init__(self, function, inputs=4, units=11):
        super().__init__()
        self.linear = nn.Linear(inputs, units)
        self.function = function

    def forward(self, x):
        return self.function(self.linear(x))


class ResidualConvolutions(nn.Module):
    """A residual network in which one in-place ReLU is used twice, with batch norm and max pooling."""

    def __init__(self, channels=5):
        super().__init__()
        self.first = nn.Conv2d(2, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(channels * 9, 7)

    def forward(self, x):
        h = self.act(self.norm(self.first(x)))
        h = self.act(self.second(h) + h)
        h = self.pool(h)
        return self.head(h.flatten(1)).relu_()

    def by_hand(self, x):
        z1 = self.norm(self.first(x))
        h1 = positive(z1)
        z2 = self.second(h1) + h1
        h2 = positive(z2)
        winners, pooled = windows_by_hand(h2, 2)
        z3 = self.head(pooled.flatten(1))
        return [z1 >= 0, z2 >= 0, winners, z3 >= 0]


def windows_by_hand(x, size):
    """Return which element of each square window wins, as one bit each, and the winners themselves."""
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // size, size, w // size, size).permute(0, 1, 2, 4, 3, 5).flatten(-2)
    place = torch.from_numpy(parts.numpy().argmax(-1))
    return F.one_hot(place, size * size) > 0, parts.amax(-1)


class Skips(nn.Module):
    """A dense network with skip connections, a ReLU written four ways, an Abs and a LeakyReLU."""

    def __init__(self, width=9):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(6))
        self.leaky = nn.LeakyReLU(0.1)

    def forward(self, x):
        a, b, c, d, e, f = self.layers
        h = F.relu(a(x)) + x
        h = torch.relu(b(h)) + h
        h = c(h).relu_() + h
        h = F.relu(d(h), inplace=True) + h
        h = torch.abs(e(h)) + h
        return self.leaky(f(h)) + h

    def by_hand(self, x):
        bits = []
        functions = [positive] * 4 + [lambda z: torch.where(z < 0, -z, z), lambda z: torch.where(z < 0, 0.1 * z, z)]
        for layer, function in zip(self.layers, functions, strict=True):
            z = layer(x)
            bits.append(z >= 0)
            x = function(z) + x
        return bits


class Saturating(nn.Module):
    """A dense network of kinds with two thresholds."""

    def __init__(self, width=6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.hard, self.six = nn.Hardtanh(-0.5, 0.25), nn.ReLU6(inplace=True)

    def forward(self, x):
        a, b, c = self.layers
        return (10 * c(self.six(10 * b(self.hard(a(x)))))).clamp(0, 1)

    def by_hand(self, x):
        a, b, c = self.layers
        z1 = a(x)
        z2 = 10 * b(torch.minimum(torch.maximum(z1, torch.tensor(-0.5)), torch.tensor(0.25)))
        z3 = 10 * c(torch.minimum(positive(z2), torch.tensor(6.0)))
        levels = ((z1, -0.5, 0.25), (z2, 0.0, 6.0), (z3, 0.0, 1.0))
        return [torch.stack([z >= low, z >= high], -1) for z, low, high in levels]


class Sequences(nn.Module):
    """A network on (points, channels, length): convolution, PReLU, max pooling along the length, GELU."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3)
        self.prelu, self.pool, self.gelu = nn.PReLU(4), nn.MaxPool1d(2), nn.GELU()

    def forward(self, x):
        return self.gelu(self.pool(self.prelu(self.conv(x))))

    def by_hand(self, x):
        z = self.conv(x)
        h = torch.where(z >= 0, z, self.prelu.weight[:, None] * z)
        pairs = h.unflatten(2, (-1, 2))
        winners = torch.stack([pairs[..., 0] >= pairs[..., 1], pairs[..., 0] < pairs[..., 1]], -1)
        return [z >= 0, winners, pairs.amax(-1) >= 0]


class Text(nn.Module):
    """A network that takes words by name, as models of language do."""

    def __init__(self, words=13, width=6):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.intermediate, self.act = nn.Linear(width, 2 * width), nn.GELU()
        self.output = nn.Linear(2 * width, width)

    def forward(self, input_ids, attention_mask=None):
        h = self.embedding(input_ids)
        h = self.output(self.act(self.intermediate(h)))
        return {"last_hidden_state": h if attention_mask is None else h * attention_mask[..., None]}

    def by_hand(self, x):
        return [self.intermediate(self.embedding(x)) >= 0]


NETWORKS = {
    "residual convolutions": (ResidualConvolutions, (2, 6, 6)),
    "skips": (Skips, (9,)),
    "saturating": (Saturating, (6,)),
    "sequences": (Sequences, (3, 10)),
}
