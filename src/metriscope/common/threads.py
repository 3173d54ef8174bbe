"""Threads: how many this process may use, spreading tasks over them, and restricting BLAS to one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

from threadpoolctl import threadpool_limits

__all__ = ["in_parallel", "one_blas_thread", "row_slices", "workers_available"]

T = TypeVar("T")
R = TypeVar("R")


def workers_available() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
