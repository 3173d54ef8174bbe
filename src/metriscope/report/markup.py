"""Turn typed text into safe HTML: everything escaped, then ``**bold**`` and `` `code` `` put back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["inline", "paragraphs"]

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
        parts.append(escape(text[end : mark.start()]))
        code, bold = mark["code"], mark["bold"]
        parts.append(
            Markup("<code>{}</code>").format(code) if code else Markup("<strong>{}</strong>").format(inline(bold))
        )
        end = mark.end()
    return Markup("").join((*parts, escape(text[end:])))


def paragraphs(text: str) -> list[Markup]:
    r"""Return the paragraphs of ``text``, which blank lines separate.

    >>> [str(part) for part in paragraphs("One.\n\n  Two.")]
    ['One.', 'Two.']
    """
    return [inline(part.strip()) for part in re.split(r"\n\s*\n", text) if part.strip()]
