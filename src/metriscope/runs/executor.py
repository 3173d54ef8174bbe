"""Executors: the one protocol by which shards of work are run, here or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["Executor", "InProcess"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executor(Protocol):
    """Something that applies a function to items and yields one result for each.

    Results may come in the order of completion, so a result carries what is needed to know its item.
    """

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` for each item; an error of the function reaches the caller."""
        ...


@dataclass(frozen=True)
class InProcess:
    """Run items in this process, in their order, each when its result is asked for.

    >>> list(InProcess().map(len, ["one", "three"]))
    [3, 5]
    """

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` for each item in turn."""
        return map(function, items)
