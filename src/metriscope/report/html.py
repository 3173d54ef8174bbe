"""Render a Page as one self-contained HTML document: no web font, no network access, no script but the page's own.

Text is escaped first; then ``**bold**`` and `` `code` `` become HTML.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from metriscope.common.errors import printable
from metriscope.report.document import STRENGTHS, VERDICTS, Block, Claim, Figure, Page, Table, Verdict
from metriscope.report.style import CYCLE, FAINT, GRID, INK, MUTED
from metriscope.report.tables import cell, grid

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = [
    "allowed",
    "csv_text",
    "environment",
    "fingerprint",
    "inline",
    "paragraphs",
    "render",
    "rows",
    "safe_json",
    "verdict_counts",
    "visible",
]

# HTML parsers need no namespace for inline SVG; without it the page contains no network address at all.
_XMLNS = ' xmlns="http://www.w3.org/2000/svg"'
# Colors of figures that are lighter on a dark page; their names are those of the variables in page.css.
_THEMED = {"ink": INK, "muted": MUTED, "faint": FAINT, "grid": GRID, "published": "#8a2c6a"}
_THEMED |= {f"{i}": color for i, color in enumerate(CYCLE) if color != INK}
# Lines around marks, and hollow marks, have the color of what is behind them; white text stays white.
_WHITE = ("stroke: #ffffff", "fill: #ffffff; stroke")
# What a spreadsheet reads as a formula, unless it is a number.
_FORMULA, _NUMBER = (
    re.compile(r"[\s\x00-\x1f]*[=+\-@\uff1d\uff0b\uff0d\uff20]."),
    re.compile(r"[+-]?[\d.,]+(e[+-]?\d+)?%?", re.I),
)
# Control characters, marks that reorder text, halves of characters, and codes that are not characters.
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_MARKS = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<bold>.+?)\*\*", re.DOTALL)


def inline(text: str) -> Markup:
    """Return one run of text as HTML; marks inside code stay as typed.

    >>> str(inline("**W** < 1, see `a**b`"))
    '<strong>W</strong> &lt; 1, see <code>a**b</code>'
    """
    from markupsafe import Markup, escape

    # A number and its per cent sign stay on one line.
    text = re.sub(r"(?<=\d) %", "\u00a0%", text)
    parts: list[str] = []
    end = 0
    for mark in _MARKS.finditer(text):
        tag, inner = ("code", mark["code"]) if mark["code"] else ("strong", inline(mark["bold"]))
        parts += [escape(text[end : mark.start()]), Markup("<{}>{}</{}>").format(tag, inner, tag)]
        end = mark.end()
    return Markup("").join((*parts, escape(text[end:])))


def paragraphs(text: str) -> list[Markup]:
    r"""Return the paragraphs of ``text``, which blank lines separate.

    >>> [str(part) for part in paragraphs("One.\n\n  Two.")]
    ['One.', 'Two.']
    """
    return [inline(part.strip()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def render(page: Page, tables: str = "tables") -> str:
    """Return ``page`` as an HTML document; the same page gives the same bytes.

    ``tables`` is the folder of the tables that it links to, relative to the page.
    """
    from markupsafe import Markup

    scripts = [text for text in (page.script, _table_script() if page.tables else "") if text]
    known = {"page": page, "tables": tables, "counts": verdict_counts(page.ledger or page.claims)}
    known |= {"style": Markup(page.style), **allowed(scripts)}
    text = environment().get_template("page.html.j2").render(**known, provenance=list(rows(page.provenance)))
    # The macros in front leave empty lines, and a document must open with its type.
    return visible(text.lstrip())


def allowed(scripts: Iterable[str]) -> dict[str, Any]:
    """Return our scripts, and the part of a page's security policy that allows these scripts and no others."""
    from markupsafe import Markup

    texts = [Markup(text) for text in scripts]
    return {"scripts": texts, "policies": Markup(" ".join(f"'{fingerprint(text)}'" for text in texts))}


