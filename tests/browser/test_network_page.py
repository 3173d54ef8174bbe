"""The pages of a network in a browser: they fit a phone, can be read, and their maps answer the pointer."""

import os
import re
import shutil

import numpy as np
import pytest
import torch
from torch import nn

from metriscope.reading.points import UserPoints
from metriscope.report import render
from metriscope.report.network_comparison import compare_page
from metriscope.report.network_figures import heat_map
from metriscope.report.network_pages import Subject, inspect_page, network_style
from metriscope.vq import capture

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")

# The contrast of every text with the first opaque background behind it (WCAG 2).
CONTRASTS = """() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const color = rgb(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), node = walker.currentNode.parentElement;
    if (!text || !node.checkVisibility() || node.closest("script, style, title, .in")) continue;
    const style = getComputedStyle(node), ink = rgb(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(node))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), text.slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]).slice(0, 3);
}"""


def subject(name, seed):
    rng = np.random.default_rng(0)
    x = rng.random((60, 1, 10, 10)).astype(np.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 20), nn.ReLU(), nn.Linear(20, 3)
        )
    return Subject(name, capture(net, x), np.arange(60) % 3, net, UserPoints(x))


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    pages = {
        "inspect": inspect_page(subject("net", 0), {"a": 1}),
        "compare": compare_page(subject("A: net", 0), subject("B: net", 1), {"a": 1}),
    }
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(render(page), encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in pages}


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        # Chromium refuses to make a sandbox for root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield running
        running.close()


@pytest.fixture
def visit(browser, addresses):
    """Open a page; whatever it complains of or asks for besides itself is a failure."""
    contexts, heard, asked = [], [], []

    def opened(name, width=1280, **settings):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **settings))
        page = contexts[-1].new_page()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(addresses[name])
        return page

    yield opened
    for context in contexts:
        context.close()
    assert heard == []
    assert {url for url in asked if not url.startswith("data:")} <= set(addresses.values())


@pytest.mark.parametrize("name", ["inspect", "compare"])
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_no_page_is_wider_than_its_screen(visit, name, width):
    assert visit(name, width).evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["inspect", "compare"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(visit, name, scheme):
    page = visit(name, color_scheme=scheme)
    worst = page.evaluate(CONTRASTS)
    assert worst[0][0] >= 4.5, worst


def dot(page, which, index):
    box = page.locator(f"svg.map >> nth={which}").locator(f'circle[data-i="{index}"]').bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_point_under_the_pointer_is_shown_with_its_picture(visit):
    page = visit("inspect")
    page.locator("svg.map").scroll_into_view_if_needed()
    page.mouse.move(*dot(page, 0, 7))
    assert re.match(r"point \d+, label \d, answered \d", page.locator(".told b").inner_text())
    assert page.locator(".told .thumb").count() == 1


def test_a_point_of_one_map_is_marked_in_both(visit):
    page = visit("compare")
    page.locator("svg.map >> nth=0").scroll_into_view_if_needed()
    page.mouse.move(*dot(page, 1, 5))
    hot = page.locator("circle.hot")
    assert hot.count() == 2
    assert len({hot.nth(k).get_attribute("data-i") for k in range(2)}) == 1


def test_dragging_chooses_the_points_inside(visit):
    page = visit("inspect")
    box = page.locator("svg.map").bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] - 2, steps=3)
    page.mouse.up()
    assert page.locator(".tray p").first.inner_text().startswith("60 points chosen, 20 of label")
    assert page.locator(".tray .thumb").count() == 60


def test_the_keyboard_steps_through_the_points(visit):
    page = visit("inspect")
    page.locator("svg.map").focus()
    page.keyboard.press("ArrowRight")
    first = page.locator(".told b").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator(".told b").inner_text() != first


def test_one_layer_is_shown_at_a_time_and_maps_follow_their_layer(visit):
    page = visit("inspect")
    assert page.locator(".layer-part:visible").count() == 1
    page.locator("select[data-chooses]").select_option("1")
    assert page.locator(".layer-part:visible h3").inner_text() == "3 (Linear)"
    before = page.locator('circle[data-i="3"]').get_attribute("cx")
    page.locator("select[data-places]").select_option("1")
    assert page.locator('circle[data-i="3"]').get_attribute("cx") != before


def test_without_a_script_every_layer_is_there(visit):
    page = visit("inspect", java_script_enabled=False)
    assert page.locator(".layer-part:visible").count() == 2
    assert page.locator("svg.map circle title").count() == 60


def test_what_is_wider_than_the_screen_fades_out_where_there_is_more(visit):
    wide, phone = visit("inspect"), visit("inspect", 390)
    assert wide.locator(".scroll.more-before, .scroll.more-after").count() == 0
    box = phone.locator(".layer-part:visible .scroll:has(table.units)")
    phone.wait_for_function("box => box.matches('.more-after:not(.more-before)')", arg=box.element_handle())
    assert "gradient" in box.evaluate("box => getComputedStyle(box).maskImage")
    box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    phone.wait_for_function("box => box.matches('.more-before:not(.more-after)')", arg=box.element_handle())


LONG = ["max_pool() (max_pool)", "a.very.long.path.of.modules.3 (Conv2d)", "fc (Linear)"]


@pytest.mark.parametrize("last", range(3))
def test_no_name_of_a_heat_map_is_cut(browser, last):
    names = (["a", "b"], [*LONG[last + 1 :], *LONG[: last + 1]])
    drawn = heat_map("m", np.zeros((2, 3)), names, ("rows", "columns", "value"))
    page = browser.new_page()
    page.set_content(f"<style>{network_style()}</style>{drawn}")
    cut = page.evaluate("""() => {
      const svg = document.querySelector("svg"), frame = svg.getBoundingClientRect();
      return [...svg.querySelectorAll("text")].filter(text => {
        const box = text.getBoundingClientRect();
        return box.right > frame.right || box.bottom > frame.bottom || box.left < frame.left;
      }).map(text => text.textContent);
    }""")
    page.close()
    assert cut == []
