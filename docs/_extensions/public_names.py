"""Docstrings name functions as the code beside them does (``load``); find the public name that is meant."""

from __future__ import annotations

import re
from typing import Any

ABSOLUTE_VALUE = re.compile(r"(?<!`)\|(?=\w[^|`]*\|)([^|`]*)\|(?!`)")


def resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Return a link to the one public object with this last name; None, and so a warning, if there is no such one."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.isidentifier():
        return None
    domain = env.get_domain("py")
    found = [name for name in domain.objects if name.startswith("metriscope.") and name.endswith(f".{target}")]
    found = [name for name in found if name.rpartition(".")[0].islower()]
    if len(found) != 1 or node["reftype"] not in ("func", "class", "exc"):
        return None
    arguments = (node["refdoc"], app.builder, node["reftype"], found[0], node, content)
    return domain.resolve_xref(env, *arguments)


def escape(_: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape absolute values, which reStructuredText would take for substitutions."""
    lines[:] = [line if line.lstrip().startswith(">>>") else ABSOLUTE_VALUE.sub(r"\|\1\|", line) for line in lines]


def setup(app: Any) -> dict[str, Any]:
    """Register both."""
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", escape)
    return {"parallel_read_safe": True}
