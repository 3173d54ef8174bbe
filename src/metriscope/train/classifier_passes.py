"""Compiled passes of one two-layer classifier over packed points: outputs, loss, closed-form gradient.

Axes: R points per block, in groups of G = 8; D features; K units and C classes, both padded to full vectors.

For each group of points, forward pass, loss and backward pass to the pre-activations happen in scratch arrays that stay
in the L1 cache; only products with the points' features run over whole blocks. Derivatives are sums over
points, not means.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from metriscope.train.kernels import (
    ABS_HIDDEN,
    HALF,
    HIDDEN,
    ONE,
    ZERO,
    F,
    chosen,
    compiled,
    exponential,
    inlined,
    smooth,
    smooth_slope,
)
from metriscope.train.sparse_points import GROUP

__all__ = ["HIDDEN", "Room", "aligned", "descend", "learn", "measure", "prepare", "room", "spaced"]

HEADS = {"linear": 0, "offset-l2": 1, "offset-l2-code": 2}
# The head in which ``alpha`` weighs squared differences, not differences.
SQUARED = HEADS["offset-l2-code"]
OUTPUTS: dict[str | None, int] = {None: 0} | {name: 1 + code for name, code in HIDDEN.items()}
RELU, ABS = OUTPUTS["relu"], OUTPUTS["abs"]

# Numbers in a cache line.
LINE = 16

# A unit is active on an input if the absolute value of its activation is larger than this.
ACTIVE = 1e-6

LOWEST = F(-np.inf)

# Columns that a call of ``attract`` and of ``accumulate`` processes, and both functions; compiled as constants.
KERNELS, LANES, WIDTH, accumulate, attract = chosen()


def aligned(*shape: int) -> np.ndarray:
    """Return zeros that begin on a cache line, in memory from PyTorch; vectors across two cache lines are slower."""
    return torch.zeros(shape).numpy()


def spaced(units: int) -> int:
    """Return the length of the rows of a large array, so that rows are an odd number of cache lines apart.

    Rows whose distance in memory is a power of two share few sets of the L1 cache and evict each other.

    >>> spaced(128)
    144
    """
    return (-(-units // LINE) | 1) * LINE


class Room(NamedTuple):
    """Scratch arrays of a pass; all but ``z`` belong to one group of points at a time."""

    z: np.ndarray  # pre-activations of a block
    activations: np.ndarray
    pull: np.ndarray  # derivatives of the loss with respect to the activations
    heads: np.ndarray  # values of the head, then the derivatives with respect to them
    probabilities: np.ndarray
    transposed: np.ndarray  # derivatives with respect to the head's values, points first, in groups of eight classes
    sums: np.ndarray  # largest output and sum of exponentials
    natural: np.ndarray  # 0, 1, 2, ...
    eights: np.ndarray  # the same modulo eight


def room(rows: int, units: int, classes: int) -> Room:
    """Return scratch arrays for blocks of ``rows`` points; ``units`` and ``classes`` are the padded numbers."""
    group, heads = (GROUP, units), (classes, GROUP)
    arrays = [aligned(*shape) for shape in ((rows, spaced(units)), group, group, heads, heads, heads, (2, GROUP))]
    natural = np.arange(max(classes, GROUP), dtype=np.int32)
    return Room._make([*arrays, natural, natural % np.int32(GROUP)])


@compiled
def _activate(z: Any, first: int, hidden: int, h: Any) -> None:
    if hidden > ABS_HIDDEN:
        for g in range(GROUP):
            for k in range(h.shape[1]):
                h[g, k] = smooth(z[first + g, k], hidden)
        return
    for g in range(GROUP):
        for k in range(h.shape[1]):
            h[g, k] = abs(z[first + g, k]) if hidden else max(z[first + g, k], ZERO)


@compiled
def _linear(h: Any, weight: Any, bias: Any, y: Any, classes: int) -> None:
    for c in range(classes):
        for g in range(GROUP):
            total = ZERO
            for k in range(h.shape[1]):
                total += h[g, k] * weight[c, k]
            y[c, g] = total + bias[c]


@compiled
def _distances(h: Any, mu: Any, alpha: Any, y: Any, classes: int) -> None:
    for c in range(classes):
        for g in range(GROUP):
            total = ZERO
            for k in range(h.shape[1]):
                part = alpha[c, k] * (h[g, k] - mu[c, k])
                total += part * part
            y[c, g] = F(math.sqrt(total))


@compiled
def _squared_distances(h: Any, mu: Any, alpha: Any, y: Any, classes: int) -> None:
    for c in range(classes):
        for g in range(GROUP):
            total = ZERO
            for k in range(h.shape[1]):
                part = h[g, k] - mu[c, k]
                total += alpha[c, k] * (part * part)
            # Negative weights may leave no real root.
            y[c, g] = F(math.sqrt(total)) if total >= ZERO else F(math.nan)


@inlined
def _output(y: Any, output: int, sign: Any) -> Any:
    return sign * smooth(y, output - 1) if output > ABS else _straight_output(y, output, sign)


@inlined
def _straight_output(y: Any, output: int, sign: Any) -> Any:
    if output == RELU:
        return sign * max(y, ZERO)
    return sign * abs(y) if output == ABS else sign * y


@inlined
def _straight_slope(y: Any, head: int, output: int, sign: Any) -> Any:
    # The derivative of a square root divides by the distance; at distance zero the gradient is taken as zero.
    if head:
        return sign / y if y != ZERO else ZERO
    if output == RELU:
        return sign if y > ZERO else ZERO
    if output == ABS:
        return sign if y > ZERO else (-sign if y < ZERO else ZERO)
    return sign


# Smooth activations have loops of their own: with the condition inside one loop, the compiler would not vectorize it.
@compiled
def _outputs(y: Any, output: int, sign: Any, classes: int, out: Any) -> None:
    if output > ABS:
        for c in range(classes):
            for g in range(GROUP):
                out[c, g] = sign * smooth(y[c, g], output - 1)
        return
    for c in range(classes):
        for g in range(GROUP):
            out[c, g] = _straight_output(y[c, g], output, sign)


@compiled
def _slopes(y: Any, kinds: Any, classes: int) -> None:
    """Replace the head's values by the derivatives of the outputs with respect to them."""
    _, head, output, sign, _ = kinds
    if output > ABS and not head:
        for c in range(classes):
            for g in range(GROUP):
                y[c, g] = sign * smooth_slope(y[c, g], output - 1)
        return
    for c in range(classes):
        for g in range(GROUP):
            y[c, g] = _straight_slope(y[c, g], head, output, sign)


