"""The metriscope command: parse, call once, return a status. Everything heavy loads after parsing."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional, arg

from metriscope import __version__

__all__ = ["main"]


@dataclass(frozen=True)
class Everything:
    """Run all studies, or continue where an earlier call stopped, and write one self-contained report."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: a few minutes on embedded data, or the papers' own protocols (days; see each study's help)."""
    seed: int = 0
    """Root of all random streams."""


@dataclass(frozen=True)
class Common:
    """Where a report goes, how long it may take, and where data is looked for."""

    out: Path = Path("out")
    """Folder for report.html, tables/ and the store of runs."""
    budget: Annotated[str | None, arg(metavar="TIME", help_behavior_hint="(default: until done)")] = None
    """Stop cleanly after a time such as 2h, 30m or 90s; the same command continues later."""
    data_dir: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: none)")] = None
    """Folder to look for data in first, before METRISCOPE_DATA and the cache."""


@dataclass(frozen=True)
class Where:
    """Where jobs are computed."""

    executor: Literal["local", "ray"] = "local"
    """In this process, or as tasks of a Ray cluster (extra: cluster)."""
    address: Annotated[str | None, arg(metavar="auto|HOST:PORT", help_behavior_hint="(default: start one here)")] = None
    """The cluster: the one that runs on this machine, or that of a head node."""
    job_cpus: float = 1
    """CPUs, and so threads, of each job on a cluster."""
    job_gpus: float = 0
    """GPUs of each job on a cluster."""
    retries: int = 3
    """How often a job is begun again after its node was lost."""
    in_flight: Annotated[int | None, arg(metavar="JOBS", help_behavior_hint="(default: twice what can run)")] = None
    """Largest number of jobs sent to a cluster and not back."""
    shared_out: bool = False
    """Let the nodes write runs to --out themselves: a folder that all of them see under one path."""

    def cluster(self) -> Any:
        """Return the settings of the cluster, or None for this process."""
        from metriscope.runs.cluster import ClusterSettings

        if self.executor == "local":
            if self.address is not None:
                raise ValueError("--address is that of a cluster: it needs --executor ray")
            return None
        address = self.address or "local"
        return ClusterSettings(address, self.job_cpus, self.job_gpus, self.retries, self.in_flight, self.shared_out)


def reproduce(arguments: list[str]) -> int:
    """Run one study, or all, or continue where an earlier call stopped, and write one self-contained report."""
    from metriscope.studies import STUDIES
    from metriscope.studies.contract import study
    from metriscope.studies.runner import reproduce as run

    named = arguments[:1] if arguments and not arguments[0].startswith("-") else []
    rest = arguments[len(named) :]
    if named:
        module = study(named[0]).plan
        times = "; ".join(f"{profile}: {time}" for profile, time in module.TIMES.items())
        options, common, where = _parsed(
            module.OPTIONS, f"reproduce {named[0]}", rest, f"{module.TITLE}. About: {times}."
        )
        asked = {named[0]: options}
    else:
        about = f"{Everything.__doc__} One study alone, with options of its own: {', '.join(STUDIES)}."
        options, common, where = _parsed(Everything, "reproduce", rest, about)
        asked = {name: study(name).plan.OPTIONS(profile=options.profile, seed=options.seed) for name in STUDIES}
    given = {"budget": common.budget, "data_dir": common.data_dir, "cluster": where.cluster()}
    path = run(asked, common.out, lambda line: print(line, flush=True), **given)
    print(f"report: {path}")
    return 0


def _reproduce() -> int:
    """Run one study, or all, and write one self-contained report: see reproduce --help."""
    raise AssertionError("reproduce has its own parser, because each study has its own options")


def _parsed(options: type[Any], name: str, arguments: list[str], about: str) -> tuple[Any, Common, Where]:
    """Parse a study's own options and the common ones side by side."""

    def both(options: Any, common: Common, where: Where) -> tuple[Any, Common, Where]:
        return options, common, where

    both.__annotations__ = {"options": options, "common": Common, "where": Where}
    settings = (tyro.conf.OmitArgPrefixes,)
    return tyro.cli(both, prog=f"metriscope {name}", description=about, args=arguments, config=settings)


