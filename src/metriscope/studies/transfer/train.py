"""Train constrained networks at a learning rate that is matched to the curvature of the loss.

Axes: N images, D pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from metriscope import data
from metriscope.nn import ARCHITECTURES, build
from metriscope.nn.activations import activation_row
from metriscope.nn.layers import draw_, fresh_linear
from metriscope.probes import sharpness
from metriscope.rng import stream
from metriscope.runs import Result, once
from metriscope.studies.transfer.plan import BODIES, IMAGES, REFERENCE, SHALLOW, TransferTraining
from metriscope.train.classifiers import (
    AutogradClassifier,
    Network,
    PackedExamples,
    advance,
    classifier,
    examples,
    measure,
)

__all__ = ["WORK", "start", "trained"]


@lru_cache(maxsize=2)
def points(name: str, count: int, pixels: str, seed: int) -> tuple[data.Labeled, data.Labeled]:
    """Return training images, drawn at random, and all test images, as points."""
    found = data.load(name)
    rows = torch.randperm(len(found.train), generator=stream(seed, "transfer", name, "images")).numpy()
    train = found.train[np.sort(rows[:count])]
    form: Any = pixels
    used, test = (data.Labeled(data.pixels(part.x, form, train.x), part.y) for part in (train, found.test))
    return used, test


@lru_cache(maxsize=1)
def _packed(name: str, count: int, pixels: str, seed: int) -> tuple[PackedExamples, PackedExamples]:
    train, test = points(name, count, pixels, seed)
    return examples(train.x, train.y), examples(test.x, test.y, gradient=False)


def start(job: TransferTraining, train: data.Labeled, model: str, number: int) -> tuple[nn.Sequential, int]:
    """Return a network before training, and the number of modules before its last layer.

    Networks of one start and body begin with the same first layer.
    """
    body, row = BODIES[job.body], ARCHITECTURES[model]
    features, generator = train.x.shape[1], stream(job.seed, job.study, "start", number)
    if body.channels:
        inner, width = _convolutions(_shape(features), body.channels, row.hidden, generator)
    else:
        sizes = (features, *[job.hidden] * (body.layers - 1))
        pairs = [
            (fresh_linear(size, job.hidden, generator=generator), activation_row(row.hidden).module())
            for size in sizes[:-1]
        ]
        inner, width = [module for pair in pairs for module in pair], sizes[-1]
    last = build(model, width, job.hidden, int(train.y.max()) + 1, generator)
    return nn.Sequential(*inner, *last), len(inner) + 2


def _shape(features: int) -> tuple[int, int, int]:
    """Return channels, rows and columns of square images: gray if the number of features is a square.

    >>> _shape(784), _shape(3072)
    ((1, 28, 28), (3, 32, 32))
    """
    channels = 1 if math.isqrt(features) ** 2 == features else 3
    side = math.isqrt(features // channels)
    return channels, side, side


def _convolutions(
    shape: tuple[int, int, int], channels: Sequence[int], hidden: str, generator: torch.Generator
) -> tuple[list[nn.Module], int]:
    """Return convolutions that halve the image each time, with activations, and the number of their outputs."""
    modules: list[nn.Module] = [nn.Unflatten(1, shape)]
    before, side = shape[0], shape[1]
    for count in channels:
        layer = nn.utils.skip_init(nn.Conv2d, before, count, 5, 2, 2)
        bound = layer.weight[0].numel() ** -0.5  # PyTorch's default
        for parameter in layer.parameters():
            draw_(parameter, partial(nn.init.uniform_, a=-bound, b=bound, generator=generator), generator)
        modules += [layer, activation_row(hidden).module()]
        before, side = count, (side + 1) // 2
    return [*modules, nn.Flatten()], before * side * side


def curvature(job: TransferTraining) -> float:
    """Return the largest curvature of the loss at the first start of a ReLU network."""
    train, _ = points(job.data, job.train_size, job.pixels, job.seed)
    x, y = torch.from_numpy(train.x[: job.sample]), torch.from_numpy(train.y[: job.sample])
    return sharpness(start(job, train, "relu", 0)[0], x, y, steps=job.steps)


def trained(job: TransferTraining) -> Result:
    """Return accuracies and inactive outputs of every start."""
    same = replace(job, data=REFERENCE, train_size=IMAGES[REFERENCE], body=SHALLOW)
    sharp, known = curvature(job), curvature(same)
    rate = job.lr * known / sharp
    train, test = _packed(job.data, job.train_size, job.pixels, job.seed)
    own = data.Labeled(train.x, train.y)
    networks = [_network(job, own, number) for number in range(job.starts)]
    advance(networks, train, job.epochs, rate)
    parts = {"train": measure(networks, train), "test": measure(networks, test)}
    table = {f"{part}_accuracy": 100 * scores.accuracy for part, scores in parts.items()}
    dead = [float((share == 0).mean()) for share in parts["train"].outputs]
    columns = {"seed": range(job.starts), **table, "dead_outputs": dead, "lr": rate, "sharpness": sharp}
    return Result({"ends": pd.DataFrame(columns)})


def _network(job: TransferTraining, train: data.Labeled, number: int) -> Network:
    model, head = start(job, train, job.model, number)
    if job.body == SHALLOW:
        return classifier(job.model, model.state_dict())
    return AutogradClassifier(model, train.x.shape[1], int(train.y.max()) + 1, head)


WORK = once(trained)
