"""Train constrained networks at a learning rate that is matched to the curvature of the loss.

Axes: N images, D pixels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch

from metriscope import data
from metriscope.nn import build
from metriscope.probes import sharpness
from metriscope.rng import stream
from metriscope.runs import Result, once
from metriscope.studies.transfer.plan import IMAGES, REFERENCE, TransferTraining
from metriscope.train.classifiers import PackedExamples, advance, classifier, examples, measure

__all__ = ["WORK", "curvature", "points", "trained"]


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


def start(job: TransferTraining, model: str, features: int, number: int) -> torch.nn.Sequential:
    """Return a network before training; networks of one start begin with the same first layer."""
    return build(model, features, job.hidden, 10, stream(job.seed, job.study, "start", number))


def curvature(job: TransferTraining, name: str) -> float:
    """Return the largest curvature of the loss on a data set, at the first start of a ReLU network."""
    train, _ = points(name, IMAGES[name], job.pixels, job.seed)
    x, y = torch.from_numpy(train.x[: job.sample]), torch.from_numpy(train.y[: job.sample])
    return sharpness(start(job, "relu", x.shape[1], 0), x, y, steps=job.steps)


def trained(job: TransferTraining) -> Result:
    """Return accuracies and inactive outputs of every start."""
    sharp = {name: curvature(job, name) for name in dict.fromkeys((REFERENCE, job.data))}
    rate = job.lr * sharp[REFERENCE] / sharp[job.data]
    train, test = _packed(job.data, job.train_size, job.pixels, job.seed)
    starts = [start(job, job.model, train.x.shape[1], number) for number in range(job.starts)]
    networks = [classifier(job.model, model.state_dict()) for model in starts]
    advance(networks, train, job.epochs, rate)
    parts = {"train": measure(networks, train), "test": measure(networks, test)}
    table = {f"{part}_accuracy": 100 * scores.accuracy for part, scores in parts.items()}
    dead = [float((share == 0).mean()) for share in parts["train"].outputs]
    columns = {"seed": range(job.starts), **table, "dead_outputs": dead, "lr": rate, "sharpness": sharp[job.data]}
    return Result({"ends": pd.DataFrame(columns)})


WORK = once(trained)
