"""Run the representation study's trainings: draw each start, train what is missing a wave at a time, store each run.

Axes: S networks of a wave, T observed epochs. Epoch ``e`` of a history is the network after ``e`` steps.

A network's checkpoint is its own, so a run goes on from where it stood whatever is asked for beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope import data
from metriscope.nn import build
from metriscope.rng import stream
from metriscope.runs import Run, Store
from metriscope.studies.contract import Announce
from metriscope.studies.representation.spec import CLASSES, HIDDEN, NAME, PIXELS_A_SIDE, Part, Plan, Training
from metriscope.train import progress, recorded_epochs
from metriscope.train.classifiers import Classifier, Examples, Scores, advance, examples, measure

__all__ = [
    "DEAD",
    "HISTORY",
    "Member",
    "Task",
    "compute",
    "images",
    "network",
    "observed",
    "snapshots",
    "start",
    "task",
]

# Seconds between checkpoints; more often where machines are taken away without notice.
CHECKPOINT_SECONDS = float(os.environ.get("METRISCOPE_CHECKPOINT_SECONDS", "60"))
# Trainings that go side by side: few enough that the first runs of a long plan are finished early.
WAVE = 16
# Seconds between two looks at the clock; epochs that a history has, and those at which units are counted.
PACE, LADDER, SNAPSHOTS = 2.0, 100, 13

HISTORY = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
PARTS, LAYERS = ("train", "test"), {"hidden": HIDDEN, "output": CLASSES}
# Units are counted that are active on no input, and on less than these shares of them.
DEAD = {"never": 0.0, "under_1": 0.01, "under_5": 0.05}


@dataclass(frozen=True, eq=False)
class Task:
    """Images to train on and to test on, packed once for all networks."""

    train: Examples
    test: Examples


def images(training: Training) -> tuple[data.Labelled, data.Labelled]:
    """Return what a network is trained and tested on, as points.

    Fewer than all training images are drawn at random, the same for every network; test images are normalised by
    those that are used.
    """
    found = data.load(training.data)
    rows = torch.randperm(len(found.train), generator=stream(training.seed, NAME, "images")).numpy()
    train = found.train[np.sort(rows[: training.train_size])]
    form = cast(Literal["raw", "unit", "normalized"], training.pixels)
    used, test = (data.Labelled(data.pixels(part.x, form, train.x), part.y) for part in (train, found.test))
    return used, test


def task(training: Training) -> Task:
    """Return the images of a training, packed."""
    train, test = images(training)
    return Task(examples(train.x, train.y), examples(test.x, test.y, gradient=False))


def start(training: Training) -> nn.Sequential:
    """Return a network before training; all networks of one seed begin with the same first layer."""
    return build(
        training.model, PIXELS_A_SIDE**2, HIDDEN, CLASSES, stream(training.seed, NAME, "start", training.number)
    )


def network(training: Training, run: Run) -> nn.Sequential:
    """Return a trained network."""
    model = start(training)
    model.load_state_dict(run.tensors())
    return model.requires_grad_(False)


def snapshots(epochs: int) -> np.ndarray:
    """Return the epochs at which units are counted, the start and the end among them.

    >>> snapshots(5_000).tolist()
    [0, 1, 4, 9, 21, 47, 103, 225, 489, 1062, 2305, 5000]
    """
    return recorded_epochs(epochs + 1, SNAPSHOTS)


def observed(epochs: int) -> np.ndarray:
    """Return the epochs that a history has: a geometric ladder, and those at which units are counted.

    >>> observed(3).tolist()
    [0, 1, 2, 3]
    """
    return np.union1d(recorded_epochs(epochs + 1, LADDER), snapshots(epochs))


@dataclass(eq=False)
class Member:
    """A network in training, with what has been seen of it so far; what is still to come is NaN."""

    training: Training
    network: Classifier
    history: Float[Tensor, "t 4"] = field(init=False)
    dead: Float[Tensor, "a 2 2 3"] = field(init=False)
    epoch: int = 0

    def __post_init__(self) -> None:
        self.observed, self.counted = observed(self.training.epochs), snapshots(self.training.epochs)
        self.history = torch.full((len(self.observed), len(HISTORY)), torch.nan, dtype=torch.float64)
        shape = (len(self.counted), len(PARTS), len(LAYERS), len(DEAD))
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
            found = [int(np.sum((active < limit) | (active == 0))) for limit in DEAD.values()]
            self.dead[row, PARTS.index(part), layer] = torch.tensor(found, dtype=torch.float64)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that a checkpoint must hold."""
        weights = {f"weights/{name}": tensor for name, tensor in self.network.state().items()}
        return {**weights, "history": self.history, "dead": self.dead}

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the history and the counts of units as tables, a row an epoch."""
        history = pd.DataFrame(self.history.numpy(), columns=list(HISTORY))
        history.insert(0, "epoch", self.observed)
        keys = pd.MultiIndex.from_product([self.counted, PARTS, LAYERS], names=["epoch", "part", "layer"])
        values = self.dead.numpy().reshape(len(keys), len(DEAD)).astype(np.int64)
        dead = pd.DataFrame(values, keys, list(DEAD)).reset_index()
        return {"history": history, "dead": dead.assign(units=dead["layer"].map(LAYERS))}


def _member(training: Training, store: Store) -> Member:
    """Return a network as its checkpoint left it, or at its start."""
    saved = store.checkpoint(training).load()
    if saved is None:
        return Member(training, Classifier(training.model, start(training).state_dict()))
    tensors, meta = saved
    weights = {k.removeprefix("weights/"): v for k, v in tensors.items() if k.startswith("weights/")}
    member = Member(training, Classifier(training.model, weights), int(meta["epoch"]))
    member.history, member.dead = tensors["history"], tensors["dead"]
    return member


@dataclass
class _Clock:
    """When to save, when to stop, and how many epochs to train before the next look."""

    deadline: float | None
    saved: float = field(default_factory=time.monotonic)
    rate: float = 1.0

    def pace(self, epochs: int, networks: int, seconds: float) -> None:
        """Learn how many epochs of one network are trained in a second."""
        # Grows at most eightfold, so that a first call slowed by compilation does not mislead for long.
        self.rate = min(8 * self.rate, epochs * networks / max(seconds, 1e-6))

    def due(self) -> bool:
        return time.monotonic() - self.saved >= CHECKPOINT_SECONDS

    def over(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline


def _observe(members: Sequence[Member], views: Task) -> None:
    """Note loss and accuracy at the epoch where all members stand; before a step the training's own come with it."""
    networks, epoch = [m.network for m in members], members[0].epoch
    parts = {"test": measure(networks, views.test)}
    if epoch in members[0].counted:
        parts["train"] = measure(networks, views.train)
    for part, scores in parts.items():
        for i, member in enumerate(members):
            _note(member, part, scores, i)


