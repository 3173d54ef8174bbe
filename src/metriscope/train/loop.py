"""The training loop, once: cohorts of independent networks, chunk by chunk, to the end of the protocol.

Axes: S trials, T recorded epochs. The loop knows no files: whoever calls it may save a cohort's tensors
at any tick and hand them back later; where the chunks fall changes nothing in the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metriscope.common.threads import workers_available
from metriscope.train.engines import Engine
from metriscope.train.protocol import Protocol, recorded_epochs

__all__ = ["Cohort", "CohortPass", "Diverged", "Pace", "fit"]


Tick = Callable[[int], None]


class Diverged(RuntimeError):
    """Raised when a loss stops being a number."""


@dataclass
class Cohort:
    """Independent networks of one shape in training: parameters, moments and history, trials first.

    ``kept`` are epochs at which the parameters are remembered in ``snapshots``; what is still to come is NaN there.
    """

    name: str
    engine: Engine
    parameters: dict[str, Tensor]
    protocol: Protocol
    epoch: int = 0
    moments: dict[str, Tensor] = field(default_factory=dict)
    history: Float[Tensor, "s t"] = field(default_factory=lambda: torch.empty(0))
    kept: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.parameters = _copies(self.parameters)
        self.moments = _copies(self.moments) or self.engine.moments(self.parameters)
        self.recorded = recorded_epochs(self.protocol.epochs)
        trials = len(next(iter(self.parameters.values())))
        shape = (trials, len(self.recorded))
        empty = self.history.numel() == 0
        self.history = torch.full(shape, torch.nan, dtype=torch.float64) if empty else self.history.clone()
        pairs = [(epoch, name, value) for epoch in self.kept for name, value in self.parameters.items()]
        self.snapshots = {f"{epoch}/{name}": torch.full_like(value, torch.nan) for epoch, name, value in pairs}

    def advance(self, epochs: int) -> None:
        """Train ``epochs`` epochs further and keep the losses of the recorded ones."""
        losses = self.engine.advance(self.parameters, self.moments, self.epoch, epochs)
        if not torch.isfinite(losses).all():
            first = int((~torch.isfinite(losses)).any(0).nonzero()[0, 0]) + self.epoch
            raise Diverged(f"the loss of {self.name} is not finite from epoch {first} on")
        here = (self.recorded >= self.epoch) & (self.recorded < self.epoch + epochs)
        self.history[:, torch.from_numpy(np.flatnonzero(here))] = losses[:, self.recorded[here] - self.epoch]
        self.epoch += epochs
        if self.epoch in self.kept:
            for name, value in self.parameters.items():
                self.snapshots[f"{self.epoch}/{name}"].copy_(value)

    def until(self, epochs: int) -> int:
        """Return how many of the next ``epochs`` epochs there are before the end and the next epoch to be kept."""
        stops = [stop for stop in (*self.kept, self.protocol.epochs) if stop > self.epoch]
        return min(epochs, *(stop - self.epoch for stop in stops)) if stops else 0

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that a checkpoint must hold, under names of this cohort's own."""
        parts = {"parameters": self.parameters, "moments": self.moments, "history": {"loss": self.history}}
        parts |= {"snapshots": self.snapshots} if self.kept else {}
        return {f"{self.name}/{part}/{k}": v for part, group in parts.items() for k, v in group.items()}

    def restore(self, tensors: Mapping[str, Tensor], epoch: int) -> None:
        """Take up the state that :meth:`tensors` gave out at ``epoch``."""
        for name, own in self.tensors().items():
            own.copy_(tensors[name])
        self.epoch = epoch


def fit(
    cohorts: Sequence[Cohort],
    *,
    workers: int | None = None,
    tick: Tick | None = None,
    pace: float = 2.0,
    threads: int | None = None,
) -> None:
    """Train every cohort to the end of its protocol, in place, ``workers`` cohorts at a time.

    Those that are behind go first. ``tick(epoch)`` is called about every ``pace`` seconds with the epoch of the
    last one: the moment to show progress or to save a checkpoint. ``threads`` is how many threads PyTorch may use
    in each worker; without it, as many as it uses now.
    """
    if not cohorts:
        raise ValueError("training needs at least one cohort, got none")
    rhythm, before = Pace(pace), torch.get_num_threads()
    with ExitStack() as stack:
        # PyTorch's number of threads is one for the whole process; a worker that sets it must not leave it so.
        stack.callback(torch.set_num_threads, before)
        for engine in {type(c.engine): c.engine for c in cohorts}.values():
            stack.enter_context(engine.session())
        # A new thread begins with PyTorch's default number of threads, whatever this one was told.
        setting = (threads or before,)
        pool = ThreadPoolExecutor(workers or workers_available(), "train", torch.set_num_threads, setting)
        stack.enter_context(pool)
        while left := [c for c in cohorts if c.epoch < c.protocol.epochs]:
            epoch = min(c.epoch for c in left)
            behind = [c for c in left if c.epoch == epoch]
            ahead = [c.epoch - epoch for c in left if c.epoch > epoch]
            chunk = min([rhythm.chunk, *ahead, *(c.until(rhythm.chunk) for c in behind)])
            with rhythm.measured(chunk):
                _finish(pool.map(lambda cohort, n=chunk: cohort.advance(n), behind))
                if tick:
                    tick(min((c.epoch for c in left), default=epoch))


@dataclass
class Pace:
    """How many epochs to train before the next look, so that looks come about every ``seconds``."""

    seconds: float = 2.0
    chunk: int = 1

    @contextmanager
    def measured(self, epochs: int) -> Iterator[None]:
        """Learn from how long ``epochs`` epochs take inside the block."""
        began = time.perf_counter()
        yield
        took = max(time.perf_counter() - began, 1e-6)
        # Grows at most eightfold, so that a first call slowed by compilation does not mislead for long.
        self.chunk = max(1, min(8 * max(epochs, self.chunk), int(epochs * self.seconds / took)))


@dataclass(frozen=True)
class CohortPass:
    """Jobs whose networks are cohorts, trained side by side; what is kept of a finished job is ``finish``'s to say."""

    cohorts: Mapping[Any, Sequence[Cohort]]
    finish: Callable[[Any, Sequence[Cohort]], Any]
    threads: int | None = None

    def span(self, job: Any) -> tuple[int, int]:
        """Return the epoch that all cohorts of a job have reached, and the last epoch."""
        own = self.cohorts[job]
        return min(c.epoch for c in own), max(c.protocol.epochs for c in own)

    def state(self, job: Any) -> dict[str, Tensor]:
        """Return everything that a checkpoint must hold."""
        return {name: value for cohort in self.cohorts[job] for name, value in cohort.tensors().items()}

    def restore(self, job: Any, tensors: Mapping[str, Tensor], step: int) -> None:
        """Take up the state that a job had at an epoch."""
        for cohort in self.cohorts[job]:
            cohort.restore(tensors, step)

    def run(self, tick: Callable[[], None]) -> None:
        """Train all cohorts to their ends."""
        every = [cohort for own in self.cohorts.values() for cohort in own]
        fit(every, tick=lambda _: tick(), threads=self.threads)

    def result(self, job: Any) -> Any:
        """Return what is to be stored of a finished job."""
        return self.finish(job, self.cohorts[job])


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _finish(results: Iterable[None]) -> None:
    for _ in results:
        pass
