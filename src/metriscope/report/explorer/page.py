"""Put scenes, style and script into one HTML file that asks for nothing else and runs nothing else."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from metriscope.report.explorer.scene import Scene, check_together
from metriscope.report.explorer.wire import payload

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["explorer_page", "fingerprint", "script", "style"]

_PARTS = ("geometry.js", "drawing.js", "controls.js", "page.js")


def explorer_page(scenes: Sequence[Scene], title: str = "How far is it, for a network?") -> str:
    """Return an HTML document that shows ``scenes``; the same scenes give the same bytes."""
    check_together(scenes)
    from markupsafe import Markup

    # Not to be escaped again: style and script are our own, and ``payload`` leaves no tag in the data.
    parts = {"css": Markup(style()), "script": Markup(script()), "data": Markup(payload(scenes))}
    return _template().render(title=title, fingerprint=fingerprint(script()), **parts)


def fingerprint(text: str) -> str:
    """Return the hash by which a content security policy knows an inline script.

    >>> fingerprint("")
    'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}"


@cache
def script() -> str:
    """Return the page's one script: its parts, in a scope of their own."""
    parts = "\n".join(_read("explorer", name) for name in _PARTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


@cache
def style() -> str:
    """Return the style: the report's own colours and fonts, light and dark, then what is new here."""
    # The report's sheet opens with its variables; its rules begin with the one for every element.
    variables, _, _ = _read("page.css").partition("\n* {")
    return f"{variables}\n{_read('explorer', 'explorer.css')}"


def _read(*names: str) -> str:
    return files("metriscope.report").joinpath(*names).read_text("utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_read("explorer", "explorer.html.j2"))
