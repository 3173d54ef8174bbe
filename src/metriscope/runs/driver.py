"""The driver: computes the jobs that are not in the store yet, with checkpoints, a time budget and an executor.

A :class:`~metriscope.runs.jobs.Job` says what to compute, a :class:`~metriscope.runs.jobs.Work` how: jobs are grouped
into shards, and each shard is computed by one :class:`~metriscope.runs.jobs.Pass`. Several drivers, even in different
processes, can share a store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from metriscope.common.errors import Unfinished
from metriscope.runs.address import address
from metriscope.runs.jobs import Executor, InProcess, Pass, Work
from metriscope.runs.run import Run
from metriscope.runs.store import Store

if TYPE_CHECKING:
    from metriscope.runs.records import Record

__all__ = ["Deadline", "Driver", "Finished"]

# Seconds between two checkpoints of a pass, and between two checks for runs that another process computes.
CHECKPOINT_SECONDS = "METRISCOPE_CHECKPOINT_SECONDS"
DEFAULT_CHECKPOINT_SECONDS, POLL_SECONDS = 10.0, 1.0
# Saving checkpoints takes at most this fraction of the time.
SAVING_SHARE = 0.02


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


class Finished(dict[Any, Run]):
    """The finished runs by job; looking up an unfinished job raises :class:`Unfinished`.

    Parameters
    ----------
    runs : mapping of job to Run
        Finished runs.
    asked : int
        Number of requested runs.

    Examples
    --------
    >>> Finished({}, asked=3)["a job"]
    Traceback (most recent call last):
    metriscope.common.errors.Unfinished: 0 of 3 runs are finished
    """

    def __init__(self, runs: Mapping[Any, Run], asked: int) -> None:
        super().__init__(runs)
        self.asked = asked

    def __missing__(self, job: Any) -> Run:
        raise Unfinished(f"{len(self)} of {self.asked} runs are finished")


@dataclass(frozen=True)
class Driver:
    """Computes jobs and keeps their runs in a store.

    Parameters
    ----------
    store : Store
        Where runs are kept.
    announce : callable
        Called with one line of text after each call of :meth:`perform`.
    deadline : Deadline
        When to stop.
    executor : Executor
        Runs the shards of the work.
    used : dict of str to Run
        Runs that were used so far, by address; filled by :meth:`perform`.
    shown : dict of str to Record
        Records that were used so far, by address; filled by :meth:`recorded`.

    Examples
    --------
    >>> import tempfile
    >>> from dataclasses import make_dataclass
    >>> from metriscope.runs.jobs import Result, once
    >>> Square = make_dataclass("Square", [("number", int), ("study", str, "demo")], frozen=True)
    >>> work = once(lambda job: Result(record={"square": job.number**2}))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = Driver(Store(folder), announce=print).perform([Square(2), Square(3)], work, "squares")
    ...     runs[Square(3)].record["square"]
    squares (runs: 2 computed, 0 from the store)
    9
    """

    store: Store
    announce: Callable[[str], None] = lambda _: None
    deadline: Deadline = field(default_factory=Deadline)
    executor: Executor = field(default_factory=InProcess)
    used: dict[str, Run] = field(default_factory=dict)
    shown: dict[str, Record] = field(default_factory=dict)

    def perform(self, jobs: Iterable[Any], work: Work, label: str) -> Finished:
        """Return the finished runs of the jobs, after computing those that are not in the store.

        If the deadline passes, some may be missing; what was begun is kept as a checkpoint, and a later call with the
        same jobs continues from there.
        """
        asked = list(dict.fromkeys(jobs))
        found = self._stored(_checked(job) for job in asked)
        kept = len(found)
        if kept < len(asked):
            found |= self._compute([job for job in asked if job not in found], work, label)
        self.used.update({run.address: run for run in found.values()})
        self.announce(f"{label} (runs: {len(found) - kept} computed, {kept} from the store)")
        return Finished({job: found[job] for job in asked if job in found}, len(asked))

    def recorded(self, jobs: Iterable[Any], ignored: Collection[str] = ()) -> dict[Any, Record]:
        """Return the records of these jobs that come with the package; nothing is computed.

        Use it for experiments that are too long for a profile: a job without a record is missing. A job may be found
        by a record that differs from it in the ``ignored`` fields, such as the digest of data that are not here.
        """
        from metriscope.runs.records import find, find_similar

        found: dict[Any, Record] = {}
        for job in jobs:
            study = _checked(job).study
            record = find(study, address(job)) or (find_similar(study, job, ignored) if ignored else None)
            if record is not None:
                found[job] = record
        self.shown.update({address(job): record for job, record in found.items()})
        return found

    def _stored(self, jobs: Iterable[Any]) -> dict[Any, Run]:
        return {job: run for job in jobs if (run := self.store.get(job)) is not None}

    def _compute(self, missing: list[Any], work: Work, label: str) -> dict[Any, Run]:
        from metriscope.common.progress import progress  # only if there is something to compute

        found: dict[Any, Run] = {}
        with progress(label, total=len(missing)) as bar:

            def show(share: float) -> None:
                bar(len(found) + share)

            while missing and not self.deadline.over:
                before = len(found)
                shards = work.shards(missing)
                for runs in self.executor.map(partial(self._shard, work=work, show=show), shards):
                    found.update(runs)
                found |= self._stored(job for job in missing if job not in found)
                missing = [job for job in missing if job not in found]
                if missing and len(found) == before and not self.deadline.over:
                    time.sleep(min(POLL_SECONDS, self.deadline.left))  # other processes compute all that is left
        return found

    def _shard(self, jobs: list[Any], work: Work, show: Callable[[float], None]) -> dict[Any, Run]:
        """Compute those jobs of a shard that no other process computes."""
        if self.deadline.over:
            return {}
        by_address = {address(job): job for job in jobs}
        with self.store.leased(list(by_address)) as leased:
            mine = [by_address[key] for key in leased]
            # Another process may have finished one before it was leased here.
            done = self._stored(mine)
            mine = [job for job in mine if job not in done]
            return done | _Running(self.store, work, mine, self.deadline, show).finish() if mine else done


class _OutOfTime(Exception):
    """Raised inside a pass when the deadline has passed."""


@dataclass
class _Running:
    """A pass in progress: resumed from checkpoints, saved now and then, stored at the end."""

    store: Store
    work: Work
    jobs: list[Any]
    deadline: Deadline
    show: Callable[[float], None]
    saved: float = field(default_factory=time.monotonic)
    pause: float = 0.0

    def finish(self) -> dict[Any, Run]:
        """Compute the pass and return its runs; unfinished ones are saved as checkpoints."""
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
