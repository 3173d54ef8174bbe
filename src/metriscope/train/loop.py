"""The training loop, once: cohorts of independent networks, chunk by chunk, to the end of the protocol.

Axes: S trials, T recorded epochs. The loop knows no files: whoever calls it may save a cohort's tensors
at any tick and hand them back later; where the chunks fall changes nothing in the result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metriscope.train.engines import Engine
from metriscope.train.protocol import Protocol, recorded_epochs

__all__ = ["Cohort", "Diverged", "fit", "workers_available"]

Tick = Callable[[int], None]


class Diverged(RuntimeError):
    """Raised when a loss stops being a number."""


@dataclass
class Cohort:
    """Independent networks of one shape in training: parameters, moments and history, trials first."""

    name: str
    engine: Engine
    parameters: dict[str, Tensor]
    protocol: Protocol
    epoch: int = 0
    moments: dict[str, Tensor] = field(default_factory=dict)
    history: Float[Tensor, "s t"] = field(default_factory=lambda: torch.empty(0))

    def __post_init__(self) -> None:
        self.parameters = _copies(self.parameters)
        self.moments = _copies(self.moments) or self.engine.moments(self.parameters)
        self.recorded = recorded_epochs(self.protocol.epochs)
        trials = len(next(iter(self.parameters.values())))
        shape = (trials, len(self.recorded))
        empty = self.history.numel() == 0
        self.history = torch.full(shape, torch.nan, dtype=torch.float64) if empty else self.history.clone()

    def advance(self, epochs: int) -> None:
        """Train ``epochs`` epochs further and keep the losses of the recorded ones."""
        losses = self.engine.advance(self.parameters, self.moments, self.epoch, epochs)
        if not torch.isfinite(losses).all():
            first = int((~torch.isfinite(losses)).any(0).nonzero()[0, 0]) + self.epoch
            raise Diverged(f"the loss of {self.name} is not finite from epoch {first} on")
        here = (self.recorded >= self.epoch) & (self.recorded < self.epoch + epochs)
        self.history[:, torch.from_numpy(np.flatnonzero(here))] = losses[:, self.recorded[here] - self.epoch]
        self.epoch += epochs

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that a checkpoint must hold, under names of this cohort's own."""
        parts = {"parameters": self.parameters, "moments": self.moments, "history": {"loss": self.history}}
        return {f"{self.name}/{part}/{k}": v for part, group in parts.items() for k, v in group.items()}

    def restore(self, tensors: Mapping[str, Tensor], epoch: int) -> None:
        """Take up the state that :meth:`tensors` gave out at ``epoch``."""
        for name, own in self.tensors().items():
            own.copy_(tensors[name])
        self.epoch = epoch


def workers_available() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def fit(cohorts: Sequence[Cohort], *, workers: int | None = None, tick: Tick | None = None, pace: float = 2.0) -> None:
    """Train every cohort to the end of its protocol, in place, ``workers`` cohorts at a time.

    All cohorts stand at the same epoch whenever ``tick(epoch)`` is called, about every ``pace`` seconds:
    the moment to show progress or to save a checkpoint.
    """
    spans = sorted({(c.epoch, c.protocol.epochs) for c in cohorts})
    if len(spans) != 1:
        came = ", ".join(f"{start} to {end}" for start, end in spans) or "no cohort"
        raise ValueError(f"cohorts trained together need the same first and last epoch: {came}")
    chunk = 1
    with ExitStack() as stack:
        for engine in {type(c.engine): c.engine for c in cohorts}.values():
            stack.enter_context(engine.session())
        # A new thread begins with PyTorch's default number of threads, whatever this one was told.
        threads = (torch.get_num_threads(),)
        pool = ThreadPoolExecutor(workers or workers_available(), "train", torch.set_num_threads, threads)
        stack.enter_context(pool)
        while (left := cohorts[0].protocol.epochs - cohorts[0].epoch) > 0:
            started, chunk = time.perf_counter(), min(chunk, left)
            _finish(pool.map(lambda cohort, n=chunk: cohort.advance(n), cohorts))
            if tick:
                tick(cohorts[0].epoch)
            chunk = _next_chunk(chunk, time.perf_counter() - started, pace)


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _finish(results: Iterable[None]) -> None:
    for _ in results:
        pass


def _next_chunk(chunk: int, seconds: float, pace: float) -> int:
    # Grows at most eightfold, so that a first call slowed by compilation does not mislead for long.
    return max(1, min(chunk * 8, int(chunk * pace / max(seconds, 1e-6))))
