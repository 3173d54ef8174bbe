"""What to compute, and how: jobs, and the work that computes them together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from metriscope.runs.address import address

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import Tensor

__all__ = ["Job", "Pass", "Result", "Tick", "Work", "once"]

Tick = Callable[[], None]


class Job(Protocol):
    """What to compute: a frozen, hashable dataclass of words and numbers."""

    @property
    def study(self) -> str:
        """The study that the job belongs to, which is part of the address."""


@dataclass(frozen=True)
class Result:
    """What a job computed.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        Tables by name.
    tensors : mapping of str to Tensor
        Tensors by name.
    record : mapping
        A few words and numbers.

    Examples
    --------
    >>> Result(record={"loss": 0.5}).tables
    {}
    """

    tables: Mapping[str, DataFrame] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)


class Pass(Protocol):
    """Jobs that are computed together. The result of a job does not depend on the others in its pass."""

    def span(self, job: Any) -> tuple[int, int]:
        """Return the step that a job has reached, and its last step."""

    def state(self, job: Any) -> dict[str, Tensor]:
        """Return the tensors for a checkpoint; names, shapes and dtypes are the same at every step."""

    def restore(self, job: Any, tensors: Mapping[str, Tensor], step: int) -> None:
        """Continue from the state that a job had at a step."""

    def run(self, tick: Tick) -> None:
        """Compute every job to its end; call ``tick`` every few seconds, when all states are consistent."""

    def result(self, job: Any) -> Result:
        """Return the result of a finished job."""


@dataclass(frozen=True)
class Work:
    """How jobs are computed.

    Parameters
    ----------
    begin : callable
        Returns a :class:`Pass` for a list of jobs.
    share : callable
        Returns a key for a job; only jobs with the same key can be in one pass.
    width : int or callable
        Largest number of jobs in one pass; a callable returns it for a job.

    Examples
    --------
    >>> work = Work(begin=lambda jobs: ..., share=len, width=2)
    >>> work.shards(["a", "bc", "d", "e"])
    [['a', 'd'], ['e'], ['bc']]
    """

    begin: Callable[[Sequence[Any]], Pass]
    share: Callable[[Any], Hashable] = address
    width: int | Callable[[Any], int] = 1

    def shards(self, jobs: Iterable[Any]) -> list[list[Any]]:
        """Return lists of jobs, each for one pass, in the order in which the jobs were given."""
        groups: dict[Hashable, list[Any]] = {}
        for job in jobs:
            groups.setdefault(self.share(job), []).append(job)
        found = []
        for some in groups.values():
            width = self.width(some[0]) if callable(self.width) else self.width
            found += [some[i : i + width] for i in range(0, len(some), width)]
        return found


@dataclass
class Once:
    """A pass of jobs of a single step each, computed in order: what :func:`once` begins."""

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
    """Return the work of jobs of a single step, such as measurements; each is stored before the next begins.

    Parameters
    ----------
    compute : callable
        Returns the :class:`Result` of a job.

    Returns
    -------
    Work
        Work with one job per pass.

    Examples
    --------
    >>> once(len).shards(["one", "two"])
    [['one'], ['two']]
    """
    return Work(partial(Once, compute), share=id)
