"""A walk through a store: its run folders, and everything in it that is not as it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from metriscope.runs.address import DIGITS
from metriscope.runs.checkpoint import check, decode
from metriscope.runs.disk import DAMAGED, TEMPORARY, entries, read
from metriscope.runs.errors import Damage, reason
from metriscope.runs.integrity import Problem, faults
from metriscope.runs.lease import FOLDER as LEASES

__all__ = ["problems", "run_folders"]

_SHARD = re.compile(r"[0-9a-f]{2}")
_ADDRESS = re.compile(rf"[0-9a-f]{{{DIGITS}}}")


def run_folders(root: Path) -> list[Path]:
    """Return the folders that should be runs, by address."""
    return [path for shard in _shards(root) for path in entries(shard) if _is_home(path)]


def problems(root: Path) -> Iterator[Problem]:
    """Yield what is wrong in a store; what a killed process left unfinished is not wrong."""
    for folder in run_folders(root):
        yield from _run_problems(root, folder)
    for path in entries(root / "checkpoints"):
        yield from _checkpoint_problems(root, path)
    for path in _strays(root):
        yield Problem(_relative(path, root), "", "extra file")


def _shards(root: Path) -> list[Path]:
    return [path for path in entries(root) if _SHARD.fullmatch(path.name) and path.is_dir()]


def _is_home(path: Path) -> bool:
    return _ADDRESS.fullmatch(path.name) is not None and path.name.startswith(path.parent.name)


def _strays(root: Path) -> list[Path]:
    # Hidden names at the top belong to killed writers or to the file system, not to the store.
    ours = {*_shards(root), root / "checkpoints", root / LEASES, root / DAMAGED}
    top = [path for path in entries(root) if path not in ours and not path.name.startswith(".")]
    return top + [path for shard in _shards(root) for path in entries(shard) if not _is_home(path)]


def _run_problems(root: Path, folder: Path) -> list[Problem]:
    try:
        return [Problem(_relative(folder / name, root), folder.name, why) for name, why in faults(folder)]
    except OSError as error:
        return [_unreadable(root, folder, folder.name, error)]


def _checkpoint_problems(root: Path, path: Path) -> list[Problem]:
    if path.name.startswith(TEMPORARY):
        return []
    if path.suffix != ".safetensors" or not _ADDRESS.fullmatch(path.stem):
        return [Problem(_relative(path, root), "", "extra file")]
    try:
        _, meta = decode(read(path))
        check(meta, path.stem)
    except Damage as damage:
        return [Problem(_relative(path, root), path.stem, str(damage))]
    except OSError as error:
        return [_unreadable(root, path, path.stem, error)]
    return []


def _unreadable(root: Path, path: Path, address: str, error: OSError) -> Problem:
    # The error names the very file, where the caller only knows the folder.
    named = Path(error.filename) if isinstance(error.filename, str) else path
    return Problem(_relative(named, root), address, f"cannot be read: {reason(error)}")


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
