"""Training of many two-layer classifiers: full-batch SGD on cross-entropy with closed-form gradients.

Axes: S networks, N points, D features, K units, C classes, E epochs.

Networks whose activations and head have kernels are trained by compiled passes over points that are packed once
(:mod:`metriscope.train.sparse_points`); any other row of :data:`metriscope.nn.ARCHITECTURES` is trained by autograd.
Weights are bit-identical whether a network is trained alone or batched, and on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope.common.threads import in_parallel, workers_available
from metriscope.nn import ARCHITECTURES, build
from metriscope.train import sparse_points
from metriscope.train.sparse_points import GROUP, PADDING, round_up

__all__ = [
    "AutogradClassifier", "Classifier", "PackedExamples", "Scores", "advance", "classifier", "examples", "measure",
]  # fmt: skip

# The sum over blocks is computed in this many parts, independent of the number of threads.
PARTS = 2


@dataclass(frozen=True, eq=False)
class PackedExamples:
    """Points packed for training or measuring, and their labels in packed order, eight per row, padded with -1.

    ``x`` and ``y`` are the points and labels in their original order, for networks without compiled kernels.
    """

    packed: sparse_points.Packed
    labels: Int[np.ndarray, "g 8"]
    x: Float32[np.ndarray, "n d"]
    y: Int[np.ndarray, n]

    def __len__(self) -> int:
        return self.packed.count


def examples(x: Float32[np.ndarray, "n d"], y: Int[np.ndarray, n], *, gradient: bool = True) -> PackedExamples:
    """Return points and labels, packed once for any number of networks; with ``gradient=False`` only for measuring.

    >>> len(examples(np.eye(4, dtype=np.float32), np.arange(4)))
    4
    """
    if y.shape != (len(x),) or y.min(initial=0) < 0:
        raise ValueError(f"{len(x)} points need one label each, 0 or more, got an array of shape {y.shape}")
    packed = sparse_points.pack(x, gradient=gradient)
    labels = np.full(round_up(len(y), GROUP), -1, np.int64)
    labels[: len(y)] = y[packed.order]
    return PackedExamples(packed, labels.reshape(-1, GROUP), x, y)


@dataclass(frozen=True, eq=False)
class Scores:
    """Mean loss and accuracy of each network, and the fraction of points on which each unit and output is active."""

    loss: Float[np.ndarray, s]
    accuracy: Float[np.ndarray, s]
    hidden: tuple[Float[np.ndarray, k], ...]
    outputs: tuple[Float[np.ndarray, c], ...]


class Classifier:
    """One named network in training, as arrays for compiled code.

    ``factors`` multiply the learning rate of the head's weights (mu in OffsetL2) and of its alpha; 0 freezes them.
    ``target``: the factor by which the derivative of a point's loss by the output of its own class is multiplied; 1 is
    cross-entropy. The array ``targets`` holds it for each class and may be changed between steps.

    >>> from metriscope.nn import build
    >>> model = build("abs-l2", in_features=4, hidden=3, out_features=2)
    >>> sorted(Classifier("abs-l2", model.state_dict()).state())
    ['0.bias', '0.weight', '2.alpha', '2.mu']
    """

    def __init__(
        self,
        architecture: str,
        state: Mapping[str, Tensor],
        factors: tuple[float, float] = (1.0, 1.0),
        target: float = 1.0,
    ) -> None:
        if architecture not in ARCHITECTURES:
            raise ValueError(f"architecture must be one of {', '.join(ARCHITECTURES)}, got {architecture!r}")
        from metriscope.train import classifier_passes as passes

        row, self.factors = ARCHITECTURES[architecture], factors
        self.distances, self.biased = row.head != "linear", row.bias
        first, head = (_matrix(architecture, state, name) for name in ("0.weight", self._head))
        (self.units, self.features), self.classes = first, head[0]
        sign = np.float32(-1 if row.negate else 1)
        parts = (passes.HIDDEN[row.hidden], passes.HEADS[row.head], passes.OUTPUTS[row.output])
        self.targets = np.full(self.classes, target, np.float32)
        self.kinds = (*parts, sign, self.targets)
        wide, tall = round_up(self.units, PADDING), round_up(self.classes, GROUP)
        shapes = ((self.features, passes.spaced(wide)), (wide,), (tall, wide), (tall, wide), (self.classes,))
        self.values = tuple(passes.aligned(*shape) for shape in shapes)
        self.derived = (passes.aligned(wide), passes.aligned(tall, wide))
        for name, own in self._parameters():
            if name not in state or tuple(state[name].shape) != own.shape:
                came = {key: tuple(tensor.shape) for key, tensor in state.items()}
                raise ValueError(f"{architecture} needs {name} of shape {own.shape} in its state, got {came}")
            own[:] = state[name].detach().cpu().numpy()

    @property
    def _head(self) -> str:
        return "2.mu" if self.distances else "2.weight"

    def _parameters(self) -> list[tuple[str, np.ndarray]]:
        """Return each parameter's name and its view of the arrays, in the layout of the network."""
        plane, bias, weight, alpha, offset = self.values
        heads = [(self._head, weight), *([("2.alpha", alpha)] if self.distances else [])]
        found = [("0.weight", plane[:, : self.units].T), ("0.bias", bias[: self.units])]
        found += [(name, array[: self.classes, : self.units]) for name, array in heads]
        return found + ([("2.bias", offset)] if self.biased else [])

    def gradient(self) -> tuple[np.ndarray, ...]:
        """Return arrays for a gradient, with one more row for features that are padding."""
        from metriscope.train.classifier_passes import aligned

        plane, *others = self.values
        return (aligned(self.features + 1, plane.shape[1]), *(aligned(*array.shape) for array in others))

    def room(self, rows: int) -> tuple[np.ndarray, ...]:
        """Return scratch arrays for a pass over blocks of ``rows`` points."""
        from metriscope.train.classifier_passes import room

        return room(rows, len(self.values[1]), len(self.values[2]))

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the network's ``state_dict``."""
        return {name: torch.from_numpy(own.copy()) for name, own in self._parameters()}