@dataclass(frozen=True)
class HowRead:
    """How networks are read."""

    layers: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = ()
    """Names or glob patterns of the layers to capture: of activations, or of the layers that feed them."""
    conv: Literal["positions", "channels"] = "positions"
    """Take every position of a convolution as a unit, or pool them into one sign per channel."""
    tokens: Annotated[
        Literal["positions", "any", "first", "last", "mean"] | None,
        arg(help_behavior_hint="(default: mean where the data has an attention_mask, else positions)"),
    ] = None
    """Take every token of a sequence as units of its own, or pool them: padding does not count."""
    device: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: the network's own)")] = None
    """Where to run, such as cpu, cuda or cuda:1."""
    batch_size: int = 256
    """Points to run at once."""
    image_size: Annotated[int | None, arg(metavar="SIDE", help_behavior_hint="(default: as they are)")] = None
    """Resize the pictures of a folder to squares of this many pixels a side."""


def inspect(
    network: Annotated[Positional[str], arg(metavar="FACTORY")],
    /,
    *,
    data: Path,
    weights: Path | None = None,
    labels: Path | None = None,
    how: Annotated[HowRead, tyro.conf.OmitArgPrefixes] = HowRead(),  # noqa: B008  frozen
    explore: bool = False,
    out: Path = Path("out"),
) -> int:
    """Write one self-contained page about a network: findings first, then its points, layers and units.

    Args:
        network: package.module:factory or path/to/file.py:factory, called without arguments.
        data: Points: a .npy file; an .npz file of named arrays, such as input_ids and attention_mask, with labels and
            texts if it has any; or a folder of pictures, its subfolders the labels, pixels from 0 to 1.
        weights: The network's state_dict, a .safetensors file, or a .pt file of tensors alone.
        labels: One label per point, a .npy file.
        how: How the network is read.
        explore: Write explore.html too: distances on the plane through three of the points.
        out: Folder for inspect.html and tables/inspect/.
    """
    from metriscope.reading.networks import read_network, short_name
    from metriscope.report.explorer.own_plane import explorer_of
    from metriscope.report.export import write_report
    from metriscope.report.network_pages import Subject, inspect_page
    from metriscope.runs.provenance import provenance

    points, known = _points_and_labels(data, labels, how)
    reading = _reading(how, points)
    patterns, model = read_network(network, points, weights, reading)
    subject = Subject(short_name(network), patterns, known, model, points, how.batch_size, reading.tokens)
    beside = explorer_of(subject, _announce) if explore else None
    page = inspect_page(subject, provenance(), _announce, beside)
    print(f"report: {write_report(page, out, 'inspect.html')}")
    return 0


def _points_and_labels(data: Path, labels: Path | None, how: HowRead) -> tuple[Any, Any]:
    """Return the user's points, and their labels: of a file of their own, or those that came with the points."""
    from metriscope.reading.points import checked_labels, load_labels, load_points

    points = load_points(data, how.image_size)
    known = load_labels(labels, len(points))
    if known is None and points.labels is not None:
        known = checked_labels(points.labels, len(points), f"labels of {data}")
    return points, known


def _reading(how: HowRead, points: Any) -> Any:
    """Return how to read a network; where padding would vote, tokens are pooled unless asked otherwise."""
    from metriscope.reading.networks import Reading

    padded = points is not None and isinstance(points.inputs, dict) and "attention_mask" in points.inputs
    pooled = how.tokens or ("mean" if padded else "positions")
    return Reading(how.layers, how.conv, None if pooled == "positions" else pooled, how.device, how.batch_size)


def _announce(line: str) -> None:
    """Tell what is being done, on standard error: logs show it as terminals do."""
    print(f"{line} ...", file=sys.stderr, flush=True)


