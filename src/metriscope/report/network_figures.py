"""Drawings of a network's pages as inline SVG that a script can bring to life: maps of points, heat maps, a gauge.

Drawings keep a light card, so that their colors mean the same on a dark page. Without the script they show the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np
from jaxtyping import Float64

from metriscope.report.html import safe_json
from metriscope.report.numbers import number
from metriscope.report.plots import LABEL_COLORS
from metriscope.report.point_views import data_uri
from metriscope.report.style import INK, MUTED

__all__ = ["SIDE", "gauge", "heat_map", "legend_of", "point_map", "quantized"]

SIDE = 1000  # units along a side of a map
_MARGIN = 40
_CELL, _PRINTED = 34, 14
# Degrees by which long names of columns are turned.
_SLANT = 35


def quantized(places: Float64[np.ndarray, "n 2"]) -> list[list[int]]:
    """Return places as whole numbers of the drawing, x and y, with the same scale on both axes.

    >>> quantized(np.array([[0.0, 0.0], [2.0, 1.0]]))
    [[40, 960], [730, 270]]
    """
    low, high = places.min(0), places.max(0)
    middle, size = (low + high) / 2, float((high - low).max()) or 1.0
    scaled = SIDE / 2 + (places - middle) / size * (SIDE - 2 * _MARGIN)
    return [scaled[:, 0].round().astype(int).tolist(), (SIDE - scaled[:, 1]).round().astype(int).tolist()]


def colors_of(labels: np.ndarray | None, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct labels, and the number of the color of each point."""
    if labels is None:
        return np.zeros(0), np.zeros(count, int)
    kinds, codes = np.unique(labels, return_inverse=True)
    return kinds, codes.reshape(-1) % len(LABEL_COLORS)


def point_map(name: str, title: str, xy: list[list[int]], labels: np.ndarray | None, titles: Sequence[str]) -> str:
    """Return the map of points; ``data-i`` numbers them for the script."""
    _, codes = colors_of(labels, len(titles))
    radius = 9 if len(titles) > 400 else 12
    dots = [
        f'<circle data-i="{i}" cx="{x}" cy="{y}" r="{radius}" fill="{LABEL_COLORS[k]}">'
        f"<title>{escape(text)}</title></circle>"
        for i, (x, y, k, text) in enumerate(zip(*xy, codes, titles, strict=True))
    ]
    words = (
        f'<text x="{SIDE / 2:g}" y="{SIDE - 4}" text-anchor="middle">first axis, in √signs</text>'
        f'<text x="22" y="{SIDE / 2:g}" text-anchor="middle" transform="rotate(-90 22 {SIDE / 2:g})">second axis</text>'
    )
    head = (
        f'<svg class="map" data-map="{name}" viewBox="0 0 {SIDE} {SIDE}" role="img" tabindex="0" '
        f'aria-labelledby="{name}-title" fill="{MUTED}"><title id="{name}-title">{escape(title)}</title>'
    )
    return f'{head}{words}<g>{"".join(dots)}</g><rect class="brush" hidden x="0" y="0" width="0" height="0"/></svg>'


def legend_of(labels: np.ndarray | None) -> str:
    """Return the colors of labels as a list; empty without labels."""
    if labels is None:
        return ""
    kinds, _ = colors_of(labels, len(labels))
    shown = kinds[: 2 * len(LABEL_COLORS)]
    items = [
        f'<li><i style="background:{LABEL_COLORS[k % len(LABEL_COLORS)]}"></i>{escape(str(kind))}</li>'
        for k, kind in enumerate(shown)
    ]
    more = f"<li>and {len(kinds) - len(shown):,} more; colors repeat</li>" if len(kinds) > len(shown) else ""
    return f'<ul class="key-colors" aria-label="colors of labels">{"".join(items)}{more}</ul>'


