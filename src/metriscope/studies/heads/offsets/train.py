"""Train networks with OffsetL2 whose centers and weights have learning rates of their own, or none.

Axes: N images, K hidden units, C classes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from metriscope import data
from metriscope.nn import OffsetL2
from metriscope.runs import Result
from metriscope.studies.heads.offsets.plan import OffsetTraining
from metriscope.studies.representation.plan import RepresentationTraining
from metriscope.studies.representation.train import images, start
from metriscope.train.classifiers import Classifier, PackedExamples, advance, examples, measure

__all__ = ["begun", "points", "targets", "trained"]


@lru_cache(maxsize=1)
def points(shared: RepresentationTraining) -> tuple[data.Labeled, data.Labeled]:
    """Return training and test images; kept, as many networks see the same."""
    return images(shared)


@lru_cache(maxsize=1)
def _packed(shared: RepresentationTraining) -> tuple[PackedExamples, PackedExamples]:
    train, test = points(shared)
    return examples(train.x, train.y), examples(test.x, test.y, gradient=False)


def targets(
    hidden: Float[Tensor, "n k"], labels: Int[Tensor, " n"], classes: int, negated: bool
) -> Float[Tensor, "c k"]:
    """Return where each center belongs: the mean of its class, or of all others where the largest distance wins."""
    own = [labels == c if negated else labels != c for c in range(classes)]
    return torch.stack([hidden[rows].mean(0) for rows in own])


def begun(job: OffsetTraining, number: int) -> nn.Sequential:
    """Return one start's network before training."""
    base = replace(job.base, number=number)
    model = start(base)
    if job.variant.placed:
        train, _ = points(replace(job.base, model="", number=0))
        head = model[2]
        assert isinstance(head, OffsetL2)
        with torch.no_grad():
            hidden = model[:2](torch.from_numpy(train.x))
            head.mu.copy_(targets(hidden, torch.from_numpy(train.y), base.classes, job.negated))
    return model


def trained(job: OffsetTraining) -> Result:
    """Return the weights of every start, and its accuracies."""
    base, factors = job.base, (job.variant.mu, job.variant.alpha)
    train, test = _packed(replace(base, model="", number=0))
    networks = [Classifier(base.model, begun(job, number).state_dict(), factors) for number in job.numbers]
    advance(networks, train, base.epochs, base.lr)
    parts = {"train": measure(networks, train), "test": measure(networks, test)}
    ends = {f"{part}_accuracy": 100 * scores.accuracy for part, scores in parts.items()}
    tensors = {f"{n}/{k}": v for n, w in zip(job.numbers, networks, strict=True) for k, v in w.state().items()}
    return Result({"ends": pd.DataFrame({"seed": job.numbers, **ends})}, tensors)
