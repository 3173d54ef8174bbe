"""Executors beyond this process: shards become tasks of a Ray cluster, and come back as the files of runs.

The driver stays the only one that writes the store, unless the store is in a folder that all nodes share. A task
computes for a slice of time and returns; what is unfinished comes back as checkpoints and is sent out again. So a node
that is lost costs at most one slice of its jobs, and progress and budget work as they do in one process.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from metriscope.common.files import read
from metriscope.runs.address import address
from metriscope.runs.messages import Request, answer, job_to_text, reply_of, work_name
from metriscope.runs.run import Run
from metriscope.runs.shards import Executor, InProcess, Shard, stored

__all__ = ["ClusterSettings", "Pool", "RayPool", "Remote", "opened"]

# Seconds to wait for the head of a cluster, and to wait for a task before looking at the budget again.
_CONNECT_SECONDS, _POLL_SECONDS = 5.0, 1.0
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class ClusterSettings:
    """How jobs are sent to a cluster.

    Parameters
    ----------
    address : str
        "local" starts a cluster on this machine for as long as it is used; "auto" finds the one that runs here; or
        "host:port" of the head of a cluster that this machine belongs to.
    cpus, gpus : float
        What a job is given; a job uses as many threads as CPUs.
    retries : int
        How many times a job is restarted after its node or worker is lost.
    in_flight : int, optional
        Largest number of tasks that are sent and not finished; by default twice as many as can run at once.
    shared : bool
        Whether workers write to the store themselves; its folder must have the same path on all nodes.
    slice_seconds : float
        Time after which an unfinished job reports its progress and returns its checkpoint.

    Examples
    --------
    >>> ClusterSettings(address="auto").retries
    3
    """

    address: str = "local"
    cpus: float = 1
    gpus: float = 0
    retries: int = 3
    in_flight: int | None = None
    shared: bool = False
    slice_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.cpus <= 0 or self.gpus < 0:
            raise ValueError(f"a job needs more than 0 CPUs and at least 0 GPUs, not {self.cpus} and {self.gpus}")
        if self.retries < 0 or (self.in_flight is not None and self.in_flight < 1):
            raise ValueError(
                f"retries must be at least 0 and jobs in flight 1, not {self.retries} and {self.in_flight}"
            )
        if self.address not in ("local", "auto"):
            _host_and_port(self.address)


class Pool(Protocol):
    """Workers that answer requests."""

    def room(self) -> int:
        """Return how many requests may be under way at once."""

    def submit(self, request: str, checkpoints: Mapping[str, bytes]) -> Any:
        """Send a request, and return a handle of it."""

    def ready(self, handles: list[Any], seconds: float) -> list[Any]:
        """Return the handles that have an answer or have failed, after waiting so long for the first."""

    def fetch(self, handle: Any) -> tuple[str, Mapping[str, bytes], Mapping[str, bytes]]:
        """Return the answer, or raise what the job raised."""

    def cancel(self, handle: Any) -> None:
        """Cancel a request."""


@dataclass
class _Flight:
    """A shard that is under way, the leases on it, and the jobs that are still to be computed."""

    shard: Shard
    left: list[Any]
    leases: ExitStack


@dataclass(frozen=True)
class Remote:
    """Executor that has shards computed by a pool of workers, a bounded number at a time.

    Shards whose jobs or work have no name that another process could look up are computed here: measurements that are
    closures over runs, for instance.

    Parameters
    ----------
    pool : Pool
        The workers.
    settings : ClusterSettings
        How jobs are sent.
    """

    pool: Pool
    settings: ClusterSettings = field(default_factory=ClusterSettings)

    def compute(self, shards: Iterable[Shard]) -> Iterator[Mapping[Any, Run]]:
        """Yield the finished runs of each shard in the order of completion."""
        flying: dict[Any, _Flight] = {}
        try:
            for shard in shards:
                while len(flying) >= max(1, self.pool.room()):
                    yield from self._landed(flying)
                if work_name(shard.work) is None or any(job_to_text(job) is None for job in shard.jobs):
                    yield shard.here()
                else:
                    yield self._launched(shard, flying)
            while flying:
                yield from self._landed(flying)
        finally:
            for handle, flight in flying.items():
                self.pool.cancel(handle)
                flight.leases.close()

    def _launched(self, shard: Shard, flying: dict[Any, _Flight]) -> dict[Any, Run]:
        """Lease a shard and send what has to be computed; return the runs that were stored meanwhile."""
        leases = ExitStack()
        done, left = leases.enter_context(shard.claimed())
        if left:
            self._send(_Flight(shard, left, leases), flying)
        else:
            leases.close()
        return done

    def _send(self, flight: _Flight, flying: dict[Any, _Flight]) -> None:
        shard, settings = flight.shard, self.settings
        budget = shard.deadline.left
        request = Request(
            tuple(text for job in flight.left if (text := job_to_text(job))),
            work_name(shard.work) or "",
            settings.slice_seconds,
            None if budget == float("inf") else time.time() + budget,
            max(1, int(settings.cpus)),
            str(shard.store.root.resolve()) if settings.shared else None,
        )
        paths = {address(job): shard.store.checkpoint(job).path for job in flight.left}
        held = {} if settings.shared else {key: read(path) for key, path in paths.items() if path.exists()}
        flying[self.pool.submit(request.encoded(), held)] = flight

    def _landed(self, flying: dict[Any, _Flight]) -> Iterator[dict[Any, Run]]:
        """Wait for some replies, keep what they bring, and send out again what is unfinished."""
        for handle in self.pool.ready(list(flying), _POLL_SECONDS):
            flight = flying[handle]
            found, moved = self._kept(flight, handle)
            del flying[handle]
            flight.left = [job for job in flight.left if job not in found]
            if flight.left and moved and not flight.shard.deadline.over:
                self._send(flight, flying)
            else:
                flight.leases.close()
            yield found

    def _kept(self, flight: _Flight, handle: Any) -> tuple[dict[Any, Run], bool]:
        """Store what a reply brings; return the finished runs, and whether anything was computed at all."""
        reply = reply_of(self.pool.fetch(handle))
        shard = flight.shard
        by_address = {address(job): job for job in flight.left}
        if self.settings.shared:
            found = stored(shard.store, flight.left)
        else:
            for key, data in reply.checkpoints.items():
                shard.store.checkpoint(by_address[key]).adopt(data)
            found = {by_address[key]: shard.store.adopt(by_address[key], files) for key, files in reply.runs.items()}
        shard.show({by_address[key]: step / max(last, 1) for key, (step, last) in reply.spans.items()})
        return found, bool(reply.spans)


@dataclass
class RayPool:
    """The workers of a Ray cluster that this process is connected to.

    Parameters
    ----------
    settings : ClusterSettings
        What each task is given, and how many are under way.
    """

    settings: ClusterSettings
    task: Any = field(init=False)

    def __post_init__(self) -> None:
        import ray

        given = self.settings
        # Zero GPUs are left out: asking for them hides those of the node from a job.
        wants = {"num_cpus": given.cpus} | ({"num_gpus": given.gpus} if given.gpus else {})
        self.task = ray.remote(answer).options(**wants, max_retries=given.retries, retry_exceptions=False)

    def room(self) -> int:
        """Return the bound of the settings, or twice as many tasks as the cluster's CPUs or GPUs can run now."""
        import ray

        if self.settings.in_flight is not None:
            return self.settings.in_flight
        held = ray.cluster_resources()
        fits = held.get("CPU", 0) / self.settings.cpus
        if self.settings.gpus:
            fits = min(fits, held.get("GPU", 0) / self.settings.gpus)
        return 2 * max(1, int(fits))

    def submit(self, request: str, checkpoints: Mapping[str, bytes]) -> Any:
        """Send a request as a task."""
        return self.task.remote(request, dict(checkpoints))

    def ready(self, handles: list[Any], seconds: float) -> list[Any]:
        """Return the finished tasks, after waiting at most ``seconds`` for the first."""
        import ray

        found, _ = ray.wait(handles, num_returns=1, timeout=seconds)
        return list(found)

    def fetch(self, handle: Any) -> tuple[str, Mapping[str, bytes], Mapping[str, bytes]]:
        """Return what a task returned; raise the job's own error, or a sentence if the cluster lost it too often."""
        import ray

        try:
            return ray.get(handle)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            tries = self.settings.retries + 1
            raise RuntimeError(f"the cluster lost a job {tries} times, its last message: {said}") from None

    def cancel(self, handle: Any) -> None:
        """Stop a task."""
        import ray

        with suppress(ray.exceptions.RayError, ValueError):
            ray.cancel(handle, force=True)


