"""Records of finished runs, small enough to keep with the code: every number of a run, without its weights.

A record is a JSON file named after the address of its run. The folder ``results`` holds them by study and is installed
with the package, so that a report can show experiments that are too long to repeat.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metriscope.common.errors import Damage, StoreError, explained
from metriscope.common.files import read as file_content
from metriscope.runs.address import plain
from metriscope.runs.codec import from_json

if TYPE_CHECKING:
    import pandas as pd

    from metriscope.runs.run import Run

__all__ = ["Record", "add", "find", "find_similar", "read", "shipped"]

_TABLES = "tables"
# Digits of the address in the name of a file: 64 bits, enough for the records of one study.
_SHORT = 16
_HERE = Path(__file__).parents[1]
# In an installed package, and in a checkout of the project.
_FOLDERS = (_HERE / "results", _HERE.parents[1] / "results")


@dataclass(frozen=True, eq=False)
class Record:
    """A run whose weights were not kept.

    Parameters
    ----------
    spec : mapping
        What was computed.
    provenance : mapping
        Where it was computed.
    frames : mapping of str to DataFrame
        The tables by name.
    record : mapping
        Results in words and numbers.
    path : Path
        The file.

    Examples
    --------
    >>> Record({"kind": "Square", "number": 3}, {}, {}, {"square": 9}).record["square"]
    9
    """

    spec: Mapping[str, Any]
    provenance: Mapping[str, Any]
    frames: Mapping[str, pd.DataFrame]
    record: Mapping[str, Any] = field(default_factory=dict)
    path: Path = Path()

    @property
    def kind(self) -> str:
        """The type name of the specification."""
        return str(self.spec.get("kind", ""))

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(self.frames)

    def table(self, name: str) -> pd.DataFrame:
        """Return a copy of a table by its name.

        Raises
        ------
        StoreError
            If the record has no such table.
        """
        if name not in self.frames:
            raise StoreError(f"the record {self.path} has no table {name!r}; it has {', '.join(self.frames) or 'none'}")
        return self.frames[name].copy()


def add(runs: Iterable[Run], folder: Path, name: str) -> int:
    """Copy a study's runs into a folder of records, one file each; return how many are new."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = 0
    for run in runs:
        path = folder / f"{run.kind.lower()}-{run.address[:_SHORT]}.json"
        if run.spec.get("study") == name and not path.exists():
            path.write_text(_text(run), encoding="utf-8")
            fresh += 1
    return fresh


def _text(run: Run) -> str:
    """Return a record as JSON with one line per field or column: short, and easy to compare in a diff."""
    tables = {name: run.table(name).to_dict("list") for name in run.tables}
    parts = {"spec": run.spec, "provenance": run.provenance, "record": run.record, _TABLES: tables}
    whole = plain(parts, "record", undefined=True)
    return _lines(whole, {"spec": 1, "provenance": 1, "record": 1, _TABLES: 2}) + "\n"


def _lines(value: Any, depths: Mapping[str, int] | int, indent: str = "") -> str:
    if depths == 0 or not isinstance(value, dict):
        return json.dumps(value, allow_nan=False)
    below = {key: depths[key] if isinstance(depths, Mapping) else depths - 1 for key in value}
    inner = [f"{indent} {json.dumps(key)}: {_lines(entry, below[key], indent + ' ')}" for key, entry in value.items()]
    return "{\n" + ",\n".join(inner) + f"\n{indent}}}"


def read(folder: Path) -> tuple[Record, ...]:
    """Return the records of a folder, sorted by specification."""
    found = [_record(path) for path in sorted(folder.glob("*.json"))]
    return tuple(sorted(found, key=lambda record: json.dumps(record.spec, sort_keys=True)))


def _record(path: Path) -> Record:
    with explained(f"read the record {path}"):
        return _from_fields(from_json(file_content(path)), path)


def _from_fields(fields: Any, path: Path) -> Record:
    import pandas as pd

    parts = [fields.get(name) for name in ("spec", "provenance")] if isinstance(fields, dict) else [None]
    parts += [fields[name] for name in ("record", _TABLES) if isinstance(fields, dict) and name in fields]
    if not all(isinstance(part, dict) for part in parts):
        raise Damage("it is not the record of a run")
    # The oldest records have their tables beside the specification, not under "tables".
    known = ("spec", "provenance", "record", _TABLES)
    tables = fields.get(_TABLES) or {name: value for name, value in fields.items() if name not in known}
    try:
        frames = {name: pd.DataFrame(columns) for name, columns in tables.items()}
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise Damage("its tables are not columns of one length") from error
    return Record(fields["spec"], fields["provenance"], frames, fields.get("record", {}), path)


def shipped(study: str) -> Path:
    """Return the folder of a study's records that come with the package; it may not exist."""
    return next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0]) / study


@cache
def _names(study: str) -> Mapping[str, Path]:
    """Return the files of a study's shipped records by the digits of the address in their names."""
    return {path.stem.rpartition("-")[2]: path for path in shipped(study).glob("*.json")}


def find(study: str, address: str) -> Record | None:
    """Return the shipped record of a run, or None."""
    path = _names(study).get(address[:_SHORT])
    return None if path is None else _record(path)


def find_similar(study: str, spec: object, ignored: Collection[str]) -> Record | None:
    """Return the first shipped record with this specification but for the ignored fields, or None."""
    wanted = _without(plain(spec, "spec"), ignored)
    found = (_record(path) for path in _names(study).values())
    return next((record for record in found if _without(record.spec, ignored) == wanted), None)


def _without(spec: Mapping[str, Any], ignored: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key not in ignored}
