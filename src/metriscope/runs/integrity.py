"""Whether a run folder is whole: every file is listed with its size and SHA-256 in ``manifest.json``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metriscope.common.errors import Damage, reason
from metriscope.common.files import DAMAGED, TEMPORARY, entries, read
from metriscope.runs.address import DIGITS
from metriscope.runs.checkpoint import check, decode
from metriscope.runs.codec import from_json, to_json
from metriscope.runs.lease import FOLDER as LEASES

__all__ = [
    "MANIFEST",
    "Problem",
    "faults",
    "manifest",
    "problems",
    "read_fields",
    "read_listed",
    "read_manifest",
    "run_folders",
]

MANIFEST = "manifest.json"
_ALWAYS = ("provenance.json", "record.json", "spec.json", "weights.safetensors")


@dataclass(frozen=True)
class Problem:
    """Something in a store that is not as it was written; ``path`` is relative to the store."""

    path: str
    address: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def manifest(address: str, files: Mapping[str, bytes]) -> bytes:
    """Return the manifest of the files of a run."""
    listed = {name: {"bytes": len(files[name]), "sha256": _digest(files[name])} for name in sorted(files)}
    return to_json({"address": address, "files": listed}, "manifest")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what the manifest lists, by file name, if it is a manifest and that of this folder."""
    found = read_fields(read(folder / MANIFEST))
    files = found.get("files")
    if not isinstance(files, dict) or not all(_is_entry(name, entry) for name, entry in files.items()):
        raise Damage("not a manifest")
    if found.get("address") != folder.name:
        raise Damage(f"belongs to run {found.get('address')}, not to this folder")
    return files


def read_listed(folder: Path, name: str, files: Mapping[str, Any]) -> bytes:
    """Return the bytes of a listed file if they are the ones that were written."""
    if name not in files:
        raise Damage("not listed in the manifest")
    data, size = read(folder / name), files[name]["bytes"]
    if len(data) < size:
        raise Damage(f"truncated to {len(data)} of {size} bytes")
    if len(data) > size or _digest(data) != files[name]["sha256"]:
        raise Damage("edited: its content is not what the manifest lists")
    if name == "spec.json" and _digest(data)[:DIGITS] != folder.name:
        raise Damage("the specification has another address than its folder")
    return data


def faults(folder: Path) -> list[tuple[str, str]]:
    """Return what is wrong with a run folder, as file names and reasons; nothing for a whole run."""
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


def read_fields(data: bytes) -> dict[str, Any]:
    """Return a JSON object."""
    fields = from_json(data)
    if not isinstance(fields, dict):
        raise Damage("not a JSON object")
    return fields


def _is_entry(name: str, entry: Any) -> bool:
    fields = isinstance(entry, dict) and isinstance(entry.get("sha256"), str) and isinstance(entry.get("bytes"), int)
    return fields and Path(name).name == name


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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
