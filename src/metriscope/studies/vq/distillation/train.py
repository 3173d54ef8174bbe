"""Train a teacher, and all variants of a student at once, with a differentiable surrogate of matching VQ kernels.

Axes: S students, N points of a batch, H hidden units of all layers. Signs have no gradient: soft signs tanh(beta z)
stand in for them. The centered alignment of their Gram matrices tends to that of the VQ kernels as beta grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope import data
from metriscope.nn import stack_state, unstack
from metriscope.rng import stream
from metriscope.studies.vq.distillation.plan import METHODS, Distilling, ExampleSplit, StudentVariant
from metriscope.studies.vq.networks.plan import STUDY, MLPShape
from metriscope.studies.vq.train import mlp
from metriscope.train import Protocol
from metriscope.train.engines import RULES

__all__ = ["SplitData", "gram_alignment", "hidden", "soft_signs", "split", "taught"]

Layers = list[Float[Tensor, "*s n h"]]


def gram_alignment(a: Float[Tensor, "*s n h"], b: Float[Tensor, "n k"]) -> Float[Tensor, "*s"]:
    """Return the centered alignment (CKA) of the Gram matrices of two sets of features of the same points.

    >>> gram_alignment(torch.tensor([[1.0], [-1.0]]), torch.tensor([[3.0, 0.0], [0.0, 0.0]]))
    tensor(1.)
    """
    a, b = (x - x.mean(-2, keepdim=True) for x in (a, b))
    one, other = a @ a.mT, b @ b.mT
    norms = torch.linalg.matrix_norm(one) * torch.linalg.matrix_norm(other)
    return (one * other).sum((-2, -1)) / norms


def soft_signs(layers: Layers, beta: float) -> Float[Tensor, "*s n h"]:
    """Return tanh(beta z) of all pre-activations, each layer in units of its root mean square; signs for large beta."""
    scales = [z.square().mean((-2, -1), keepdim=True).sqrt() for z in layers]
    return torch.cat([torch.tanh(beta * z / scale) for z, scale in zip(layers, scales, strict=True)], -1)


def hidden(
    shape: MLPShape, state: Mapping[str, Tensor], x: Float[Tensor, "n d"]
) -> tuple[Layers, Float[Tensor, "s n o"]]:
    """Return the pre-activations of each hidden layer of a stack of ReLU networks on the same points, and outputs."""
    weight, bias = state["0.weight"], state["0.bias"]
    # All networks have the same inputs: their first layers are one product.
    layers = [F.linear(x, weight.flatten(0, 1), bias.flatten()).unflatten(1, bias.shape).movedim(1, 0)]
    for index in range(2, 2 * shape.depth + 2, 2):
        layers.append(torch.baddbmm(state[f"{index}.bias"][:, None], layers[-1].relu(), state[f"{index}.weight"].mT))
    return layers[:-1], layers[-1]


@dataclass(frozen=True)
class SplitData:
    """Examples of one seed by part, as inputs and labels."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@lru_cache(maxsize=1)
def _pool(name: str) -> tuple[Tensor, Tensor]:
    found = data.load(name)
    parts = (found.train, found.test)
    x = np.concatenate([part.x.reshape(len(part.x), -1) for part in parts])
    return torch.from_numpy(x).double(), torch.from_numpy(np.concatenate([part.y for part in parts]))


def split(examples: ExampleSplit, seed: int, number: int) -> SplitData:
    """Return a seed's examples, standardized by mean and deviation of the training part."""
    x, y = _pool(examples.name)
    sizes = [examples.train, examples.validation, examples.test]
    order = torch.randperm(len(y), generator=stream(seed, STUDY, "distillation", examples.name, number))
    rows = order[: sum(sizes)].split(sizes)
    deviation, mean = torch.std_mean(x[rows[0]], dim=None if examples.together else 0)
    scaled = ((x - mean) / deviation).float()
    return SplitData(*((scaled[r], y[r].long()) for r in rows))


@dataclass(frozen=True)
class _Guide:
    """What a teacher shows on a batch: pre-activations by layer, and logits."""

    layers: Layers
    logits: Float[Tensor, "n c"]

    @classmethod
    def of(cls, shape: MLPShape, state: Mapping[str, Tensor], x: Float[Tensor, "n d"]) -> _Guide:
        layers, logits = hidden(shape, state, x)
        return cls([z[0] for z in layers], logits[0])


