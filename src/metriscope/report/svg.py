"""Turn a matplotlib figure into inline SVG: the same bytes every time, text kept as text, unique ids."""

from __future__ import annotations

import io
import re
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


def to_svg(figure: Figure, name: str, title: str = "", description: str = "") -> str:
    """Return ``figure`` as one ``<svg>`` element whose ids begin with ``name``; the figure is emptied.

    ``title`` and ``description`` are for readers who cannot see the drawing; without them they are
    made from the figure's own titles and axis labels.
    """
    settle(figure)
    root = ElementTree.fromstring(_draw(figure, name))
    title = title or figure.get_suptitle() or name.replace("-", " ")
    description = description or describe(figure)
    _drop_namespaces(root)
    _drop_document_parts(root)
    _prefix_ids(root, f"{name}-")
    _use_system_fonts(root)
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
