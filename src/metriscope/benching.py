"""Find and run the benchmarks: files with a ``main()``, one question each, in the project's benchmarks folder.

Each first prints :func:`processor`, because times depend on the processor.
"""

from __future__ import annotations

import io
import os
import platform
import runpy
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from metriscope.common.errors import unknown

__all__ = ["benchmarks", "processor", "run_benchmarks"]


def _folder() -> Path:
    package = Path(__file__).parent
    # A wheel carries them inside the package; a checkout has them beside src.
    inside, beside = package / "benchmarks", package.parents[1] / "benchmarks"
    return inside if inside.is_dir() else beside


def benchmarks() -> dict[str, Path]:
    """Return the benchmarks by name."""
    return {path.stem: path for path in sorted(_folder().glob("*.py")) if not path.stem.startswith("_")}


def run_benchmarks(
    name: str = "", announce: Callable[[str], None] = lambda line: None, kept: bool = False
) -> dict[str, list[str]]:
    """Run one benchmark, or all if ``name`` is empty; return the lines of each, which are not printed if ``kept``."""
    found = benchmarks()
    if name and name not in found:
        raise ValueError(unknown("benchmark", name, list(found)))
    chosen = {name: found[name]} if name else found
    lines = {}
    for at, (each, path) in enumerate(chosen.items(), 1):
        announce(f"benchmark {each} ({at} of {len(chosen)}), which takes minutes")
        printed = io.StringIO()
        with redirect_stdout(printed) if kept else nullcontext():
            runpy.run_path(str(path), run_name="__main__")
        lines[each] = printed.getvalue().splitlines()
    return lines


def processor() -> str:
    """Return the processor's model, its vector instruction level, the one that PyTorch uses, and the number of CPUs.

    >>> processor().startswith("Processor: ")
    True
    """
    import torch

    from metriscope.runs.provenance import provenance

    used = torch.backends.cpu.get_cpu_capability()
    level = provenance()["platform"]["cpu"] or platform.machine()
    return f"Processor: {_model()} ({level}; PyTorch uses {used}), {os.cpu_count()} CPUs"


def _model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name as Linux reports it, or else as Python does."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or "unknown"
