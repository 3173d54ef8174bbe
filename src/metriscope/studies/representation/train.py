"""What a training computes: many networks side by side over the same packed images, each observed as it learns.

Axes: T observed epochs, A of them at which units are counted. Epoch ``e`` is the network after ``e`` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from metriscope.rng import stream
from metriscope.runs import Result, Run, Work
from metriscope.studies.representation.plan import WIDTH, Training
from metriscope.train import Pace, recorded_epochs
from metriscope.train.classifiers import Examples, Network, Scores, advance, classifier, examples, measure

__all__ = ["HISTORY", "WORK", "Lesson", "Trained", "counted", "images", "network", "observed", "start", "trained"]

HISTORY = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
PARTS, LAYERS = ("train", "test"), ("hidden", "output")


def images(job: Training) -> tuple[data.Labeled, data.Labeled]:
    """Return what a network is trained and tested on, as points.

    Fewer than all training images are drawn at random, the same for every network; test images are normalized by
    those that are used.
    """
    found = data.load(job.data)
    rows = torch.randperm(len(found.train), generator=stream(job.seed, job.study, "images")).numpy()
    train = found.train[np.sort(rows[: job.train_size])]
    form = cast(Literal["raw", "unit", "normalized"], job.pixels)
    used, test = (data.Labeled(data.pixels(part.x, form, train.x), part.y) for part in (train, found.test))
    return used, test


@dataclass(frozen=True, eq=False)
class Task:
    """Images to train on and to test on, packed once for all networks."""

    train: Examples
    test: Examples


def _share(job: Training) -> Training:
    """Return what trainings must have in common to go side by side: all but the network and its start."""
    return replace(job, model="", number=0)


# One pass after another has the same images, and packing full MNIST takes seconds.
@lru_cache(maxsize=1)
def _task(shared: Training) -> Task:
    train, test = images(shared)
    return Task(examples(train.x, train.y), examples(test.x, test.y, gradient=False))


def start(job: Training) -> nn.Sequential:
    """Return a network before training; all networks of one seed begin with the same first layer."""
    generator = stream(job.seed, job.study, "start", job.number)
    return build(job.model, job.features, job.hidden, job.classes, generator)


def network(job: Training, run: Run) -> nn.Sequential:
    """Return a trained network."""
    model = start(job)
    model.load_state_dict(run.tensors())
    return model.requires_grad_(False)


def counted(job: Training) -> np.ndarray:
    """Return the epochs at which inactive units are counted, the start and the end among them.

    >>> counted(Training("abs", 0, "mnist", 60_000, "raw", 5_000)).tolist()
    [0, 1, 4, 9, 21, 47, 103, 225, 489, 1062, 2305, 5000]
    """
    return recorded_epochs(job.epochs + 1, job.counts)


def observed(job: Training) -> np.ndarray:
    """Return the epochs that a history has: a geometric ladder, and those at which units are counted.

    >>> observed(Training("abs", 0, "mnist", 60_000, "raw", 3)).tolist()
    [0, 1, 2, 3]
    """
    return np.union1d(recorded_epochs(job.epochs + 1, job.ladder), counted(job))


@dataclass(eq=False)
class Member:
    """A network in training, with what has been seen of it so far; what is still to come is NaN."""

    job: Training
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
        """Write down what was seen at this epoch, if it is one to be observed."""
        row = np.flatnonzero(self.observed == self.epoch)
        for name, value in values.items():
            self.history[row, HISTORY.index(name)] = value

    def count(self, part: str, shares: Sequence[Float[np.ndarray, k]]) -> None:
        """Write down how many units of each layer are hardly ever active, if this is an epoch to do so."""
        row = np.flatnonzero(self.counted == self.epoch)
        for layer, active in enumerate(shares):
            found = [int(np.sum((active < limit) | (active == 0))) for _, limit in self.job.rare]
            self.dead[row, PARTS.index(part), layer] = torch.tensor(found, dtype=torch.float64)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that a checkpoint must hold."""
        weights = {f"weights/{name}": tensor for name, tensor in self.network.state().items()}
        return {**weights, "history": self.history, "dead": self.dead}

    def restore(self, tensors: Mapping[str, Tensor], epoch: int) -> None:
        """Take up the state that :meth:`tensors` gave out at ``epoch``."""
        weights = {k.removeprefix("weights/"): v for k, v in tensors.items() if k.startswith("weights/")}
        self.network = classifier(self.job.model, weights)
        self.history.copy_(tensors["history"])
        self.dead.copy_(tensors["dead"])
        self.epoch = epoch

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the history and the counts of units as tables, one row per epoch."""
        history = pd.DataFrame(self.history.numpy(), columns=list(HISTORY))
        history.insert(0, "epoch", self.observed)
        keys = pd.MultiIndex.from_product([self.counted, PARTS, LAYERS], names=["epoch", "part", "layer"])
        names = [name for name, _ in self.job.rare]
        values = self.dead.numpy().reshape(len(keys), len(names)).astype(np.int64)
        dead = pd.DataFrame(values, keys, names).reset_index()
        units = {"hidden": self.job.hidden, "output": self.job.classes}
        return {"history": history, "dead": dead.assign(units=dead["layer"].map(units))}


class Lesson:
    """Trainings side by side, which may stand at different epochs: those that are behind go first."""

    def __init__(self, jobs: Sequence[Training]) -> None:
        self.task = _task(_share(jobs[0]))
        self.members = {job: Member(job, classifier(job.model, start(job).state_dict())) for job in jobs}

    def span(self, job: Training) -> tuple[int, int]:
        """Return the epoch that a training has reached, and its last."""
        return self.members[job].epoch, job.epochs

    def state(self, job: Training) -> dict[str, Tensor]:
        """Return everything that a checkpoint must hold."""
        return self.members[job].tensors()

    def restore(self, job: Training, tensors: Mapping[str, Tensor], step: int) -> None:
        """Take up the state that a training had at an epoch."""
        self.members[job].restore(tensors, step)

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

    def result(self, job: Training) -> Result:
        """Return the weights, the history and the counts of units."""
        member = self.members[job]
        return Result(member.tables(), member.network.state())


def _observe(members: Sequence[Member], task: Task) -> None:
    """Note loss and accuracy at the epoch where all members stand; before a step the training's own come with it."""
    networks, epoch = [m.network for m in members], members[0].epoch
    parts = {"test": measure(networks, task.test)}
    if epoch in members[0].counted:
        parts["train"] = measure(networks, task.train)
    for part, scores in parts.items():
        for i, member in enumerate(members):
            _note(member, part, scores, i)


