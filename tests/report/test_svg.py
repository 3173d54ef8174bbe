import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from metriscope.report import plots, style
from metriscope.report.svg import describe, to_svg

SVG = "{http://www.w3.org/2000/svg}"


def drawing(columns=2):
    made, axes = style.figure(6, 2.5, 1, columns)
    for ax in axes.flat:
        plots.band(
            ax,
            [1, 10, 100],
            np.array([[1.0, 0.1, 0.01], [2.0, 0.3, 0.05]]),
            "Abs & co",
            style.COLORS["abs"],
            "xy",
        )
        ax.set(title="Loss < 1", xlabel="epoch", ylabel="error")
        style.legend(ax)
    return made


def ids(svg):
    return re.findall(r'\sid="([^"]+)"', svg)


def test_the_drawing_is_well_formed_and_names_itself():
    root = ElementTree.fromstring(to_svg(drawing(), "loss", "Loss", "Falls."))
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    title, description = root[0], root[1]
    assert (title.text, description.text) == ("Loss", "Falls.")
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"


def test_the_same_drawing_gives_the_same_bytes():
    assert to_svg(drawing(), "loss") == to_svg(drawing(), "loss")


def test_ids_begin_with_the_name_and_never_clash_between_drawings():
    first, second = ids(to_svg(drawing(), "first")), ids(to_svg(drawing(), "second"))
    assert all(i.startswith("first-") for i in first)
    assert len({*first, *second}) == len(first) + len(second)


def test_every_reference_leads_to_an_id_of_the_same_drawing():
    svg = to_svg(drawing(), "loss")
    references = re.findall(r"url\(#([^)]+)\)", svg) + re.findall(r'href="#([^"]+)"', svg)
    assert len(references) > 10
    assert set(references) <= set(ids(svg))


def test_colors_are_not_mistaken_for_references():
    assert f"stroke: {style.COLORS['abs']}" in to_svg(drawing(), "loss")


def test_text_stays_text_in_the_readers_own_font():
    svg = to_svg(drawing(), "loss")
    texts = ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert {"epoch", "error", "Loss < 1", "Abs & co", "0.1"} <= set(texts)
    assert "DejaVu" not in svg
    assert "system-ui" in svg


def test_it_scales_with_its_place_and_keeps_its_shape():
    root = ElementTree.fromstring(to_svg(drawing(), "loss"))
    assert root.get("width") == "100%"
    assert root.get("height") is None
    assert root.get("viewBox") == "0 0 432 180"
    assert "max-width: 432pt" in root.get("style", "")


def test_nothing_reaches_the_rest_of_the_page_or_the_network():
    svg = to_svg(drawing(), "loss")
    assert "<style" not in svg
    assert "<metadata" not in svg
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]


def test_the_background_is_transparent():
    first = ElementTree.fromstring(to_svg(drawing(), "loss")).find(f".//{SVG}path")
    assert "fill: none" in first.get("style", "")


def test_a_figure_describes_itself_by_its_titles_and_axes():
    assert describe(drawing(1)) == "Loss < 1: error against epoch."


def test_the_figure_is_emptied():
    made = drawing()
    to_svg(made, "loss")
    assert made.axes == []


def test_drawing_never_imports_pyplot():
    program = """
import sys
from metriscope.report import style, to_svg
to_svg(style.figure()[0], "empty")
sys.exit("matplotlib.pyplot" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("release", ["older", "newer"])
def test_both_ways_matplotlib_writes_fonts_are_understood(release):
    from metriscope.report.svg import _use_system_fonts

    style_text = {
        "older": "font: 700 10px 'DejaVu Sans', sans-serif; fill: #000000",
        "newer": "font-weight: 700; font-family: 'DejaVu Sans', sans-serif; fill: #000000",
    }
    root = ElementTree.Element("svg")
    text = ElementTree.SubElement(root, "text", {"style": style_text[release]})
    _use_system_fonts(root)
    found = text.get("style", "")
    assert "DejaVu" not in found
    assert "700" in found
    assert found.endswith("fill: #000000")