@compiled
def _softmax(y: Any, kinds: Any, classes: int, probability: Any, sums: Any) -> None:
    _, _, output, sign, _ = kinds
    _outputs(y, output, sign, classes, probability)
    for g in range(GROUP):
        sums[0, g], sums[1, g] = LOWEST, ZERO
    for c in range(classes):
        for g in range(GROUP):
            value = probability[c, g]
            sums[0, g] = value if value > sums[0, g] else sums[0, g]
    for c in range(classes):
        for g in range(GROUP):
            probability[c, g] = exponential(probability[c, g] - sums[0, g])
            sums[1, g] += probability[c, g]


@compiled
def _score(y: Any, labels: Any, kinds: Any, sums: Any, scores: Any) -> None:
    # Of equal outputs, which ReLU often gives, the first counts as the answer, as in PyTorch.
    _, _, output, sign, _ = kinds
    for g in range(GROUP):
        label, right = labels[g], True
        if label >= 0:
            own = _output(y[label, g], output, sign)
            for c in range(label):
                right = right and _output(y[c, g], output, sign) < own
            scores[0] += math.log(sums[1, g]) - (own - sums[0, g])
            scores[1] += right and own == sums[0, g]


@compiled
def _differentiate(y: Any, labels: Any, kinds: Any, classes: int, room: Any) -> None:
    # Replaces the head's values by the derivatives with respect to them; rows without a label are padding.
    # The derivative of a point's loss by the output c of its own class is multiplied by ``targets[c]``.
    targets = kinds[4]
    probability, transposed, sums = room
    _slopes(y, kinds, classes)
    for c in range(classes):
        for g in range(GROUP):
            own = labels[g] == c
            change = (probability[c, g] / sums[1, g] - (ONE if own else ZERO)) * (targets[c] if own else ONE)
            y[c, g] = change * y[c, g] if labels[g] >= 0 else ZERO
            transposed[(c // GROUP) * GROUP + g, c % GROUP] = y[c, g]


@compiled
def _multiply(side: Any, group: int, dense: Any, out: Any, units: int) -> None:
    _, starts, index, values, rows = side
    for column in range(0, units, WIDTH):
        accumulate(out, dense, (rows, index, values), (group, starts[group], starts[group + 1], column))


@compiled
def _forward(side: Any, group: int, first: int, weights: Any, kinds: Any, room: Any) -> None:
    """Compute a group's pre-activations, activations and head values into ``room``."""
    z, h, y = room[0], room[1], room[3]
    (plane, _, weight, alpha, offset), (lift, _) = weights
    hidden, head, _, _, _ = kinds
    for g in range(GROUP):
        for k in range(len(lift)):
            z[first + g, k] = lift[k]
    _multiply(side, group, plane, z, len(lift))
    _activate(z, first, hidden, h)
    if head == SQUARED:
        _squared_distances(h, weight, alpha, y, len(offset))
    elif head:
        _distances(h, weight, alpha, y, len(offset))
    else:
        _linear(h, weight, offset, y, len(offset))


@compiled
def _head_gradient(weights: Any, gradient: Any, kinds: Any, room: Any) -> None:
    """Add a group's part of the head's gradient, and compute the derivative by its activations into ``room``."""
    _, h, pull, y, _, transposed, _, natural, eights = room
    (_, _, weight, _, _), (_, squares) = weights
    _, _, of_weight, of_alpha, of_offset = gradient
    classes, stride = len(of_offset), h.shape[1]
    if kinds[1]:
        for column in range(0, stride, LANES):
            attract(h, (weight, squares, y), (pull, of_weight, of_alpha), (classes, column))
        return
    pull.fill(ZERO)
    for column in range(0, stride, WIDTH):
        accumulate(pull, weight, (natural, natural, y), (0, 0, classes, column))
        for g in range(len(of_weight) // GROUP):
            accumulate(of_weight, h, (natural, eights, transposed), (g, g * GROUP, (g + 1) * GROUP, column))
    for c in range(classes):
        for g in range(GROUP):
            of_offset[c] += y[c, g]


@compiled
def _pull_back(z: Any, first: int, hidden: int, pull: Any, of_bias: Any) -> None:
    # At zero the derivative of the absolute value is taken as zero, as in PyTorch.
    if hidden > ABS_HIDDEN:
        for g in range(GROUP):
            for k in range(len(of_bias)):
                z[first + g, k] = pull[g, k] * smooth_slope(z[first + g, k], hidden)
                of_bias[k] += z[first + g, k]
        return
    for g in range(GROUP):
        for k in range(len(of_bias)):
            value = z[first + g, k]
            below = -pull[g, k] if hidden and value < ZERO else ZERO
            z[first + g, k] = pull[g, k] if value > ZERO else below
    for g in range(GROUP):
        for k in range(len(of_bias)):
            of_bias[k] += z[first + g, k]


@compiled
def _clear(gradient: Any) -> None:
    plane, bias, weight, alpha, offset = gradient
    plane.fill(ZERO)
    bias.fill(ZERO)
    weight.fill(ZERO)
    alpha.fill(ZERO)
    offset.fill(ZERO)


@compiled
def learn(data: Any, blocks: Any, weights: Any, results: Any, kinds: Any, room: Any) -> None:
    """Compute the gradient over some blocks, and add their loss and number of correct answers to the scores.

    ``data`` is the forward side, the gradient side, and the labels in packed order, eight per row, -1 for padding;
    ``blocks`` is the first block and the one after the last; ``results`` is the gradient and the scores.
    """
    (forward, backward, labels), (gradient, scores) = data, results
    z, _, pull, y, probability, transposed, sums, _, _ = room
    classes = len(gradient[4])
    _clear(gradient)
    for block in range(blocks[0], blocks[1]):
        start = forward[0][block]
        for group in range(start, forward[0][block + 1]):
            first, own = (group - start) * GROUP, labels[group]
            _forward(forward, group, first, weights, kinds, room)
            _softmax(y, kinds, classes, probability, sums)
            _score(y, own, kinds, sums, scores)
            _differentiate(y, own, kinds, classes, (probability, transposed, sums))
            _head_gradient(weights, gradient, kinds, room)
            _pull_back(z, first, kinds[0], pull, gradient[1])
        for group in range(backward[0][block], backward[0][block + 1]):
            _multiply(backward, group, z, gradient[0], len(gradient[1]))


@compiled
def measure(data: Any, weights: Any, kinds: Any, room: Any, scores: Any, active: Any) -> None:
    """Add the loss and the number of correct answers to ``scores``, and to ``active`` how often each unit is active."""
    forward, labels = data
    _, h, _, y, probability, _, sums, _, _ = room
    for block in range(len(forward[0]) - 1):
        start = forward[0][block]
        for group in range(start, forward[0][block + 1]):
            first, own = (group - start) * GROUP, labels[group]
            _forward(forward, group, first, weights, kinds, room)
            _softmax(y, kinds, len(active[1]), probability, sums)
            _score(y, own, kinds, sums, scores)
            _count(h, y, own, kinds, active)


@compiled
def _count(h: Any, y: Any, labels: Any, kinds: Any, active: Any) -> None:
    units, outputs = active
    _, _, output, sign, _ = kinds
    for g in range(GROUP):
        if labels[g] >= 0:
            for k in range(len(units)):
                units[k] += abs(h[g, k]) > ACTIVE
            for c in range(len(outputs)):
                outputs[c] += abs(_output(y[c, g], output, sign)) > ACTIVE


@compiled
def prepare(values: Any, derived: Any, kinds: Any, background: Any) -> None:
    """Compute what a pass derives from the weights: biases that include the background, and weights of squares."""
    plane, bias, _, alpha, _ = values
    lift, squares = derived
    lift.fill(ZERO)
    for d in range(len(plane)):
        for k in range(len(lift)):
            lift[k] += plane[d, k]
    for k in range(len(lift)):
        lift[k] = bias[k] + background * lift[k]
    for c in range(len(alpha)):
        for k in range(len(lift)):
            squares[c, k] = alpha[c, k] if kinds[1] == SQUARED else alpha[c, k] * alpha[c, k]


@compiled
def descend(values: Any, squares: Any, gradients: Any, kinds: Any, steps: Any) -> None:
    """Take one gradient step in place, with the sum of two gradients.

    ``steps`` holds four learning rates, each divided by the number of points (for the first layer, the head's weights
    or centers, alpha, and the head's bias), and then the background value of the points.
    """
    plane, bias, weight, alpha, offset = values
    one, two = gradients
    rate, head_rate, alpha_rate, offset_rate, background = steps
    for k in range(len(bias)):
        one[1][k] += two[1][k]
        bias[k] -= rate * one[1][k]
    for d in range(len(plane)):
        for k in range(len(bias)):
            plane[d, k] -= rate * (one[0][d, k] + two[0][d, k] + background * one[1][k])
    for c in range(len(weight)):
        for k in range(len(bias)):
            change = one[2][c, k] + two[2][c, k]
            weight[c, k] -= head_rate * (-squares[c, k] * change if kinds[1] else change)
            slope = HALF if kinds[1] == SQUARED else alpha[c, k]
            alpha[c, k] -= alpha_rate * slope * (one[3][c, k] + two[3][c, k])
    for c in range(len(offset)):
        offset[c] -= offset_rate * (one[4][c] + two[4][c])
