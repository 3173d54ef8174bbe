"""The metriscope command: parse, call once, return a status. Everything heavy loads after parsing."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from metriscope import __version__
from metriscope.commands.network_commands import compare, demo, inspect
from metriscope.commands.output import announce, asked, cut, deliver, in_manner, tell
from metriscope.commands.parsing import application, closing, everywhere, parsed
from metriscope.commands.study_commands import reproduce, reproduce_with
from metriscope.common.errors import reason, shown, unknown

__all__ = ["main"]


def runs(
    action: Annotated[Positional[Literal["list", "show", "verify", "repair"]], arg(metavar="list|show|verify|repair")],
    address: Annotated[Positional[str], arg(metavar="[ADDRESS]")] = "",
    /,
    *,
    out: Path = Path("out"),
    recompute: Annotated[int, arg(metavar="N")] = 0,
) -> int:
    """List the runs of a store, show one, verify every file of it, or move what is damaged aside.

    Args:
        action: What to do.
        address: For show: the run's address or the beginning of it.
        out: The folder that holds runs/.
        recompute: For verify: compute this many random runs again, compare them, and write recomputed.json.
    """
    from metriscope.report.numbers import plural
    from metriscope.runs import Store
    from metriscope.runs.run import contents, describe, table

    store = Store(out / "runs")
    if not store.root.is_dir():
        raise ValueError(f"there is no store at {store.root}")
    if action == "show":
        if not address:
            raise ValueError("runs show needs an address, or the beginning of one: runs list prints them")
        run = store.find(address)
        deliver(describe(run), contents(run))
        return 0
    if action == "list":
        found = store.runs()
        deliver("\n".join(cut(table(found))), [{"address": run.address, "spec": run.spec} for run in found])
        return 0
    problems = store.verify()
    left, moved = (store.repair(), f"; moved to {store.root / 'damaged'}") if action == "repair" else (problems, "")
    count, mark = len(store.runs()), store.fingerprint()
    said = f"{plural(len(left), 'problem') if left else 'all intact'}{moved if problems else ''}"
    lines = [*map(str, problems), f"{plural(count, 'run')}, {said}", f"fingerprint {mark}"]
    result = {"runs": count, "problems": lines[:-2], "left": [*map(str, left)], "fingerprint": mark}
    differing = []
    if recompute:
        from metriscope.studies.recomputing import recompute as compare_again

        differing = compare_again(store, recompute, announce, out / "recomputed.json")
        result["different"] = [one.address for one in differing]
    deliver("\n".join(lines), result)
    return 1 if differing or left else 0


def data(
    action: Annotated[Positional[Literal["list", "fetch"]], arg(metavar="list|fetch")],
    name: Annotated[Positional[str], arg(metavar="[NAME]")] = "",
    /,
    *,
    data_dir: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: none)")] = None,
) -> int:
    """List the data sets and where each is, or fetch one into the user's cache.

    Args:
        action: What to do.
        name: For fetch: the data set.
        data_dir: Folder to look in first, before METRISCOPE_DATA and the cache.
    """
    from metriscope.common.progress import rich_bar
    from metriscope.data import fetch
    from metriscope.data.loader import lines, rows

    if action == "list":
        deliver("\n".join(cut(lines(data_dir))), rows(data_dir))
        return 0
    if not name:
        raise ValueError("data fetch needs the name of a data set: data list prints them")
    paths = list(fetch(name, data_dir, rich_bar).values())
    text = "\n".join(map(str, paths)) or f"{name} is embedded: there is nothing to fetch"
    deliver(text, {"name": name, "files": paths})
    return 0


def bench(name: Annotated[Positional[str], arg(metavar="[NAME]")] = "", /) -> int:
    """Run one benchmark, or all, and print its ratios against its peers.

    Args:
        name: Which benchmark; all of them if none is given.
    """
    from metriscope.benching import run_benchmarks

    printed = run_benchmarks(name, tell, kept=asked().json)
    if asked().json:
        deliver("", printed)
    return 0


WELCOME = """\
Metriscope measures what a neural network measures: it reads units as distances and activation patterns as geometry.

Three things to try:
  metriscope demo                                 train a small CNN and write the page about it (seconds)
  metriscope inspect models.py:net --data x.npy   write the same page about a network of your own
  metriscope reproduce                            re-test the published claims (minutes)

metriscope --help lists all commands."""
COMMANDS = (reproduce, inspect, compare, runs, data, bench, demo)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; a user's mistake gives one sentence on standard error; --debug adds the traceback."""
    given = sys.argv[1:] if arguments is None else arguments
    manner, debug, words = everywhere(given)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        with in_manner(replace(manner, command=shlex.join(["metriscope", *given]))):
            return _performed(words)
    except BrokenPipeError:
        # Whoever read our output has seen enough; what is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("metriscope: stopped; run the same command to continue", file=sys.stderr)
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        if debug:
            traceback.print_exception(error)
        print(f"metriscope: {shown(_sentence(error))}", file=sys.stderr)
        return 2


def _performed(words: list[str]) -> int:
    """Parse the words and call what they ask for."""
    if words in ([], ["--version"]):
        text = f"metriscope {__version__}"
        deliver(text if words else WELCOME, {"version": __version__})
        return 0
    names = [command.__name__ for command in COMMANDS]
    named = words[0] if words[0] in names else ""
    if not named and not words[0].startswith("-"):
        raise ValueError(unknown("command", words[0], names))
    try:
        if named == "reproduce":
            return reproduce_with(words[1:])
        app = application(COMMANDS)
        about = f"Metriscope {__version__} measures what a neural network measures."
        call = parsed(
            lambda given: app.cli(prog="metriscope", description=about, args=given), words, named, len(named[:1])
        )
    except SystemExit as stop:
        if not stop.code and {"-h", "--help"} & set(words):
            study = next((word for word in words[1:2] if named == "reproduce" and not word.startswith("-")), "")
            print(f"\n{closing(named, study)}")
        raise
    return int(call())


def _sentence(error: Exception) -> str:
    """Return the error message; for an unexpected error, add its type and location."""
    if isinstance(error, OSError) and error.errno and error.filename:
        return f"cannot use {error.filename}: {reason(error)}"
    places = traceback.extract_tb(error.__traceback__)
    package = Path(__file__).parent
    own = [place for place in places if Path(place.filename).is_relative_to(package)]
    if isinstance(error, OSError) or not places or not own or own[-1] is places[-1]:
        return str(error)
    said = " ".join(str(error).split())
    at = f"{Path(own[-1].filename).relative_to(package.parent)}:{own[-1].lineno}"
    return f"{said} ({type(error).__name__} below {at}, unexpected: --debug shows the traceback)"
