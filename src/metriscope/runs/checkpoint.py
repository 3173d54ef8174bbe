"""Checkpoints of long trainings: one safetensors file each, replaced atomically, with a SHA-256 of its content."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metriscope.common.errors import Damage, explained, printable
from metriscope.common.files import read, replaced, set_aside
from metriscope.runs.codec import from_json, from_tensors, header, to_json, to_tensors
from metriscope.runs.provenance import FORMAT, provenance

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CHECKPOINTS", "Checkpoint", "check", "decode", "encode"]

CHECKPOINTS = "checkpoints"
LOG = logging.getLogger("metriscope.runs")
# The header's only metadata is the digest followed by JSON. Quotes inside names and JSON are escaped there, so these
# bytes occur once, just before the digest.
_MARK = b'"metriscope":"'
_BLANK = b"0" * 64


def encode(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> tuple[memoryview, bytes, memoryview]:
    """Return the bytes of a checkpoint in three parts: before its digest, the digest of all other bytes, after it."""
    data = to_tensors(tensors, note=_BLANK.decode() + to_json(meta, "meta").decode())
    start = data.index(_MARK) + len(_MARK)
    before, after = memoryview(data)[:start], memoryview(data)[start + len(_BLANK) :]
    return before, _digest(before, after), after


def decode(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the metadata of a checkpoint; raise ``Damage`` if a byte has changed."""
    start = data.find(_MARK) + len(_MARK)
    stop = start + len(_BLANK)
    if _MARK not in data or data[start:stop] != _digest(memoryview(data)[:start], memoryview(data)[stop:]):
        raise Damage("truncated or edited: its content does not match its SHA-256")
    tensors = from_tensors(data)  # checks the header
    note = header(data).get("__metadata__", {}).get("metriscope", "")
    return tensors, from_json(note[len(_BLANK) :].encode())


def _digest(before: memoryview, after: memoryview) -> bytes:
    digest = hashlib.sha256(before)
    digest.update(_BLANK)
    digest.update(after)
    return digest.hexdigest().encode()


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of one run of a store.

    Besides the tensors it holds a format version, the run's address, the step reached, the last step, and where it
    was computed. A checkpoint that does not match its run is moved to ``damaged/``, and the run starts again.

    Parameters
    ----------
    root : Path
        Folder of the store.
    address : str
        Address of the run.

    Examples
    --------
    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(Path(folder), "0" * 40)
    ...     checkpoint.save({"weight": torch.ones(2)}, step=3, last=10)
    ...     checkpoint.load(last=10, like={"weight": torch.zeros(2)})
    ({'weight': tensor([1., 1.])}, 3)
    """

    root: Path
    address: str

    @property
    def path(self) -> Path:
        """The file that holds the checkpoint."""
        return Path(self.root) / CHECKPOINTS / f"{self.address}.safetensors"

    def save(self, tensors: Mapping[str, Tensor], step: int, last: int) -> None:
        """Replace the checkpoint; after a failure or a kill the previous one is still there."""
        meta = {"format": FORMAT, "address": self.address, "step": step, "last": last, "provenance": provenance()}
        parts = encode(tensors, meta)
        with explained(f"save checkpoint {self.address[:12]} in {self.root}"), replaced(self.path) as file:
            file.writelines(parts)

    def load(self, last: int, like: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int] | None:
        """Return the tensors and the step, or None if there is no checkpoint that matches the run.

        It matches if no byte of it has changed, it belongs to this run, its step is one of ``1..last``, and its
        tensors have the names, shapes and dtypes of ``like``. Otherwise it is logged and moved to ``damaged/``.
        """
        with explained(f"load checkpoint {self.address[:12]} from {self.root}"):
            if not os.path.lexists(self.path):
                return None
            try:
                tensors, meta = decode(read(self.path))
                check(meta, self.address, last)
                _check_tensors(tensors, like)
                return tensors, int(meta["step"])
            except Damage as damage:
                LOG.warning("%s is set aside, and its run starts again: %s", self.path, damage)
                set_aside(self.path, Path(self.root))
                return None

    def adopt(self, data: bytes) -> None:
        """Replace the checkpoint by the bytes of one of the same run, as another store wrote it."""
        with explained(f"save checkpoint {self.address[:12]} in {self.root}"):
            check(decode(data)[1], self.address)
            with replaced(self.path) as file:
                file.write(data)

    def clear(self) -> None:
        """Remove the checkpoint, if there is one."""
        with explained(f"clear checkpoint {self.address[:12]} in {self.root}"):
            self.path.unlink(missing_ok=True)


def check(meta: object, address: str, last: int | None = None) -> None:
    """Raise ``Damage`` unless this is what :meth:`Checkpoint.save` wrote for the run at ``address``."""
    if not isinstance(meta, dict) or not {"format", "address", "step", "last"} <= meta.keys():
        raise Damage("not a checkpoint of a run")
    if meta["format"] != FORMAT:
        raise Damage(f"has format {printable(str(meta['format']))[:12]}, expected {FORMAT}")
    if meta["address"] != address:
        raise Damage(f"belongs to run {printable(str(meta['address']))[:12]}, not to {address[:12]}")
    end = meta["last"] if last is None else last
    bounds = all(isinstance(value, int) for value in (meta["step"], end))
    if not bounds or meta["last"] != end or not 0 < meta["step"] <= end:
        raise Damage(f"is at step {meta['step']} of {meta['last']}, expected 1 to {end}")


def _check_tensors(tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
    if missing := sorted(tensors.keys() ^ like.keys()):
        raise Damage(f"does not match the run: only one of them has the tensor {missing[0]!r}")
    for name, own in like.items():
        came = tensors[name]
        if (came.shape, came.dtype) != (own.shape, own.dtype):
            expected = f"{tuple(own.shape)} {str(own.dtype)[6:]}"
            raise Damage(f"{name!r} is {tuple(came.shape)} {str(came.dtype)[6:]}, expected {expected}")
