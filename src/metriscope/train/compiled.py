"""Compiled full-batch training of one distance network: linear layer, activation, norm, MSE, Adam.

Axes: B blocks of R rows, D features (followed by the constant 1, then by zeros), K units. Weight and bias of a network
form one ``(K, D)`` array of homogeneous hyperplanes, so that one product serves both.

Each network is trained in one thread, so its weights are bit-identical whether it is trained alone or with others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  numba's np.dot takes its matrix product from here
import torch
from numba import njit

from metriscope.train.kernels import EXP, EXP_RANGE, HALF, ONE, ZERO, F, I, compiled
from metriscope.train.sparse_points import round_up

__all__ = ["ACTIVATIONS", "backward", "blocks", "descend", "padded", "trainer", "wide_trainer"]

# Rows of a block, for :func:`trainer` and :func:`wide_trainer`: the pre-activations of 200 units are 400 and 800 kB,
# which fits into the second-level cache.
ROWS, WIDE_ROWS = 512, 1024
# From ``WIDE`` features on, padding them to full vector lanes makes the matrix product faster.
LANES, WIDE = 8, 64

# The optimizer's arithmetic must not be reordered.
_compiled_in_order = njit(nogil=True, error_model="numpy", boundscheck=False)

(P0, P1, P2, P3, P4, P5), (LOG2E, LN2_HIGH, LN2_LOW) = EXP, EXP_RANGE
EDGE = F(87.0)  # beyond it exp leaves the range of float32


@njit(inline="always")
def _sigmoid(z: Any) -> Any:
    # Branch-free, so that it is vectorized; the exp of the C library is not.
    x = min(max(-z, -EDGE), EDGE)
    power = np.floor(x * LOG2E + HALF)
    r = (x - power * LN2_HIGH) - power * LN2_LOW
    poly = ((((P0 * r + P1) * r + P2) * r + P3) * r + P4) * r + P5
    scale = I((I(power) + I(127)) << I(23)).view(np.float32)
    return ONE / (ONE + (poly * r * r + r + ONE) * scale)


# Each activation adds its square to the row's squared distance and replaces z by f(z) f'(z), which the closed-form
# gradient of the norm multiplies with the residual.


@compiled
def _abs(z: Any, squares: Any, rows: int) -> None:
    for i in range(rows):
        squares[i] += z[i] * z[i]


@compiled
def _relu(z: Any, squares: Any, rows: int) -> None:
    for i in range(rows):
        a = max(z[i], ZERO)
        z[i] = a
        squares[i] += a * a


@compiled
def _sigmoid_rows(z: Any, squares: Any, rows: int) -> None:
    for i in range(rows):
        a = _sigmoid(z[i])
        squares[i] += a * a
        z[i] = a * a * (ONE - a)


ACTIVATIONS: dict[str, Callable[..., None]] = {"abs": _abs, "relu": _relu, "sigmoid": _sigmoid_rows}


@compiled
def _residuals(squares: Any, target: Any, rows: int) -> float:
    # Replaces squared distances by residual / distance; at distance zero the gradient is taken as zero.
    total = ZERO
    for i in range(rows):
        distance = F(math.sqrt(squares[i]))
        residual = distance - target[i]
        total += residual * residual
        squares[i] = residual / distance if distance != ZERO else ZERO
    squares[rows:] = ZERO
    return total


@cache
def backward(activation: str) -> Callable[..., float]:
    """Return ``backward(z, target, squares, filled)``, which computes the summed squared error of a block's first rows.

    ``z`` holds pre-activations of shape (units, rows), which are replaced by the derivative of the loss with respect to
    them, times half the number of points; ``squares`` is scratch space for one number per row.
    """
    activate = ACTIVATIONS[activation]

    @compiled
    def run(z: Any, target: Any, squares: Any, filled: int) -> float:
        squares[:] = ZERO
        for k in range(z.shape[0]):
            activate(z[k], squares, filled)
        loss = _residuals(squares, target, filled)
        for k in range(z.shape[0]):
            for i in range(z.shape[1]):
                z[k, i] *= squares[i]
        return loss

    return run


@_compiled_in_order
def _adam(planes: Any, gradient: Any, first: Any, second: Any, rates: Any) -> None:
    lr, beta1, beta2, root, eps = rates
    for k in range(planes.shape[0]):
        for j in range(planes.shape[1]):
            g = gradient[k, j]
            first[k, j] = beta1 * first[k, j] + (ONE - beta1) * g
            second[k, j] = beta2 * second[k, j] + (ONE - beta2) * g * g
            planes[k, j] -= lr * first[k, j] / (F(math.sqrt(second[k, j])) * root + eps)


@_compiled_in_order
def descend(state: Any, gradient: Any, step: int, adam: Any) -> None:
    """Take Adam's step number ``step`` in place; ``adam`` is ``(lr, beta1, beta2, eps)``."""
    planes, first, second = state
    lr, beta1, beta2, eps = adam
    root = F(1.0 / math.sqrt(1.0 - beta2**step))
    rates = (F(lr / (1.0 - beta1**step)), F(beta1), F(beta2), root, F(eps))
    _adam(planes, gradient, first, second, rates)


