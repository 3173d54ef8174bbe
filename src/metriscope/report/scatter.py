"""A scatter plot whose points say what they are when the pointer rests on them: plain SVG, no script.

Axes: ``points`` is N×2; ``titles`` has one line of text a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from metriscope.report.style import CYCLE, INK, MUTED

__all__ = ["LABEL_COLOURS", "hover_scatter"]

# Ten hues that stay apart for colour-blind readers as far as ten can; labels beyond them repeat.
LABEL_COLOURS = (*CYCLE[:5], "#cc79a7", "#7a5195", "#8c6d1f", "#3d7a5c", "#6b7680")
WIDTH, HEIGHT, MARGIN = 460.0, 380.0, 26.0


def hover_scatter(
    name: str,
    points: np.ndarray,
    titles: Sequence[str],
    labels: np.ndarray | None = None,
    axes: tuple[str, str] = ("", ""),
) -> str:
    """Return an ``<svg>`` of the points, coloured by label, each with its title."""
    if points.ndim != 2 or points.shape[1] != 2 or len(points) != len(titles):
        raise ValueError(f"a scatter needs N×2 points and N titles, got {points.shape} and {len(titles)}")
    low, high = points.min(0), points.max(0)
    scale = np.where(high > low, high - low, 1)
    inner = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    places = MARGIN + (points - low) / scale * inner
    kinds = np.unique(labels) if labels is not None else np.array([])
    which = np.searchsorted(kinds, labels) if labels is not None else np.zeros(len(points), int)
    radius = 3.2 if len(points) <= 1_000 else 2.2
    circles = [
        f'<circle cx="{x:.1f}" cy="{HEIGHT - y:.1f}" r="{radius}" fill="{LABEL_COLOURS[k % len(LABEL_COLOURS)]}" '
        f'fill-opacity="0.72"><title>{escape(text)}</title></circle>'
        for (x, y), k, text in zip(places, which, titles, strict=True)
    ]
    legend = [_legend(i, str(kind), len(kinds)) for i, kind in enumerate(kinds[: len(LABEL_COLOURS)])]
    words = [
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 5}" text-anchor="middle" fill="{MUTED}">{escape(axes[0])}</text>',
        f'<text x="12" y="{HEIGHT / 2}" text-anchor="middle" fill="{MUTED}" '
        f'transform="rotate(-90 12 {HEIGHT / 2})">{escape(axes[1])}</text>',
    ]
    head = (
        f'<svg viewBox="0 0 {WIDTH + 90:g} {HEIGHT:g}" width="100%" role="img" aria-labelledby="{name}-title" '
        f'style="max-width: 620px; height: auto; font: 11px system-ui, sans-serif">'
        f'<title id="{name}-title">{escape(name.replace("-", " "))}</title>'
    )
    return "".join([head, *circles, *legend, *words, "</svg>"])


def _legend(index: int, text: str, count: int) -> str:
    y = MARGIN + 16 * index
    colour = LABEL_COLOURS[index % len(LABEL_COLOURS)]
    more = " …" if index == len(LABEL_COLOURS) - 1 and count > len(LABEL_COLOURS) else ""
    return (
        f'<circle cx="{WIDTH + 8:g}" cy="{y:g}" r="4" fill="{colour}"></circle>'
        f'<text x="{WIDTH + 18:g}" y="{y + 4:g}" fill="{INK}">{escape(text)}{more}</text>'
    )
