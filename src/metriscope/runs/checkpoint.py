"""The last safe point of a long training: one safetensors file, replaced whole, with a hash of every byte."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metriscope.runs.codec import from_json, from_tensors, header, to_json, to_tensors
from metriscope.runs.disk import read, remove, sync_folder, temporary, write
from metriscope.runs.errors import Damage, explained

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Checkpoint", "decode", "encode"]

LOG = logging.getLogger("metriscope.runs")
# The header's only note is the digest followed by JSON. Quotes inside names and JSON are escaped there,
# so this stretch of bytes occurs once, just before the digest.
_MARK = b'"metriscope":"'
_BLANK = b"0" * 64


def encode(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> tuple[memoryview, bytes, memoryview]:
    """Return the bytes of a checkpoint: those before its digest, the digest of all others, those after it."""
    data = to_tensors(tensors, note=_BLANK.decode() + to_json(meta, "meta").decode())
    start = data.index(_MARK) + len(_MARK)
    before, after = memoryview(data)[:start], memoryview(data)[start + len(_BLANK) :]
    return before, _digest(before, after), after


def decode(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the meta of a checkpoint, if no byte of it has changed."""
    start = data.find(_MARK) + len(_MARK)
    stop = start + len(_BLANK)
    if _MARK not in data or data[start:stop] != _digest(memoryview(data)[:start], memoryview(data)[stop:]):
        raise Damage("truncated or edited: its content does not match its SHA-256")
    note = header(data).get("__metadata__", {}).get("metriscope", "")
    return from_tensors(data), from_json(note[len(_BLANK) :].encode())


def _digest(before: memoryview, after: memoryview) -> bytes:
    digest = hashlib.sha256(before)
    digest.update(_BLANK)
    digest.update(after)
    return digest.hexdigest().encode()


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of the run at ``address`` in the store at ``root``.

    Weights and the state of the optimiser are tensors; ``meta`` holds words and numbers, such as the epoch.
    """

    root: Path
    address: str

    @property
    def path(self) -> Path:
        """The file that holds the checkpoint."""
        return Path(self.root) / "checkpoints" / f"{self.address}.safetensors"

    def save(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Replace the checkpoint; after a failure or a kill the previous one still stands."""
        parts = encode(tensors, meta)
        with explained(f"save checkpoint {self.address[:12]} in {self.root}"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with temporary(self.path.parent) as temp:
                write(temp, *parts)
                temp.replace(self.path)
            sync_folder(self.path.parent)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the tensors and the meta, or None if there is no checkpoint.

        A damaged checkpoint is logged, removed, and counts as none.
        """
        with explained(f"load checkpoint {self.address[:12]} from {self.root}"):
            if not os.path.lexists(self.path):
                return None
            try:
                return decode(read(self.path))
            except Damage as damage:
                LOG.warning("%s is damaged and removed: %s", self.path, damage)
                remove(self.path)
                return None

    def clear(self) -> None:
        """Remove the checkpoint, if there is one."""
        with explained(f"clear checkpoint {self.address[:12]} in {self.root}"):
            self.path.unlink(missing_ok=True)
