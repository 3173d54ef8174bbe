"""A progress bar with rate and time left, on standard error, silent where nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Bar", "Bars", "no_bar", "progress", "rich_bar"]


@contextmanager
def progress(description: str, total: int, start: int = 0) -> Iterator[Callable[[float], None]]:
    """Show a bar of ``total`` steps while the block runs; call the given function with the steps done.

    >>> with progress("counting", total=3) as show:
    ...     show(3)
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    rate = TextColumn("{task.fields[rate]}")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        rate,
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(description, total=total, completed=start, rate="")

        def show(done: float) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, rate=f"{speed:,.0f}/s" if speed and speed >= 1 else "")

        yield show


class Bar(Protocol):
    """What pooch asks of a progress bar."""

    total: float

    def update(self, count: int, /) -> None:
        """Add ``count`` bytes."""

    def reset(self) -> None:
        """Begin again at nothing."""

    def close(self) -> None:
        """Draw no more."""


Bars = Callable[[str], AbstractContextManager[Bar | None]]


@contextmanager
def no_bar(label: str) -> Iterator[None]:
    """Show nothing."""
    yield


@contextmanager
def rich_bar(label: str) -> Iterator[Bar]:
    """Show a bar on standard error while the block runs, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:
        yield _RichBar(shown, shown.add_task(label, total=None))


class _RichBar:
    """One line of rich's progress."""

    def __init__(self, shown: Progress, task: TaskID) -> None:
        self._shown, self._task = shown, task

    @property
    def total(self) -> float:
        return self._shown.tasks[0].total or 0

    @total.setter
    def total(self, value: float) -> None:
        # A mirror that does not say how much it sends says 0: the bar swings on.
        self._shown.update(self._task, total=value or None)

    def update(self, count: int, /) -> None:
        self._shown.advance(self._task, count)

    def reset(self) -> None:
        self._shown.update(self._task, completed=0)

    def close(self) -> None:
        self._shown.stop_task(self._task)
