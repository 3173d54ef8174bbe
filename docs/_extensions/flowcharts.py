"""Draw the mermaid flowcharts of a page as SVG when the site is built: no script, no download, any color scheme."""

from __future__ import annotations

import re
from html import escape
from typing import Any, NamedTuple

from docutils import nodes
from docutils.parsers.rst import Directive

NODE = r'(\w+)(?:\[\(?"(.+?)"\)?\])?'
EDGE = re.compile(rf"^\s*{NODE} (<?)--> {NODE}\s*$")
WIDTH, HEIGHT, GAP_X, GAP_Y = 256, 44, 20, 34


class Chart(NamedTuple):
    """Labels of boxes in order of appearance, and arrows (from, to, whether it points both ways)."""

    labels: dict[str, str]
    arrows: list[tuple[str, str, bool]]


def parse(lines: list[str]) -> Chart:
    """Return the boxes and arrows of a flowchart.

    >>> parse(["flowchart LR", 'a["A<br>one"] --> b["B"]', "b <--> c"])
    Chart(labels={'a': 'A<br>one', 'b': 'B', 'c': 'c'}, arrows=[('a', 'b', False), ('b', 'c', True)])
    """
    chart = Chart({}, [])
    for line in lines[1:]:
        if (found := EDGE.match(line)) is None:
            raise ValueError(f"expected 'a --> b' in a flowchart, got {line!r}")
        source, source_label, both, target, target_label = found.groups()
        for name, label in ((source, source_label), (target, target_label)):
            chart.labels[name] = label or chart.labels.get(name, name)
        chart.arrows.append((source, target, bool(both)))
    return chart


def rows_of(chart: Chart) -> list[list[str]]:
    """Return the boxes by row: each stands below all that lead to it.

    >>> rows_of(parse(["flowchart", "a --> b", "b --> c", "a --> c"]))
    [['a'], ['b'], ['c']]
    """
    depth = dict.fromkeys(chart.labels, 0)
    for _ in chart.labels:
        for source, target, _both in chart.arrows:
            depth[target] = max(depth[target], depth[source] + 1)
    return [[name for name in depth if depth[name] == row] for row in range(max(depth.values()) + 1)]


def box(x: float, y: float, label: str) -> str:
    """Return one box with its label of one or two lines, the first in bold."""
    lines = label.split("<br>")
    shown = "".join(
        f'<text x="{x}" y="{y + HEIGHT / 2 + 5 + (i - (len(lines) - 1) / 2) * 17}"'
        f' class="{"head" if i == 0 else "more"}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    return f'<rect x="{x - WIDTH / 2}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>{shown}'


def draw(chart: Chart) -> str:
    """Return a flowchart as SVG, from top to bottom."""
    rows = rows_of(chart)
    width = max(map(len, rows)) * (WIDTH + GAP_X) - GAP_X + 4
    places = {
        name: (width / 2 + (i - (len(row) - 1) / 2) * (WIDTH + GAP_X), 2 + depth * (HEIGHT + GAP_Y))
        for depth, row in enumerate(rows)
        for i, name in enumerate(row)
    }
    lines = [
        f'<line x1="{places[a][0]}" y1="{places[a][1] + HEIGHT + 2}" x2="{places[b][0]}" y2="{places[b][1] - 2}"'
        f' marker-end="url(#tip)"{" marker-start=" + chr(34) + "url(#tip)" + chr(34) if both else ""}/>'
        for a, b, both in chart.arrows
    ]
    tip = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker>'
    )
    said = "; ".join(f"{chart.labels[a]} to {chart.labels[b]}".replace("<br>", ", ") for a, b, _ in chart.arrows)
    boxes = "".join(box(*places[name], label) for name, label in chart.labels.items())
    height = len(rows) * (HEIGHT + GAP_Y) - GAP_Y + 4
    return (
        f'<svg class="flowchart" role="img" aria-label="{escape(said)}" viewBox="0 0 {width} {height}"'
        f' style="max-width:{width}px"><defs>{tip}</defs>{"".join(lines)}{boxes}</svg>'
    )


class Flowchart(Directive):
    """The directive ``mermaid``."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the drawing."""
        return [nodes.raw("", draw(parse(list(self.content))), format="html")]


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("mermaid", Flowchart)
    return {"parallel_read_safe": True}
