"""What a training computes: many networks trained together on the same packed images, each observed during training.

Axes: T observed epochs, A of them at which units are counted. Epoch ``e`` is the network after ``e`` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope import data
from metriscope.nn import build
from metriscope.rng import cuda_advance, cuda_uniform, stream
from metriscope.runs import Result, Run, Work
from metriscope.studies.representation.plan import REPLAYS, WHERE, RepresentationTraining
from metriscope.train import Pace, recorded_epochs
from metriscope.train.classifiers import Network, PackedExamples, advance, classifier, examples, measure

__all__ = ["HISTORY", "WORK", "TrainedNetwork", "counted", "images", "network", "observed", "start", "tagged"]

HISTORY = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
PARTS, LAYERS = ("train", "test"), ("hidden", "output")


def images(job: RepresentationTraining) -> tuple[data.Labeled, data.Labeled]:
    """Return the training and the test images of a network, as points.

    If not all training images are used, they are drawn at random, the same ones for every network. Test images are
    normalized by the training images that are used.
    """
    found = data.load(job.data)
    rows = torch.randperm(len(found.train), generator=stream(job.seed, job.study, "images")).numpy()
    train = found.train[np.sort(rows[: job.train_size])]
    form = cast(Literal["raw", "unit", "normalized"], job.pixels)
    used, test = (data.Labeled(data.pixels(part.x, form, train.x), part.y) for part in (train, found.test))
    return used, test


@dataclass(frozen=True, eq=False)
class ImageTask:
    """Training and test images, packed once for all networks."""

    train: PackedExamples
    test: PackedExamples


def _share(job: RepresentationTraining) -> RepresentationTraining:
    """Return what trainings must have in common to run together: everything but the network and its start."""
    return replace(job, model="", number=0, replay="", threads=None)


# Consecutive passes use the same images, and packing full MNIST takes seconds.
@lru_cache(maxsize=1)
def _task(shared: RepresentationTraining) -> ImageTask:
    train, test = images(shared)
    return ImageTask(examples(train.x, train.y), examples(test.x, test.y, gradient=False))


def start(job: RepresentationTraining) -> nn.Sequential:
    """Return a network before training.

    With our own starts, all networks of one seed begin with the same first layer; a replayed start is that of the
    published run.
    """
    generator = stream(job.seed, job.study, "start", job.number)
    model = build(job.model, job.features, job.hidden, job.classes, generator)
    if job.replay:
        model.load_state_dict(replayed(job, {name: p.shape for name, p in model.named_parameters()}))
    return model


def replayed(job: RepresentationTraining, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """Return the parameters that the published run drew on its GPU: PyTorch's default initialization of a layer."""
    series = REPLAYS[job.replay]
    sizes = [shapes[name].numel() for name in series.draws]
    advances = [cuda_advance(size, job.threads) for size in sizes]
    run = series.networks.index(job.model) * series.runs + job.number
    found = {}
    for i, (name, size) in enumerate(zip(series.draws, sizes, strict=True)):
        bound = shapes[name.replace("bias", "weight")][1] ** -0.5
        offset = run * sum(advances) + sum(advances[:i])
        drawn = cuda_uniform(size, series.seed, offset, job.threads, low=-bound, high=bound)
        found[name] = drawn.reshape(shapes[name])
    return found


def network(job: RepresentationTraining, run: Run) -> nn.Sequential:
    """Return a trained network."""
    model = start(job)
    model.load_state_dict(run.tensors())
    return model.requires_grad_(False)


def counted(job: RepresentationTraining) -> np.ndarray:
    """Return the epochs at which inactive units are counted, the first and the last included.

    >>> counted(RepresentationTraining("abs", 0, "mnist", 60_000, "raw", 5_000)).tolist()
    [0, 1, 4, 9, 21, 47, 103, 225, 489, 1062, 2305, 5000]
    """
    return recorded_epochs(job.epochs + 1, job.counts)


def observed(job: RepresentationTraining) -> np.ndarray:
    """Return the epochs of a history: geometrically spaced ones, and those at which units are counted.

    >>> observed(RepresentationTraining("abs", 0, "mnist", 60_000, "raw", 3)).tolist()
    [0, 1, 2, 3]
    """
    return np.union1d(recorded_epochs(job.epochs + 1, job.ladder), counted(job))


