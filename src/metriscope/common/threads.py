"""Threads: how many there are, and tasks shared between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_parallel", "row_slices", "workers_available"]

T = TypeVar("T")
R = TypeVar("R")


def workers_available() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_parallel(function: Callable[[T], R], tasks: Iterable[T], workers: int | None = None) -> list[R]:
    """Return ``function`` of each task, in order, the tasks shared between threads."""
    tasks = list(tasks)
    workers = min(workers or workers_available(), len(tasks))
    if workers < 2:
        return [function(task) for task in tasks]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, tasks))


def row_slices(count: int, size: int) -> Iterator[slice]:
    """Yield slices of at most ``size`` that cover ``count`` rows.

    >>> list(row_slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
