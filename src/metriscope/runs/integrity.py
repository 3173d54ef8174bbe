"""Checks of a store: every file of a run is listed with its size and SHA-256 in ``manifest.json``.

The first half checks one run folder, the second half a whole store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metriscope.common.errors import Damage, reason
from metriscope.common.files import DAMAGED, TEMPORARY, entries, read, sha256
from metriscope.runs.address import DIGITS
from metriscope.runs.checkpoint import CHECKPOINTS, check, decode
from metriscope.runs.codec import from_json, to_json

__all__ = ["Problem", "faults", "manifest", "problems", "read_fields", "read_listed", "read_manifest", "run_folders"]

MANIFEST, LEASES = "manifest.json", "leases"
_ALWAYS = ("provenance.json", "record.json", "spec.json", "weights.safetensors")
_SHARD = re.compile(r"[0-9a-f]{2}")
_ADDRESS = re.compile(rf"[0-9a-f]{{{DIGITS}}}")


@dataclass(frozen=True)
class Problem:
    """A file in a store that is not as it was written.

    Parameters
    ----------
    path : str
        Path relative to the store.
    address : str
        Address of the run that the file belongs to; empty if it belongs to none.
    reason : str
        What is wrong.

    Examples
    --------
    >>> print(Problem("notes.txt", "", "extra file"))
    notes.txt: extra file
    """

    path: str
    address: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def manifest(address: str, files: Mapping[str, bytes]) -> bytes:
    """Return the manifest of the files of a run."""
    listed = {name: {"bytes": len(files[name]), "sha256": sha256(files[name])} for name in sorted(files)}
    return to_json({"address": address, "files": listed}, "manifest")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the entries of a folder's manifest by file name; raise ``Damage`` if it is not the folder's own."""
    found = read_fields(read(folder / MANIFEST))
    files = found.get("files")
    if not isinstance(files, dict) or not all(_is_entry(name, entry) for name, entry in files.items()):
        raise Damage("not a manifest")
    if found.get("address") != folder.name:
        raise Damage(f"belongs to run {found.get('address')}, not to this folder")
    return files


def _is_entry(name: str, entry: Any) -> bool:
    fields = isinstance(entry, dict) and isinstance(entry.get("sha256"), str) and isinstance(entry.get("bytes"), int)
    return fields and Path(name).name == name


def read_listed(folder: Path, name: str, files: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file in the manifest; raise ``Damage`` if they are not those that were written."""
    if name not in files:
        raise Damage("not listed in the manifest")
    data, size = read(folder / name), files[name]["bytes"]
    if len(data) < size:
        raise Damage(f"truncated to {len(data)} of {size} bytes")
    if len(data) > size or sha256(data) != files[name]["sha256"]:
        raise Damage("edited: its content is not what the manifest lists")
    if name == "spec.json" and sha256(data)[:DIGITS] != folder.name:
        raise Damage("the address of the specification is not the name of its folder")
    return data


def read_fields(data: bytes) -> dict[str, Any]:
    """Return a JSON object; raise ``Damage`` if the bytes hold anything else."""
    fields = from_json(data)
    if not isinstance(fields, dict):
        raise Damage("not a JSON object")
    return fields


def faults(folder: Path) -> list[tuple[str, str]]:
    """Return what is wrong with a run folder, as file names and reasons; nothing for a complete run."""
    if not folder.is_dir():
        return [("", "not a folder")]
    try:
        files = read_manifest(folder)
    except Damage as damage:
        return [(MANIFEST, str(damage))]
    names = sorted({*files, *_ALWAYS})
    found = [(name, fault) for name in names if (fault := _fault(folder, name, files))]
    known = {MANIFEST, *names}
    return found + [(path.name, "extra file") for path in entries(folder) if path.name not in known]


def _fault(folder: Path, name: str, files: Mapping[str, Any]) -> str:
    try:
        data = read_listed(folder, name, files)
        if name.endswith(".json"):
            read_fields(data)
    except Damage as damage:
        return str(damage)
    return ""


def run_folders(root: Path) -> list[Path]:
    """Return the folders of runs, sorted by address."""
    return [path for shard in _shards(root) for path in entries(shard) if _is_home(path)]


def problems(root: Path) -> Iterator[Problem]:
    """Yield what is wrong in a store; unfinished files of killed processes do not count."""
    for folder in run_folders(root):
        yield from _found(root, folder, folder.name, faults)
    for path in entries(root / CHECKPOINTS):
        if path.suffix == ".safetensors" and _ADDRESS.fullmatch(path.stem):
            yield from _found(root, path, path.stem, _checkpoint_faults)
        elif not path.name.startswith(TEMPORARY):
            yield Problem(_relative(path, root), "", "extra file")
    for path in _strays(root):
        yield Problem(_relative(path, root), "", "extra file")


def _found(root: Path, path: Path, address: str, check: Callable[[Path], list[tuple[str, str]]]) -> list[Problem]:
    try:
        return [Problem(_relative(path / name, root), address, why) for name, why in check(path)]
    except OSError as error:
        # The error names the very file, where only its folder may be known here.
        named = Path(error.filename) if isinstance(error.filename, str) else path
        return [Problem(_relative(named, root), address, f"cannot be read: {reason(error)}")]


def _checkpoint_faults(path: Path) -> list[tuple[str, str]]:
    try:
        check(decode(read(path))[1], path.stem)
    except Damage as damage:
        return [("", str(damage))]
    return []


def _shards(root: Path) -> list[Path]:
    return [path for path in entries(root) if _SHARD.fullmatch(path.name) and path.is_dir()]


def _is_home(path: Path) -> bool:
    return _ADDRESS.fullmatch(path.name) is not None and path.name.startswith(path.parent.name)


def _strays(root: Path) -> list[Path]:
    # Hidden names at the top belong to killed writers or to the file system, not to the store.
    ours = {*_shards(root), *(root / name for name in (CHECKPOINTS, LEASES, DAMAGED))}
    top = [path for path in entries(root) if path not in ours and not path.name.startswith(".")]
    return top + [path for shard in _shards(root) for path in entries(shard) if not _is_home(path)]


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
