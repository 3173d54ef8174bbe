"""A finished run, read from its folder, and as text for listings; tensors and tables are loaded on demand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metriscope.common.errors import StoreError, explained, printable
from metriscope.runs.codec import from_parquet, from_tensors
from metriscope.runs.integrity import read_fields, read_listed, read_manifest

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import Tensor

__all__ = ["Run", "contents", "describe", "read_run", "table"]

_WEIGHTS = "weights.safetensors"
_TABLE = ".parquet"


@dataclass(frozen=True)
class Run:
    """A finished run of a store.

    Parameters
    ----------
    address : str
        Hash of the specification.
    spec : dict
        What was computed.
    record : dict
        Results in words and numbers.
    provenance : dict
        Versions, code, processor and threads with which it was computed.
    path : Path
        Folder of the run.

    Examples
    --------
    >>> import tempfile, torch
    >>> from metriscope.runs import Store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Store(Path(folder)).put({"seed": 7}, {"weight": torch.ones(1)}, {"loss": 0.5}, {})
    ...     run.spec, run.record, run.tensors()
    ({'seed': 7}, {'loss': 0.5}, {'weight': tensor([1.])})
    """

    address: str
    spec: dict[str, Any]
    record: dict[str, Any]
    provenance: dict[str, Any]
    path: Path

    @property
    def kind(self) -> str:
        """The type name of the specification; empty if it was a plain mapping."""
        return str(self.spec.get("kind", ""))

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        names = (path.name for path in self.path.glob(f"*{_TABLE}"))
        return tuple(sorted(name[: -len(_TABLE)] for name in names))

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors, in the order of their names."""
        with explained(f"read {self.path / _WEIGHTS}"):
            return from_tensors(self._bytes(_WEIGHTS))

    def table(self, name: str) -> DataFrame:
        """Return a table by its name.

        Raises
        ------
        StoreError
            If the run has no such table, or its file cannot be read.
        """
        if name not in self.tables:
            held = ", ".join(self.tables) or "none"
            raise StoreError(f"run {self.address[:12]} has no table {name!r}; it has {held}")
        with explained(f"read {self.path / (name + _TABLE)}"):
            return from_parquet(self._bytes(name + _TABLE))

    def files(self) -> dict[str, bytes]:
        """Return the bytes of all files but the manifest, by their names."""
        listed = read_manifest(self.path)
        return {name: read_listed(self.path, name, listed) for name in listed}

    def _bytes(self, name: str) -> bytes:
        return read_listed(self.path, name, read_manifest(self.path))


def read_run(folder: Path) -> Run:
    """Return the run in a folder; only its small files are read and checked."""
    files = read_manifest(folder)
    small = ("spec.json", "record.json", "provenance.json")
    spec, record, provenance = (read_fields(read_listed(folder, name, files)) for name in small)
    return Run(folder.name, spec, record, provenance, folder)


def table(runs: Sequence[Run]) -> list[str]:
    """Return one line per run in aligned columns: address, study, kind, and what else was asked."""
    rows = [(run.address[:12], str(run.spec.get("study", "")), run.kind, _asked(run.spec)) for run in runs]
    first, second = (max((len(row[column]) for row in rows), default=0) for column in (1, 2))
    return [
        printable(f"{key}  {study:<{first}}  {kind:<{second}}  {asked}".rstrip()) for key, study, kind, asked in rows
    ]


def contents(run: Run) -> dict[str, Any]:
    """Return specification, record, provenance, and the sizes of the tensors and tables of a run."""
    sizes = {name: list(tensor.shape) for name, tensor in run.tensors().items()}
    rows = {name: len(run.table(name)) for name in run.tables}
    parts = {"spec": run.spec, "record": run.record, "provenance": run.provenance}
    return {"address": run.address, **parts, "tensors": sizes, "tables": rows}


def describe(run: Run) -> str:
    """Return specification, record, provenance, tensors and tables of a run as text."""
    parts = {"specification": run.spec, "record": run.record, "provenance": run.provenance}
    texts = [f"address {run.address}"]
    texts += [f"{name}\n{json.dumps(part, indent=2, ensure_ascii=False)}" for name, part in parts.items()]
    shapes = [f"  {name}  {tuple(t.shape)} {str(t.dtype)[6:]}" for name, t in run.tensors().items()]
    tables = [f"  {name}  {len(run.table(name)):,} rows" for name in run.tables]
    lines = "\n".join([*texts, "tensors", *shapes, "tables", *tables]).split("\n")
    return "\n".join(map(printable, lines))


def _asked(spec: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_short(value)}" for key, value in spec.items() if key not in ("kind", "study"))


def _short(value: object) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{k}={_short(v)}" for k, v in value.items() if k != "kind")
        return f"({inner})"
    if isinstance(value, list):
        return "[" + " ".join(_short(v) for v in value) + "]"
    return str(value)
