"""Threads: how many this process may use, spreading tasks over them, and restricting BLAS to one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from threadpoolctl import threadpool_limits

__all__ = ["at_most_threads", "in_parallel", "one_blas_thread", "row_slices", "workers_available"]

T = TypeVar("T")
R = TypeVar("R")
# The limits of the blocks that this process is in; seen by all of its threads.
_LIMITS: list[int] = []


def workers_available() -> int:
    """Return how many cores this process may use."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([found, *_LIMITS])


@contextmanager
def at_most_threads(count: int) -> Iterator[None]:
    """Use at most ``count`` threads inside the block: a job on a shared machine has only the cores it was given.

    >>> with at_most_threads(1):
    ...     workers_available()
    1
    """
    import torch

    before = torch.get_num_threads()
    _LIMITS.append(count)
    torch.set_num_threads(min(before, count))
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _LIMITS.pop()


def in_parallel(function: Callable[[T], R], tasks: Iterable[T], workers: int | None = None) -> list[R]:
    """Return ``function(task)`` for each task, in order, computed on several threads."""
    tasks = list(tasks)
    workers = min(workers or workers_available(), len(tasks))
    if workers < 2:
        return [function(task) for task in tasks]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, tasks))


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS uses one thread, so that the order of summation, and so the rounding, is fixed."""
    return threadpool_limits(limits=1, user_api="blas")


def row_slices(count: int, size: int) -> Iterator[slice]:
    """Yield slices of at most ``size`` rows that together cover ``count`` rows.

    >>> list(row_slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
