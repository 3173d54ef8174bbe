"""Mini-batch training of distance networks in numpy: hidden layers, distances to prototypes, Adam, float32.

Axes: ``n`` points, ``d`` features, ``h`` inputs of the head, ``k`` prototypes, ``m`` outputs.

A squared distance ``Σ_j w_j (x_j - mu_j)²`` with ``w = alpha²`` is expanded, so that all distances of a batch are one
matrix product of ``[x², x]`` and ``[w, -2 w mu]``, and their gradients are two more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32
from threadpoolctl import threadpool_limits

__all__ = [
    "ACTIVATIONS",
    "Adam",
    "Examples",
    "FitRecipe",
    "History",
    "PrototypeNetwork",
    "Shape",
    "draw_network",
    "train",
]

Floats = Float32[np.ndarray, "..."]
Vector = Float32[np.ndarray, " p"]

# Expanded squares can be slightly negative by rounding; the gradient divides by the distance.
_LEAST_SQUARE = np.float32(1e-6)
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


def _relu(z: Floats) -> tuple[Floats, np.ndarray]:
    return np.maximum(z, 0), z > 0


def _abs(z: Floats) -> tuple[Floats, np.ndarray]:
    return np.abs(z), np.sign(z)


# Each returns the values and the slopes.
ACTIVATIONS: dict[str, Callable[[Floats], tuple[Floats, np.ndarray]]] = {"abs": _abs, "relu": _relu}


@dataclass(frozen=True)
class Shape:
    """The sizes of a network: features and hidden units, prototypes, and outputs (0: the distances themselves)."""

    units: tuple[int, ...]
    prototypes: int
    outputs: int
    activation: str

    def arrays(self) -> list[tuple[int, ...]]:
        """Return the shapes of all arrays: weight and bias of each layer, ``mu``, ``alpha``, and of the output."""
        head = (self.prototypes, self.units[-1])
        layers = [shape for a, b in zip(self.units[:-1], self.units[1:], strict=True) for shape in ((a, b), (b,))]
        last: list[tuple[int, ...]] = [(self.prototypes, self.outputs), (self.outputs,)] if self.outputs else []
        return [*layers, head, head, *last]


class PrototypeNetwork:
    """The arrays of a network, or of its gradient, as parts of one vector that the optimizer changes at once."""

    def __init__(self, shape: Shape, vector: Vector | None = None) -> None:
        sizes = [math.prod(one) for one in shape.arrays()]
        self.shape = shape
        self.vector = np.zeros(sum(sizes), np.float32) if vector is None else vector
        parts = np.split(self.vector, np.cumsum(sizes)[:-1])
        arrays = [part.reshape(one) for part, one in zip(parts, shape.arrays(), strict=True)]
        depth = len(shape.units) - 1
        self.weights, self.biases = arrays[0 : 2 * depth : 2], arrays[1 : 2 * depth : 2]
        self.mu, self.alpha = arrays[2 * depth : 2 * depth + 2]
        self.output = arrays[2 * depth + 2 :]


class _Pass(NamedTuple):
    """The results of a forward pass that the gradient needs."""

    inputs: list[Floats]
    slopes: list[np.ndarray]
    powers: Float32[np.ndarray, "n 2h"]
    factors: Float32[np.ndarray, "k 2h"]
    distances: Float32[np.ndarray, "n k"]


def _hidden(network: PrototypeNetwork, x: Float32[np.ndarray, "n d"]) -> tuple[list[Floats], list[np.ndarray]]:
    inputs, slopes, activate = [x], [], ACTIVATIONS[network.shape.activation]
    for weight, bias in zip(network.weights, network.biases, strict=True):
        z = inputs[-1] @ weight
        z += bias
        value, slope = activate(z)
        inputs.append(value)
        slopes.append(slope)
    return inputs, slopes


def _forward(network: PrototypeNetwork, x: Float32[np.ndarray, "n d"]) -> _Pass:
    inputs, slopes = _hidden(network, x)
    h = inputs[-1].shape[1]
    powers = np.empty((len(x), 2 * h), np.float32)
    np.multiply(inputs[-1], inputs[-1], out=powers[:, :h])
    powers[:, h:] = inputs[-1]
    weight = network.alpha * network.alpha
    moved = weight * network.mu
    factors = np.concatenate([weight, -2 * moved], axis=1)
    squares = powers @ factors.T
    squares += (moved * network.mu).sum(1)
    np.maximum(squares, _LEAST_SQUARE, out=squares)
    return _Pass(inputs, slopes, powers, factors, np.sqrt(squares, out=squares))


def _backward(
    network: PrototypeNetwork, found: _Pass, pull: Float32[np.ndarray, "n k"], gradient: PrototypeNetwork
) -> None:
    """Write the gradient of the head and hidden layers; ``pull`` is the derivative with respect to the distances."""
    share = pull / (2 * found.distances)
    h = network.shape.units[-1]
    sums, total = share.T @ found.powers, share.sum(0)[:, None]
    squares, values = sums[:, :h], sums[:, h:]
    np.multiply(2 * found.factors[:, :h], network.mu * total - values, out=gradient.mu)
    np.multiply(2 * network.alpha, squares + network.mu * (network.mu * total - 2 * values), out=gradient.alpha)
    if not network.weights:
        return
    back = share @ found.factors
    flow = 2 * back[:, :h] * found.inputs[-1] + back[:, h:]
    for layer in reversed(range(len(network.weights))):
        flow *= found.slopes[layer]
        np.dot(found.inputs[layer].T, flow, out=gradient.weights[layer])
        np.sum(flow, axis=0, out=gradient.biases[layer])
        if layer:
            flow = flow @ network.weights[layer].T


class Examples(NamedTuple):
    """Standardized points, labels (integers) or targets (n x m), and weights of mean 1."""

    x: Float32[np.ndarray, "n d"]
    y: np.ndarray
    weight: Float32[np.ndarray, " n"]

    def rows(self, chosen: np.ndarray) -> Examples:
        """Return some of the examples."""
        return Examples(self.x[chosen], self.y[chosen], self.weight[chosen])


def _cross_entropy(distances: Floats, batch: Examples) -> tuple[float, Floats]:
    """Return the summed loss of the softmax of negative distances, and its derivative with respect to the distances."""
    rows = np.arange(len(batch.y))
    nearest = distances.min(1, keepdims=True)
    shares = np.exp(nearest - distances)
    shares /= shares.sum(1, keepdims=True)
    own = shares[rows, batch.y]
    loss = -float(np.log(np.maximum(own, np.finfo(np.float32).tiny)) @ batch.weight)
    np.negative(shares, out=shares)
    shares[rows, batch.y] += 1
    shares *= batch.weight[:, None]
    return loss, shares


def _squared_error(network: PrototypeNetwork, distances: Floats, batch: Examples) -> tuple[float, Floats, list[Floats]]:
    """Return half the summed squared error, and its derivatives with respect to distances and output layer."""
    weight, bias = network.output
    error = distances @ weight + bias - batch.y
    weighted = error * batch.weight[:, None]
    return float((error * weighted).sum()) / 2, weighted @ weight.T, [distances.T @ weighted, weighted.sum(0)]


def batch_loss(network: PrototypeNetwork, batch: Examples, gradient: PrototypeNetwork | None = None) -> float:
    """Return the mean loss of a batch, and write its gradient if asked for."""
    found = _forward(network, batch.x)
    if network.shape.outputs:
        loss, pull, of_output = _squared_error(network, found.distances, batch)
    else:
        (loss, pull), of_output = _cross_entropy(found.distances, batch), []
    if gradient is not None:
        _backward(network, found, pull, gradient)
        for mine, new in zip(gradient.output, of_output, strict=True):
            mine[...] = new
        gradient.vector *= np.float32(1 / len(batch.x))
    return loss / len(batch.x)


class Adam:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019) of the hidden layers' weights."""

    def __init__(self, first: Vector, second: Vector, steps: int) -> None:
        self.first, self.second, self.steps = first, second, steps
        self._scratch = np.empty_like(first)

    def update(self, network: PrototypeNetwork, gradient: PrototypeNetwork, rate: float, decay: float) -> None:
        """Take one step."""
        self.steps += 1
        first, second, scratch = self.first, self.second, self._scratch
        np.multiply(gradient.vector, np.float32(1 - _BETA1), out=scratch)
        first *= np.float32(_BETA1)
        first += scratch
        np.multiply(gradient.vector, gradient.vector, out=scratch)
        scratch *= np.float32(1 - _BETA2)
        second *= np.float32(_BETA2)
        second += scratch
        np.sqrt(second, out=scratch)
        scratch += np.float32(_EPSILON)
        np.divide(first, scratch, out=scratch)
        scratch *= np.float32(rate * math.sqrt(1 - _BETA2**self.steps) / (1 - _BETA1**self.steps))
        for weight in network.weights if decay else ():
            weight *= np.float32(1 - rate * decay)
        network.vector -= scratch


