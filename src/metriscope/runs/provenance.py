"""Provenance of a run: versions, code, processor, threads; never the name of a host, a user or a path."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["DECISIVE", "FORMAT", "provenance", "same_kind", "together"]

# To be increased when the format of runs or checkpoints changes.
FORMAT = 2
_PACKAGES = ("metriscope", "torch", "numpy", "scipy", "numba", "scikit-learn", "numkong", "pyarrow", "pandas")
# Packages whose version affects the bits of a result.
DECISIVE = ("metriscope", "torch", "numpy", "scipy", "numba", "scikit-learn", "pyarrow", "pandas")
# Environment variables that choose vector code other than the processor's.
_KERNELS = ("METRISCOPE_PLAIN_KERNELS", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
# The levels of the x86-64 psABI, with the flags that each adds to the one below, as Linux names them.
_LEVELS = (
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("x86-64-v3", {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    ("x86-64-v2", {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
)


def provenance() -> dict[str, Any]:
    """Return what is needed to repeat a run elsewhere, as words and numbers."""
    return {
        "format": FORMAT,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "code": dict(_code()),
        "platform": {
            "system": platform.system(),
            "machine": platform.machine(),
            "cpu": _cpu_level(),
            **{name: os.environ[name] for name in _KERNELS if name in os.environ},
        },
        "threads": _threads(),
    }


def same_kind(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether equal bits are promised: by the same versions on the same kind of processor.

    >>> same_kind(provenance(), provenance()), same_kind(provenance(), {})
    (True, False)
    """

    def decisive(given: Mapping[str, Any]) -> tuple[object, ...]:
        packages = given.get("packages") or {}
        return given.get("platform"), *(packages.get(name) for name in DECISIVE)

    return decisive(one) == decisive(other)


def together(provenances: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the provenance of several runs: shared values once, and all values where they differ.

    >>> together([{"date": "2026-01-01", "python": "3.11"}, {"date": "2026-01-03", "python": "3.11"}])
    {'runs': 2, 'finished': '2026-01-01 to 2026-01-03', 'python': '3.11'}
    """
    found = [dict(_flat(one)) for one in provenances]
    if not found:
        return {"runs": 0}
    dates = sorted(str(one.pop("date", "unknown")) for one in found)
    names = dict.fromkeys(name for one in found for name in one)
    shared = {name: ", ".join(dict.fromkeys(str(one.get(name)) for one in found)) for name in names}
    finished = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return {"runs": len(found), "finished": finished, **shared}


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} · ")
        else:
            yield f"{prefix}{name}", value


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return getattr(sys.modules.get(package), "__version__", None)  # run from a checkout, not installed


@cache
def _code() -> dict[str, Any]:
    """Return the commit of this package and whether its files were changed since; None outside a checkout."""
    here = Path(__file__)
    # A package installed inside another project's checkout must not report that project's commit.
    if _git("ls-files", "--error-unmatch", here.name) is None:
        return {"commit": None, "dirty": None}
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", str(here.parents[1]))
    return {"commit": commit or None, "dirty": bool(changes) if commit else None}


def _git(*arguments: str) -> str | None:
    command = ("git", "--no-optional-locks", "-C", str(Path(__file__).parent), *arguments)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, env=environment)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def _cpu_level() -> str | None:
    """Return the level of vector instructions, on which the rounding of sums depends; None if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except (OSError, ValueError):
        return None
    flags = {flag for line in lines if line.startswith("flags") for flag in line.partition(":")[2].split()}
    if not flags:
        return None
    return next((name for name, needed in _LEVELS if needed <= flags), "x86-64")


def _threads() -> dict[str, Any]:
    torch = sys.modules.get("torch")  # not worth an import
    counts = {"cpus": os.cpu_count(), "torch": torch.get_num_threads() if torch else None}
    return {**counts, **{name: os.environ[name] for name in _THREADS if name in os.environ}}