def _note(member: Member, part: str, scores: Scores, index: int) -> None:
    if part == "test" or member.epoch == member.training.epochs:
        member.note(**{f"{part}_loss": scores.loss[index], f"{part}_accuracy": scores.accuracy[index]})
    member.count(part, (scores.hidden[index], scores.outputs[index]))


def _step(members: Sequence[Member], views: Task, until: int) -> None:
    """Train members that stand at the same epoch up to another."""
    epochs, lr = until - members[0].epoch, members[0].training.lr
    losses, accuracies = advance([m.network for m in members], views.train, epochs, lr)
    for member, loss, accuracy in zip(members, losses, accuracies, strict=True):
        member.note(train_loss=loss[0], train_accuracy=accuracy[0])
        member.epoch = until


def _train(members: Sequence[Member], views: Task, clock: _Clock, tick: Callable[[], None]) -> bool:
    """Train a wave to its end, or until the time is up; tell whether the end was reached."""
    last = members[0].training.epochs
    while (epoch := min(m.epoch for m in members)) < last:
        behind = [m for m in members if m.epoch == epoch]
        stops = [*members[0].observed, *(m.epoch for m in members)]
        if epoch in members[0].observed:
            _observe(behind, views)
        chunk = max(1, int(clock.rate * min(PACE, CHECKPOINT_SECONDS or PACE) / len(behind)))
        until, began = min([epoch + chunk, *(s for s in stops if s > epoch)]), time.monotonic()
        _step(behind, views, int(until))
        clock.pace(int(until) - epoch, len(behind), time.monotonic() - began)
        tick()
        if clock.over():
            return False
    _observe(members, views)
    return True


def _compute(wave: Sequence[Training], views: Task, store: Store, clock: _Clock, show: Callable[[int], None]) -> bool:
    """Train one wave, from its checkpoints on; store it, or save it where it stands when the time is up."""
    members = [_member(training, store) for training in wave]

    def save() -> None:
        for member in members:
            store.checkpoint(member.training).save(member.tensors(), {"epoch": member.epoch})
        clock.saved = time.monotonic()

    def tick() -> None:
        show(sum(member.epoch for member in members))
        if clock.due():
            save()

    if not _train(members, views, clock, tick):
        save()
        return False
    for member in members:
        store.put(member.training, member.network.state(), {"study": NAME}, member.tables())
    return True


def compute(plan: Plan, store: Store, announce: Announce) -> dict[Training, Run]:
    """Run or resume a plan and return its finished runs; with a budget, those that could be finished in it."""
    deadline = None if plan.budget is None else time.monotonic() + plan.budget
    found: dict[Training, Run] = {}
    for part in plan.parts:
        asked = plan.trainings(part)
        kept = _stored(asked, store)
        missing = [training for training in asked if training not in kept]
        if missing:
            _missing(missing, store, _Clock(deadline))
        fresh = _stored(missing, store)
        found |= kept | fresh
        announce(_sentence(plan, part, len(fresh), len(kept)))
        if len(fresh) < len(missing):
            announce(f"The budget of {plan.budget:g} seconds is used up; the same call goes on from the checkpoints.")
            break
    return found


def _stored(trainings: Sequence[Training], store: Store) -> dict[Training, Run]:
    return {training: run for training in trainings if (run := store.get(training)) is not None}


def _missing(trainings: Sequence[Training], store: Store, clock: _Clock) -> None:
    views, epochs = task(trainings[0]), trainings[0].epochs
    label = f"{trainings[0].pixels} pixels"
    with progress(label, total=epochs * len(trainings)) as show:
        for first in range(0, len(trainings), WAVE):
            wave = trainings[first : first + WAVE]
            if not _compute(wave, views, store, clock, _shifted(show, first * epochs)):
                return


def _shifted(show: Callable[[int], None], offset: int) -> Callable[[int], None]:
    return lambda done: show(offset + done)


def _sentence(plan: Plan, part: Part, fresh: int, kept: int) -> str:
    networks, seeds = (
        f"{n} {word}{'s' * (n != 1)}" for n, word in ((len(part.models), "network"), (plan.seeds, "seed"))
    )
    return (
        f"{part.pixels} pixels: {networks}, {seeds}, {plan.epochs:,} epochs, {plan.train_size:,} images of "
        f"{plan.data} (runs: {fresh} computed, {kept} from the store)"
    )
