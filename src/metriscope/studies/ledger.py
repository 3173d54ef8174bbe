"""The ledger of all claims: those that the studies judge, and those that no study measures yet.

A study's own claims are in its ``judge`` module; ``ledger.json`` holds the others, each with the study it waits for.
``python -m metriscope.studies.ledger OUT PAGE`` writes the verdicts of the report in the folder ``OUT`` as a page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from metriscope.report import Claim, Table
from metriscope.studies import STUDIES
from metriscope.studies.contract import study

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Entry", "entries", "main", "verdict_table", "verdicts_page", "whole"]


@dataclass(frozen=True)
class Entry:
    """A claim as the sources state it, before any verdict; ``waits`` is True if no study measures it yet."""

    id: str
    text: str
    source: str
    study: str
    waits: bool = False


@cache
def _waiting() -> tuple[Entry, ...]:
    rows = json.loads(files("metriscope.studies").joinpath("ledger.json").read_text(encoding="utf-8"))
    return tuple(Entry(key, row["text"], row["source"], row["study"], waits=True) for key, row in rows.items())


def entries() -> tuple[Entry, ...]:
    """Return every claim, in the order of their ids.

    >>> [entry.id for entry in entries()][:2]
    ['C01', 'C02']
    """
    judged = [Entry(s.id, s.text, s.source, name) for name in STUDIES for s in study(name).judge.STATEMENTS]
    return tuple(sorted((*judged, *_waiting()), key=lambda entry: entry.id))


def whole(claims: Iterable[Claim], unfinished: Mapping[str, str] | None = None) -> tuple[Claim, ...]:
    """Return every claim of the ledger: as it was judged, or undecided because it was not run.

    ``unfinished`` maps each study that was started but not finished to the reason.
    """
    judged = {claim.id: claim for claim in claims}
    found = []
    for entry in entries():
        absent = f"Not part of this report: `metriscope reproduce {entry.study}` re-tests it."
        missing = (unfinished or {}).get(entry.study, absent)
        waiting = "No study measures this yet." if entry.waits else missing
        blank = Claim(entry.id, entry.text, entry.source, "undecided", waiting, strength="not run", origin="")
        found.append(replace(judged.get(entry.id, blank), study=entry.study))
    return tuple(found)


def verdict_table(claims: Iterable[Claim]) -> Table:
    """Return one row per claim: id, study, verdict, strength, origin and reason."""
    import pandas as pd

    names = ("id", "study", "verdict", "strength", "origin", "reason")
    frame = pd.DataFrame([[getattr(claim, name) for name in names] for claim in claims], columns=list(names))
    return Table("verdicts", "Every claim of the ledger", frame)


def verdicts_page(verdicts: pd.DataFrame) -> str:
    """Return every claim with its verdict as a page in Markdown; ``verdicts`` is the table of a report."""
    found = verdicts.set_index("id")
    lines = [
        "# Every claim and its verdict",
        "",
        "Written by a program from the report of `metriscope reproduce` (quick profile, with the records of longer",
        "runs), which shows every criterion with its interval. *Exact* is a computed fact, *protocol* follows the",
        "source's own protocol with enough runs, *hint* is shorter or smaller, *not run* has no numbers.",
        "",
        "| claim | source | study | verdict | strength | numbers from |",
        "|---|---|---|---|---|---|",
    ]
    for entry in entries():
        row = found.loc[entry.id]
        origin = {"run": "this profile", "record": "recorded runs"}.get(row["origin"], "–")
        cells = (f"{entry.id}: {entry.text}", entry.source, entry.study, row["verdict"], row["strength"], origin)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join((*lines, ""))


def main(arguments: Sequence[str]) -> None:
    """Write the page of all verdicts from the folder of a report."""
    import pandas as pd

    out, target = map(Path, arguments)
    target.write_text(verdicts_page(pd.read_parquet(out / "tables" / "verdicts.parquet")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