def verdict_counts(claims: Iterable[Claim]) -> list[tuple[Verdict, int, str]]:
    """Return, for each verdict, how many claims have it and how many of them are of each strength."""
    found = Counter((claim.verdict, claim.strength) for claim in claims)
    rows = []
    for verdict in VERDICTS:
        parts = {strength: found[verdict, strength] for strength in STRENGTHS if found[verdict, strength]}
        rows.append((verdict, sum(parts.values()), ", ".join(f"{count} {name}" for name, count in parts.items())))
    return rows


def rows(provenance: Mapping[str, object], group: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (group, key, value) as text, with sequences joined and inner mappings as groups.

    >>> list(rows({"seeds": [0, 1], "packages": {"torch": "2.6"}}))
    [('', 'seeds', '0, 1'), ('packages', 'torch', '2.6')]
    """
    for key, value in provenance.items():
        if isinstance(value, Mapping):
            yield from rows(value, f"{group} · {key}" if group else key)
        elif isinstance(value, (list, tuple)):
            yield group, key, ", ".join(map(str, value))
        else:
            yield group, key, str(value)


def safe_json(data: object) -> str:
    r"""Return data as JSON that is safe inside a script block: it contains no ``<``.

    >>> safe_json({"a": "<b>"})
    '{"a":"\\u003cb>"}'
    """
    return json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")


def fingerprint(text: str) -> str:
    """Return the hash by which a content security policy knows an inline script.

    >>> fingerprint("")
    'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}"


def kind(block: Block) -> str:
    """Return the name of the macro that shows ``block``."""
    return type(block).__name__.lower()


def drawing(svg: str) -> Markup:
    """Return a figure for the inside of a page."""
    return themed(svg.replace(_XMLNS, "", 1))


def drawn(figure: Figure) -> Markup:
    """Return a figure with its own title, which states what it shows, for readers who cannot see it."""
    from markupsafe import Markup, escape

    named = re.sub(
        r"(<title[^>]*>)[^<]*", lambda found: f"{found[1]}{escape(figure.title)}", str(drawing(figure.svg)), count=1
    )
    return Markup(named)


def themed(html: str) -> Markup:
    """Return our own HTML with lines, texts and colors of figures that follow the page's light or dark theme."""
    from markupsafe import Markup

    for name, color in _THEMED.items():
        html = html.replace(color, f"var(--figure-{name}, {color})")
    for white in _WHITE:
        html = html.replace(white, white.replace("#ffffff", "var(--drawing, #ffffff)"))
    return Markup(html)


def csv_text(table: Table) -> str:
    """Return a complete table as CSV, for its file and for the copy inside the page, which needs no other file.

    Text that a spreadsheet would evaluate, such as ``=1+1``, get an apostrophe in front; numbers stay numbers.
    """
    frame = table.frame.rename(columns=_harmless)
    for at in range(frame.shape[1]):
        cells = list(frame.iloc[:, at]) if frame.dtypes.iloc[at].kind not in "biuf" else []
        harmless = [_harmless(cell) for cell in cells]
        if any(one is not other for one, other in zip(cells, harmless, strict=True)):
            frame.isetitem(at, np.array(harmless, dtype=object))
    return visible(frame.to_csv(index=False, lineterminator="\n"))


def _harmless(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    # A bare carriage return would end the row, because only line feeds are quoted.
    cell = cell.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def visible(text: str) -> str:
    r"""Return text in which characters that no page can show, or that reorder others, are escapes.

    >>> visible("red \x1b[31m")
    'red \\x1b[31m'
    """
    return _UNSEEN.sub(lambda found: printable(found.group()), text)


@cache
def _table_script() -> str:
    return (files("metriscope.report") / "tables.js").read_text("utf-8")


@cache
def environment() -> Environment:
    """Return the templates and what they may call."""
    from jinja2 import DictLoader, Environment, StrictUndefined
    from markupsafe import Markup

    folder = files("metriscope.report")
    texts = {item.name: item.read_text("utf-8") for item in folder.iterdir() if item.name.endswith(".html.j2")}
    made = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=DictLoader(texts)
    )
    made.filters |= {f.__name__: f for f in (inline, paragraphs, cell, grid, kind, drawn, csv_text)}
    made.filters |= {"themed": themed, "as_json": lambda data: Markup(safe_json(data))}
    made.globals["css"] = Markup((folder / "page.css").read_text("utf-8"))
    return made
