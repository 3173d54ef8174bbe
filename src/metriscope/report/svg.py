"""Turn a matplotlib figure into inline SVG: the same bytes every time, text kept as text, unique ids."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from metriscope.report.style import settle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FONT_STACK", "to_svg"]

FONT_STACK = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_NAMESPACE = "http://www.w3.org/2000/svg"
# Older releases of matplotlib write "font: 700 10px 'DejaVu Sans', ...", newer ones separate properties.
_SHORTHAND = re.compile(r"font:([^;]*?px)\s[^;]*")
_FAMILY = re.compile(r"font-family:[^;]*;?\s*")


def to_svg(
    figure: Figure, name: str, title: str = "", description: str = "", focus: Sequence[int] | None = None
) -> str:
    """Return ``figure`` as one ``<svg>`` element whose ids begin with ``name``; the figure is emptied.

    ``title`` and ``description`` are for readers who cannot see the drawing; without them they are
    made from the figure's own titles and axis labels. ``focus``: the panels that are shown where there is little
    room, by default the first.
    """
    settle(figure)
    root = ElementTree.fromstring(_draw(figure, name))
    if len(figure.axes) > 1:
        root.set("data-focus", _box(figure, focus or (0,)))
    title = title or figure.get_suptitle() or name.replace("-", " ")
    description = description or describe(figure)
    _drop_namespaces(root)
    _drop_document_parts(root)
    _prefix_ids(root, f"{name}-")
    _use_system_fonts(root)
    _shorten(root)
    _frame(root, name, title, description)
    figure.clear()
    return ElementTree.tostring(root, encoding="unicode")


def describe(figure: Figure) -> str:
    """Return one sentence per panel: its title and what its axes show."""
    sentences = []
    for ax in figure.axes:
        heading = ax.get_title(loc="left") or ax.get_title() or "Panel"
        labels = [label for label in (ax.get_ylabel(), ax.get_xlabel()) if label]
        sentences.append(f"{heading}: {' against '.join(labels)}." if labels else f"{heading}.")
    return " ".join(sentences)


def _draw(figure: Figure, name: str) -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    return buffer.getvalue()


def _drop_namespaces(root: ElementTree.Element) -> None:
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in [key for key in element.attrib if key.startswith("{")]:
            element.set(key.rpartition("}")[2], element.attrib.pop(key))


def _drop_document_parts(root: ElementTree.Element) -> None:
    """Remove metadata and the style sheet, which inside a page would reach every other drawing."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style"):
                parent.remove(child)


def _prefix_ids(root: ElementTree.Element, prefix: str) -> None:
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key == "id":
                element.set(key, prefix + value)
            elif key == "href" and value.startswith("#"):
                element.set(key, f"#{prefix}{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{prefix}"))


def _use_system_fonts(root: ElementTree.Element) -> None:
    for element in root.iter("text"):
        style = _SHORTHAND.sub(rf"font:\g<1> {FONT_STACK}", element.get("style", ""))
        element.set("style", _FAMILY.sub("", style) if "font:" not in style else style)


def _box(figure: Figure, panels: Sequence[int]) -> str:
    """Return the part of a drawing that shows some of its panels with their labels, as a view box."""
    from matplotlib.transforms import Bbox

    boxes = [box for i in panels if (box := figure.axes[i].get_tightbbox()) is not None]
    box, points = Bbox.union(boxes).padded(3), 72 / figure.dpi
    height = figure.get_figheight() * 72
    ends = (box.x0 * points, height - box.y1 * points, box.width * points, box.height * points)
    return " ".join(f"{end:.1f}" for end in ends)


# A hundredth of a point is finer than any screen.
_LONG = re.compile(r"-?\d+\.\d{3,}(?!e)")
# From this many on, markers are one path: a page of thousands of elements is heavy and slow.
_MANY = 50


def _shorten(root: ElementTree.Element) -> None:
    """Write the same drawing in fewer bytes: short numbers, no indentation, many round markers as one path."""
    for element in root.iter():
        for key in ("d", "x", "y", "transform", "points"):
            if key in element.attrib:
                element.set(
                    key, _LONG.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), element.attrib[key])
                )
        if element.tag not in ("text", "tspan", "title", "desc") and not (element.text or "").strip():
            element.text = None
        element.tail = None
    drawn = {f"#{e.get('id')}": e.get("d", "") for e in root.iter("path") if e.get("id")}
    for parent in root.iter():
        kept: list[ElementTree.Element] = []
        for same, run in groupby(parent, lambda e: (e.tag, e.get("href", ""), e.get("style", ""))):
            kept += _joined(same, list(run), drawn.get(same[1], ""))
        if len(kept) < len(parent):
            parent[:] = kept


def _joined(key: tuple[str, str, str], run: list[ElementTree.Element], marker: str) -> list[ElementTree.Element]:
    """Return round markers without an edge as one path of dots, and anything else as it is."""
    tag, _, style = key
    radius = _ROUND.match(marker)
    if tag != "use" or len(run) < _MANY or radius is None or "stroke" in style:
        return run
    stroked = style.replace("fill", "stroke")
    path = "".join(f"M{e.get('x')} {e.get('y')}h0" for e in run)
    ends = f"fill: none; stroke-width: {2 * float(radius[1]):g}; stroke-linecap: round"
    return [ElementTree.Element("path", {"d": path, "style": f"{stroked}; {ends}"})]


# matplotlib's round marker begins at its top and has eight curves.
_ROUND = re.compile(r"M 0 ([\d.]+)\s+(?:C [-\d. ]+){8}z\s*$")


def _frame(root: ElementTree.Element, name: str, title: str, description: str) -> None:
    """Let the drawing shrink to the width of the page, and give it a name and a description."""
    width = float(root.attrib.pop("width").removesuffix("pt"))
    root.attrib.pop("height")
    size = f"max-width: {width:g}pt; height: auto"
    strokes = "stroke-linejoin: round; stroke-linecap: butt"
    root.attrib.update(
        {
            "xmlns": _NAMESPACE,
            "width": "100%",
            "style": f"{size}; font-family: {FONT_STACK}; {strokes}",
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-desc",
        }
    )
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(tag, {"id": f"{name}-{tag}"})
        element.text = text
        root.insert(place, element)
