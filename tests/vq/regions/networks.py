"""Networks whose regions are looked at, by name, each with weights drawn from a seed."""

from itertools import pairwise

import torch
from torch import nn

import metriscope as ms
from metriscope.rng import stream


def mlp(*widths, act=nn.ReLU, seed=0, bias=True):
    layers = []
    for before, width in pairwise(widths):
        layers += [nn.Linear(before, width, bias=bias), act()]
    return drawn(nn.Sequential(*layers[:-1]), seed)


def drawn(model, seed=0):
    """Give every parameter and statistic a value of its own, in float64."""
    generator = stream(seed, "regions")
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            fan = parameter[0].numel() if parameter.ndim > 1 else 4
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (2 / fan) ** 0.5)
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point():
                wide = torch.rand(buffer.shape, generator=generator) + 0.5
                buffer.copy_(wide if name.endswith("var") else wide - 1)
    return model.eval()


class Residual(nn.Module):
    """Skips, batch norm, and one layer that runs twice."""

    def __init__(self):
        super().__init__()
        self.inner, self.again = nn.Linear(2, 12), nn.Linear(12, 12)
        self.norm, self.out = nn.BatchNorm1d(12), nn.Linear(12, 3)

    def forward(self, x):
        h = torch.relu(self.inner(x))
        h = h + torch.relu(self.norm(self.again(h)))
        return self.out(h + nn.functional.leaky_relu(self.again(h), 0.2))


class Tent(nn.Module):
    """The tent map 2z, then 2 - 2z, of the unit interval, so many times."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, z):
        for _ in range(self.layers):
            z = 2 * z - torch.relu(4 * z - 2)
        return z


def pooled(pool, width, out):
    return drawn(nn.Sequential(nn.Linear(2, width), nn.Unflatten(1, (1, width)), pool, nn.Flatten(), nn.Linear(out, 2)))


def convolutional():
    body = [nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)]
    return drawn(
        nn.Sequential(nn.Unflatten(1, (1, 6, 6)), *body, nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    )


# Name: how to make it, and the number of inputs.
NETWORKS = {
    "relu": (lambda: mlp(2, 14, 14, 14, 1), 2),
    "shallow relu": (lambda: mlp(2, 30, 1), 2),
    "no bias": (lambda: mlp(2, 9, 9, 9, 2, bias=False), 2),
    "abs": (lambda: mlp(2, 9, 9, 1, act=ms.Abs), 2),
    "abs written as relu": (lambda: ms.abs_to_relu(mlp(2, 7, 7, 1, act=ms.Abs)), 2),
    "leaky relu": (lambda: mlp(2, 12, 12, 2, act=nn.LeakyReLU), 2),
    "prelu": (lambda: mlp(2, 12, 12, 2, act=nn.PReLU), 2),
    "hardtanh": (lambda: mlp(2, 12, 12, 2, act=nn.Hardtanh), 2),
    "relu6": (lambda: mlp(2, 12, 12, 2, act=nn.ReLU6), 2),
    "softshrink": (lambda: mlp(2, 12, 12, 2, act=nn.Softshrink), 2),
    "residual": (lambda: drawn(Residual()), 2),
    "max pool": (lambda: pooled(nn.MaxPool1d(4), 16, 4), 2),
    "overlapping max pool": (lambda: pooled(nn.MaxPool1d(3, stride=2, padding=1), 15, 8), 2),
    "adaptive max pool": (lambda: pooled(nn.AdaptiveMaxPool1d(3), 10, 3), 2),
    "relu, then max pool": (lambda: pooled(nn.Sequential(nn.ReLU(), nn.MaxPool1d(4, stride=2)), 12, 5), 2),
    "convolutional": (convolutional, 36),
    "affine": (lambda: mlp(2, 3), 2),
}


def plane(inputs, seed=1):
    """Return None for two inputs, else a plane through three random points."""
    if inputs == 2:
        return None
    a, b, c = torch.randn(3, inputs, generator=stream(seed, "plane"), dtype=torch.float64).numpy()
    return a, b - a, c - a