@contextmanager
def opened(settings: ClusterSettings | None) -> Iterator[Executor]:
    """Yield the executor of a Ray cluster, connected while the block runs; without settings, that of this process.

    Raises
    ------
    ValueError
        If Ray is not installed.
    RuntimeError
        If no cluster answers.

    Examples
    --------
    >>> with opened(None) as executor:
    ...     executor
    InProcess()
    """
    if settings is None:
        yield InProcess()
        return
    _connect(settings)
    import ray

    try:
        yield Remote(RayPool(settings), settings)
    finally:
        ray.shutdown()


def _connect(settings: ClusterSettings) -> None:
    """Connect to a cluster; one started here has only the loopback address, no dashboard and no usage statistics."""
    where = settings.address
    if where not in ("local", "auto"):
        host, port = _host_and_port(where)
        try:
            socket.create_connection((host, port), _CONNECT_SECONDS).close()
        except OSError:
            raise RuntimeError(f"no cluster answers at {where}: is its head running, and its port open?") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if where == "local" or where.startswith((_LOOPBACK, "localhost")):
        # Ray would replace the loopback address by that of this machine; read when Ray is first imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError:
        raise ValueError("--executor ray needs Ray: pip install 'metriscope[cluster]'") from None
    own: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": _LOOPBACK} if where == "local" else {}
    try:
        ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **own)
    except (ConnectionError, RuntimeError, ValueError, AssertionError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        hint = "" if where != "auto" else "; 'ray start --head' starts one, and --address local needs none"
        raise RuntimeError(f"no cluster answers at {where}: {said.rstrip('.')}{hint}") from None


def _host_and_port(where: str) -> tuple[str, int]:
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ValueError(f"--address must be local, auto or host:port, not {where!r}")
    return host, int(port)
