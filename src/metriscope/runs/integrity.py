"""Checks of a store: every file of a run is listed with its size and SHA-256 in ``manifest.json``.

The first half checks one run folder, the second half a whole store. With a key in ``METRISCOPE_STORE_KEY`` manifests
are signed (HMAC-SHA256), and a run counts only if its manifest is signed with this key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metriscope.common.errors import Damage, StoreError, printable, reason
from metriscope.common.files import DAMAGED, TEMPORARY, entries, read, sha256
from metriscope.runs.address import DIGITS
from metriscope.runs.checkpoint import CHECKPOINTS, check, decode
from metriscope.runs.codec import from_json, to_json

__all__ = [
    "EXTRA", "KEY", "NAME", "UNREADABLE", "Problem", "faults", "fingerprint", "manifest", "problems", "read_fields",
    "read_listed", "read_manifest", "run_folders",
]  # fmt: skip

KEY = "METRISCOPE_STORE_KEY"
MANIFEST, LEASES = "manifest.json", "leases"
EXTRA, UNREADABLE = "extra file", "cannot be read"
_ALWAYS = ("provenance.json", "record.json", "spec.json", "weights.safetensors")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")  # of a table
_FILE = re.compile("|".join((*map(re.escape, _ALWAYS), NAME.pattern + r"\.parquet")))
_MOST = 1 << 24  # bytes of a manifest, which has about 120 for each file
_DEEPEST = 64
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
        return printable(f"{self.path}: {self.reason}")


def manifest(address: str, files: Mapping[str, bytes]) -> bytes:
    """Return the manifest of the files of a run."""
    listed = {name: {"bytes": len(files[name]), "sha256": sha256(files[name])} for name in sorted(files)}
    fields = {"address": address, "files": listed}
    return to_json(fields | _signed(fields), "manifest")


def _signed(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the signature of a manifest's fields; nothing without a key."""
    if not (key := os.environ.get(KEY)):
        return {}
    signature = hmac.new(key.encode(errors="surrogateescape"), to_json(fields, "manifest"), hashlib.sha256)
    return {"signature": signature.hexdigest()}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the entries of a folder's manifest by file name; raise ``Damage`` if it belongs to another folder.

    A manifest that is not signed with the key raises ``StoreError`` instead: the key may be wrong, not the run.
    """
    data = read(folder / MANIFEST, _MOST)
    found = read_fields(data)
    files = found.get("files")
    if not isinstance(files, dict) or not all(_is_entry(name, entry) for name, entry in files.items()):
        raise Damage("not a manifest")
    if found.get("address") != folder.name:
        raise Damage(f"belongs to run {printable(str(found.get('address')))[:DIGITS]}, not to this folder")
    signature = {name: found[name] for name in ("signature",) if isinstance(found.get(name), str)}
    if data != to_json({"address": folder.name, "files": files} | signature, "manifest"):
        raise Damage("edited: it is not as it was written")
    # Without its key a signature cannot be checked.
    if (expected := _signed({"address": folder.name, "files": files})) and signature != expected:
        raise StoreError(f"run {folder.name[:12]} is not signed with the key in {KEY}")
    return files


def _is_entry(name: str, entry: Any) -> bool:
    if not _FILE.fullmatch(name) or not isinstance(entry, dict) or entry.keys() != {"bytes", "sha256"}:
        return False
    return isinstance(entry["sha256"], str) and type(entry["bytes"]) is int and entry["bytes"] >= 0


def read_listed(folder: Path, name: str, files: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file in the manifest; raise ``Damage`` if they are not those that were written."""
    if name not in files:
        raise Damage("not listed in the manifest")
    size = files[name]["bytes"]
    data = read(folder / name, most=size)
    if len(data) < size:
        raise Damage(f"truncated to {len(data)} of {size} bytes")
    if sha256(data) != files[name]["sha256"]:
        raise Damage("edited: its content is not what the manifest lists")
    if name == "spec.json" and sha256(data)[:DIGITS] != folder.name:
        raise Damage("the address of the specification is not the name of its folder")
    return data


def read_fields(data: bytes) -> dict[str, Any]:
    """Return a JSON object; raise ``Damage`` if the bytes hold anything else."""
    fields = from_json(data)
    if not isinstance(fields, dict):
        raise Damage("not a JSON object")
    if _nested(fields, _DEEPEST):
        raise Damage(f"nested more than {_DEEPEST} deep")
    return fields


def _nested(value: Any, depth: int) -> bool:
    """Return whether a value is nested deeper than ``depth``; printing such a value could fail."""
    if not isinstance(value, dict | list):
        return False
    return depth < 1 or any(_nested(one, depth - 1) for one in (value.values() if isinstance(value, dict) else value))


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
    return found + [(path.name, EXTRA) for path in entries(folder) if path.name not in known]


def _fault(folder: Path, name: str, files: Mapping[str, Any]) -> str:
    try:
        data = read_listed(folder, name, files)
        if name.endswith(".json"):
            read_fields(data)
    except Damage as damage:
        return str(damage)
    return ""


def run_folders(root: Path) -> list[Path]:
    """Return the folders of runs, sorted by address; :func:`problems` names the folders that cannot be read."""
    return [path for shard in _shards(root) for path in _readable(shard) if _is_home(path)]


def fingerprint(root: Path) -> str:
    """Return the SHA-256 of all manifests: compared with a copy, it shows if any run was changed, added or removed."""
    found = hashlib.sha256()
    for folder in run_folders(root):
        with suppress(Damage, OSError):
            found.update(f"{folder.name} {sha256(read(folder / MANIFEST, _MOST))}\n".encode())
    return found.hexdigest()


def problems(root: Path) -> Iterator[Problem]:
    """Yield what is wrong in a store; unfinished files of killed processes do not count."""
    for folder in run_folders(root):
        yield from _found(root, folder, folder.name, faults)
    for folder in (*_shards(root), root / CHECKPOINTS, root / LEASES):
        yield from _found(root, folder, "", _listing_faults)
    for path in _readable(root / CHECKPOINTS):
        if path.suffix == ".safetensors" and _ADDRESS.fullmatch(path.stem):
            yield from _found(root, path, path.stem, _checkpoint_faults)
        elif not path.name.startswith(TEMPORARY):
            yield Problem(_relative(path, root), "", EXTRA)
    for path in _readable(root / LEASES):
        if not path.is_file() or path.is_symlink():
            yield Problem(_relative(path, root), "", "expected an empty file, found something else")
    for path in _strays(root):
        yield Problem(_relative(path, root), "", EXTRA)


def _found(root: Path, path: Path, address: str, check: Callable[[Path], list[tuple[str, str]]]) -> list[Problem]:
    try:
        return [Problem(_relative(path / name, root), address, why) for name, why in check(path)]
    except StoreError as error:
        return [Problem(_relative(path / MANIFEST, root), address, str(error))]
    except OSError as error:
        # The error names the very file, where only its folder may be known here.
        named = Path(error.filename) if isinstance(error.filename, str) else path
        return [Problem(_relative(named, root), address, f"{UNREADABLE}: {reason(error)}")]


def _readable(folder: Path) -> list[Path]:
    try:
        return entries(folder)
    except OSError:
        return []


def _listing_faults(folder: Path) -> list[tuple[str, str]]:
    entries(folder)  # raises what is wrong
    return []


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
    return top + [path for shard in _shards(root) for path in _readable(shard) if not _is_home(path)]


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
