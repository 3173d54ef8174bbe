"""Whether a run folder is whole: every file is listed with its size and SHA-256 in ``manifest.json``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metriscope.runs.address import DIGITS
from metriscope.runs.codec import from_json, to_json
from metriscope.runs.disk import entries, read
from metriscope.runs.errors import Damage

__all__ = ["MANIFEST", "Problem", "faults", "manifest", "read_fields", "read_listed", "read_manifest"]

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
