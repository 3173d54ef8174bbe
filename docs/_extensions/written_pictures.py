"""The gallery's examples draw into files that they are told to write: name such files, and show them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

FOLDER = Path(mkdtemp(prefix="metriscope-gallery-"))
WRITES = {"hyperplanes_figure": "figure.svg", "linear_regions": "regions.png", "small_cnn": "cnn"}


def arguments(_: Mapping[str, Any], script: Mapping[str, Any]) -> list[str]:
    """Return the arguments of an example: where to write, if it writes."""
    name = WRITES.get(Path(script["src_file"]).stem)
    return [] if name is None else [str(FOLDER / name)]


def scrape(_: tuple[Any, ...], block_vars: Mapping[str, Any], conf: Mapping[str, Any]) -> str:
    """Move the picture that an example has written into the gallery, and return the text that shows it."""
    from sphinx_gallery.scrapers import figure_rst

    drawn = [path for path in FOLDER.iterdir() if path.suffix in (".svg", ".png")]
    shown = []
    for path in drawn:
        target = Path(next(block_vars["image_path_iterator"])).with_suffix(path.suffix)
        shutil.move(path, target)
        shown.append(str(target))
    return figure_rst(shown, conf["src_dir"])
