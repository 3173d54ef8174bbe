"""Scenes as JSON that a page can hold: arrays as base64 in the smallest type that fits, signs as bits.

Axes: R regions, H units, W words of 32 bits. Each layer starts at a new word; the padding bits of its last word are 0.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int8, Num, UInt8, UInt32

from metriscope.report.explorer.scene import Scene, check_together
from metriscope.report.html import fingerprint, safe_json

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["encode", "explorer_page", "pack_signs", "payload", "script", "style", "viridis"]

# Little-endian, as every browser's typed arrays are in practice.
_KINDS = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "f4": "<f4"}


def encode(array: Num[np.ndarray, "*n"], kind: str = "") -> tuple[str, str]:
    """Return the type of numbers and their bytes in base64; whole numbers get the smallest type that fits.

    >>> encode(np.array([1, 2, 258]))
    ('u2', 'AQACAAIB')
    """
    largest = int(array.max()) if array.size and not kind else 0
    kind = kind or ("u2" if largest < 1 << 16 else "u4")
    return kind, b64encode(np.ascontiguousarray(array, _KINDS[kind]).tobytes()).decode("ascii")


def pack_signs(signs: Int8[np.ndarray, "r h"], widths: Sequence[int]) -> UInt32[np.ndarray, "r w"]:
    """Return the signs as words, unit 0 of a layer in its lowest bit.

    >>> pack_signs(np.array([[1, -1, 1, -1, 1]], np.int8), [3, 2]).tolist()
    [[5, 2]]
    """
    layers = np.split(signs > 0, np.cumsum(widths)[:-1], axis=1)
    parts = [np.pad(layer, ((0, 0), (0, -layer.shape[1] % 32))) for layer in layers]
    return np.packbits(np.concatenate(parts, axis=1), axis=1, bitorder="little").view("<u4")


def viridis() -> UInt8[np.ndarray, "256 4"]:
    """Return matplotlib's perceptually uniform map of 256 colors: red, green, blue, opacity."""
    from matplotlib import colormaps

    return np.asarray(colormaps["viridis"](np.arange(256), bytes=True), np.uint8)


def payload(scenes: Sequence[Scene]) -> str:
    """Return the page's data as JSON that is safe inside a script block: it contains no ``<``."""
    data = {"palette": encode(viridis(), "u1"), "scenes": [_record(scene, list(scenes[0].choices)) for scene in scenes]}
    return safe_json(data)


def _record(scene: Scene, keys: Sequence[str]) -> Mapping[str, Any]:
    return {
        "choices": {key: scene.choices[key] for key in keys},
        "bounds": [[float(end) for end in side] for side in scene.bounds],
        "layers": [[name, int(width)] for name, width in scene.layers],
        "vertices": encode(scene.vertices, "f4"),
        "corners": encode(scene.corners),
        "starts": encode(scene.starts),
        "patterns": encode(pack_signs(scene.signs, [width for _, width in scene.layers]), "u4"),
        "points": encode(scene.points, "f4"),
        "labels": encode(scene.labels, "u1"),
    }


_PARTS = ("geometry.js", "drawing.js", "controls.js", "page.js")


def explorer_page(
    scenes: Sequence[Scene], title: str = "How far is it, for a network?", back: str = "", note: str = ""
) -> str:
    """Return an HTML document that shows ``scenes``; the same scenes give the same bytes.

    ``back`` is the page that it links to, and ``note`` says what the plane is, if anything.
    """
    check_together(scenes)
    from markupsafe import Markup

    # Not to be escaped again: style and script are our own, and ``payload`` leaves no tag in the data.
    parts = {"css": Markup(style()), "script": Markup(script()), "data": Markup(payload(scenes))}
    return _template().render(title=title, back=back, note=note, fingerprint=fingerprint(script()), **parts)


@cache
def script() -> str:
    """Return the page's only script: all its parts, inside one scope."""
    parts = "\n".join(_read("explorer", name) for name in _PARTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


@cache
def style() -> str:
    """Return the style: the report's own colors and fonts, light and dark, then what is new here."""
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
