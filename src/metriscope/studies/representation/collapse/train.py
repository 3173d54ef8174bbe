"""What a cell computes: networks from several starts, trained side by side, and observed as their outputs die.

Axes: N images, K hidden units, C outputs. Epoch ``e`` is the network after ``e`` steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from metriscope.runs import Result, once
from metriscope.studies.representation.collapse.plan import CollapseCell
from metriscope.studies.representation.plan import RepresentationTraining
from metriscope.studies.representation.train import images, start
from metriscope.train import recorded_epochs
from metriscope.train.classifiers import Classifier, PackedExamples, advance, examples, measure

__all__ = ["WORK", "compute", "counted", "even", "lifted", "pushes", "rates"]


def rates(cell: CollapseCell, begin: int, end: int) -> Iterator[tuple[int, float]]:
    """Yield numbers of epochs with their learning rate, from one epoch to another.

    >>> list(rates(CollapseCell("relu2", "raw", 1.0, warmup=4), 2, 9))
    [(1, 0.75), (1, 1.0), (5, 1.0)]
    """
    for epoch in range(begin, min(end, cell.warmup)):
        yield 1, cell.lr * (epoch + 1) / cell.warmup
    if end > cell.warmup:
        yield end - max(begin, cell.warmup), cell.lr


def counted(cell: CollapseCell) -> np.ndarray:
    """Return the epochs at which dead outputs are counted, the first and the last included."""
    return recorded_epochs(cell.epochs + 1, cell.counts)


@dataclass(frozen=True, eq=False)
class CollapseTask:
    """Training images as tensors, and training and test images packed."""

    x: Float[Tensor, "n d"]
    y: Int[Tensor, " n"]
    train: PackedExamples
    test: PackedExamples


@lru_cache(maxsize=1)
def _task(job: RepresentationTraining) -> CollapseTask:
    train, test = images(job)
    packed = (examples(train.x, train.y), examples(test.x, test.y, gradient=False))
    return CollapseTask(torch.from_numpy(train.x), torch.from_numpy(train.y).long(), *packed)


def _training(cell: CollapseCell, number: int) -> RepresentationTraining:
    """Return the training of this study that has the same images and the same start."""
    size = (cell.data, cell.train_size, cell.pixels, cell.epochs, cell.seed, cell.sha256)
    return RepresentationTraining(cell.model, number, *size)


def lifted(model: nn.Sequential, x: Float[Tensor, "n d"], lift: float) -> dict[str, Tensor]:
    """Return the network's state with a bias in the second layer, ``lift`` deviations of the output pre-activations."""
    with torch.no_grad():
        z = model[:3](x)
    return {**model.state_dict(), "2.bias": torch.full((z.shape[1],), lift * float(z.std()))}


def _network(cell: CollapseCell, number: int, x: Float[Tensor, "n d"]) -> Classifier:
    model = start(_training(cell, number))
    if cell.lift:
        return Classifier(f"{cell.model}-bias", lifted(model, x, cell.lift), target=cell.target)
    return Classifier(cell.model, model.state_dict(), target=cell.target)


def pushes(z: Float[Tensor, "n c"], y: Int[Tensor, " n"]) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
    """Return how much cross-entropy pushes each ReLU output up (its targets) and down (all other images).

    ``z``: pre-activations. Both are means over images of the loss's derivative by the pre-activations, which is zero
    where these are negative. Without ReLU both sums over outputs are equal on every image.

    >>> up, down = pushes(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.tensor([0, 1]))
    >>> up.tolist(), [round(value, 3) for value in down.tolist()]
    ([0.25, 0.0], [0.366, 0.25])
    """
    own = torch.nn.functional.one_hot(y, z.shape[1]).bool()
    change = (torch.softmax(z.clamp(min=0), 1) - own.to(z)) * (z > 0)
    return (change * own).abs().mean(0), (change * ~own).mean(0)


def even(up: Float[Tensor, " c"], down: Float[Tensor, " c"]) -> Float[Tensor, " c"]:
    """Return the factor for the targets of each output that makes both pushes equal; 1 where there is no target.

    >>> even(torch.tensor([0.25, 0.0]), torch.tensor([0.5, 0.5]))
    tensor([2., 1.])
    """
    return torch.where(up > 0, down / up.clamp(min=torch.finfo(up.dtype).tiny), 1.0)


def _pre_activations(network: Classifier, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
    state = network.state()
    hidden = torch.relu(x @ state["0.weight"].mT + state["0.bias"])
    return (hidden @ state["2.weight"].mT + state.get("2.bias", torch.zeros(1))).double()


def _advance(cell: CollapseCell, networks: list[Classifier], task: CollapseTask, span: tuple[int, int]) -> None:
    """Train from one epoch to another; to even the pushes, they are measured before every step."""
    for epochs, rate in rates(cell, *span):
        for _ in range(epochs if cell.evened else 1):
            for network in networks if cell.evened else ():
                network.targets[:] = even(*pushes(_pre_activations(network, task.x), task.y)).numpy()
            advance(networks, task.train, 1 if cell.evened else epochs, rate)


def compute(cell: CollapseCell) -> Result:
    """Train every start of a cell and return its end, its dead outputs over epochs, and what pushed its outputs."""
    task = _task(replace(_training(cell, 0), model="relu2"))
    networks = [_network(cell, number, task.x) for number in cell.starts]
    seen, pushed, stops = [], [], counted(cell).tolist()
    for epoch, after in zip(stops, (*stops[1:], stops[-1]), strict=True):
        scores = measure(networks, task.train)
        for i, (number, network) in enumerate(zip(cell.starts, networks, strict=True)):
            seen.append((number, epoch, int((scores.outputs[i] == 0).sum()), scores.loss[i], scores.accuracy[i]))
            if epoch <= cell.pushed and cell.model == "relu2":
                sums = (float(part.sum()) for part in pushes(_pre_activations(network, task.x), task.y))
                pushed.append((number, epoch, *sums))
        _advance(cell, networks, task, (epoch, after))
    ends = pd.DataFrame({"seed": cell.starts, "test_accuracy": measure(networks, task.test).accuracy})
    columns = ["seed", "epoch", "never", "train_loss", "train_accuracy"]
    tables = {"ends": ends, "dead": pd.DataFrame(seen, columns=columns)}
    return Result({**tables, "pushes": pd.DataFrame(pushed, columns=["seed", "epoch", "up", "down"])})


WORK = once(compute)
