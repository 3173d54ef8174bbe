"""Patterns built by hand from bits, networks small enough to follow, and plain definitions to compare with."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from metriscope.nn.layers import empty_linear
from metriscope.rng import stream
from metriscope.vq.capture.patterns import Layer, Patterns

# The first call of a kernel or of a thread pool may take longer than any later one.
patient = settings(max_examples=50)


def patterns(bits, widths=None, **layer):
    """Pack bits, points x units, into layers of the given widths; one layer by default."""
    bits = np.asarray(bits, np.uint8)
    widths = widths or (bits.shape[1],)
    layers = tuple(Layer(f"layer{i}", width, "relu", **layer) for i, width in enumerate(widths))
    parts = np.split(bits, np.cumsum(widths)[:-1], axis=1)
    return Patterns(layers, np.concatenate([np.packbits(part, axis=1) for part in parts], axis=1))


def bit_matrices(points=(1, 20), units=(1, 20)):
    shapes = st.tuples(st.integers(*points), st.integers(*units))
    return shapes.flatmap(lambda shape: hnp.arrays(np.uint8, shape, elements=st.integers(0, 1)))


@st.composite
def layered(draw, points=(1, 20), units=(1, 20)):
    """Draw bits and the widths of the layers that share them out."""
    bits = draw(bit_matrices(points, units))
    cuts = sorted(draw(st.sets(st.integers(1, bits.shape[1] - 1), max_size=3))) if bits.shape[1] > 1 else []
    return bits, tuple(np.diff([0, *cuts, bits.shape[1]]).tolist())


def hamming(a, b):
    """Return the distances of all pairs by their definition."""
    return (np.asarray(a)[:, None] != np.asarray(b)[None]).sum(-1)


def mlp(widths, seed=0):
    """Return a random network with a ReLU after every linear layer, in float64."""
    generator, layers = stream(seed, "mlp"), []
    for inputs, outputs in pairwise(widths):
        linear = empty_linear(inputs, outputs, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.normal_(0, inputs**-0.5, generator=generator)
            linear.bias.normal_(0, 0.5, generator=generator)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers)


def plain_bits(model, x):
    """Return the bits of every ReLU of a sequential network and their widths, without any capture."""
    found, x = [], torch.as_tensor(x)
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, nn.ReLU):
                found.append((x >= 0).numpy())
            x = layer(x)
    return np.concatenate(found, axis=1), tuple(part.shape[1] for part in found)
