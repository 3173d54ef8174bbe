"""The VQ study's networks, each drawn from a stream of its own, and the engine that trains many at once.

Axes: S networks, N points, D features. Each network of a stack has points of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope.nn import Abs
from metriscope.nn.drawing import fresh_linear
from metriscope.rng import stream
from metriscope.studies.vq.spec import Shape
from metriscope.train import Protocol
from metriscope.train.engines import POINT_LOSSES, RULES, State

__all__ = ["OwnPoints", "mlp", "stacked_mlp"]

MODULES: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "abs": Abs}
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "abs": torch.abs}


def mlp(shape: Shape, generator: torch.Generator) -> nn.Sequential:
    """Return a plain network, initialised as PyTorch does by default, drawn first layer first.

    >>> mlp(Shape(2, 1, 3), stream(0, "start"))
    Sequential(
      (0): Linear(in_features=2, out_features=3, bias=True)
      (1): ReLU()
      (2): Linear(in_features=3, out_features=1, bias=True)
    )
    """
    layers: list[nn.Module] = []
    width = shape.inputs
    for _ in range(shape.depth):
        layers += [fresh_linear(width, shape.width, generator=generator), MODULES[shape.activation]()]
        width = shape.width
    return nn.Sequential(*layers, fresh_linear(width, shape.outputs, generator=generator))


def stacked_mlp(shape: Shape, state: Mapping[str, Tensor], x: Float[Tensor, "s n d"]) -> Float[Tensor, "s n o"]:
    """Return what each network of a stack, with the states of :func:`mlp`, makes of its own points."""
    # What `stacked_forward` gives for any network, in a third less time for these small ones.
    activate = FUNCTIONS[shape.activation]
    for index in range(shape.depth + 1):
        weight, bias = state[f"{2 * index}.weight"], state[f"{2 * index}.bias"]
        x = torch.baddbmm(bias[:, None], x, weight.mT)
        x = activate(x) if index < shape.depth else x
    return x


@dataclass(frozen=True)
class OwnPoints:
    """Autograd through a stack of plain networks, as ``StackedEngine`` does it, but each on points of its own.

    ``x`` and ``y`` have one entry a network, all of the same size; ``seeds`` one number a network, from whose stream
    its mini-batches are drawn, epoch by epoch.
    """

    shape: Shape
    x: tuple[Float[Tensor, "n d"], ...]
    y: tuple[Tensor, ...]
    protocol: Protocol
    seeds: tuple[int, ...]

    @cached_property
    def whole(self) -> tuple[Tensor, Tensor]:
        """All points of all networks."""
        return torch.stack(self.x), torch.stack(self.y)

    def session(self) -> AbstractContextManager[object]:
        """Nothing to hold."""
        return nullcontext()

    def moments(self, parameters: Mapping[str, Tensor]) -> State:
        """Return zeros for each moment of each parameter."""
        kinds = RULES[self.protocol.optimizer].moments
        return {f"{kind}.{name}": torch.zeros_like(value) for kind in kinds for name, value in parameters.items()}

    def advance(self, parameters: State, moments: State, epoch: int, epochs: int) -> Float[Tensor, "s e"]:
        """Take whole epochs; an epoch's loss is the mean over its points as they were met."""
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
        # Summed over networks, never averaged: each learns as it would alone.
        gradients = torch.autograd.grad(points.mean(1).sum(), list(leaves.values()))
        for name, gradient in zip(parameters, gradients, strict=True):
            RULES[self.protocol.optimizer].step(parameters[name], gradient, moments, name, step, self.protocol)
        return points.detach().sum(1, dtype=torch.float64)