@cache
def trainer(activation: str) -> Callable[..., None]:
    """Return ``train(data, state, step, adam, losses)`` for one activation.

    ``data`` is ``(x, y, count)`` with ``x`` and ``y`` from :func:`blocks`. ``state`` is the planes and Adam's two
    moments, which are changed in place, one step per epoch, for ``len(losses)`` epochs. ``losses[e]`` is the loss
    before step ``e``.
    """
    differentiate = backward(activation)

    @compiled
    def gradient(data: Any, planes: Any, room: Any, total: Any) -> float:
        x, y, count = data
        z, squares, part = room
        rows, loss = x.shape[2], 0.0
        total[:] = ZERO
        for block in range(x.shape[0]):
            np.dot(planes, x[block], z)
            loss += differentiate(z, y[block], squares, min(rows, count - block * rows))
            np.dot(z, x[block].T, part)
            total += part
        total *= F(2.0 / count)
        return loss / count

    @_compiled_in_order
    def train(data: Any, state: Any, step: int, adam: Any, losses: Any) -> None:
        planes = state[0]
        units, rows = planes.shape[0], data[0].shape[2]
        room = (np.empty((units, rows), F), np.empty(rows, F), np.empty_like(planes))
        total = np.empty_like(planes)
        for epoch in range(losses.shape[0]):
            losses[epoch] = gradient(data, planes, room, total)
            descend(state, total, step + epoch + 1, adam)

    return train


def wide_trainer(activation: str) -> Callable[..., None]:
    """Return a function like that of :func:`trainer`, for tensors, with PyTorch's matrix product between its steps.

    For many features PyTorch's product is faster; for few, the calls from the interpreter cost more time than it saves.
    PyTorch's memory always has the same alignment, on which the order of its sums may depend.
    """
    differentiate = backward(activation)

    def gradient(data: Any, planes: torch.Tensor, room: Any, total: torch.Tensor) -> float:
        x, y, count = data
        z, squares = room
        rows, loss = x.shape[2], 0.0
        total.zero_()
        z_array, squares_array, targets = z.numpy(), squares.numpy(), y.numpy()
        for block in range(len(x)):
            torch.mm(planes, x[block], out=z)
            loss += differentiate(z_array, targets[block], squares_array, min(rows, count - block * rows))
            total.addmm_(z, x[block].mT)
        total.mul_(2.0 / count)
        return loss / count

    def train(data: Any, state: Any, step: int, adam: Any, losses: np.ndarray) -> None:
        # For this thread: trials run in parallel, and the sums of one thread have one order.
        torch.set_num_threads(1)
        tensors = tuple(torch.from_numpy(array).clone() for array in state)
        arrays = tuple(tensor.numpy() for tensor in tensors)
        rows, total = data[0].shape[2], torch.empty_like(tensors[0])
        room = (torch.empty(len(total), rows), torch.empty(rows))
        for epoch in range(len(losses)):
            losses[epoch] = gradient(data, tensors[0], room, total)
            descend(arrays, total.numpy(), step + epoch + 1, adam)
        for own, array in zip(arrays, state, strict=True):
            array[:] = own

    return train


def padded(width: int) -> int:
    """Return the number of features with the constant 1, padded to full vector lanes if there are many.

    >>> padded(2), padded(100)
    (3, 104)
    """
    return width + 1 if width + 1 < WIDE else round_up(width + 1, LANES)


def blocks(x: np.ndarray, y: np.ndarray, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Return points as ``(B, D, R)`` and targets as ``(B, R)``: blocks of equal size, the last padded with zeros.

    >>> x, y = blocks(np.zeros((5, 2)), np.ones(5), rows=8)
    >>> x.shape, y.shape, x[0, 2].tolist()
    ((1, 3, 8), (1, 8), [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    """
    count, width = x.shape
    number = -(-count // rows)
    rows = round_up(-(-count // number), LANES)
    points = np.zeros((padded(width), number * rows), np.float32)
    points[:width, :count] = x.T
    points[width, :count] = 1
    targets = np.zeros(number * rows, np.float32)
    targets[:count] = y
    split = points.reshape(len(points), number, rows).transpose(1, 0, 2)
    return np.ascontiguousarray(split), targets.reshape(number, rows)