@dataclass(frozen=True)
class FitRecipe:
    """How to train: epochs, learning rate (constant or cosine decay), batch, weight decay, and when to stop early."""

    epochs: int
    rate: float
    batch: int
    steps: int
    decay: float
    falling: bool = True
    patience: int = 10
    tol: float = 1e-4

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0 in this training."""
        return (
            self.rate * (1 + math.cos(math.pi * step / (self.epochs * self.steps))) / 2 if self.falling else self.rate
        )


@dataclass
class History:
    """Mean losses of each epoch, on training and on held-out points."""

    training: list[float]
    held_out: list[float]


def train(
    network: PrototypeNetwork,
    adam: Adam,
    data: tuple[Examples, Examples | None],
    recipe: FitRecipe,
    draws: np.random.Generator,
    show: Callable[[float], None],
) -> History:
    """Train in place; with held-out examples, stop early and keep the weights of the lowest held-out loss.

    ``show`` is called with the number of epochs done.
    """
    (examples, held_out), history, best = data, History([], []), (math.inf, network.vector.copy())
    gradient = PrototypeNetwork(network.shape)
    # Small batches gain nothing from threads, and one thread sums in the same order on any number of cores. What
    # overflows shows in the loss.
    with threadpool_limits(limits=1), np.errstate(all="ignore"):
        for epoch in range(recipe.epochs):
            losses = _epoch((network, gradient, adam), examples, recipe, (epoch, draws))
            history.training.append(float(np.mean(losses)))
            if not np.isfinite(network.vector).all():
                raise ValueError("training diverged: choose a smaller lr, or standardize=True")
            show(epoch + 1)
            if held_out is None:
                continue
            loss = batch_loss(network, held_out)
            history.held_out.append(loss)
            if loss < best[0]:
                best = loss, network.vector.copy()
            if _stagnates(history.held_out, recipe):
                break
    if held_out is not None:
        network.vector[...] = best[1]
    return history


def _epoch(
    parts: tuple[PrototypeNetwork, PrototypeNetwork, Adam],
    examples: Examples,
    recipe: FitRecipe,
    when: tuple[int, np.random.Generator],
) -> list[float]:
    (network, gradient, adam), (epoch, draws) = parts, when
    losses, batches = [], _batches(len(examples.x), recipe, draws)
    for number, rows in enumerate(batches):
        losses.append(batch_loss(network, examples.rows(rows), gradient))
        adam.update(network, gradient, recipe.rate_at(epoch * recipe.steps + number), recipe.decay)
    return losses


def _batches(count: int, recipe: FitRecipe, draws: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the rows of each step of an epoch; with few points, an epoch passes through them more than once."""
    done = 0
    while done < recipe.steps:
        order = draws.permutation(count)
        for start in range(0, count, recipe.batch):
            if done < recipe.steps:
                yield order[start : start + recipe.batch]
            done += 1