def heat_map(
    name: str,
    matrix: Float64[np.ndarray, "r c"],
    names: tuple[Sequence[str], Sequence[str]],
    titles: tuple[str, str, str],
    span: tuple[float, float] | None = None,
) -> str:
    """Return a matrix as colors, with the titles of its rows, its columns and its values; few values are printed.

    Cells that are undefined (NaN) are gray.
    """
    rows, columns = matrix.shape
    low, high = span or (float(np.nanmin(matrix)), float(np.nanmax(matrix)))
    share = (matrix - low) / (high - low) if high > low else np.zeros(matrix.shape)
    pixels = _viridis(share)
    longest = max(len(number(abs(end), 2)) for end in (low, high))
    cell = max(_CELL, 7 * longest + 8) if columns <= _PRINTED else max(10, round(480 / columns))
    tall = _CELL if rows <= _PRINTED else max(10, round(480 / rows))
    printed = columns <= _PRINTED and rows <= _PRINTED
    left, top = 40 + min(7 * max(len(one) for one in names[0]), 210), 62
    turned = max(len(one) for one in names[1]) * 7 > max(cell, 34)
    across, down = _slanted(names[1]) if turned else (0, 0)
    high_ = top + tall * rows + 50 + down
    wide = max(left + cell * columns + max(16, across - cell // 2), left + 7 * len(titles[2]) + 10, left + 190)
    parts = [
        f'<image href="{data_uri(pixels)}" x="{left}" y="{top}" width="{cell * columns}" height="{tall * rows}" '
        'preserveAspectRatio="none" style="image-rendering:pixelated"/>'
    ]
    parts += _row_names(names[0], (left, top), tall) + _column_names(names[1], (left, top + tall * rows), cell, turned)
    if printed:
        parts += _printed(matrix, pixels, (left, top), (cell, tall))
    parts += _scale(titles[2], (low, high), left)
    parts.append(
        f'<text x="{left + cell * columns / 2:g}" y="{high_ - 6}" text-anchor="middle">{escape(titles[1])}</text>'
        f'<text x="14" y="{top + tall * rows / 2:g}" text-anchor="middle" '
        f'transform="rotate(-90 14 {top + tall * rows / 2:g})">{escape(titles[0])}</text>'
    )
    data = {
        "rows": list(names[0]), "columns": list(names[1]), "what": titles[2],
        "box": [left, top, cell, tall],
        "values": [[None if np.isnan(v) else float(f"{v:.3g}") for v in row] for row in matrix],
    }  # fmt: skip
    words = f"{titles[2]}, from {number(low)} to {number(high)}: {titles[0]} by {titles[1]}"
    return (
        f'<div class="card scroll" tabindex="0" role="region" aria-label="{escape(titles[2])}">'
        f'<svg class="heat" viewBox="0 0 {wide} {high_}" width="{wide}" role="img" aria-labelledby="{name}-title" '
        f"data-heat='{_quoted(safe_json(data))}'>"
        f'<title id="{name}-title">{escape(words)}</title>{"".join(parts)}</svg></div>'
        '<p class="read-out" aria-live="polite"></p>'
    )


def _quoted(text: str) -> str:
    """Return text for an attribute in single quotes; double quotes, of which JSON has many, stay short."""
    return text.replace("&", "&amp;").replace("'", "&#x27;")


def _row_names(names: Sequence[str], corner: tuple[int, int], tall: int) -> list[str]:
    left, top = corner
    every = max(1, -(-13 // tall))
    return [
        f'<text x="{left - 6}" y="{top + tall * (i + 0.5) + 4:g}" text-anchor="end">{escape(_short(name))}</text>'
        for i, name in enumerate(names)
        if i % every == 0
    ]


def _column_names(names: Sequence[str], corner: tuple[int, int], cell: int, turned: bool) -> list[str]:
    left, top = corner
    # Names that would overlap are left out, evenly.
    every = 1 if turned and cell > 12 else max(1, -(-(7 * max(map(len, names)) + 4) // cell))
    found = []
    for i, name in enumerate(names):
        if i % every:
            continue
        x, y = left + cell * (i + 0.5), top + 16
        if turned:
            found.append(
                f'<text x="{x:g}" y="{y}" text-anchor="start" transform="rotate({_SLANT} {x:g} {y})">'
                f"{escape(_short(name))}</text>"
            )
        else:
            found.append(f'<text x="{x:g}" y="{y}" text-anchor="middle">{escape(_short(name))}</text>')
    return found


def _slanted(names: Sequence[str]) -> tuple[int, int]:
    """Return how far the longest of the names reaches to the right and down, when it is turned."""
    length, angle = 7 * max(len(_short(name)) for name in names), math.radians(_SLANT)
    return math.ceil(length * math.cos(angle)), math.ceil(length * math.sin(angle))


def _short(name: str) -> str:
    return name if len(name) <= 30 else f"…{name[-29:]}"


def _printed(matrix: np.ndarray, pixels: np.ndarray, corner: tuple[int, int], size: tuple[int, int]) -> list[str]:
    # Black on a light cell, white on a dark one: by the luminance at which both contrast alike.
    linear = (pixels / 255.0) ** 2.2 @ np.array([0.2126, 0.7152, 0.0722])
    found = []
    for i, j in np.ndindex(*matrix.shape):
        ink = "#000" if linear[i, j] > 0.179 else "#fff"
        x, y = corner[0] + size[0] * (j + 0.5), corner[1] + size[1] * (i + 0.5) + 4
        text = "–" if np.isnan(matrix[i, j]) else number(float(matrix[i, j]), 2)
        found.append(f'<text class="in" x="{x:g}" y="{y:g}" text-anchor="middle" fill="{ink}">{text}</text>')
    return found


def _scale(title: str, span: tuple[float, float], left: int) -> list[str]:
    bar = data_uri(_viridis(np.linspace(0, 1, 64)[None]))
    return [
        f'<text x="{left}" y="16">{escape(title)}</text>',
        f'<image href="{bar}" x="{left}" y="22" width="160" height="9" preserveAspectRatio="none"/>',
        f'<text x="{left}" y="44">{number(span[0])}</text>',
        f'<text x="{left + 160}" y="44" text-anchor="end">{number(span[1])}</text>',
    ]


def _viridis(share: Float64[np.ndarray, "r c"]) -> np.ndarray:
    """Return a perceptually uniform color per share, gray where it is undefined."""
    from matplotlib import colormaps

    known = np.isfinite(share)
    found = np.asarray(colormaps["viridis"](np.where(known, share, 0.0), bytes=True), np.uint8)[..., :3].copy()
    found[~known] = 176
    return found


def gauge(value: float, null: np.ndarray, interval: tuple[float, float] | None) -> str:
    """Return an alignment on a line from 0 to 1, with its interval and the band that shuffled points fall into."""
    low = min(0.0, float(null.min(initial=0)), value)
    scale = 400 / (1 - low)

    def at(v: float) -> float:
        return 20 + scale * (v - low)

    band = np.quantile(null, [0.025, 0.975]) if len(null) else np.zeros(2)
    left, right = at(float(band[0])), at(float(band[1]))
    parts = [f'<rect x="{at(low):g}" y="44" width="{at(1) - at(low):g}" height="14" rx="7" fill="#e3e5e8"/>']
    parts.append(f'<rect x="{left:g}" y="38" width="{max(right - left, 3):g}" height="26" fill="#8b929a"/>')
    parts.append(
        f'<text x="{(left + right) / 2:g}" y="84" text-anchor="{"start" if left < 100 else "middle"}">'
        "shuffled points, 95 %</text>"
    )
    if interval is not None and np.isfinite(interval).all():
        a, b = (at(v) for v in interval)
        parts.append(f'<rect x="{a:g}" y="47" width="{max(b - a, 1):g}" height="8" fill="#0a5fae" opacity=".55"/>')
    # The number above the mark stays on the drawing.
    x = at(value)
    middle = min(max(x, 24), 416)
    parts.append(f'<path d="M{x:g} 36v30" stroke="#0a5fae" stroke-width="4"/>')
    parts.append(
        f'<text x="{middle:g}" y="26" text-anchor="middle" font-weight="600" fill="{INK}">{number(value)}</text>'
    )
    for v, word in ((0.0, "0 unrelated"), (1.0, "1 the same")):
        parts.append(f'<text x="{at(v):g}" y="104" text-anchor="{"end" if v else "start"}">{word}</text>')
    words = f"alignment {number(value)}; shuffled points give {number(float(band[0]))} to {number(float(band[1]))}"
    head = '<svg class="gauge" viewBox="0 0 440 112" role="img" aria-labelledby="gauge-title">'
    return f'<div class="card">{head}<title id="gauge-title">{escape(words)}</title>{"".join(parts)}</svg></div>'
