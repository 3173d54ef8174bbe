"""A progress bar with rate and time left, on standard error, silent where nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]


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
