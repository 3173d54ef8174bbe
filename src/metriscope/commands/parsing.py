"""Parse the words of a command: options of all commands, suggestions for misspelled ones, examples in the help."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial, wraps
from typing import Any

import tyro

from metriscope.benching import benchmarks
from metriscope.commands.output import Manner
from metriscope.common.errors import unknown

__all__ = ["EXAMPLES", "application", "closing", "deferred", "everywhere", "parsed"]

# Examples at the end of each command's help; those of "" are shown by metriscope --help.
EXAMPLES = {
    "": ("metriscope demo --open", "metriscope inspect models.py:build --data x.npy", "metriscope reproduce vq"),
    "reproduce": (
        "metriscope reproduce",
        "metriscope reproduce mahalanobis --dims 2 10 --trials 5",
        "metriscope reproduce vq --profile paper --budget 2h --out long",
        "metriscope reproduce --json --quiet > verdicts.json",
    ),
    "inspect": (
        "metriscope inspect models.py:build --data x.npy --labels y.npy --open",
        "metriscope inspect my.package:resnet --weights w.safetensors --data photos/ --image-size 64 --conv channels",
        "metriscope inspect models.py:encoder --data tokens.npz --tokens mean --layers 'encoder.layer.*'",
    ),
    "compare": (
        "metriscope compare models.py:build@a.safetensors models.py:build@b.safetensors --data x.npy --labels y.npy",
        "metriscope compare saved/first saved/second",
    ),
    "runs": (
        "metriscope runs list --out out",
        "metriscope runs show 3f2a",
        "metriscope runs list --json | jq '.[].spec.study'",
    ),
    "data": ("metriscope data list", "metriscope data fetch mnist"),
    "bench": ("metriscope bench", "metriscope bench vq"),
    "demo": ("metriscope demo", "metriscope demo --out first --open"),
}
# What values are called in the parser's help, and in an error.
_KINDS = {"INT": "an integer", "FLOAT": "a number", "[INT [INT ...]]": "integers", "[FLOAT [FLOAT ...]]": "numbers"}
_WITH_PAGES = ("reproduce", "inspect", "compare", "demo")


def everywhere(words: Sequence[str]) -> tuple[Manner, bool, list[str]]:
    """Return how to print, whether to debug, and the other words; these options may be anywhere in a command."""
    command = next((word for word in words if not word.startswith("-")), "")
    flags = _flags(command)
    said = set(flags) & set(words)
    rest = [word for word in words if word not in flags]
    return Manner("--json" in said, "--quiet" in said, "--open" in said), "--debug" in said, rest


def _flags(command: str) -> tuple[str, ...]:
    """Return the options that may be anywhere in a command."""
    return ("--json", "--quiet", "--debug", *(["--open"] if command.partition(" ")[0] in _WITH_PAGES else []))


def closing(command: str, study: str = "") -> str:
    """Return the end of the help of a command, or of ``reproduce`` with a study: general options, and examples."""
    own = (f"{command} {study}", f"{command} {study} --profile paper --budget 2h --out long") if study else ()
    opened = ", --open (show the page in a browser)" if command in ("", *_WITH_PAGES) else ""
    lines = [
        f"anywhere: --json (print the result as JSON, nothing else), --quiet (no progress){opened};",
        "after an error: --debug (the whole traceback)",
        "",
        "examples:",
        *(f"  {example}" for example in [f"metriscope {one}" for one in own] or EXAMPLES[command]),
    ]
    if command == "bench":
        lines = [f"benchmarks: {', '.join(benchmarks())}", *lines]
    return "\n".join(lines)


def deferred(command: Callable[..., int]) -> Callable[..., Any]:
    """Return a function with the same signature that returns the call instead of making it."""

    @wraps(command)
    def later(*positional: Any, **named: Any) -> Any:
        return partial(command, *positional, **named)

    return later


def parsed(parse: Callable[[list[str]], Any], words: list[str], command: str = "", first: int = 0) -> Any:
    """Return the result of ``parse`` on the words; the ``first`` of them name the command.

    Raises
    ------
    ValueError
        If there is an option that the command does not have, or a value that an option does not accept.
    SystemExit
        After help or a completion was printed, or with status 2 after any other mistake was explained.
    """
    error = io.StringIO()
    try:
        with redirect_stderr(error):
            return parse(words)
    except SystemExit as stop:
        if not stop.code:
            raise
    known = [*_options(parse, words[:first]), *_flags(command), *([] if command else ["--version"])]
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if re.fullmatch(r"--[a-z][\w-]*", name) and name not in known:
            raise ValueError(unknown(f"option of {command}" if command else "option", name, known))
    _check_values(error.getvalue())
    return parse(words)  # again, to print the parser's own error message


def _check_values(error: str) -> None:
    """Raise if the parser's error is about a single value; its other errors list what is missing."""
    # Worded as by tyro; if its wording changes, its own message is printed.
    text = " ".join(re.sub("[│─╭╮╰╯]|-{5,}", " ", error).split())
    if choice := re.search(r"invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*?)\)\.", text):
        word, argument, known = choice.groups()
        raise ValueError(unknown(argument, word, re.findall(r"'(.*?)'", known)))
    if value := re.search(r"Error parsing (\S+): .*?\[?('.*?')\]? Argument helptext: \S+ (\[.*?\]\]|\S+) ", text):
        raise ValueError(f"{value[1]} must be {_KINDS.get(value[3], value[3])}, got {value[2]}")


def _options(parse: Callable[[list[str]], Any], command: list[str]) -> list[str]:
    """Return the options that the help of a command names."""
    shown = io.StringIO()
    with redirect_stdout(shown), suppress(SystemExit):
        parse([*command, "--help"])
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", shown.getvalue())))


def application(commands: Sequence[Callable[..., int]]) -> tyro.extras.SubcommandApp:
    """Return the parser of all commands; parsing gives the call that was asked for."""
    app = tyro.extras.SubcommandApp()
    for command in commands:
        app.command(name=command.__name__)(deferred(command))
    return app
