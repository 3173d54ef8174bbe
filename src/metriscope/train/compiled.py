"""Compiled full-batch training of one distance network: linear layer, activation, norm, MSE, Adam.

Axes: B blocks of R rows, D features (with the constant 1 behind them, then zeros), K units. A network's
weight and bias form one ``(K, D)`` array of homogeneous hyperplanes, so that one product serves both.

A network is trained alone, in one thread, without the interpreter: whatever else trains beside it, it
sees the same operations in the same order, and ends in the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  numba's np.dot takes its matrix product from here
from numba import njit

__all__ = ["ACTIVATIONS", "ROWS", "WIDE", "backward", "blocks", "descend", "padded", "trainer"]

# A block of pre-activations of 200 units and 512 rows is 400 kB: it stays in the second-level cache.
ROWS = 512
# The matrix product works in lanes; a few zeros more cost less than a ragged edge, once there are many features.
LANES, WIDE = 8, 64

F = np.float32
I = np.int32  # noqa: E741
ZERO, HALF, ONE = F(0), F(0.5), F(1)

# Sums may be reordered into vector lanes and products fused; NaN and infinity keep their meaning.
FAST = {"contract", "reassoc", "nsz", "arcp"}
_compiled = njit(nogil=True, fastmath=FAST, error_model="numpy", boundscheck=False)
# The optimizer's arithmetic is written in the order it is meant to be done in.
_compiled_in_order = njit(nogil=True, error_model="numpy", boundscheck=False)

# exp on [-ln2/2, ln2/2] as 1 + r + r^2 P(r): Cephes' single-precision coefficients, relative error 2e-7.
P0, P1, P2 = F(1.9875691500e-4), F(1.3981999507e-3), F(8.3334519073e-3)
P3, P4, P5 = F(4.1665795894e-2), F(1.6666665459e-1), F(5.0000001201e-1)
LOG2E, LN2_HIGH, LN2_LOW = F(1.44269504), F(0.693359375), F(-2.12194440e-4)
EDGE = F(87.0)  # beyond it exp leaves the range of float32


@njit(inline="always")
def _sigmoid(z: Any) -> Any:
    # Branch-free, so that it becomes vector code; the library's exp does not.
    x = min(max(-z, -EDGE), EDGE)
    power = np.floor(x * LOG2E + HALF)
    r = (x - power * LN2_HIGH) - power * LN2_LOW
    poly = ((((P0 * r + P1) * r + P2) * r + P3) * r + P4) * r + P5
    scale = I((I(power) + I(127)) << I(23)).view(np.float32)
    return ONE / (ONE + (poly * r * r + r + ONE) * scale)


# Each activation adds its square to the row's squared distance and leaves f(z) f'(z) in place of z:
# what the closed-form gradient of the norm multiplies with the residual.


@_compiled
def _abs(z: Any, squares: Any, rows: int) -> None:
    for i in range(rows):
        squares[i] += z[i] * z[i]


@_compiled
def _relu(z: Any, squares: Any, rows: int) -> None:
    for i in range(rows):
        a = max(z[i], ZERO)
        z[i] = a
        squares[i] += a * a


@_compiled
def _sigmoid_rows(z: Any, squares: Any, rows: int) -> None:
    for i in range(rows):
        a = _sigmoid(z[i])
        squares[i] += a * a
        z[i] = a * a * (ONE - a)


ACTIVATIONS: dict[str, Callable[..., None]] = {"abs": _abs, "relu": _relu, "sigmoid": _sigmoid_rows}


@_compiled
def _residuals(squares: Any, target: Any, rows: int) -> float:
    # Turns squared distances into residual / distance; at distance zero the gradient is taken as zero.
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
    """Return ``backward(z, target, squares, filled)``: the summed squared error of a block's first rows.

    ``z`` comes in as pre-activations, units by rows, and leaves as the loss's derivative by them, times
    half the number of points; ``squares`` is room for one number a row.
    """
    activate = ACTIVATIONS[activation]

    @_compiled
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

    ``data`` is ``(x, y, count)`` with ``x`` and ``y`` from :func:`blocks`; ``state`` is the planes and
    Adam's two moments, changed in place by one step an epoch, ``len(losses)`` of them;
    ``losses[e]`` is the loss before step ``e``.
    """
    differentiate = backward(activation)

    @_compiled
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


def padded(width: int) -> int:
    """Return the width that ``width`` features and the constant are given: full vector lanes if it is wide.

    >>> padded(2), padded(100)
    (3, 104)
    """
    return width + 1 if width + 1 < WIDE else _up(width + 1, LANES)


def blocks(x: np.ndarray, y: np.ndarray, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Return points as ``(B, D, R)`` and targets as ``(B, R)``: blocks of equal size, the last filled with zeros.

    >>> x, y = blocks(np.zeros((5, 2)), np.ones(5), rows=8)
    >>> x.shape, y.shape, x[0, 2].tolist()
    ((1, 3, 8), (1, 8), [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    """
    count, width = x.shape
    number = -(-count // rows)
    rows = _up(-(-count // number), LANES)
    points = np.zeros((padded(width), number * rows), np.float32)
    points[:width, :count] = x.T
    points[width, :count] = 1
    targets = np.zeros(number * rows, np.float32)
    targets[:count] = y
    split = points.reshape(len(points), number, rows).transpose(1, 0, 2)
    return np.ascontiguousarray(split), targets.reshape(number, rows)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
