"""Pages written from records: ``python -m metriscope.studies.records STUDY OUT FOLDER PAGE``.

The command copies the finished runs of a study from ``OUT``, the folder of a report, into ``FOLDER``, and writes the
Markdown page ``PAGE`` from all records in ``FOLDER``. Records that exist already are not changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from metriscope.runs.records import Record, add, read
from metriscope.studies.contract import study

__all__ = ["main", "page"]


def page(name: str, records: Sequence[Record]) -> str:
    """Return a study's page in Markdown, made only from records."""
    from metriscope.report.markdown import markdown, verdicts_text
    from metriscope.runs.provenance import together
    from metriscope.studies.verdicts import judge

    own = study(name)
    measure: Any = own.measure
    if not hasattr(measure, "recorded"):
        raise ValueError(f"the study {name} cannot make a page from records")
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
