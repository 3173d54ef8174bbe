"""The driver: computes the jobs that are not in the store yet, with checkpoints, a time budget and an executor.

A :class:`~metriscope.runs.jobs.Job` says what to compute, a :class:`~metriscope.runs.jobs.Work` how: jobs are grouped
into shards, and each shard is computed by one :class:`~metriscope.runs.jobs.Pass`. Several drivers, even in different
processes, can share a store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from metriscope.common.errors import Unfinished
from metriscope.runs.address import address
from metriscope.runs.jobs import Work
from metriscope.runs.run import Run
from metriscope.runs.shards import Deadline, Executor, InProcess, Shard, checkpoint_seconds, stored
from metriscope.runs.store import Store

if TYPE_CHECKING:
    from metriscope.runs.records import Record

__all__ = ["Driver", "Finished"]

# Seconds between two checks for runs that another process computes.
POLL_SECONDS = 1.0


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
        checkpoint_seconds()  # refused before anything is computed
        asked = list(dict.fromkeys(jobs))
        found = self._stored(_checked(job) for job in asked)
        kept = len(found)
        if kept < len(asked):
            found |= self._compute([job for job in asked if job not in found], work, label)
        self.used.update({run.address: run for run in found.values()})
        if asked:
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
        return stored(self.store, jobs)

    def _compute(self, missing: list[Any], work: Work, label: str) -> dict[Any, Run]:
        from metriscope.common.progress import progress  # only if there is something to compute

        found: dict[Any, Run] = {}
        shares: dict[Any, float] = {}
        with progress(label, total=len(missing)) as bar:

            def show(reached: Mapping[Any, float]) -> None:
                shares.update(reached)
                bar(len(found) + sum(share for job, share in shares.items() if job not in found))

            while missing and not self.deadline.over:
                before = len(found)
                shards = [Shard(jobs, work, self.store, self.deadline, show) for jobs in work.shards(missing)]
                for runs in self.executor.compute(shards):
                    found.update(runs)
                    show({})
                found |= self._stored(job for job in missing if job not in found)
                missing = [job for job in missing if job not in found]
                if missing and len(found) == before and not self.deadline.over:
                    time.sleep(min(POLL_SECONDS, self.deadline.left))  # other processes compute all that is left
        return found


def _checked(job: Any) -> Any:
    if not isinstance(getattr(job, "study", None), str) or not job.study:
        raise ValueError(f"a job names its study in the field 'study', which {type(job).__name__} does not")
    return job
