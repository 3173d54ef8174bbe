"""Progress bars on standard error, for steps of work and for downloads; silent if standard error is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

__all__ = [
    "Bars", "DownloadBar", "Overall", "bars_hidden", "compilation", "late_progress", "no_bar", "overall", "progress",
    "rich_bar",
]  # fmt: skip

_hidden = [False]
_overall: list[Overall] = []


@contextmanager
def bars_hidden(hidden: bool = True) -> Iterator[None]:
    """Show no bars while the block runs, if ``hidden``."""
    _hidden.append(hidden)
    try:
        yield
    finally:
        _hidden.pop()


def _display(*columns: str | ProgressColumn, transient: bool) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress

    console = Console(stderr=True)
    shown = ("{task.description}", BarColumn(), *columns)
    disable = _hidden[-1] or not console.is_terminal
    # What is printed goes above the bar, but only if it goes to a terminal: a file gets its lines itself.
    above = sys.stdout.isatty()
    return Progress(*shown, console=console, disable=disable, transient=transient, redirect_stdout=above)


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
    if _overall:
        with _overall[-1].group(description, total, start) as show:
            yield show
        return
    with overall() as bar, bar.group(description, total, start) as show:
        yield show


class Overall:
    """One bar that shows group after group of work, with the stage that they belong to: what :func:`overall` yields."""

    def __init__(self, shown: Progress) -> None:
        self._shown, self._groups, self._noted = shown, 0, ""
        self._task = shown.add_task("", total=None, visible=False, stage="", rate="")

    def stage(self, text: str) -> None:
        """Show a text in front of all groups from now on, such as "study 2 of 7"."""
        self._shown.update(self._task, stage=text)

    def note(self, text: str) -> None:
        """Show a text in place of the rate, until it is empty."""
        self._noted = text
        self._shown.update(self._task, rate=text)

    @contextmanager
    def group(self, description: str, total: int, start: int = 0) -> Iterator[Callable[[float], None]]:
        """Show the steps of a group of work; a group within another is not shown."""
        self._groups += 1
        outer = self._groups == 1
        if outer:
            self._shown.reset(self._task, total=total, completed=start, description=description, visible=True)

        def show(done: float) -> None:
            if outer:
                speed = self._shown.tasks[0].speed
                rate = f"{speed:,.0f}/s" if speed and speed >= 1 else f"{60 * speed:,.0f}/min" if speed else ""
                self._shown.update(self._task, completed=done, rate=self._noted or rate)

        try:
            yield show
        finally:
            self._groups -= 1
            if outer:
                self._shown.refresh()  # the last step is seen, however fast it was
                self._shown.update(self._task, visible=False)


@contextmanager
def overall() -> Iterator[Overall]:
    """Show all progress while the block runs in one bar: stage, group, share, rate and remaining time of the group."""
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), "{task.fields[rate]}", TimeRemainingColumn(), "{task.fields[stage]}")
    with _display(*columns, transient=True) as shown:
        _overall.append(Overall(shown))
        try:
            yield _overall[-1]
        finally:
            _overall.pop()


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


@contextmanager
def compilation(announce: Callable[[str], None], note: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, announce the first compilation, and note each one while it lasts.

    Parameters
    ----------
    announce : callable
        Called once with a line, when something is compiled for the first time.
    note : callable
        Called with a text when a compilation begins, and with an empty one when it ends.

    Examples
    --------
    >>> from numba import njit
    >>> with compilation(print, lambda text: None):
    ...     njit(lambda x: x + 1)(1), njit(lambda x: x + 2)(1)
    compiling (once)
    (2, 3)
    """
    from numba.core import event

    class Compilations(event.Listener):
        depth, told = 0, False

        def on_start(self, _: object) -> None:
            self.depth += 1
            if not self.told:
                self.told = True
                announce("compiling (once)")
            note("compiling (once)")

        def on_end(self, _: object) -> None:
            self.depth -= 1
            if not self.depth:
                note("")

    with event.install_listener("numba:compile", Compilations()):
        yield


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
