"""Train groups of plain networks, read them from the store, and measure tables on them once.

A whole group is trained at once; the points and initial weights of each seed are drawn first. Axes: S networks, N
points, D features. Each network of a stack has its own points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope import data
from metriscope.nn import ACTIVATIONS, stack_state, unstack
from metriscope.nn.layers import fresh_linear
from metriscope.rng import derive, stream
from metriscope.runs import Driver, Finished, Result, Run, Work, once
from metriscope.studies.vq.networks import GROUP, STUDY, TOGETHER, Group, Images, MLPShape, MoonPoints
from metriscope.train import Cohort, CohortPass, Protocol
from metriscope.train.engines import POINT_LOSSES, RULES, State
from metriscope.vq import Patterns, alignment

__all__ = [
    "WORK", "Networks", "accuracy", "aligned", "cohort", "ends_of", "looked_up", "mlp", "rows_by_seed", "sample",
    "stacked_mlp", "start", "stored", "trained",
]  # fmt: skip


def mlp(shape: MLPShape, generator: torch.Generator) -> nn.Sequential:
    """Return a plain network, initialized as PyTorch does by default, drawn first layer first.

    >>> mlp(MLPShape(2, 1, 3), stream(0, "start"))
    Sequential(
      (0): Linear(in_features=2, out_features=3, bias=True)
      (1): ReLU()
      (2): Linear(in_features=3, out_features=1, bias=True)
    )
    """
    layers: list[nn.Module] = []
    width = shape.inputs
    for _ in range(shape.depth):
        layers += [fresh_linear(width, shape.width, generator=generator), ACTIVATIONS[shape.activation].module()]
        width = shape.width
    return nn.Sequential(*layers, fresh_linear(width, shape.outputs, generator=generator))


def stacked_mlp(shape: MLPShape, state: Mapping[str, Tensor], x: Float[Tensor, "s n d"]) -> Float[Tensor, "s n o"]:
    """Return the output of each network of a stack (states of :func:`mlp`) on its own points."""
    # Equal to `stacked_forward`, which takes any network, in a third less time for these small ones.
    activate = ACTIVATIONS[shape.activation].function
    for index in range(shape.depth + 1):
        weight, bias = state[f"{2 * index}.weight"], state[f"{2 * index}.bias"]
        x = torch.baddbmm(bias[:, None], x, weight.mT)
        x = activate(x) if index < shape.depth else x
    return x


@dataclass(frozen=True)
class OwnPoints:
    """Autograd through a stack of plain networks as in ``StackedEngine``, but each network has its own points.

    ``x`` and ``y`` have one entry per network, all of the same size. ``seeds`` has one number per network: the root of
    the stream that its mini-batches are drawn from, epoch by epoch.
    """

    shape: MLPShape
    x: tuple[Float[Tensor, "n d"], ...]
    y: tuple[Tensor, ...]
    protocol: Protocol
    seeds: tuple[int, ...]

    @cached_property
    def whole(self) -> tuple[Tensor, Tensor]:
        """All points of all networks."""
        return torch.stack(self.x), torch.stack(self.y)

    def session(self) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()

    def moments(self, parameters: Mapping[str, Tensor]) -> State:
        """Return zeros for each moment of each parameter."""
        kinds = RULES[self.protocol.optimizer].moments
        return {f"{kind}.{name}": torch.zeros_like(value) for kind in kinds for name, value in parameters.items()}

    def advance(self, parameters: State, moments: State, epoch: int, epochs: int) -> Float[Tensor, "s e"]:
        """Train for whole epochs; an epoch's loss is the mean over its points, each before its step."""
        points = len(self.x[0])
        steps = -(-points // (self.protocol.batch_size or points))
        losses = torch.zeros(len(self.x), epochs, dtype=torch.float64)
        for e in range(epochs):
            for index, batch in enumerate(self._batches(epoch + e)):
                losses[:, e] += self._step(parameters, moments, batch, (epoch + e) * steps + index + 1) / points
        return losses

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        size, points = self.protocol.batch_size, len(self.x[0])
        if size is None or size >= points:
            yield self.whole
            return
        orders = [torch.randperm(points, generator=stream(s, "batches", epoch)).split(size) for s in self.seeds]
        for rows in zip(*orders, strict=True):
            chosen = zip(self.x, self.y, rows, strict=True)
            x, y = zip(*((x[r], y[r]) for x, y, r in chosen), strict=True)
            yield torch.stack(x), torch.stack(y)

    def _step(self, parameters: State, moments: State, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        points = POINT_LOSSES[self.protocol.loss](stacked_mlp(self.shape, leaves, batch[0]), batch[1])
        # Summed over networks, never averaged, so that each trains as it would alone.
        gradients = torch.autograd.grad(points.mean(1).sum(), list(leaves.values()))
        for name, gradient in zip(parameters, gradients, strict=True):
            RULES[self.protocol.optimizer].step(parameters[name], gradient, moments, name, step, self.protocol)
        return points.detach().sum(1, dtype=torch.float64)


@dataclass(frozen=True)
class SeedData:
    """The points of one seed and role: those trained on and those held out, in float32, with their labels."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


def sample(group: Group, number: int, role: str) -> SeedData:
    """Return the points that a seed's network is trained on in a role, and those held out.

    All roles and shapes of a seed have the same points; the role "turned" has them rotated.
    """
    if isinstance(group.data, Images):
        return _digits(group.data, group.seed, number)
    parts = [_moons(group, group.data, number, part, role == "turned") for part in ("points", "held out")]
    (x, y), (test_x, test_y) = parts
    if role == "shuffled":
        y = y[torch.randperm(len(y), generator=stream(group.seed, STUDY, group.task, "labels", number))]
    return SeedData(x, y, test_x, test_y)


def _moons(group: Group, moons: MoonPoints, number: int, part: str, rotated: bool) -> tuple[Tensor, Tensor]:
    here = (group.seed, STUDY, group.task, part, number)
    x, y = data.two_moons(moons.count, stream(*here), moons.noise)
    if moons.dim > x.shape[1]:
        x = data.sphere_moons(x, stream(*here, "sphere"), moons.dim, moons.scale)
    x = data.rotate(x, moons.angle) if rotated else x
    order = torch.argsort(y, stable=True)
    return x[order].float(), y[order].float()


# The groups of a pass use the same images, those of two blocks of seeds.
@lru_cache(maxsize=2 * GROUP)
def _digits(images: Images, seed: int, number: int) -> SeedData:
    pixels, labels = _pool(images.name)
    count = images.train + images.test
    rows = torch.randperm(len(labels), generator=stream(seed, STUDY, "digits", "rows", number))[:count]
    x, y = pixels[rows].float() / 255, labels[rows]
    return SeedData(x[: images.train], y[: images.train], x[images.train :], y[images.train :])


@lru_cache(maxsize=1)
def _pool(name: str) -> tuple[Tensor, Tensor]:
    # The embedded set is small: both of its halves are needed.
    found = data.load(name)
    parts = (found.train,) if name == "mnist" else (found.train, found.test)
    pixels = np.concatenate([part.x.reshape(len(part.x), -1) for part in parts])
    return torch.from_numpy(pixels), torch.from_numpy(np.concatenate([part.y for part in parts]))


def start(group: Group, number: int, role: str) -> nn.Sequential:
    """Return a network before training; ReLU and Abs networks of one size have equal initial weights."""
    size = f"{group.shape.depth}x{group.shape.width}"
    return mlp(group.shape, stream(group.seed, STUDY, group.task, "start", number, role, size))


def cohort(group: Group) -> Cohort:
    """Return a group's networks before training."""
    samples = [sample(group, number, role) for number, role in group.members]
    models = [start(group, number, role) for number, role in group.members]
    recipe = Protocol(group.recipe.epochs, lr=group.recipe.lr, batch_size=group.recipe.batch, loss=group.recipe.loss)
    points = tuple(s.x for s in samples), tuple(s.y for s in samples)
    # Two roles of one seed draw their batches in different orders, as two trainings would.
    orders = tuple(derive(group.seed, STUDY, "batches", number, role) for number, role in group.members)
    engine = OwnPoints(group.shape, *points, recipe, orders)
    return Cohort(group.task, engine, stack_state(models), recipe, kept=group.recipe.kept)


def _begin(groups: Sequence[Group]) -> CohortPass:
    # One thread each: the networks are small, and threads that share an operation would mostly wait.
    return CohortPass({group: (cohort(group),) for group in groups}, _finish, threads=1)


def _finish(group: Group, cohorts: Sequence[Cohort]) -> Result:
    """Return the final weights of every network, those of the role "first" at the kept epochs, and final accuracies."""
    (own,) = cohorts
    rows = torch.tensor([index for index, (_, role) in enumerate(group.members) if role == "first"])
    kept = {name: value[rows] for name, value in own.snapshots.items()}
    last = {f"{group.recipe.epochs}/{name}": value for name, value in own.parameters.items()}
    return Result({"ends": _ends(own, group)}, kept | last)


def _ends(own: Cohort, group: Group) -> pd.DataFrame:
    """Return the loss of each network's last epoch, and its accuracies on training and new points."""
    rows = []
    for index, (number, role) in enumerate(group.members):
        points, model = sample(group, number, role), unstack(start(group, number, role), own.parameters, index)
        right = {"train": accuracy(model, points.x, points.y), "test": accuracy(model, points.test_x, points.test_y)}
        rows.append({"seed": number, "role": role, "loss": float(own.history[index, -1]), **right})
    return pd.DataFrame(rows)


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of points that a network classifies correctly."""
    output = model(x)
    guess = output.argmax(1) if output.shape[1] > 1 else output[:, 0] > 0
    return float((guess == y).float().mean())


# Groups with the same number of epochs are trained together, and end together.
WORK = Work(_begin, share=lambda group: group.recipe.epochs, width=TOGETHER)


Rows = Iterable[Mapping[str, object]]


@dataclass(frozen=True)
class Networks:
    """The trained networks of one group, at every epoch whose weights were stored."""

    group: Group
    run: Run

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The stored weights, by epoch and parameter."""
        return self.run.tensors()

    def network(self, number: int, role: str = "first", epoch: int | None = None) -> nn.Sequential:
        """Return one network after training, or at a kept epoch (roles other than "first": 0 or the last)."""
        group = self.group
        template = start(group, number, role)
        if epoch == 0:
            return template.requires_grad_(False)
        last = epoch is None or epoch == group.recipe.epochs
        stacked = group.members if last else tuple((s, "first") for s in group.seeds)
        prefix = f"{group.recipe.epochs if last else epoch}/"
        state = {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}
        return unstack(template, state, stacked.index((number, role))).requires_grad_(False)


def trained(groups: Iterable[Group], runs: Finished) -> dict[Group, Networks]:
    """Return the networks of each group."""
    return {group: Networks(group, runs[group]) for group in groups}


def stored(driver: Driver, specs: Sequence[Any], rows: Callable[[Any], Rows], label: str) -> pd.DataFrame:
    """Return the rows of all specifications in order; rows that are already in the store are not measured again."""
    found = driver.perform(specs, once(lambda spec: Result({"rows": pd.DataFrame(list(rows(spec)))})), label)
    return pd.concat([found[spec].table("rows") for spec in specs], ignore_index=True)


def looked_up(
    driver: Driver, specs: Sequence[Any], rows: Callable[[Any], Rows], label: str, computed: bool
) -> dict[Any, pd.DataFrame]:
    """Return the rows of each specification, computed or from its record if there is one; ``origin`` says which."""
    if not computed:
        return {spec: r.table("rows").assign(origin="record") for spec, r in driver.recorded(specs).items()}
    found = driver.perform(specs, once(lambda spec: Result({"rows": pd.DataFrame(list(rows(spec)))})), label)
    return {spec: found[spec].table("rows").assign(origin="run") for spec in specs}


def rows_by_seed(
    networks: Mapping[Group, Networks], rows: Callable[[Networks, int, Any], Rows]
) -> Callable[[Any], Iterator[dict[str, object]]]:
    """Return a function from a specification with one group to the rows of all its seeds, for :func:`stored`."""

    def all_rows(spec: Any) -> Iterator[dict[str, object]]:
        for seed in spec.group.seeds:
            yield from ({"seed": seed, **row} for row in rows(networks[spec.group], seed, spec))

    return all_rows


def ends_of(networks: Iterable[Networks]) -> pd.DataFrame:
    """Return one row per network: its final loss and accuracies."""
    return pd.concat([some.run.table("ends") for some in networks], ignore_index=True)


def aligned(p: Patterns, q: Patterns, estimator: str) -> float:
    """Return the centered alignment of two networks' kernels on the same points."""
    return float(np.asarray(alignment(p, q, estimator).value))
