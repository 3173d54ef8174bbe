"""Progress bars on standard error, for steps of work and for downloads; silent if standard error is not a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

__all__ = ["Bars", "DownloadBar", "late_progress", "no_bar", "progress", "rich_bar"]


def _display(*columns: str | ProgressColumn, transient: bool) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress

    console = Console(stderr=True)
    shown = ("{task.description}", BarColumn(), *columns)
    return Progress(*shown, console=console, disable=not console.is_terminal, transient=transient)


@contextmanager
def progress(description: str, total: int, start: int = 0) -> Iterator[Callable[[float], None]]:
    """Show a progress bar with rate and remaining time while the block runs.

    Parameters
    ----------
    description : str
        Text in front of the bar.
    total : int
        Number of steps at which the bar is full.
    start : int
        Number of steps that are done already.

    Yields
    ------
    Callable[[float], None]
        Function to call with the number of steps done so far.

    Examples
    --------
    >>> with progress("counting", total=3) as show:
    ...     show(3)
    """
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), "{task.fields[rate]}", TimeRemainingColumn())
    with _display(*columns, transient=True) as bar:
        task = bar.add_task(description, total=total, completed=start, rate="")

        def show(done: float) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, rate=f"{speed:,.0f}/s" if speed and speed >= 1 else "")

        yield show


# Seconds after which a bar is shown that nobody asked for.
_PATIENCE = 2.0


@contextmanager
def late_progress(description: str, total: int | None) -> Iterator[Callable[[float], None]]:
    """Show a progress bar if the block takes seconds; nothing if the total is not known.

    Parameters
    ----------
    description : str
        Text in front of the bar.
    total : int or None
        Number of steps at which the bar is full.

    Yields
    ------
    Callable[[float], None]
        Function to call with the number of steps done so far.

    Examples
    --------
    >>> with late_progress("counting", total=3) as show:
    ...     show(3)
    """
    started = monotonic()
    shown: list[Callable[[float], None]] = []
    with ExitStack() as stack:

        def show(done: float) -> None:
            if total is None or monotonic() - started < _PATIENCE:
                return
            if not shown:
                shown.append(stack.enter_context(progress(description, total)))
            shown[0](done)

        yield show


class DownloadBar:
    """A bar that counts bytes, with the attributes that pooch expects of a progress bar."""

    def __init__(self, shown: Progress, task: TaskID) -> None:
        self._shown, self._task = shown, task

    @property
    def total(self) -> float:
        """Number of bytes to come, 0 if unknown."""
        return self._shown.tasks[0].total or 0

    @total.setter
    def total(self, value: float) -> None:
        # Without Content-Length pooch sets 0; None makes the bar indeterminate.
        self._shown.update(self._task, total=value or None)

    def update(self, count: int, /) -> None:
        """Add ``count`` bytes."""
        self._shown.advance(self._task, count)

    def reset(self) -> None:
        """Reset the count to zero."""
        self._shown.update(self._task, completed=0)

    def close(self) -> None:
        """Stop the bar's clock."""
        self._shown.stop_task(self._task)


# Makes the bar for a file of the given name.
Bars = Callable[[str], AbstractContextManager[DownloadBar | None]]


@contextmanager
def no_bar(label: str) -> Iterator[None]:
    """Show nothing."""
    yield


@contextmanager
def rich_bar(label: str) -> Iterator[DownloadBar]:
    """Show a bar of downloaded bytes while the block runs."""
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with _display(DownloadColumn(), TransferSpeedColumn(), transient=False) as shown:
        yield DownloadBar(shown, shown.add_task(label, total=None))