def _note(member: Member, part: str, scores: Scores, index: int) -> None:
    if part == "test" or member.epoch == member.job.epochs:
        member.note(**{f"{part}_loss": scores.loss[index], f"{part}_accuracy": scores.accuracy[index]})
    member.count(part, (scores.hidden[index], scores.outputs[index]))


def _step(members: Sequence[Member], task: Task, until: int) -> None:
    """Train members that stand at the same epoch up to another."""
    epochs, lr = until - members[0].epoch, members[0].job.lr
    losses, accuracies = advance([m.network for m in members], task.train, epochs, lr)
    for member, loss, accuracy in zip(members, losses, accuracies, strict=True):
        member.note(train_loss=loss[0], train_accuracy=accuracy[0])
        member.epoch = until


WORK = Work(Lesson, _share, WIDTH)


@dataclass(frozen=True, eq=False)
class Trained:
    """One finished training as measures read it; ``run`` is None where only its tables were kept.

    ``history`` has one row per observed epoch: epoch, train_loss, train_accuracy, test_loss, test_accuracy,
    accuracies as shares. ``dead`` has one row per epoch, part ("train" or "test") and layer ("hidden" or "output"):
    never, under_1 and under_5 count the units active for no image, for under 1 % and for under 5 % of them, out of
    ``units``.
    """

    job: Training
    history: pd.DataFrame
    dead: pd.DataFrame
    run: Run | None = None

    @property
    def where(self) -> dict[str, str | int]:
        """What tells this run from all others in a table."""
        return {"setting": str(self.job.setting), "network": self.job.model, "seed": self.job.number}

    @property
    def model(self) -> nn.Sequential:
        """The trained network."""
        assert self.run is not None
        return network(self.job, self.run)


def trained(job: Training, run: Run) -> Trained:
    """Return a finished run as measures read it."""
    return Trained(job, run.table("history"), run.table("dead"), run)
