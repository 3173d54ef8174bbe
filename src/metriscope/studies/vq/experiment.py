"""Run the VQ study's trainings: draw each seed's points, train a group of networks together, store it.

Axes: S networks, N points, D features.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from threading import Lock

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from metriscope import data
from metriscope.nn import stack_state, unstack
from metriscope.rng import derive, stream
from metriscope.runs import Checkpoint, Run, Store
from metriscope.studies.contract import Announce
from metriscope.studies.vq.networks import OwnPoints, mlp
from metriscope.studies.vq.spec import ANGLE, GROUP, NAME, ROLES, Group
from metriscope.train import Cohort, Protocol, progress, workers_available

__all__ = ["Networks", "Sample", "digit_source", "sample", "start", "train"]

# Seconds between checkpoints; more often where machines are taken away without notice.
CHECKPOINT_SECONDS = float(os.environ.get("METRISCOPE_CHECKPOINT_SECONDS", "10"))
NOISE = 0.1
# Images of the paper's split: for training, and a quarter of that for testing.
IMAGES = 8_000
TICKS = 20


@dataclass(frozen=True)
class Sample:
    """The points of one seed and role: those trained on and those held out, in float32, with their labels."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


def digit_source(images: int | None = None) -> tuple[str, int]:
    """Return which digits are here and how many of them are trained on: full MNIST, or those that are embedded."""
    name, most = ("mnist", IMAGES) if data.available("mnist") else ("mnist-5k", IMAGES // 2)
    return name, most if images is None else images


def sample(group: Group, number: int, role: str) -> Sample:
    """Return the points that a seed's network is trained on in a role, and as many of a new draw.

    All roles of a seed see the same points, turned where the role says so, and all shapes do.
    """
    if group.task == "digits":
        return _digits(group.data, group.points, group.seed, number)
    here = (group.seed, NAME, group.task)
    parts = [_moons(group, number, part, ROLES[role].turned) for part in ("points", "held out")]
    (x, y), (test_x, test_y) = parts
    if ROLES[role].shuffled:
        y = y[torch.randperm(len(y), generator=stream(*here, "labels", number))]
    return Sample(x, y, test_x, test_y)


def _moons(group: Group, number: int, part: str, turned: bool) -> tuple[Tensor, Tensor]:
    here = (group.seed, NAME, group.task, part, number)
    x, y = data.two_moons(group.points, stream(*here), NOISE)
    if group.task == "spheres":
        x = data.sphere_moons(x, stream(*here, "sphere"))
    x = data.turn(x, ANGLE) if turned else x
    order = torch.argsort(y, stable=True)
    return x[order].float(), y[order].float()


@lru_cache(maxsize=GROUP)
def _digits(name: str, points: int, seed: int, number: int) -> Sample:
    pixels, labels = _pool(name)
    count = points + points // 4
    rows = torch.randperm(len(labels), generator=stream(seed, NAME, "digits", "rows", number))[:count]
    x, y = pixels[rows].float() / 255, labels[rows]
    return Sample(x[:points], y[:points], x[points:], y[points:])


@lru_cache(maxsize=1)
def _pool(name: str) -> tuple[Tensor, Tensor]:
    # The embedded set is small: both of its halves are needed.
    found = data.load(name)
    parts = (found.train,) if name == "mnist" else (found.train, found.test)
    pixels = np.concatenate([part.x.reshape(len(part.x), -1) for part in parts])
    return torch.from_numpy(pixels), torch.from_numpy(np.concatenate([part.y for part in parts]))


def start(group: Group, number: int, role: str) -> nn.Sequential:
    """Return a network before training; ReLU and Abs of one size begin alike."""
    size = f"{group.shape.depth}x{group.shape.width}"
    return mlp(group.shape, stream(group.seed, NAME, group.task, "start", number, role, size))


@dataclass(frozen=True)
class Networks:
    """The trained networks of one stored group, at every epoch that was kept."""

    group: Group
    run: Run

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The stored weights, by epoch and parameter."""
        return self.run.tensors()

    @property
    def epochs(self) -> tuple[int, ...]:
        """Return the epochs at which the first role's networks were kept, from the start to the end."""
        return (0, *self.group.recipe.kept, self.group.recipe.epochs)

    def network(self, number: int, role: str = "first", epoch: int | None = None) -> nn.Sequential:
        """Return one network: trained, or as it was at an epoch (roles other than the first: 0 or the last)."""
        group = self.group
        template = start(group, number, role)
        if epoch == 0:
            return template.requires_grad_(False)
        last = epoch is None or epoch == group.recipe.epochs
        stacked = group.members if last else tuple((s, "first") for s in group.seeds)
        prefix = f"{group.recipe.epochs if last else epoch}/"
        state = {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}
        return unstack(template, state, stacked.index((number, role))).requires_grad_(False)

    def history(self) -> pd.DataFrame:
        """Return one row a network: the losses and accuracies it ended with."""
        return self.run.table("ends")


def train(groups: Sequence[Group], store: Store, announce: Announce | None = None) -> tuple[Networks, ...]:
    """Return the networks of each group, in order; those that are not in the store are trained, a few at a time."""
    found = {group: store.get(group) for group in groups}
    missing = [group for group, run in found.items() if run is None]
    if missing:
        found |= zip(missing, _train(missing, store), strict=True)
    if announce:
        for (task, shape), some in _by_shape(groups).items():
            announce(_line(task, shape, some, sum(group in missing for group in some)))
    return tuple(Networks(group, run) for group, run in found.items() if run is not None)


def _train(groups: list[Group], store: Store) -> list[Run]:
    # One thread each: the networks are small, and threads that share an operation wait longer than they work.
    pool = ThreadPoolExecutor(workers_available(), "train", torch.set_num_threads, (1,))
    done, lock = [0], Lock()
    with progress("training networks", total=len(groups) * TICKS) as show, pool:

        def tick() -> None:
            with lock:
                done[0] += 1
                show(done[0])

        return list(pool.map(lambda group: _compute(group, store, tick), groups))


def _by_shape(groups: Sequence[Group]) -> dict[tuple[str, str], list[Group]]:
    found: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        found.setdefault((group.task, group.shape.title), []).append(group)
    return found


def _line(task: str, shape: str, groups: list[Group], fresh: int) -> str:
    seeds, first = sum(len(g.seeds) for g in groups), groups[0]
    return (
        f"{task}, {shape}: {seeds} seeds of {', '.join(first.roles)}, {first.recipe.epochs:,} epochs, "
        f"{first.points:,} points (groups: {fresh} computed, {len(groups) - fresh} from the store)"
    )


def _compute(group: Group, store: Store, tick: Callable[[], None]) -> Run:
    cohort, checkpoint = _cohort(group), store.checkpoint(group)
    kept = _restore(cohort, checkpoint)
    saved = time.monotonic()
    for stop in _stops(group):
        if stop <= cohort.epoch:
            continue
        cohort.advance(stop - cohort.epoch)
        if stop in group.recipe.kept:
            kept |= _first_role(cohort, group)
        tick()
        if time.monotonic() - saved >= CHECKPOINT_SECONDS:
            checkpoint.save(cohort.tensors() | kept, {"epoch": stop, "kept": sorted(kept)})
            saved = time.monotonic()
    kept |= {f"{group.recipe.epochs}/{name}": value for name, value in cohort.parameters.items()}
    return store.put(group, kept, {"study": NAME}, {"ends": _ends(cohort, group)})


def _cohort(group: Group) -> Cohort:
    """Return a group's networks before training."""
    samples = [sample(group, number, role) for number, role in group.members]
    models = [start(group, number, role) for number, role in group.members]
    recipe = Protocol(group.recipe.epochs, lr=group.recipe.lr, batch_size=group.recipe.batch, loss=group.recipe.loss)
    points = tuple(s.x for s in samples), tuple(s.y for s in samples)
    # Two roles of one seed meet their points in different orders, as two trainings would.
    orders = tuple(derive(group.seed, NAME, "batches", number, role) for number, role in group.members)
    return Cohort(group.task, OwnPoints(group.shape, *points, recipe, orders), stack_state(models), recipe)


def _stops(group: Group) -> list[int]:
    step = max(1, group.recipe.epochs // TICKS)
    return sorted({*range(step, group.recipe.epochs, step), *group.recipe.kept, group.recipe.epochs})


def _restore(cohort: Cohort, checkpoint: Checkpoint) -> dict[str, Tensor]:
    saved = checkpoint.load()
    if saved is None:
        return {}
    tensors, meta = saved
    cohort.restore(tensors, int(meta["epoch"]))
    return {name: tensors[name] for name in meta["kept"]}


def _first_role(cohort: Cohort, group: Group) -> dict[str, Tensor]:
    rows = torch.tensor([i for i, (_, role) in enumerate(group.members) if role == "first"])
    return {f"{cohort.epoch}/{name}": value[rows].clone() for name, value in cohort.parameters.items()}


def _ends(cohort: Cohort, group: Group) -> pd.DataFrame:
    """Return the mean loss of each network's last epoch, and its accuracies on training and new points."""
    rows = []
    for index, (number, role) in enumerate(group.members):
        own, model = sample(group, number, role), unstack(start(group, number, role), cohort.parameters, index)
        right = {"train": _accuracy(model, own.x, own.y), "test": _accuracy(model, own.test_x, own.test_y)}
        rows.append({"seed": number, "role": role, "loss": float(cohort.history[index, -1]), **right})
    return pd.DataFrame(rows)


@torch.no_grad()
def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    output = model(x)
    guess = output.argmax(1) if output.shape[1] > 1 else output[:, 0] > 0
    return float((guess == y).float().mean())