class AutogradClassifier:
    """One network in training, as a plain module.

    ``head`` is the number of modules before the last layer with weights; their outputs are the hidden units.

    >>> model = build("relu", in_features=4, hidden=3, out_features=2)
    >>> AutogradClassifier(model, features=4, classes=2).units
    3
    """

    def __init__(self, model: nn.Sequential, features: int, classes: int, head: int = 2) -> None:
        self.model, self.features, self.classes, self.head = model, features, classes, head
        with torch.no_grad():
            self.units = model[:head](torch.zeros(1, features)).shape[1]

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the network's ``state_dict``."""
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def train(
        self, x: Float32[np.ndarray, "n d"], y: Int[np.ndarray, n], epochs: int, lr: float
    ) -> Float[np.ndarray, "e 2"]:
        """Take full-batch steps; return the summed loss and the number of correct answers before each."""
        points, labels = torch.from_numpy(x), torch.from_numpy(y)
        found = np.zeros((epochs, 2))
        for epoch in range(epochs):
            outputs = self.model(points)
            loss = F.cross_entropy(outputs, labels)
            gradients = torch.autograd.grad(loss, list(self.model.parameters()))
            found[epoch] = float(loss.detach()) * len(labels), int((outputs.argmax(1) == labels).sum())
            with torch.no_grad():
                for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
                    parameter.sub_(gradient, alpha=lr)
        return found

    @torch.no_grad()
    def measure(
        self, x: Float32[np.ndarray, "n d"], y: Int[np.ndarray, n], active: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return [summed loss, number correct], and at how many points each hidden unit and output is active."""
        points, labels = torch.from_numpy(x), torch.from_numpy(y)
        hidden = self.model[: self.head](points)
        outputs = self.model[self.head :](hidden)
        loss = float(F.cross_entropy(outputs, labels, reduction="sum"))
        counts = [(part.abs() > active).sum(0).double().numpy() for part in (hidden, outputs)]
        return np.array([loss, float((outputs.argmax(1) == labels).sum())]), counts[0], counts[1]


Network = Classifier | AutogradClassifier


def compilable(architecture: str) -> bool:
    """Return whether every part of a named network has a compiled kernel.

    >>> compilable("abs2-neg")
    True
    """
    from metriscope.train import classifier_passes as passes

    row = ARCHITECTURES[architecture]
    return row.hidden in passes.HIDDEN and row.head in passes.HEADS and row.output in passes.OUTPUTS


def classifier(architecture: str, state: Mapping[str, Tensor]) -> Network:
    """Return a named network ready for training, compiled if possible."""
    if architecture not in ARCHITECTURES or compilable(architecture):
        return Classifier(architecture, state)
    (units, features) = state["0.weight"].shape
    classes = next(len(value) for name, value in state.items() if name.startswith("2.") and value.ndim == 2)
    unused = torch.Generator()
    model = build(architecture, features, units, classes, unused)
    model.load_state_dict(dict(state))
    return AutogradClassifier(model, features, classes)


def _matrix(architecture: str, state: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    if name not in state or state[name].ndim != 2:
        raise ValueError(
            f"{architecture} needs a matrix {name} in its state, which has {', '.join(state) or 'nothing'}"
        )
    rows, columns = state[name].shape
    return rows, columns


def advance(
    networks: Sequence[Network], data: PackedExamples, epochs: int, lr: float = 1e-3, workers: int | None = None
) -> tuple[Float[np.ndarray, "s e"], Float[np.ndarray, "s e"]]:
    """Train every network for ``epochs`` more full-batch steps, in place.

    Return the loss and the accuracy on the training points before each step.
    """
    _check(networks, data)
    if data.packed.gradient is None:
        raise ValueError("these examples are packed for measuring only; training needs gradient=True")
    workers = workers or workers_available()
    # Networks that do not divide evenly among the workers are trained last, the parts of each in parallel.
    whole = len(networks) // workers * workers
    rest = networks[whole:]
    with ThreadPoolExecutor(workers, "train") as pool, ThreadPoolExecutor(len(rest) or 1, "drive") as drivers:
        found = list(pool.map(lambda network: _train(network, data, epochs, lr, map), networks[:whole]))
        found += drivers.map(lambda network: _train(network, data, epochs, lr, pool.map), rest)
    scores = np.array(found).reshape(len(networks), epochs, 2) / len(data)
    return scores[..., 0], scores[..., 1]


def _train(
    network: Network, data: PackedExamples, epochs: int, lr: float, mapped: Callable[..., Iterable[None]]
) -> Float[np.ndarray, "e 2"]:
    from metriscope.train import classifier_passes as passes

    if isinstance(network, AutogradClassifier):
        return network.train(data.x, data.y, epochs, lr)

    packed, scores = data.packed, np.zeros((epochs, PARTS, 2))
    assert packed.gradient is not None
    arrays = (packed.forward.arrays, packed.gradient.arrays, data.labels)
    cuts = [packed.blocks * part // PARTS for part in range(PARTS + 1)]
    gradients = tuple(network.gradient() for _ in range(PARTS))
    rooms = [network.room(packed.rows) for _ in range(PARTS)]
    weights, rate = (network.values, network.derived), np.float32(lr / packed.count)
    head = (np.float32(factor * lr / packed.count) for factor in network.factors)
    steps = (rate, *head, rate if network.biased else np.float32(0), packed.background)

    def learn(epoch: int, part: int) -> None:
        results = (gradients[part], scores[epoch, part])
        passes.learn(arrays, (cuts[part], cuts[part + 1]), weights, results, network.kinds, rooms[part])

    for epoch in range(epochs):
        passes.prepare(*weights, network.kinds, packed.background)
        list(mapped(lambda part, e=epoch: learn(e, part), range(PARTS)))
        passes.descend(network.values, network.derived[1], gradients, network.kinds, steps)
    return scores.sum(axis=1)


def measure(networks: Sequence[Network], data: PackedExamples, workers: int | None = None) -> Scores:
    """Return loss, accuracy and activity of every network on some points."""
    _check(networks, data)
    found = in_parallel(lambda network: _measure(network, data), networks, workers)
    scores, hidden, outputs = ([one[part] / len(data) for one in found] for part in range(3))
    loss, accuracy = np.array(scores).reshape(-1, 2).T
    return Scores(loss, accuracy, tuple(hidden), tuple(outputs))


def _measure(network: Network, data: PackedExamples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from metriscope.train import classifier_passes as passes

    if isinstance(network, AutogradClassifier):
        return network.measure(data.x, data.y, passes.ACTIVE)
    scores, active = np.zeros(2), (np.zeros(network.units), np.zeros(network.classes))
    weights, packed = (network.values, network.derived), data.packed
    passes.prepare(*weights, network.kinds, packed.background)
    arrays = (packed.forward.arrays, data.labels)
    passes.measure(arrays, weights, network.kinds, network.room(packed.rows), scores, active)
    return (scores, *active)


def _check(networks: Sequence[Network], data: PackedExamples) -> None:
    features, labels = data.packed.features, int(data.labels.max()) + 1
    for network in networks:
        if network.features != features:
            raise ValueError(f"points have {features} features, a network takes {network.features}")
        if network.classes < labels:
            raise ValueError(f"labels go up to {labels - 1}, a network has {network.classes} outputs")
