"""Executors: the one protocol by which shards of work are run, here or elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from metriscope.common.errors import Unfinished
from metriscope.runs.address import address
from metriscope.runs.lease import held
from metriscope.runs.run import Run
from metriscope.runs.store import Store

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import Tensor

__all__ = ["Deadline", "Driver", "Executor", "Finished", "InProcess", "Job", "Pass", "Result", "Work", "once"]

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Executor(Protocol):
    """Something that applies a function to items and yields one result for each.

    Results may come in the order of completion, so a result carries what is needed to know its item.
    """

    def map(self, function: Callable[[Item], Outcome], items: Iterable[Item]) -> Iterator[Outcome]:
        """Yield ``function(item)`` for each item; an error of the function reaches the caller."""
        ...


@dataclass(frozen=True)
class InProcess:
    """Run items in this process, in their order, each when its result is asked for.

    >>> list(InProcess().map(len, ["one", "three"]))
    [3, 5]
    """

    def map(self, function: Callable[[Item], Outcome], items: Iterable[Item]) -> Iterator[Outcome]:
        """Yield ``function(item)`` for each item in turn."""
        return map(function, items)


# Seconds between two checkpoints of a pass, and between two looks at runs that another process computes.
CHECKPOINT_SECONDS = "METRISCOPE_CHECKPOINT_SECONDS"
DEFAULT_CHECKPOINT_SECONDS, POLL_SECONDS = 10.0, 1.0
# Saving takes at most this share of the time, whatever a checkpoint costs.
SAVING_SHARE = 0.02

Tick = Callable[[], None]


class Job(Protocol):
    """What is asked: a frozen, hashable dataclass of words and numbers."""

    @property
    def study(self) -> str:
        """The study that asks, which is part of the address."""


@dataclass(frozen=True)
class Result:
    """What came of a job: tensors, tables, and a small record of words and numbers."""

    tables: Mapping[str, DataFrame] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)


class Pass(Protocol):
    """Jobs that are computed side by side. No job's result depends on which others are there."""

    def span(self, job: Any) -> tuple[int, int]:
        """Return the step that a job has reached, and its last step."""

    def state(self, job: Any) -> dict[str, Tensor]:
        """Return everything a checkpoint must hold; names, shapes and dtypes are the same at every step."""

    def restore(self, job: Any, tensors: Mapping[str, Tensor], step: int) -> None:
        """Take up the state that a job had at a step."""

    def run(self, tick: Tick) -> None:
        """Compute every job to its end; call ``tick`` every few seconds, whenever all states are consistent."""

    def result(self, job: Any) -> Result:
        """Return what is to be stored of a finished job."""


@dataclass(frozen=True)
class Work:
    """How jobs are computed: ``begin`` makes a pass of at most ``width`` jobs that ``share`` maps to the same key."""

    begin: Callable[[Sequence[Any]], Pass]
    share: Callable[[Any], Hashable] = address
    width: int = 1

    def shards(self, jobs: Iterable[Any]) -> list[list[Any]]:
        """Return jobs in lists that can each share a pass, in the order in which they were given."""
        groups: dict[Hashable, list[Any]] = {}
        for job in jobs:
            groups.setdefault(self.share(job), []).append(job)
        return [some[i : i + self.width] for some in groups.values() for i in range(0, len(some), self.width)]


@dataclass
class _Once:
    """A pass of jobs that are a single step each, computed in their order."""

    compute: Callable[[Any], Result]
    jobs: Sequence[Any]
    found: dict[Any, Result] = field(default_factory=dict)

    def span(self, job: Any) -> tuple[int, int]:
        return int(job in self.found), 1

    def state(self, job: Any) -> dict[str, Tensor]:
        return {}

    def restore(self, job: Any, tensors: Mapping[str, Tensor], step: int) -> None:
        raise ValueError("a job of a single step has no checkpoint")

    def run(self, tick: Tick) -> None:
        for job in self.jobs:
            self.found[job] = self.compute(job)
            tick()

    def result(self, job: Any) -> Result:
        return self.found[job]


def once(compute: Callable[[Any], Result]) -> Work:
    """Return the work of jobs that are computed in one go, such as measurements; each is stored before the next begins.

    >>> once(len).shards(["one", "two"])
    [['one'], ['two']]
    """
    return Work(partial(_Once, compute), share=id)


