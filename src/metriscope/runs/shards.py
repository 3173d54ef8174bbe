"""Shards: the jobs of one pass with all that computing them needs, and the executors that compute shards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from metriscope.runs.address import address
from metriscope.runs.jobs import Pass, Work
from metriscope.runs.run import Run
from metriscope.runs.store import Store

__all__ = ["Deadline", "Executor", "InProcess", "Running", "Shard", "Show", "checkpoint_seconds", "stored"]

# Seconds between two checkpoints of a pass.
CHECKPOINT_SECONDS = "METRISCOPE_CHECKPOINT_SECONDS"
DEFAULT_CHECKPOINT_SECONDS = 10.0
# Saving checkpoints takes at most this fraction of the time.
SAVING_SHARE = 0.02


def checkpoint_seconds() -> float:
    """Return the seconds between two checkpoints, which the environment can set; raise if it sets no valid number."""
    given = os.environ.get(CHECKPOINT_SECONDS, "")
    try:
        seconds = float(given or DEFAULT_CHECKPOINT_SECONDS)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{CHECKPOINT_SECONDS} must be a number of seconds, at least 0, not {given!r}")
    return seconds


# Called with the share of each job that is done.
Show = Callable[[Mapping[Any, float]], None]


@dataclass(frozen=True)
class Deadline:
    """The moment at which computing has to stop.

    Parameters
    ----------
    budget : float, optional
        Seconds from ``began`` on; without it there is no end.
    began : float
        Start, in seconds of :func:`time.monotonic`; by default now.

    Examples
    --------
    >>> Deadline().left, Deadline(budget=0.0).over
    (inf, True)
    """

    budget: float | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return float("inf") if self.budget is None else self.began + self.budget - time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.left <= 0


def stored(store: Store, jobs: Iterable[Any]) -> dict[Any, Run]:
    """Return the runs of those jobs that the store holds."""
    return {job: run for job in jobs if (run := store.get(job)) is not None}


@dataclass(frozen=True)
class Shard:
    """Jobs that one pass computes, how, and where their runs are kept.

    Parameters
    ----------
    jobs : list of jobs
        What to compute.
    work : Work
        How.
    store : Store
        Where runs, checkpoints and leases are kept.
    deadline : Deadline
        When to stop.
    show : callable
        Called now and then with the share of each job that is done.

    Examples
    --------
    >>> from metriscope.runs.jobs import once
    >>> Shard(["one", "two"], once(len), Store("runs")).deadline.over
    False
    """

    jobs: list[Any]
    work: Work
    store: Store
    deadline: Deadline = field(default_factory=Deadline)
    show: Show = lambda shares: None

    @contextmanager
    def claimed(self) -> Iterator[tuple[dict[Any, Run], list[Any]]]:
        """Lease the jobs that no other process computes; yield the runs stored meanwhile, and the jobs to compute."""
        if self.deadline.over:
            yield {}, []
            return
        by_address = {address(job): job for job in self.jobs}
        with self.store.leased(list(by_address)) as leased:
            mine = [by_address[key] for key in leased]
            # Another process may have finished one before it was leased here.
            done = stored(self.store, mine)
            yield done, [job for job in mine if job not in done]

    def here(self) -> dict[Any, Run]:
        """Compute the jobs in this process, and return the runs that are finished."""
        with self.claimed() as (done, mine):
            running = Running(self.store, self.work, mine, lambda: self.deadline, self.show)
            return done | running.finish() if mine else done


class Executor(Protocol):
    """Computes shards, here or elsewhere."""

    def compute(self, shards: Iterable[Shard]) -> Iterator[Mapping[Any, Run]]:
        """Yield the finished runs of each shard, perhaps in the order of completion; errors of a job are raised here.

        A shard whose deadline passes yields what is finished, and leaves checkpoints of the rest in its store.
        """
        ...


@dataclass(frozen=True)
class InProcess:
    """Executor that computes shards in this process, in their order, each when its runs are requested.

    Examples
    --------
    >>> list(InProcess().compute([]))
    []
    """

    def compute(self, shards: Iterable[Shard]) -> Iterator[Mapping[Any, Run]]:
        """Yield the finished runs of each shard, in order."""
        return (shard.here() for shard in shards)


class _OutOfTime(Exception):
    """Raised inside a pass when the deadline has passed."""


@dataclass
class Running:
    """A pass in progress: resumed from checkpoints, saved at intervals, stored at the end.

    ``due`` is called when the pass has begun, so that the time to begin does not count toward the slice of time.
    """

    store: Store
    work: Work
    jobs: list[Any]
    due: Callable[[], Deadline]
    show: Show
    saved: float = field(default_factory=time.monotonic)
    pause: float = 0.0
    deadline: Deadline = field(init=False)
    spans: dict[Any, tuple[int, int]] = field(init=False)

    def finish(self) -> dict[Any, Run]:
        """Compute the pass and return its runs; unfinished ones are saved as checkpoints."""
        current = self._resumed()
        self.deadline = self.due()
        try:
            current.run(lambda: self._tick(current))
        except _OutOfTime:
            self._save(current)
        found = {}
        self.spans = {job: current.span(job) for job in self.jobs}
        for job, (step, last) in self.spans.items():
            if step == last:
                result = current.result(job)
                record = {"study": job.study, "steps": last, **result.record}
                found[job] = self.store.put(job, result.tensors, record, result.tables)
        return found

    def _resumed(self) -> Pass:
        current = self.work.begin(self.jobs)
        for job in self.jobs:
            saved = self.store.checkpoint(job).load(current.span(job)[1], current.state(job))
            if saved is not None:
                current.restore(job, *saved)
        return current

    def _tick(self, current: Pass) -> None:
        spans = [current.span(job) for job in self.jobs]
        self.show({job: step / max(last, 1) for job, (step, last) in zip(self.jobs, spans, strict=True)})
        unfinished = any(step < last for step, last in spans)
        if unfinished and self.deadline.over:
            raise _OutOfTime
        least = checkpoint_seconds()
        if unfinished and time.monotonic() - self.saved >= max(least, self.pause if least else 0.0):
            began = time.monotonic()
            self._save(current)
            self.saved = time.monotonic()
            self.pause = (self.saved - began) / SAVING_SHARE

    def _save(self, current: Pass) -> None:
        for job in self.jobs:
            step, last = current.span(job)
            if step and last > 1:
                self.store.checkpoint(job).save(current.state(job), step, last)
