"""Two ways to take training steps: stacked autograd for any network, compiled code for distance networks.

Axes: S trials, N points, D features, K units. An engine changes a cohort's tensors in place and returns one loss per
trial and epoch; it has no state of its own that a checkpoint would have to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any
from typing import Protocol as Interface

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope.common.threads import one_blas_thread
from metriscope.nn import Mahalanobis, stacked_forward
from metriscope.rng import stream
from metriscope.train.protocol import Protocol

__all__ = ["CompiledEngine", "Engine", "StackedEngine", "engine_for"]

State = dict[str, Tensor]


class Engine(Interface):
    """What the training loop needs of an engine."""

    def session(self) -> AbstractContextManager[object]:
        """Return a context to be active while the engine works."""

    def moments(self, parameters: Mapping[str, Tensor]) -> State:
        """Return the optimizer's state before the first step."""

    def advance(self, parameters: State, moments: State, epoch: int, epochs: int) -> Float[Tensor, "s e"]:
        """Train for ``epochs`` epochs from ``epoch`` on, in place; return the loss of each."""


def _adam(value: Tensor, gradient: Tensor, moments: State, name: str, step: int, protocol: Protocol) -> None:
    beta1, beta2 = protocol.betas
    first, second = moments[f"first.{name}"], moments[f"second.{name}"]
    first.mul_(beta1).add_(gradient, alpha=1 - beta1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    root = (second / (1 - beta2**step)).sqrt_().add_(protocol.eps)
    value.addcdiv_(first, root, value=-protocol.lr / (1 - beta1**step))


def _sgd(value: Tensor, gradient: Tensor, moments: State, name: str, step: int, protocol: Protocol) -> None:
    value.add_(gradient, alpha=-protocol.lr)


@dataclass(frozen=True)
class _Rule:
    """An optimizer: the names of its moments, and one step of it in place."""

    moments: tuple[str, ...]
    step: Callable[[Tensor, Tensor, State, str, int, Protocol], None]


RULES = {"adam": _Rule(("first", "second"), _adam), "sgd": _Rule((), _sgd)}


def _zeros(rule: _Rule, parameters: Mapping[str, Tensor]) -> State:
    return {f"{kind}.{name}": torch.zeros_like(p) for kind in rule.moments for name, p in parameters.items()}


def _mse(output: Float[Tensor, "s n *o"], target: Tensor) -> Float[Tensor, "s n"]:
    # Targets of shape (n,) and outputs of shape (n, 1) would otherwise be broadcast to (n, n).
    if target.shape not in (output.shape, output.shape[1:]):
        wanted, came = tuple(output.shape[1:]), tuple(target.shape)
        raise ValueError(f"the network's outputs have shape {wanted}, the targets {came}; they must agree")
    return (output - target).square().flatten(2).mean(-1) if output.ndim > 2 else (output - target).square()


def _cross_entropy(output: Float[Tensor, "s n c"], target: Tensor) -> Float[Tensor, "s n"]:
    return F.cross_entropy(output.movedim(-1, 1), target.expand(output.shape[:2]), reduction="none")


def _bce(output: Float[Tensor, "s n *o"], target: Tensor) -> Float[Tensor, "s n"]:
    # One logit per point, as (n,) or (n, 1); the sigmoid is inside the loss, where it cannot round to 0 or 1.
    if output.shape[2:] not in ((), (1,)) or target.shape not in (output.shape[:2], output.shape[1:2]):
        wanted, came = tuple(output.shape[1:]), tuple(target.shape)
        raise ValueError(f"bce needs one logit and one target per point: outputs of shape {wanted}, targets {came}")
    logits = output.reshape(output.shape[:2])
    return F.binary_cross_entropy_with_logits(logits, target.to(logits).expand_as(logits), reduction="none")


POINT_LOSSES = {"mse": _mse, "cross-entropy": _cross_entropy, "bce": _bce}


@dataclass(frozen=True)
class StackedEngine:
    """Engine that trains all trials at once with autograd: any module, device, batch size and optimizer.

    Losses are summed over trials, never averaged.

    Parameters
    ----------
    template : nn.Module
        Network whose forward pass is used with the parameters of each trial.
    x : Tensor of shape (n, ...)
        Training points.
    y : Tensor of shape (n, ...)
        Targets.
    protocol : Protocol
        How to train.
    seeds : tuple of int
        One seed per trial. The mini-batches of a trial are drawn from its own stream, epoch by epoch, so that they
        depend neither on the other trials nor on restarts.

    Examples
    --------
    >>> network, x = nn.Linear(2, 1), torch.ones(3, 2)
    >>> engine = StackedEngine(network, x, torch.ones(3, 1), Protocol(epochs=1, optimizer="sgd"), seeds=(0, 1))
    >>> parameters = {name: torch.zeros(2, *p.shape) for name, p in network.named_parameters()}
    >>> engine.advance(parameters, {}, epoch=0, epochs=1)
    tensor([[1.],
            [1.]], dtype=torch.float64)
    """

    template: nn.Module
    x: Tensor
    y: Tensor
    protocol: Protocol
    seeds: tuple[int, ...]

    @cached_property
    def forward(self) -> Callable[[Mapping[str, Tensor], Tensor], Tensor]:
        """The forward pass of all trials at once."""
        return stacked_forward(self.template)

    def session(self) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()

    def moments(self, parameters: Mapping[str, Tensor]) -> State:
        """Return zeros for each moment of each parameter."""
        return _zeros(RULES[self.protocol.optimizer], parameters)

    def advance(self, parameters: State, moments: State, epoch: int, epochs: int) -> Float[Tensor, "s e"]:
        """Train whole epochs; the loss of an epoch is the mean over its points, each before the step of its batch."""
        batches = -(-len(self.x) // (self.protocol.batch_size or len(self.x)))
        losses = torch.empty(len(self.seeds), epochs, dtype=torch.float64)
        for e in range(epochs):
            total = torch.zeros(len(self.seeds), dtype=torch.float64, device=self.x.device)
            for index, (x, y) in enumerate(self._batches(epoch + e)):
                total += self._step(parameters, moments, (x, y), (epoch + e) * batches + index + 1)
            losses[:, e] = (total / len(self.x)).cpu()
        return losses

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        size = self.protocol.batch_size
        if size is None or size >= len(self.x):
            yield self.x, self.y
            return
        orders = [torch.randperm(len(self.x), generator=stream(s, "batches", epoch)) for s in self.seeds]
        order = torch.stack(orders).to(self.x.device)
        for rows in order.split(size, dim=1):
            yield self.x[rows], self.y[rows]

    def _step(self, parameters: State, moments: State, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        x, y = batch
        leaves = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        points = POINT_LOSSES[self.protocol.loss](self.forward(leaves, x), y)
        gradients = torch.autograd.grad(points.mean(1).sum(), list(leaves.values()))
        rule = RULES[self.protocol.optimizer].step
        for (name, value), gradient in zip(parameters.items(), gradients, strict=True):
            rule(value, gradient, moments, name, step, self.protocol)
        return points.detach().sum(1, dtype=torch.float64)


@dataclass(frozen=True)
class CompiledEngine:
    """Engine that trains each trial by compiled code: ``Mahalanobis`` networks, full batch, MSE, Adam, float32, CPU.

    Parameters
    ----------
    activation : str
        Name of the activation: ``"abs"``, ``"relu"`` or ``"sigmoid"``.
    x : Tensor of shape (n, d)
        Training points.
    y : Tensor of shape (n,)
        Target distances.
    protocol : Protocol
        How to train.

    Examples
    --------
    >>> engine = CompiledEngine("abs", torch.ones(3, 2), torch.ones(3), Protocol(epochs=1))
    >>> sorted(engine.moments({"linear.bias": torch.zeros(1, 2)}))
    ['first.linear.bias', 'second.linear.bias']
    """

    activation: str
    x: Tensor
    y: Tensor
    protocol: Protocol

    @cached_property
    def wide(self) -> bool:
        """Whether there are so many features that PyTorch's matrix product is faster."""
        from metriscope.train.compiled import WIDE

        return self.x.shape[1] >= WIDE

    @contextmanager
    def session(self) -> Iterator[None]:
        """Restrict BLAS to one thread: trials run in parallel, and the sums of one thread have one order."""
        threads = torch.get_num_threads()
        try:
            with one_blas_thread():
                yield
        finally:
            torch.set_num_threads(threads)
            # The owner of the points may change them before the next session.
            _blocked.cache_clear()

    def moments(self, parameters: Mapping[str, Tensor]) -> State:
        """Return zeros for Adam's two moments of each parameter."""
        return _zeros(RULES["adam"], parameters)

    def advance(self, parameters: State, moments: State, epoch: int, epochs: int) -> Float[Tensor, "s e"]:
        """Train the trials one after another; cohorts on other threads run at the same time."""
        from metriscope.train import compiled

        train = (compiled.wide_trainer if self.wide else compiled.trainer)(self.activation)
        data = _blocked(self.x, self.y, compiled.WIDE_ROWS if self.wide else compiled.ROWS, self.wide)
        adam = (self.protocol.lr, *self.protocol.betas, self.protocol.eps)
        losses = np.empty((len(parameters["linear.weight"]), epochs))
        for trial in range(len(losses)):
            stacks = (
                parameters,
                *({k: moments[f"{m}.{k}"] for k in parameters} for m in ("first", "second")),
            )
            planes = tuple(_joined(stack, trial, data[0].shape[1]) for stack in stacks)
            train(data, planes, epoch, adam, losses[trial])
            for stack, array in zip(stacks, planes, strict=True):
                weight, bias = stack["linear.weight"][trial], stack["linear.bias"][trial]
                weight.copy_(torch.from_numpy(array[:, : weight.shape[1]]))
                bias.copy_(torch.from_numpy(array[:, weight.shape[1]]))
        return torch.from_numpy(losses)


@lru_cache(maxsize=2)
def _blocked(x: Tensor, y: Tensor, rows: int, as_tensors: bool) -> tuple[Any, Any, int]:
    # Cached, so that networks that train on the same points share one copy.
    from metriscope.train.compiled import blocks

    points, targets = blocks(x.numpy(), y.numpy(), rows)
    if as_tensors:
        return torch.from_numpy(points).clone(), torch.from_numpy(targets).clone(), len(x)
    return points, targets, len(x)


def _joined(stack: Mapping[str, Tensor], trial: int, width: int) -> np.ndarray:
    weight, bias = stack["linear.weight"][trial], stack["linear.bias"][trial]
    planes = np.zeros((len(weight), width), np.float32)
    planes[:, : weight.shape[1]], planes[:, weight.shape[1]] = weight.numpy(), bias.numpy()
    return planes


def engine_for(template: nn.Module, x: Tensor, y: Tensor, protocol: Protocol, seeds: tuple[int, ...]) -> Engine:
    """Return the fastest engine that can train a network by a protocol.

    Parameters
    ----------
    template : nn.Module
        Network to train.
    x : Tensor of shape (n, ...)
        Training points.
    y : Tensor of shape (n, ...)
        Targets.
    protocol : Protocol
        How to train.
    seeds : tuple of int
        One seed per trial, from which mini-batches are drawn.

    Returns
    -------
    Engine
        A :class:`CompiledEngine` if it supports the network and the protocol, otherwise a :class:`StackedEngine`.

    Raises
    ------
    ValueError
        If there are no points, or not as many targets as points.

    Examples
    --------
    >>> type(engine_for(nn.Linear(2, 1), torch.ones(3, 2), torch.ones(3, 1), Protocol(epochs=1), (0,))).__name__
    'StackedEngine'
    """
    if len(x) != len(y) or len(x) == 0:
        raise ValueError(
            f"training needs at least one point, and one target per point, got {len(y)} targets and {len(x)} points"
        )
    if _compilable(template, x, y, protocol):
        return CompiledEngine(str(template.activation_name), x, y, protocol)
    return StackedEngine(template, x, y, protocol, seeds)


def _compilable(template: nn.Module, x: Tensor, y: Tensor, protocol: Protocol) -> bool:
    if type(template) is not Mahalanobis:
        return False
    weight = template.linear.weight
    if {(t.device.type, t.dtype) for t in (x, y, weight)} != {("cpu", torch.float32)}:
        return False
    # The stacked engine raises an error for shapes that do not fit.
    if x.shape[1:] != weight.shape[1:] or y.ndim != 1:
        return False
    from metriscope.train.compiled import ACTIVATIONS

    asked = (protocol.optimizer, protocol.loss, protocol.batch_size)
    return asked == ("adam", "mse", None) and template.activation_name in ACTIVATIONS
