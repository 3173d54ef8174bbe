"""The training loop: cohorts of independent networks, in chunks of epochs, to the end of their protocols.

Axes: S trials, T recorded epochs. The loop writes no files: the caller may save a cohort's tensors at any tick and
restore them later. The sizes of the chunks do not change the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """Raised when a loss becomes NaN or infinite."""


@dataclass
class Cohort:
    """Independent networks of one shape in training.

    The first axis of all tensors is the trial. ``snapshots`` holds copies of the parameters at the epochs ``kept``,
    and NaN for epochs that are not reached yet.

    Parameters
    ----------
    name : str
        Name of the cohort, in front of the names of its tensors in a checkpoint.
    engine : Engine
        Takes the training steps.
    parameters : dict of str to Tensor
        Initial parameters, which are copied.
    protocol : Protocol
        How to train.
    epoch : int
        Number of epochs that are done.
    moments : dict of str to Tensor, optional
        State of the optimizer; by default the state before the first step.
    history : Tensor of shape (s, t), optional
        Recorded losses; by default NaN.
    kept : tuple of int
        Epochs at which the parameters are copied to ``snapshots``.

    Examples
    --------
    >>> from metriscope.train import StackedEngine
    >>> protocol, x = Protocol(epochs=2, optimizer="sgd"), torch.ones(3, 2)
    >>> engine = StackedEngine(torch.nn.Linear(2, 1), x, torch.ones(3, 1), protocol, seeds=(0,))
    >>> cohort = Cohort("demo", engine, {"weight": torch.zeros(1, 1, 2), "bias": torch.zeros(1, 1)}, protocol)
    >>> cohort.advance(1)
    >>> cohort.epoch, cohort.history
    (1, tensor([[1., nan]], dtype=torch.float64))
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
        """Train for ``epochs`` more epochs and record losses.

        Raises
        ------
        Diverged
            If a loss becomes NaN or infinite.
        """
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
        """Return the number of epochs to the end or to the next kept epoch, at most ``epochs``."""
        stops = [stop for stop in (*self.kept, self.protocol.epochs) if stop > self.epoch]
        return min(epochs, *(stop - self.epoch for stop in stops)) if stops else 0

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that a checkpoint must hold, under names that begin with the cohort's name."""
        parts = {"parameters": self.parameters, "moments": self.moments, "history": {"loss": self.history}}
        parts |= {"snapshots": self.snapshots} if self.kept else {}
        return {f"{self.name}/{part}/{k}": v for part, group in parts.items() for k, v in group.items()}

    def restore(self, tensors: Mapping[str, Tensor], epoch: int) -> None:
        """Restore the state that :meth:`tensors` returned at ``epoch``."""
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
    """Train every cohort to the end of its protocol, in place.

    Cohorts that have done the fewest epochs are trained first.

    Parameters
    ----------
    cohorts : sequence of Cohort
        What to train.
    workers : int, optional
        Number of cohorts to train in parallel; by default the number of cores.
    tick : callable, optional
        Called about every ``pace`` seconds with the lowest epoch that all cohorts have reached, for example to show
        progress or to save a checkpoint.
    pace : float
        Seconds between two calls of ``tick``.
    threads : int, optional
        Number of threads that PyTorch may use in each worker; by default as many as now.

    Raises
    ------
    ValueError
        If there are no cohorts.
    Diverged
        If a loss becomes NaN or infinite.

    Examples
    --------
    >>> from metriscope.train import StackedEngine
    >>> protocol, x = Protocol(epochs=2, optimizer="sgd"), torch.ones(3, 2)
    >>> engine = StackedEngine(torch.nn.Linear(2, 1), x, torch.ones(3, 1), protocol, seeds=(0,))
    >>> cohort = Cohort("demo", engine, {"weight": torch.zeros(1, 1, 2), "bias": torch.zeros(1, 1)}, protocol)
    >>> fit([cohort])
    >>> cohort.epoch
    2
    """
    if not cohorts:
        raise ValueError("training needs at least one cohort, got none")
    rhythm, before = Pace(pace), torch.get_num_threads()
    with ExitStack() as stack:
        # The number of PyTorch's threads is global; it is restored in the end.
        stack.callback(torch.set_num_threads, before)
        for engine in {type(c.engine): c.engine for c in cohorts}.values():
            stack.enter_context(engine.session())
        # A new thread starts with PyTorch's default number of threads, not with that of this thread.
        setting = (threads or before,)
        pool = ThreadPoolExecutor(workers or workers_available(), "train", torch.set_num_threads, setting)
        stack.enter_context(pool)
        while left := [c for c in cohorts if c.epoch < c.protocol.epochs]:
            _advance(left, pool, rhythm, tick)


