"""Points as a reader sees them on a page: pictures on one sheet, rows of a table, text, or numbers only.

Axes: N points. All HTML escapes what a user typed.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from jaxtyping import UInt8

from metriscope.reading.inspection import Answers, Subject
from metriscope.report.numbers import number

__all__ = ["PointViews", "data_uri"]

# Pixels of all pictures of a page, and of the side of one.
_PIXELS, _SIDE = 800_000, 48
_COLORS = 128
_FEATURES, _LETTERS = 6, 160
_UNUSUAL = 2.0


def data_uri(pixels: UInt8[np.ndarray, "h w c"]) -> str:
    """Return a picture as the address of an embedded PNG file."""
    from PIL import Image

    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    if pixels.shape[2] > 1 and pixels.size > 3 * 10_000:
        image = image.quantize(_COLORS)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode('ascii')}"


class PointViews:
    """Some points of a subject, ready to be shown: each has a title and, where its data allows, a picture or words."""

    def __init__(self, subject: Subject, rows: Sequence[int], answers: Answers | None = None) -> None:
        self.subject, self.answers = subject, answers
        self.rows = np.unique(np.asarray(rows, int))
        self._at = {int(row): at for at, row in enumerate(self.rows)}
        points = subject.points
        self._words = None if points is None else points.words(self.rows)
        self._table = None if points is None else points.table
        if self._table is not None:
            spread = self._table.std(0)
            self._z = (self._table - self._table.mean(0)) / np.where(spread > 0, spread, 1)
        seen = points is not None and points.picture_shape is not None and len(self.rows) > 0
        self.style = self._sheet() if seen else ""

    @property
    def pictured(self) -> bool:
        """Return whether points are pictures."""
        return bool(self.style)

    def _sheet(self) -> str:
        """Return the rule that holds all pictures side by side; each shows its part of the sheet."""
        points = self.subject.points
        assert points is not None
        shape = points.picture_shape
        assert shape is not None
        longest = max(sorted(shape)[1:])
        side = min(_SIDE, longest, max(8, int((_PIXELS / len(self.rows)) ** 0.5)))
        # Pictures are read a few at a time: those in files may be large.
        parts = [points.pictures(some) for some in np.array_split(self.rows, -(-len(self.rows) // 64))]
        tiles = [_resized(picture, side) for part in parts if part is not None for picture in part]
        self._columns = int(np.ceil(len(tiles) ** 0.5))
        lines = -(-len(tiles) // self._columns)
        sheet = np.zeros((lines * side, self._columns * side, tiles[0].shape[2]), np.uint8)
        for at, tile in enumerate(tiles):
            y, x = divmod(at, self._columns)
            sheet[y * side : (y + 1) * side, x * side : (x + 1) * side] = tile
        size = f"calc({self._columns} * var(--s)) calc({lines} * var(--s))"
        return f".thumb {{ background-image: url({data_uri(sheet)}); background-size: {size}; }}"

    def title(self, row: int) -> str:
        """Return a point's number, label and answer as plain text."""
        parts = [f"point {self.subject.patterns.ids[row]}"]
        if self.subject.labels is not None:
            parts.append(f"label {self.subject.labels[row]}")
        if self.answers is not None:
            parts.append(f"answered {self.answers.predicted[row]}{' (wrong)' if self.wrong(row) else ''}")
        return ", ".join(parts)

    def wrong(self, row: int) -> bool:
        """Return whether a point is known to be misclassified."""
        return self.answers is not None and self.answers.right is not None and not self.answers.right[row]

    def answer(self, row: int) -> str:
        """Return what the network answers for a point, marked if it is known to be wrong; empty without answers."""
        if self.answers is None:
            return ""
        mark = ' <b class="wrong">✗ wrong</b>' if self.wrong(row) else ""
        return f"{escape(str(self.answers.predicted[row]))}{mark}"

    def picture(self, row: int) -> str:
        """Return a point's picture; empty if points are none."""
        if not self.pictured:
            return ""
        y, x = divmod(self._at[row], self._columns)
        return f'<span class="thumb" role="img" aria-label="{escape(self.title(row))}" style="--x:{x};--y:{y}"></span>'

    def words(self, row: int) -> str:
        """Return a point's text, or its most unusual features, as plain text; empty if it has neither."""
        if self._words is not None:
            text = self._words[self._at[row]]
            return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
        if self._table is None:
            return ""
        order = np.argsort(-np.abs(self._z[row]), kind="stable")[:_FEATURES]
        return ", ".join(f"{self.column(k)} {number(float(self._table[row, k]))}" for k in order)

    def column(self, at: int) -> str:
        """Return the name of a column of the table."""
        names = None if self.subject.points is None else self.subject.points.columns
        return f"x{at}" if names is None or at >= len(names) else str(names[at])

    def chip(self, row: int) -> str:
        """Return a point as something small: its picture, or its number with the rest as a hint."""
        if self.pictured:
            return f'<span class="chip-point" title="{escape(self.title(row))}">{self.picture(row)}</span>'
        hint = ": ".join(part for part in (self.title(row), self.words(row)) if part)
        name = escape(str(self.subject.patterns.ids[row]))
        return f'<span class="chip-point number-only" title="{escape(hint)}">{name}</span>'

    def gallery(
        self, rows: Sequence[int], notes: Sequence[str], head: str = "", judges: Mapping[str, PointViews] | None = None
    ) -> str:
        """Return points with a note each: a grid of pictures, or a table of rows or texts, its notes under ``head``.

        ``judges`` are the networks whose answers a table shows, by the heading of their column; this one if not given.
        """
        if self.pictured:
            items = [self._card(int(row), note) for row, note in zip(rows, notes, strict=True)]
            return f'<ol class="gallery">{"".join(items)}</ol>'
        own = {"answered": self} if self.answers is not None else {}
        return self._listing([int(row) for row in rows], notes, head, own if judges is None else judges)

    def _card(self, row: int, note: str) -> str:
        lines = [f'<span class="note-line">{escape(note)}</span>']
        label = self.subject.labels
        if self.answers is not None:
            lines.insert(0, f"<span>answered <b>{self.answer(row)}</b></span>")
        if label is not None:
            lines.insert(1, f"<span>label <b>{escape(str(label[row]))}</b></span>")
        cls = ' class="wrong-point"' if self.wrong(row) else ""
        number_ = f'<span class="id">#{escape(str(self.subject.patterns.ids[row]))}</span>'
        return f"<li{cls}>{self.picture(row)}{number_}{''.join(lines)}</li>"

    def _listing(self, rows: list[int], notes: Sequence[str], head: str, judges: Mapping[str, PointViews]) -> str:
        texts = self._table is None and self._words is not None
        heads, shown = ["point", *(["text"] if texts else []), head], self._features(rows)
        labels = self.subject.labels
        heads += ["label"] if labels is not None else []
        heads += [*judges, *(self.column(k) for k in shown)]
        lines = []
        for row, note in zip(rows, notes, strict=True):
            text = f'<td class="text">{escape(self.words(row))}</td>' if texts else ""
            cells = [escape(note)]
            cells += [escape(str(labels[row]))] if labels is not None else []
            cells += [each.answer(row) for each in judges.values()]
            cells += [self._cell(row, k) for k in shown]
            first = f"<td>{escape(str(self.subject.patterns.ids[row]))}</td>{text}"
            lines.append(f"<tr>{first}{''.join(f'<td>{one}</td>' for one in cells)}</tr>")
        top = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
        body = f'<table class="listing"><thead><tr>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
        return f'<div class="scroll" tabindex="0" role="region" aria-label="points">{body}</div>'

    def _features(self, rows: list[int]) -> list[int]:
        """Return the columns in which these points are most unusual, in the order of the table."""
        if self._table is None or not rows:
            return []
        strength = np.abs(self._z[rows]).mean(0)
        return sorted(np.argsort(-strength, kind="stable")[:_FEATURES].tolist())

    def _cell(self, row: int, column: int) -> str:
        assert self._table is not None
        text = escape(number(float(self._table[row, column])))
        z = float(self._z[row, column])
        if abs(z) < _UNUSUAL:
            return text
        return f'<b title="{abs(z):.1f} standard deviations {"above" if z > 0 else "below"} the mean">{text}</b>'

    def records(self, rows: Sequence[int]) -> dict[str, object]:
        """Return what the page's script shows of some points."""
        found: dict[str, object] = {
            "titles": [self.title(int(row)) for row in rows],
            "words": [self.words(int(row)) for row in rows],
            "wrong": [int(self.wrong(int(row))) for row in rows],
        }
        if self.pictured:
            found["tiles"] = [self._at[int(row)] for row in rows]
            found["columns"] = self._columns
        if self.subject.labels is not None:
            found["labels"] = [str(self.subject.labels[int(row)]) for row in rows]
        return found


def _resized(picture: UInt8[np.ndarray, "h w c"], side: int) -> UInt8[np.ndarray, "s s c"]:
    """Return a picture fitted into a square, its proportions kept."""
    from PIL import Image

    h, w, c = picture.shape
    out = np.zeros((side, side, c), np.uint8)
    scale = side / max(h, w)
    image = Image.fromarray(picture[:, :, 0] if c == 1 else picture)
    small = np.asarray(image.resize((max(1, round(w * scale)), max(1, round(h * scale))), Image.Resampling.BILINEAR))
    small = small.reshape(*small.shape[:2], c)
    y, x = (side - small.shape[0]) // 2, (side - small.shape[1]) // 2
    out[y : y + small.shape[0], x : x + small.shape[1]] = small
    return out
