"""Runs as text for people: a line each, or everything about one."""

from __future__ import annotations

import json

from metriscope.runs.run import Run

__all__ = ["describe", "line"]


def line(run: Run) -> str:
    """Return the run's address and what was asked, on one line."""
    asked = ", ".join(f"{k}={_short(v)}" for k, v in run.spec.items() if k != "kind")
    return f"{run.address[:12]}  {run.kind}  {asked}"


def describe(run: Run) -> str:
    """Return what was asked, what came of it, where it came from, and what it holds."""
    parts = {"specification": run.spec, "record": run.record, "provenance": run.provenance}
    texts = [f"address {run.address}"]
    texts += [f"{name}\n{json.dumps(part, indent=2, ensure_ascii=False)}" for name, part in parts.items()]
    shapes = [f"  {name}  {tuple(t.shape)} {str(t.dtype)[6:]}" for name, t in run.tensors().items()]
    tables = [f"  {name}  {len(run.table(name)):,} rows" for name in run.tables]
    return "\n".join([*texts, "tensors", *shapes, "tables", *tables])


def _short(value: object) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{k}={_short(v)}" for k, v in value.items() if k != "kind")
        return f"({inner})"
    if isinstance(value, list):
        return "[" + " ".join(_short(v) for v in value) + "]"
    return str(value)