def _advance(left: Sequence[Cohort], pool: ThreadPoolExecutor, rhythm: Pace, tick: Tick | None) -> None:
    """Train the cohorts that have done the fewest epochs by one chunk."""
    epoch = min(c.epoch for c in left)
    behind = [c for c in left if c.epoch == epoch]
    ahead = [c.epoch - epoch for c in left if c.epoch > epoch]
    chunk = min([rhythm.chunk, *ahead, *(c.until(rhythm.chunk) for c in behind)])
    with rhythm.measured(chunk):
        list(pool.map(lambda cohort: cohort.advance(chunk), behind))
        if tick:
            tick(min(c.epoch for c in left))


@dataclass
class Pace:
    """Chooses the number of epochs between two ticks, so that ticks come about every ``seconds``.

    Parameters
    ----------
    seconds : float
        Wanted time between two ticks.
    chunk : int
        Number of epochs before the next tick.

    Examples
    --------
    >>> pace = Pace(seconds=60.0)
    >>> with pace.measured(epochs=1):
    ...     pass
    >>> pace.chunk
    8
    """

    seconds: float = 2.0
    chunk: int = 1

    @contextmanager
    def measured(self, epochs: int) -> Iterator[None]:
        """Adapt ``chunk`` to the time that the block takes for ``epochs`` epochs."""
        began = time.perf_counter()
        yield
        took = max(time.perf_counter() - began, 1e-6)
        # The chunk grows at most eightfold per call, so it soon recovers from a first call that compilation made slow.
        self.chunk = max(1, min(8 * max(epochs, self.chunk), int(epochs * self.seconds / took)))


@dataclass(frozen=True)
class CohortPass:
    """A :class:`metriscope.runs.Pass` of jobs whose networks are cohorts, trained in parallel.

    Parameters
    ----------
    cohorts : mapping of job to sequence of Cohort
        Networks of each job.
    finish : callable
        Returns the result of a job from the job and its trained cohorts.
    threads : int, optional
        Number of threads that PyTorch may use in each worker; by default as many as now.

    Examples
    --------
    >>> from metriscope.train import StackedEngine
    >>> protocol, x = Protocol(epochs=2, optimizer="sgd"), torch.ones(3, 2)
    >>> engine = StackedEngine(torch.nn.Linear(2, 1), x, torch.ones(3, 1), protocol, seeds=(0,))
    >>> cohort = Cohort("demo", engine, {"weight": torch.zeros(1, 1, 2), "bias": torch.zeros(1, 1)}, protocol)
    >>> CohortPass({"job": [cohort]}, finish=lambda job, cohorts: None).span("job")
    (0, 2)
    """

    cohorts: Mapping[Any, Sequence[Cohort]]
    finish: Callable[[Any, Sequence[Cohort]], Any]
    threads: int | None = None

    def span(self, job: Any) -> tuple[int, int]:
        """Return the epoch that all cohorts of a job have reached, and the last epoch of the training."""
        own = self.cohorts[job]
        return min(c.epoch for c in own), max(c.protocol.epochs for c in own)

    def state(self, job: Any) -> dict[str, Tensor]:
        """Return everything that a checkpoint must hold."""
        return {name: value for cohort in self.cohorts[job] for name, value in cohort.tensors().items()}

    def restore(self, job: Any, tensors: Mapping[str, Tensor], step: int) -> None:
        """Restore the state that a job had at an epoch."""
        for cohort in self.cohorts[job]:
            cohort.restore(tensors, step)

    def run(self, tick: Callable[[], None]) -> None:
        """Train all cohorts to the end."""
        every = [cohort for own in self.cohorts.values() for cohort in own]
        fit(every, tick=lambda _: tick(), threads=self.threads)

    def result(self, job: Any) -> Any:
        """Return the result of a finished job."""
        return self.finish(job, self.cohorts[job])


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
