"""Records of long runs, small enough to keep with the code: every number of a run, without its weights.

``python -m metriscope.studies.records STUDY OUT FOLDER PAGE`` copies the finished runs of a study from ``OUT``, the
folder of a report, into ``FOLDER``, and writes the Markdown page ``PAGE`` from all records in ``FOLDER``. Records that
exist already are not changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metriscope.studies.contract import study

if TYPE_CHECKING:
    import pandas as pd

    from metriscope.runs import Run

__all__ = ["Record", "add", "main", "page", "read"]

TABLES = "tables"


@dataclass(frozen=True, eq=False)
class Record:
    """The specification of a run, where it was computed, and its tables."""

    spec: Mapping[str, Any]
    provenance: Mapping[str, Any]
    tables: Mapping[str, pd.DataFrame]

    @property
    def kind(self) -> str:
        """The type name of the specification."""
        return str(self.spec.get("kind", ""))


def add(runs: Iterable[Run], folder: Path, name: str) -> int:
    """Copy a study's runs into a folder of records, one file each; return how many are new."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = 0
    for run in runs:
        path = folder / f"{run.kind.lower()}-{run.address[:16]}.json"
        if run.spec.get("study") == name and not path.exists():
            path.write_text(_text(run), encoding="utf-8")
            fresh += 1
    return fresh


def _text(run: Run) -> str:
    """Return a record as JSON with one line per field or column: short, and easy to compare in a diff."""
    from metriscope.runs.address import plain

    tables = {name: run.table(name).to_dict("list") for name in run.tables}
    whole = plain({"spec": run.spec, "provenance": run.provenance, TABLES: tables}, "record", undefined=True)
    return _lines(whole, {"spec": 1, "provenance": 1, TABLES: 2}) + "\n"


def _lines(value: Any, depths: Mapping[str, int] | int, indent: str = "") -> str:
    if depths == 0 or not isinstance(value, dict):
        return json.dumps(value, allow_nan=False)
    below = {key: depths[key] if isinstance(depths, Mapping) else depths - 1 for key in value}
    inner = [f"{indent} {json.dumps(key)}: {_lines(entry, below[key], indent + ' ')}" for key, entry in value.items()]
    return "{\n" + ",\n".join(inner) + f"\n{indent}}}"


def read(folder: Path) -> tuple[Record, ...]:
    """Return the records of a folder, sorted by specification."""
    import pandas as pd

    from metriscope.runs.codec import from_json

    found = []
    for path in sorted(folder.glob("*.json")):
        fields = from_json(path.read_bytes())
        # The oldest records have their tables beside the specification, not under "tables".
        tables = fields.get(TABLES) or {k: v for k, v in fields.items() if k not in ("spec", "provenance", TABLES)}
        frames = {name: pd.DataFrame(columns) for name, columns in tables.items()}
        found.append(Record(fields["spec"], fields["provenance"], frames))
    return tuple(sorted(found, key=lambda record: json.dumps(record.spec, sort_keys=True)))


def page(name: str, records: Sequence[Record]) -> str:
    """Return a study's page in Markdown, made only from records."""
    from metriscope.report.markdown import markdown, verdicts_text
    from metriscope.runs.provenance import together
    from metriscope.studies.judging import judge

    own = study(name)
    measure: Any = own.measure
    if not hasattr(measure, "recorded"):
        raise ValueError(f"the study {name} makes no results from records")
    results = measure.recorded(records)
    found = judge(own.judge.STATEMENTS, results.tables)
    claims = tuple(replace(claim, study=name, origin="record") for claim in found)
    opening = f"Written by a program from {len(records)} stored runs, whose weights were not kept."
    sections = own.page.sections(None, results, claims)
    where = together(record.provenance for record in records)
    return markdown(own.plan.TITLE, f"{opening}\n\n{verdicts_text(claims)}", sections, where)


def main(arguments: Sequence[str]) -> None:
    """Add the runs of a report to the records and write the page."""
    from metriscope.runs import Store

    name, (out, folder, target) = arguments[0], (Path(argument) for argument in arguments[1:])
    add(Store(out / "runs").runs(), folder, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(name, read(folder)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
