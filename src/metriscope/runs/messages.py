"""The messages between a driver and a worker on another machine: JSON, and the bytes of files of the store.

A job is sent as the name of its class and its fields, work as the name of the function that begins or computes it. So
both sides need the same code, and no code is sent.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from metriscope.common.files import read
from metriscope.common.threads import at_most_threads
from metriscope.runs.address import address
from metriscope.runs.checkpoint import Checkpoint
from metriscope.runs.integrity import MANIFEST
from metriscope.runs.jobs import Once, Work, once
from metriscope.runs.provenance import DECISIVE, provenance
from metriscope.runs.shards import Deadline, Running
from metriscope.runs.store import Store

__all__ = ["Reply", "Request", "answer", "job_from_text", "job_to_text", "name_of", "named", "reply_of", "work_name"]

_DATA = "METRISCOPE_DATA"


def name_of(thing: Any) -> str | None:
    """Return "module:name" of a class or function of a module; None for anything else, such as a lambda.

    >>> name_of(name_of), name_of(lambda: 0)
    ('metriscope.runs.messages:name_of', None)
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if not module or module == "__main__" or not name.isidentifier():
        return None
    return f"{module}:{name}" if getattr(import_module(module), name, None) is thing else None


def named(name: str) -> Any:
    """Return what :func:`name_of` named."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def work_name(work: Work) -> str | None:
    """Return the words that rebuild a work elsewhere; None if its function is not one of a module.

    >>> work_name(once(json.dumps)), work_name(once(lambda job: job))
    ('once json:dumps', None)
    """
    begin = work.begin
    computes = isinstance(begin, partial) and begin.func is Once and not begin.keywords
    name = name_of(begin.args[0] if computes else begin)  # type: ignore[attr-defined]
    return name and f"{'once' if computes else 'begin'} {name}"


def _work(name: str) -> Work:
    how, _, function = name.partition(" ")
    return once(named(function)) if how == "once" else Work(named(function))


def job_to_text(job: Any) -> str | None:
    """Return a job as JSON, with the names of its classes; None if it would not come back equal.

    >>> from metriscope.runs.shards import Deadline
    >>> job_from_text(job_to_text(Deadline(budget=1.5, began=0.0)))
    Deadline(budget=1.5, began=0.0)
    """
    try:
        text = json.dumps(_plain(job), allow_nan=False)
        same = job_from_text(text) == job
    except (TypeError, ValueError, AttributeError):
        return None
    return text if same and address(job_from_text(text)) == address(job) else None


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        given = {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.init}
        return {"class": name_of(type(value)), "fields": given}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def job_from_text(text: str) -> Any:
    """Return the job that :func:`job_to_text` encoded."""
    return _built(json.loads(text))


def _built(value: Any) -> Any:
    if isinstance(value, dict):
        kind = named(value["class"])
        if not (isinstance(kind, type) and is_dataclass(kind)):
            raise ValueError(f"{value['class']} is not the class of a job")
        return kind(**{name: _built(one) for name, one in value["fields"].items()})
    return tuple(_built(one) for one in value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Request:
    """What a worker is asked to compute: plain words and numbers.

    Parameters
    ----------
    jobs : tuple of str
        The jobs, each by :func:`job_to_text`.
    work : str
        The work by :func:`work_name`.
    seconds : float
        Time after which the worker saves checkpoints and replies.
    end : float or None
        Time of day (seconds since 1970) at which the budget ends; clocks that differ end it earlier or later.
    threads : int
        Number of threads to use.
    store : str or None
        Folder of the store, if workers share it; otherwise all results are in the reply.
    """

    jobs: tuple[str, ...]
    work: str
    seconds: float
    end: float | None = None
    threads: int = 1
    store: str | None = None

    def encoded(self) -> str:
        """Return the request as JSON, with the versions of this process and where it looks for data."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(said | {"packages": _packages(), "data": os.environ.get(_DATA)}, allow_nan=False)


@dataclass(frozen=True)
class Reply:
    """A worker's answer to the driver, by the address of each job.

    Parameters
    ----------
    spans : mapping of str to (int, int)
        The step that was reached, and the last step.
    runs : mapping of str to mapping of str to bytes
        The files of finished runs; empty if the store is shared.
    checkpoints : mapping of str to bytes
        Checkpoints of unfinished runs; empty if the store is shared.
    """

    spans: Mapping[str, tuple[int, int]]
    runs: Mapping[str, Mapping[str, bytes]]
    checkpoints: Mapping[str, bytes]


def answer(request: str, checkpoints: Mapping[str, bytes]) -> tuple[str, dict[str, bytes], dict[str, bytes]]:
    """Compute what is asked, for a while, and return the parts of a :class:`Reply`: JSON, files, checkpoints."""
    asked = json.loads(request)
    _check_packages(asked["packages"])
    if asked["data"] and Path(asked["data"]).is_dir():
        os.environ[_DATA] = asked["data"]
    jobs = [job_from_text(text) for text in asked["jobs"]]
    with tempfile.TemporaryDirectory() as folder, at_most_threads(asked["threads"]):
        store = Store(Path(asked["store"] or folder))
        for key, data in checkpoints.items():
            Checkpoint(store.root, key).adopt(data)
        if asked["end"] is not None and asked["end"] <= time.time():
            return json.dumps({}), {}, {}
        running = Running(store, _work(asked["work"]), jobs, lambda: _slice(asked), lambda shares: None)
        runs = running.finish()
        spans = {address(job): span for job, span in running.spans.items()}
        if asked["store"]:
            return json.dumps(spans), {}, {}
        kept = {key: path for key in spans if (path := Checkpoint(store.root, key).path).exists()}
        return json.dumps(spans), _files(runs.values()), {key: read(path) for key, path in kept.items()}


def _slice(asked: Mapping[str, Any]) -> Deadline:
    left = asked["seconds"] if asked["end"] is None else min(asked["seconds"], asked["end"] - time.time())
    return Deadline(left)


def _files(runs: Any) -> dict[str, bytes]:
    return {
        f"{run.address}/{path.name}": read(path)
        for run in runs
        for path in sorted(run.path.iterdir())
        if path.name != MANIFEST
    }


def reply_of(parts: tuple[str, Mapping[str, bytes], Mapping[str, bytes]]) -> Reply:
    """Return the reply from the parts that crossed."""
    spans, files, checkpoints = parts
    runs: dict[str, dict[str, bytes]] = {}
    for path, data in files.items():
        key, _, name = path.partition("/")
        runs.setdefault(key, {})[name] = data
    return Reply({key: (step, last) for key, (step, last) in json.loads(spans).items()}, runs, checkpoints)


def _packages() -> dict[str, Any]:
    held = provenance()["packages"]
    return {name: held[name] for name in DECISIVE}


def _check_packages(theirs: Mapping[str, Any]) -> None:
    ours = _packages()
    for name, version in theirs.items():
        if ours.get(name) != version:
            held = f"a worker has {name} {ours.get(name)}, the driver has {version}"
            raise ValueError(f"{held}: install the same versions on all nodes")
