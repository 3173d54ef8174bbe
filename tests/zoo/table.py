"""The table of architectures in the documentation: ``python tests/zoo/table.py docs/zoo.md``."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import metriscope as ms
from zoo.models import architectures, build
from zoo.reference import compared, seen

__all__ = ["row"]

OUTCOMES = ("bit-identical", "refused", "wrong")
OPENING = """# Architectures that were captured

Written by `python tests/zoo/table.py docs/zoo.md`, with random weights, five points and small inputs. The reference is
independent of `ms.capture`: it watches PyTorch's dispatcher during one pass and notes the sign of what every activation
is given. "Bit-identical" means that every such layer was captured with equal bits and that none is missing; "refused"
that `capture` raised an error in one sentence; "wrong" means anything else. Operations that are named but not captured
are in the last column.
"""


def row(library: str, name: str) -> dict[str, Any]:
    """Capture an architecture and return the outcome with what was seen, or why it was refused."""
    model, inputs = build(library, name)
    try:
        patterns = ms.capture(model, inputs)
    except (ValueError, TypeError) as error:
        return {"outcome": "refused", "layers": 0, "bits": 0, "note": str(error)}
    found = compared(patterns, seen(model, inputs))
    fits = found.equal > 0 and not found.differing and not found.unmatched
    note = (
        str(patterns.missed).partition("; ")[2] if fits else f"differ: {found.differing}; not taken: {found.unmatched}"
    )
    outcome = "bit-identical" if fits else "wrong"
    return {"outcome": outcome, "layers": len(patterns.layers), "bits": patterns.width, "note": note}


def main(target: Path) -> None:
    """Capture every architecture and write the table."""
    rows = []
    for library, name in architectures():
        rows.append((library, name, row(library, name)))
        sys.stderr.write(f"{library} {name}: {rows[-1][2]['outcome']}\n")
    counts = Counter(found["outcome"] for _, _, found in rows)
    summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
    lines = [OPENING, f"**{len(rows)} architectures: {summary}.** PyTorch {torch.__version__}.", ""]
    lines += [
        "| library | architecture | outcome | layers | bits per point | also ran, or why refused |",
        "|---|---|---|---:|---:|---|",
    ]
    for library, name, found in rows:
        cells = (
            library,
            f"`{name}`",
            found["outcome"],
            found["layers"],
            f"{found['bits']:,}",
            found["note"].replace("|", "\\|"),
        )
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