@dataclass(eq=False)
class Member:
    """A network in training with its records so far; those of later epochs are NaN."""

    job: RepresentationTraining
    network: Network
    history: Float[Tensor, "t 4"] = field(init=False)
    dead: Float[Tensor, "a 2 2 3"] = field(init=False)
    epoch: int = 0

    def __post_init__(self) -> None:
        self.observed, self.counted = observed(self.job), counted(self.job)
        self.history = torch.full((len(self.observed), len(HISTORY)), torch.nan, dtype=torch.float64)
        shape = (len(self.counted), len(PARTS), len(LAYERS), len(self.job.rare))
        self.dead = torch.full(shape, torch.nan, dtype=torch.float64)

    def note(self, **values: float) -> None:
        """Record values of this epoch, if it is observed."""
        row = np.flatnonzero(self.observed == self.epoch)
        for name, value in values.items():
            self.history[row, HISTORY.index(name)] = value

    def count(self, part: str, shares: Sequence[Float[np.ndarray, k]]) -> None:
        """Record the number of rarely active units of each layer, if this is an epoch at which they are counted."""
        row = np.flatnonzero(self.counted == self.epoch)
        for layer, active in enumerate(shares):
            found = [int(np.sum((active < limit) | (active == 0))) for _, limit in self.job.rare]
            self.dead[row, PARTS.index(part), layer] = torch.tensor(found, dtype=torch.float64)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the history, one row per epoch, and the counts of units, one row per epoch, part and layer."""
        history = pd.DataFrame(self.history.numpy(), columns=list(HISTORY))
        history.insert(0, "epoch", self.observed)
        keys = pd.MultiIndex.from_product([self.counted, PARTS, LAYERS], names=["epoch", "part", "layer"])
        names = [name for name, _ in self.job.rare]
        values = self.dead.numpy().reshape(len(keys), len(names)).astype(np.int64)
        dead = pd.DataFrame(values, keys, names).reset_index()
        units = {"hidden": self.job.hidden, "output": self.job.classes}
        return {"history": history, "dead": dead.assign(units=dead["layer"].map(units))}


class ClassifierPass:
    """Trainings that run together, possibly at different epochs: those that are behind are trained first."""

    def __init__(self, jobs: Sequence[RepresentationTraining]) -> None:
        self.task = _task(_share(jobs[0]))
        self.members = {job: Member(job, classifier(job.model, start(job).state_dict())) for job in jobs}

    def span(self, job: RepresentationTraining) -> tuple[int, int]:
        """Return the epoch that a training has reached, and its last."""
        return self.members[job].epoch, job.epochs

    def state(self, job: RepresentationTraining) -> dict[str, Tensor]:
        """Return everything that a checkpoint must hold."""
        member = self.members[job]
        weights = {f"weights/{name}": tensor for name, tensor in member.network.state().items()}
        return {**weights, "history": member.history, "dead": member.dead}

    def restore(self, job: RepresentationTraining, tensors: Mapping[str, Tensor], step: int) -> None:
        """Resume a training from its :meth:`state` at epoch ``step``."""
        member = self.members[job]
        weights = {k.removeprefix("weights/"): v for k, v in tensors.items() if k.startswith("weights/")}
        member.network = classifier(job.model, weights)
        member.history.copy_(tensors["history"])
        member.dead.copy_(tensors["dead"])
        member.epoch = step

    def run(self, tick: Callable[[], None]) -> None:
        """Train every network to its end."""
        members, pace = list(self.members.values()), Pace()
        last, seen = members[0].job.epochs, set(members[0].observed.tolist())
        while (epoch := min(m.epoch for m in members)) < last:
            behind = [m for m in members if m.epoch == epoch]
            if epoch in seen:
                _observe(behind, self.task)
            stops = (*seen, *(m.epoch for m in members))
            until = min([epoch + pace.chunk, *(s for s in stops if s > epoch)])
            with pace.measured(until - epoch):
                _step(behind, self.task, until)
            if until < last:
                tick()
        _observe(members, self.task)
        tick()

    def result(self, job: RepresentationTraining) -> Result:
        """Return the weights, the history and the counts of units."""
        member = self.members[job]
        return Result(member.tables(), member.network.state())


def _observe(members: Sequence[Member], task: ImageTask) -> None:
    """Record loss and accuracy at the epoch of all members; those on training images are recorded by the steps."""
    networks, epoch = [m.network for m in members], members[0].epoch
    parts = {"test": measure(networks, task.test)}
    if epoch in members[0].counted:
        parts["train"] = measure(networks, task.train)
    for part, scores in parts.items():
        for i, member in enumerate(members):
            if part == "test" or epoch == member.job.epochs:
                member.note(**{f"{part}_loss": scores.loss[i], f"{part}_accuracy": scores.accuracy[i]})
            member.count(part, (scores.hidden[i], scores.outputs[i]))


def _step(members: Sequence[Member], task: ImageTask, until: int) -> None:
    """Train members that are at the same epoch up to another."""
    epochs, lr = until - members[0].epoch, members[0].job.lr
    losses, accuracies = advance([m.network for m in members], task.train, epochs, lr)
    for member, loss, accuracy in zip(members, losses, accuracies, strict=True):
        member.note(train_loss=loss[0], train_accuracy=accuracy[0])
        member.epoch = until


WORK = Work(ClassifierPass, _share, lambda job: job.width)


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """One finished training as measurements read it; ``run`` is None if only its tables were kept.

    ``history`` has one row per observed epoch: epoch, train_loss, train_accuracy, test_loss, test_accuracy,
    accuracies as shares. ``dead`` has one row per epoch, part ("train" or "test") and layer ("hidden" or "output"):
    never, under_1 and under_5 count the units active for no image, for under 1 % and for under 5 % of them, out of
    ``units``.
    """

    job: RepresentationTraining
    history: pd.DataFrame
    dead: pd.DataFrame
    run: Run | None = None

    @property
    def origin(self) -> str:
        """Whether the training is a run of this store, or a record."""
        return "record" if self.run is None else "run"

    @property
    def model(self) -> nn.Sequential:
        """The trained network."""
        assert self.run is not None
        return network(self.job, self.run)


def tagged(found: Iterable[tuple[RepresentationTraining, pd.DataFrame]], columns: Iterable[str]) -> pd.DataFrame:
    """Return these columns of many trainings' tables as one table, each row with the columns of its training."""
    names, kept = [*WHERE, *columns, "protocol", "length"], [(job, table) for job, table in found if len(table)]
    if not kept:
        return pd.DataFrame(columns=names)
    # One copy of all rows: a copy per training takes seconds for hundreds of trainings.
    rows = pd.concat([table for _, table in kept], ignore_index=True)
    each = np.repeat(np.arange(len(kept)), [len(table) for _, table in kept])
    tags = pd.DataFrame([job.columns for job, _ in kept]).iloc[each].reset_index(drop=True)
    return pd.concat([rows.drop(columns=list(tags.columns), errors="ignore"), tags], axis=1)[names]