def _stagnates(losses: list[float], recipe: FitRecipe) -> bool:
    """Return whether no loss of the last ``patience`` epochs is lower by ``tol`` than the best loss before them."""
    if len(losses) <= recipe.patience:
        return False
    return min(losses[-recipe.patience :]) > min(losses[: -recipe.patience]) - recipe.tol


def draw_network(shape: Shape, examples: Examples, draws: np.random.Generator) -> PrototypeNetwork:
    """Return an initialized network: random hyperplanes, prototypes from the data, ``alpha = 1``.

    The prototypes of classes start at the weighted means of their points, or at the mean of all for a class without
    points; those of a regression at random points.
    """
    network = PrototypeNetwork(shape)
    gain = 2.0 if shape.activation == "relu" else 1.0
    for weight, bias in zip(network.weights, network.biases, strict=True):
        weight[...] = draws.standard_normal(weight.shape) * math.sqrt(gain / len(weight))
        bias[...] = draws.uniform(-0.5, 0.5, bias.shape)
    with np.errstate(all="ignore"):
        features = _hidden(network, examples.x)[0][-1]
    network.alpha[...] = 1
    if shape.outputs:
        network.mu[...] = features[draws.choice(len(features), shape.prototypes, replace=True)]
        network.output[0][...] = draws.standard_normal(network.output[0].shape) / shape.prototypes
        return network
    network.mu[...] = np.average(features, axis=0, weights=examples.weight)
    for label in np.unique(examples.y):
        own = examples.y == label
        network.mu[label] = np.average(features[own], axis=0, weights=examples.weight[own])
    return network