def compare(
    first: Annotated[Positional[str], arg(metavar="A")],
    second: Annotated[Positional[str], arg(metavar="B")],
    /,
    *,
    data: Path | None = None,
    labels: Path | None = None,
    how: Annotated[HowRead, tyro.conf.OmitArgPrefixes] = HowRead(),  # noqa: B008  frozen
    out: Path = Path("out"),
) -> int:
    """Compare the geometry of two networks on the same points, as one self-contained page.

    Args:
        first: FACTORY, FACTORY@weights.safetensors, or a folder of saved patterns.
        second: The same for the other network.
        data: Points: a .npy file, an .npz file of named arrays, or a folder of pictures, as for inspect.
        labels: One label per point, a .npy file.
        how: How the networks are read.
        out: Folder for compare.html and tables/compare/.
    """
    from metriscope.reading.networks import check_comparable, read_network, short_name
    from metriscope.reading.points import load_labels
    from metriscope.report.export import write_report
    from metriscope.report.network_comparison import compare_page
    from metriscope.report.network_pages import Subject
    from metriscope.runs.provenance import provenance

    points, known = (None, None) if data is None else _points_and_labels(data, labels, how)
    (one, model), (two, other) = (read_network(named, points, None, _reading(how, points)) for named in (first, second))
    check_comparable(first, one, second, two)
    known = load_labels(labels, len(one)) if points is None else known
    rows = (("A", first, one, model), ("B", second, two, other))
    subjects = [Subject(f"{k}: {short_name(n)}", p, known, m, points, how.batch_size) for k, n, p, m in rows]
    page = compare_page(subjects[0], subjects[1], provenance(), _announce)
    print(f"report: {write_report(page, out, 'compare.html')}")
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
    from metriscope.runs.run import describe, line

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
    print(f"{count} runs, {len(problems)} problems" if problems else f"{count} runs, all intact")
    return 1 if problems else 0


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
    from metriscope.data.loader import lines

    if action == "list":
        print("\n".join(lines(data_dir)))
        return 0
    if not name:
        raise ValueError("data fetch needs the name of a data set: data list prints them")
    paths = fetch(name, data_dir, rich_bar)
    print("\n".join(str(path) for path in paths.values()) or f"{name} is embedded: there is nothing to fetch")
    return 0


def bench(name: Annotated[Positional[str], arg(metavar="[NAME]")] = "", /) -> int:
    """Run one benchmark, or all, and print its ratios against its peers.

    Args:
        name: Which benchmark; all of them if none is given.
    """
    from metriscope.benching import run_benchmarks

    return run_benchmarks(name)


def demo(*, out: Path = Path("out")) -> int:
    """Train a small CNN on embedded digits, in seconds, and write the page that inspect would write about it.

    Args:
        out: Folder for inspect.html and demo/.
    """
    from metriscope.demo import write_demo

    path = write_demo(out, lambda line: print(line, flush=True))
    files = f"--weights {out}/demo/weights.safetensors --data {out}/demo/x.npy --labels {out}/demo/y.npy"
    print(f"report: {path}")
    print(f"the same with a network of your own: metriscope inspect metriscope.demo:network {files}")
    return 0


WELCOME = """\
Metriscope measures what a neural network measures: it reads units as distances and activation patterns as geometry.

Three things to try:
  metriscope demo                                 train a small CNN and write the page about it (seconds)
  metriscope inspect models.py:net --data x.npy   write the same page about a network of your own
  metriscope reproduce                            re-test the published claims (minutes)

metriscope --help lists all commands."""


def _suggestion(word: str, known: Sequence[str]) -> str:
    """Return a sentence on an unknown command, with the most similar one if there is one."""
    similar = get_close_matches(word, known, n=1)
    hint = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(known)}"
    return f"unknown command {word!r}: {hint}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; a user's mistake gives one sentence on standard error; --debug adds the traceback."""
    given = sys.argv[1:] if arguments is None else arguments
    debug, arguments = "--debug" in given, [word for word in given if word != "--debug"]
    if arguments == ["--version"]:
        print(f"metriscope {__version__}")
        return 0
    if not arguments:
        print(WELCOME)
        return 0
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    commands = (inspect, compare, runs, data, bench, demo)
    app = tyro.extras.SubcommandApp()
    app.command(name="reproduce")(_reproduce)
    for command in commands:
        app.command(command)
    names = ("reproduce", *(command.__name__ for command in commands))
    about = f"Metriscope {__version__}. With --debug, anywhere, an error shows its whole traceback."
    try:
        if not arguments[0].startswith("-") and arguments[0] not in names:
            raise ValueError(_suggestion(arguments[0], names))
        if arguments[:1] == ["reproduce"]:
            return reproduce(arguments[1:])
        return int(app.cli(prog="metriscope", description=about, args=arguments))
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
        print(f"metriscope: {_sentence(error)}", file=sys.stderr)
        return 2


def _sentence(error: Exception) -> str:
    """Return the error message; for an unexpected error, add its type and location."""
    places = traceback.extract_tb(error.__traceback__)
    package = Path(__file__).parent
    own = [place for place in places if Path(place.filename).is_relative_to(package)]
    if isinstance(error, OSError) or not places or not own or own[-1] is places[-1]:
        return str(error)
    said = " ".join(str(error).split())
    at = f"{Path(own[-1].filename).relative_to(package.parent)}:{own[-1].lineno}"
    return f"{said} ({type(error).__name__} below {at}, unexpected: --debug shows the traceback)"
