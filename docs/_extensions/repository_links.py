"""Pages link to files of the repository; on the site, such a link leads to the page that shows the file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)\)")
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
PAGES |= {"examples": "gallery/index.rst", "docs/decisions": "decisions.md"}


def on_site(text: str, place: Path, docs: Path) -> str:
    """Return a page with its links out of the documentation replaced: by links to pages, or by names of files."""

    def replaced(found: re.Match[str]) -> str:
        words, link = found.groups()
        if ":" in link:
            return found[0]
        target = (place.parent / link).resolve()
        inside = target.relative_to(docs.parent).as_posix()
        page = PAGES.get(inside)
        if inside.startswith("examples/"):
            page = f"gallery/{target.stem}.rst"
        if page is None and docs in target.parents:
            page = target.relative_to(docs).as_posix()
        return f"[{words}](/{page})" if page else f"{words} (`{inside}`)"

    return LINK.sub(replaced, text)


def rewrite(app: Any, name: str, source: list[str]) -> None:
    """Rewrite a page before it is parsed."""
    if (place := Path(app.env.doc2path(name))).suffix == ".md":
        source[0] = on_site(source[0], place, Path(app.srcdir))


def rewrite_included(app: Any, path: Path, _: str, source: list[str]) -> None:
    """Rewrite a file of the repository that a page includes."""
    source[0] = on_site(source[0], Path(os.path.realpath(Path(app.srcdir) / path)), Path(app.srcdir))


def setup(app: Any) -> dict[str, Any]:
    """Register the two events."""
    app.connect("source-read", rewrite)
    app.connect("include-read", rewrite_included)
    return {"parallel_read_safe": True}