@dataclass(frozen=True)
class Deadline:
    """The moment at which a call has to stop; None: never."""

    budget: float | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return float("inf") if self.budget is None else self.began + self.budget - time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.left <= 0


class Finished(dict[Any, Run]):
    """The finished runs by job; asking for one that is not finished raises :class:`Unfinished`."""

    def __init__(self, runs: Mapping[Any, Run], asked: int) -> None:
        super().__init__(runs)
        self.asked = asked

    def __missing__(self, job: Any) -> Run:
        raise Unfinished(f"{len(self)} of {self.asked} runs are finished")


@dataclass(frozen=True)
class Driver:
    """Performs jobs on a store, with an executor, until a deadline."""

    store: Store
    announce: Callable[[str], None] = lambda _: None
    deadline: Deadline = field(default_factory=Deadline)
    executor: Executor = field(default_factory=InProcess)
    used: dict[str, Run] = field(default_factory=dict)

    def perform(self, jobs: Iterable[Any], work: Work, label: str) -> Finished:
        """Return the finished runs of the jobs, after computing what is not in the store.

        With a budget some may be missing; what was begun is kept as a checkpoint, and the same call goes on later.
        """
        asked = list(dict.fromkeys(jobs))
        found = {job: run for job in asked if (run := self.store.get(_checked(job))) is not None}
        kept = len(found)
        if kept < len(asked):
            found |= self._compute([job for job in asked if job not in found], work, label)
        self.used.update({run.address: run for run in found.values()})
        self.announce(f"{label} (runs: {len(found) - kept} computed, {kept} from the store)")
        return Finished({job: found[job] for job in asked if job in found}, len(asked))

    def _compute(self, missing: list[Any], work: Work, label: str) -> dict[Any, Run]:
        from metriscope.common.progress import progress  # PyTorch, which only those who compute have to wait for

        found: dict[Any, Run] = {}
        with progress(label, total=len(missing)) as bar:

            def show(share: float) -> None:
                bar(len(found) + share)

            while missing and not self.deadline.over:
                before = len(found)
                shards = work.shards(missing)
                for runs in self.executor.map(partial(self._shard, work=work, show=show), shards):
                    found.update(runs)
                missing = [job for job in missing if job not in found]
                found.update({job: run for job in missing if (run := self.store.get(job)) is not None})
                missing = [job for job in missing if job not in found]
                if missing and len(found) == before and not self.deadline.over:
                    time.sleep(min(POLL_SECONDS, self.deadline.left))  # other processes hold all that is left
        return found

    def _shard(self, jobs: list[Any], work: Work, show: Callable[[float], None]) -> dict[Any, Run]:
        """Compute those jobs of a shard that no other process computes."""
        if self.deadline.over:
            return {}
        by_address = {address(job): job for job in jobs}
        with held(self.store.root, list(by_address)) as leased:
            mine = [by_address[key] for key in leased]
            # Another process may have finished one between the look into the store and the lease.
            done = {job: run for job in mine if (run := self.store.get(job)) is not None}
            mine = [job for job in mine if job not in done]
            if not mine:
                return done
            running = _Running(self.store, work, mine, self.deadline, show)
            return done | running.finish()


class _OutOfTime(Exception):
    """Raised inside a pass when the budget is used up."""


@dataclass
class _Running:
    """One pass on its way: resumed from checkpoints, saved now and then, stored at the end."""

    store: Store
    work: Work
    jobs: list[Any]
    deadline: Deadline
    show: Callable[[float], None]
    saved: float = field(default_factory=time.monotonic)
    pause: float = 0.0

    def finish(self) -> dict[Any, Run]:
        """Compute the pass and return its runs; those that the budget cut short are saved and left out."""
        current = self._resumed()
        try:
            current.run(lambda: self._tick(current))
        except _OutOfTime:
            self._save(current)
        found = {}
        for job in self.jobs:
            step, last = current.span(job)
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
        self.show(sum(step / max(last, 1) for step, last in spans))
        unfinished = any(step < last for step, last in spans)
        if unfinished and self.deadline.over:
            raise _OutOfTime
        least = float(os.environ.get(CHECKPOINT_SECONDS, DEFAULT_CHECKPOINT_SECONDS))
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


def _checked(job: Any) -> Any:
    if not isinstance(getattr(job, "study", None), str) or not job.study:
        raise ValueError(f"a job names its study in the field 'study', which {type(job).__name__} does not")
    return job