@dataclass(frozen=True)
class _Students:
    """Students of one shape that learn together, each by its variant."""

    spec: Distilling
    shape: MLPShape
    variants: Sequence[StudentVariant]

    def losses(
        self, state: Mapping[str, Tensor], batch: tuple[Tensor, Tensor], guide: _Guide | None
    ) -> Float[Tensor, " s"]:
        """Return the loss of each student on a batch."""
        x, y = batch
        layers, logits = hidden(self.shape, state, x)
        labels = F.cross_entropy(logits.movedim(-1, 1), y.expand(logits.shape[:2]), reduction="none").mean(1)
        if guide is None:
            return labels
        share = self.spec.share * torch.tensor([float(METHODS[v.method].logits) for v in self.variants])
        found = (1 - share) * labels + share * self._logits(logits, guide.logits)
        matched = [self._match(kind, layers, guide) for kind in ("signs", "activations")]
        return torch.stack([found, *matched]).sum(0)

    def _logits(self, logits: Float[Tensor, "s n c"], target: Float[Tensor, "n c"]) -> Float[Tensor, " s"]:
        """Return the divergence from the teacher's softened outputs, scaled as Hinton et al. (2015) do."""
        heat = self.spec.temperature
        ours, theirs = F.log_softmax(logits / heat, -1), F.log_softmax(target / heat, -1)
        return heat**2 * (theirs.exp() * (theirs - ours)).sum(-1).mean(1)

    def _match(self, kind: str, layers: Layers, guide: _Guide) -> Float[Tensor, " s"]:
        """Return the weighted matching term of one kind for each student; zero for students of other kinds."""
        rows = [i for i, v in enumerate(self.variants) if METHODS[v.method].match == kind]
        weights = torch.tensor([self.variants[i].weight for i in rows])
        ours, theirs = (self._features(kind, some) for some in ([z[rows] for z in layers], guide.layers))
        return torch.zeros(len(self.variants)).index_add(
            0, torch.tensor(rows), weights * (1 - gram_alignment(ours, theirs))
        )

    def _features(self, kind: str, layers: Layers) -> Tensor:
        return soft_signs(layers, self.spec.beta) if kind == "signs" else torch.cat(layers, -1).relu()


def _learn(
    course: _Students,
    start: nn.Module,
    points: tuple[Tensor, Tensor],
    teacher: tuple[MLPShape, Mapping[str, Tensor]] | None,
) -> dict[str, Tensor]:
    """Return the trained parameters of all students of a course, from the same start and in the same batches."""
    spec, (x, y), step = course.spec, points, 0
    epochs = spec.schooling if teacher is None else spec.epochs
    protocol = Protocol(epochs, lr=spec.lr, batch_size=spec.batch, loss="cross-entropy")
    rule, state = RULES[protocol.optimizer], stack_state([start] * len(course.variants))
    moments = {f"{kind}.{name}": torch.zeros_like(value) for kind in rule.moments for name, value in state.items()}
    for epoch in range(epochs):
        order = torch.randperm(len(y), generator=stream(spec.seed, STUDY, "lesson", spec.number, epoch))
        for rows in order.split(spec.batch):
            step += 1
            guide = None if teacher is None else _Guide.of(*teacher, x[rows])
            leaves = {name: value.detach().requires_grad_() for name, value in state.items()}
            # Summed over students, never averaged: each trains as it would alone.
            total = course.losses(leaves, (x[rows], y[rows]), guide).sum()
            for name, gradient in zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True):
                rule.step(state[name], gradient, moments, name, step, protocol)
    return state


def taught(spec: Distilling, points: SplitData) -> tuple[nn.Module, Sequence[nn.Module]]:
    """Return the trained teacher, and the trained student of each variant."""
    here = (spec.seed, STUDY, "distillation", spec.examples.name, spec.number)
    large, small = spec.shape(spec.teacher), spec.shape(spec.student)
    starts = mlp(large, stream(*here, "teacher")), mlp(small, stream(*here, "student"))
    alone = _learn(_Students(spec, large, (StudentVariant("labels"),)), starts[0], points.train, None)
    course = _Students(spec, small, spec.variants())
    state = _learn(course, starts[1], points.train, (large, alone))
    students = [unstack(starts[1], state, i) for i in range(len(course.variants))]
    return unstack(starts[0], alone, 0), students
