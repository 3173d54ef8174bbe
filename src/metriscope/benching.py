"""Find and run the benchmarks: files with a ``main()``, one question each, in the project's benchmarks folder."""

from __future__ import annotations

import runpy
from pathlib import Path

__all__ = ["benchmarks", "run_benchmarks"]


def _folder() -> Path:
    package = Path(__file__).parent
    # A wheel carries them inside the package; a checkout has them beside src.
    inside, beside = package / "benchmarks", package.parents[1] / "benchmarks"
    return inside if inside.is_dir() else beside


def benchmarks() -> dict[str, Path]:
    """Return the benchmarks by name."""
    return {path.stem: path for path in sorted(_folder().glob("*.py")) if not path.stem.startswith("_")}


def run_benchmarks(name: str = "") -> int:
    """Run one benchmark, or all if ``name`` is empty."""
    found = benchmarks()
    if name and name not in found:
        raise ValueError(f"unknown benchmark {name!r}: there is {', '.join(found) or 'none'}")
    for path in [found[name]] if name else found.values():
        runpy.run_path(str(path), run_name="__main__")
    return 0
