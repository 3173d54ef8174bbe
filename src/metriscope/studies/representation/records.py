"""Records of long runs, small enough to keep with the code: every number of a training, and not its weights.

``python -m metriscope.studies.representation.records OUT FOLDER PAGE`` copies the finished runs of a report's folder
into ``FOLDER`` and writes ``PAGE`` from what ``FOLDER`` then holds. Runs that are there already stay.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from metriscope.runs import Run, Store
from metriscope.studies.representation.markdown import markdown
from metriscope.studies.representation.results import Results, Trained
from metriscope.studies.representation.spec import Training

__all__ = ["add", "main", "read"]

ORDER = ["pixels", "epochs", "data", "train_size", "model", "number"]


def add(runs: Iterable[Run], folder: Path) -> int:
    """Copy the finished trainings among some runs into a folder of records, one file each; return how many are new."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [run for run in runs if run.kind == Training.__name__]
    fresh = [run for run in found if not _path(run, folder).exists()]
    for run in fresh:
        tables = {name: run.table(name).to_dict("list") for name in ("history", "dead")}
        record = {"spec": run.spec, "provenance": run.provenance, **tables}
        _path(run, folder).write_text(_lines(record), encoding="utf-8")
    return len(fresh)


def _path(run: Run, folder: Path) -> Path:
    spec = run.spec
    return folder / f"{spec['model']}-{spec['number']}-{spec['pixels']}-{spec['epochs']}-{run.address[:8]}.json"


def _lines(record: dict[str, Any]) -> str:
    """Return a record as JSON with one line a column, which is short and shows what changed."""
    parts = []
    for name, value in record.items():
        inner = ",\n".join(f"  {json.dumps(key)}: {json.dumps(entry)}" for key, entry in value.items())
        parts.append(f" {json.dumps(name)}: {{\n{inner}\n }}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read(folder: Path) -> tuple[Results, dict[str, Any]]:
    """Return the recorded runs without their networks, and where they came from."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    records.sort(key=lambda record: [str(record["spec"][name]) for name in ORDER])
    return Results(tuple(_trained(record) for record in records)), _together([r["provenance"] for r in records])


def _trained(record: dict[str, Any]) -> Trained:
    spec = record["spec"]
    place = (spec["pixels"], spec["epochs"], spec["data"], spec["train_size"])
    tables = (pd.DataFrame(record["history"]), pd.DataFrame(record["dead"]))
    return Trained(spec["model"], spec["number"], *place, None, *tables)


def _together(provenances: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the runs have in common, and every date and commit among them."""
    if not provenances:
        return {}
    codes = [one["code"] for one in provenances]
    commits = sorted({f"{str(code['commit'])[:12]}{' with changes' if code['dirty'] else ''}" for code in codes})
    dates = sorted(one["date"] for one in provenances)
    same = {key: value for key, value in provenances[0].items() if all(one[key] == value for one in provenances)}
    return {"finished": f"{dates[0]} to {dates[-1]}", "commits": commits} | {
        key: value for key, value in same.items() if key not in ("date", "code")
    }


def main(arguments: list[str]) -> None:
    """Take over runs and write the page."""
    out, folder, page = (Path(argument) for argument in arguments)
    add(Store(out / "runs").runs(), folder)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(markdown(*read(folder)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
