"""The metriscope command: parse, call once, return a status. Everything heavy loads after parsing."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional, arg

from metriscope import __version__

__all__ = ["main"]

Whole = Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: the profile's)")]


def reproduce(
    studies: Annotated[Positional[tuple[str, ...]], arg(metavar="[STUDY ...]")] = (),
    /,
    *,
    profile: Literal["quick", "paper"] = "quick",
    out: Path = Path("out"),
    dims: Annotated[tuple[int, ...], arg(help_behavior_hint="(default: the profile's)")] = (),
    trials: Whole = None,
    epochs: Whole = None,
    samples: Whole = None,
    activations: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = (),
    seed: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 0)")] = None,
) -> int:
    """Run studies, or go on where an earlier call stopped, and write one self-contained report.

    Args:
        studies: Names of studies; all of them if none is given.
        profile: How much to run: a minute's worth, or the paper's whole protocol.
        out: Folder for report.html, tables/ and the store of runs.
        dims: mahalanobis: dimensions of the Gaussians.
        trials: mahalanobis: independent trainings of each network.
        epochs: mahalanobis: full-batch steps of each training.
        samples: mahalanobis: training points.
        activations: mahalanobis: which of abs, relu, sigmoid.
        seed: Root of all random streams.
    """
    from metriscope.studies.runner import reproduce as run

    options: dict[str, object] = {"dims": dims or None, "trials": trials, "epochs": epochs, "samples": samples}
    options |= {"activations": activations or None, "seed": seed}
    path = run(studies, profile, out, options, lambda line: print(line, flush=True))
    print(f"report: {path}")
    return 0


def runs(
    action: Annotated[Positional[Literal["list", "show", "verify"]], arg(metavar="list|show|verify")],
    address: Annotated[Positional[str], arg(metavar="[ADDRESS]")] = "",
    /,
    *,
    out: Path = Path("out"),
) -> int:
    """List the runs of a store, show one, or verify every file of it.

    Args:
        action: What to do.
        address: For show: the run's address or the beginning of it.
        out: The folder that holds runs/.
    """
    from metriscope.runs import Store
    from metriscope.runs.listing import describe, line

    store = Store(out / "runs")
    if not store.root.is_dir():
        raise ValueError(f"there is no store at {store.root}")
    if action == "show":
        if not address:
            raise ValueError("runs show needs an address, or the beginning of one: runs list prints them")
        print(describe(store.find(address)))
        return 0
    if action == "list":
        for run in store.runs():
            print(line(run))
        return 0
    problems = store.verify()
    for problem in problems:
        print(f"{problem.path}: {problem.reason}")
    count = len(store.runs())
    print(f"{count} runs, {len(problems)} problems" if problems else f"{count} runs, all whole")
    return 1 if problems else 0


def bench(name: Annotated[Positional[str], arg(metavar="[NAME]")] = "", /) -> int:
    """Run one benchmark, or all, and print its ratios against its peers.

    Args:
        name: Which benchmark; all of them if none is given.
    """
    from metriscope.benching import run_benchmarks

    return run_benchmarks(name)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; errors of the user's making are one sentence on standard error."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"metriscope {__version__}")
        return 0
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    app = tyro.extras.SubcommandApp()
    for command in (reproduce, runs, bench):
        app.command(command)
    try:
        return int(app.cli(prog="metriscope", description=f"Metriscope {__version__}", args=arguments))
    except BrokenPipeError:
        # Whoever read our output has seen enough; what is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("metriscope: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        print(f"metriscope: {error}", file=sys.stderr)
        return 2
