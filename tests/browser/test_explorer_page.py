"""The explorer in a browser: its numbers are Python's, its colors are its numbers, and every hand can use it."""

import os
import re
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import colormaps

from browser.scenes import case, uniform
from metriscope.report.explorer import explorer_page

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")

POINTER, UNEQUAL = (0.31, -0.47), [0.3, 1.7, 0.6]
TABLE = colormaps["viridis"](np.arange(256), bytes=True)


@pytest.fixture(scope="module")
def cases():
    return {"shallow": case("shallow", 0), "deep": case("deep", 0), "second": case("shallow", 1)}


@pytest.fixture(scope="module")
def address(cases, tmp_path_factory):
    file = tmp_path_factory.mktemp("explorer") / "page.html"
    file.write_text(explorer_page([one.scene for one in cases.values()]), encoding="utf-8")
    return file.as_uri()


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        # Chromium refuses to make a sandbox for root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield running
        running.close()


@pytest.fixture
def visit(browser, address):
    """Open the page, as often as a test likes; whatever it complains of or asks for besides itself is a failure."""
    contexts, heard, asked = [], [], []

    def opened(**settings):
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert heard == []
    assert {url for url in asked if not url.startswith("data:")} <= {address}


def ask(page, name, *given):
    return page.evaluate(f"given => metriscope.{name}(...given)", list(given))


def columns(rows):
    return {key: np.array([row[key] for row in rows]) for key in ("vq", "graph", "euclid")}


def places(page):
    """Return anchor and pointer as the live line tells them."""
    page.evaluate("() => new Promise(requestAnimationFrame)")
    numbers = re.findall(r"\(([^,]+), ([^)]+)\)", page.locator("#line").inner_text().replace("−", "-"))
    return [tuple(map(float, pair)) for pair in numbers]


def screen_place(page, panel, x, y):
    box = page.locator(f"#panel-{panel} .marks").bounding_box()
    return box["x"] + (x + 1) / 2 * box["width"], box["y"] + (1 - y) / 2 * box["height"]


@pytest.mark.parametrize("shape", ["shallow", "deep"])
def test_distances_in_the_browser_are_those_of_python(visit, cases, shape):
    page, points = visit(), uniform(100, 0, "asked")
    ask(page, "select", {"shape": shape})
    ask(page, "pointAt", *POINTER)
    found, expected = columns(ask(page, "distances", points.tolist())), cases[shape].distances(POINTER, points)
    np.testing.assert_array_equal(found["vq"], expected["vq"])
    np.testing.assert_array_equal(found["graph"], expected["graph"])
    np.testing.assert_allclose(found["euclid"], expected["euclid"], atol=1e-6, rtol=0)


def test_unequal_weights_weigh_the_layers_and_leave_the_graph(visit, cases):
    page, points = visit(), uniform(100, 1, "asked")
    ask(page, "select", {"shape": "deep"})
    ask(page, "pointAt", *POINTER)
    ask(page, "weights", UNEQUAL)
    found = columns(ask(page, "distances", points.tolist()))
    expected = cases["deep"].distances(POINTER, points, UNEQUAL)
    np.testing.assert_allclose(found["vq"], expected["vq"], rtol=1e-12)
    np.testing.assert_array_equal(found["graph"], expected["graph"])


def test_a_shallow_network_counts_borders_and_a_deep_one_never_more(visit):
    page, points = visit(), uniform(300, 2, "asked").tolist()
    for shape, law in (("shallow", np.array_equal), ("deep", lambda vq, graph: (vq <= graph).all())):
        ask(page, "select", {"shape": shape})
        ask(page, "pointAt", *POINTER)
        found = columns(ask(page, "distances", points))
        assert law(found["vq"], found["graph"]), shape


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("together", [True, False], ids=["one scale", "own scales"])
def test_a_painted_color_is_the_map_s_entry_for_the_distance(visit, cases, weights, together):
    page = visit()
    ask(page, "select", {"shape": "deep"})
    page.locator("#together").set_checked(together)
    ask(page, "weights", weights)
    ask(page, "pointAt", *POINTER)
    painted = ask(page, "painted", uniform(100, 3, "asked").tolist())
    reach, centers = cases["deep"].reach(weights), [(row["x"], row["y"]) for row in painted]
    if together:
        reach["vq"] = reach["graph"] = max(reach["vq"], reach["graph"])
    for key, values in cases["deep"].distances(POINTER, centers, weights).items():
        exact = 255 * values / reach[key] + 0.5
        # Where a value falls between two entries to the last bit, either of them is right.
        near = [TABLE[np.floor(exact + shift).astype(int).clip(0, 255)] for shift in (-1e-9, 1e-9)]
        colors = np.array([row[key] for row in painted])
        assert np.all((colors == near[0]).all(1) | (colors == near[1]).all(1)), key


def test_the_shown_numbers_are_those_between_anchor_and_pointer(visit, cases):
    page = visit()
    ask(page, "select", {"shape": "deep"})
    ask(page, "pin", -0.62, 0.4)
    ask(page, "pointAt", *POINTER)
    expected = {key: found[0] for key, found in cases["deep"].distances(POINTER, [(-0.62, 0.4)]).items()}
    shown = {key: page.locator(f"#panel-{key} .value").inner_text() for key in expected}
    assert shown == {key: f"{found:.2f}" if key == "euclid" else f"{found:.0f}" for key, found in expected.items()}
    differ = [int(text.split()[0]) for text in page.locator(".differ").all_inner_texts()]
    assert len(differ) == 3
    assert sum(differ) == expected["vq"]


@pytest.mark.parametrize("shape", ["shallow", "deep"])
def test_the_way_that_is_drawn_crosses_as_many_borders_as_the_graph_counts(visit, cases, shape):
    page, partition = visit(), cases[shape].partition
    ask(page, "select", {"shape": shape})
    for anchor, pointer in uniform(16, 4, "ways").reshape(8, 2, 2).tolist():
        ask(page, "pin", *anchor)
        ask(page, "pointAt", *pointer)
        way = ask(page, "way")
        places = np.reshape(way["places"], (-1, 2))
        # Between two crossings the line runs within one convex region, so its middle says which.
        np.testing.assert_array_equal(partition.locate((places[1:] + places[:-1]) / 2), way["regions"])
        assert len(way["regions"]) == 1 + cases[shape].distances(pointer, [anchor])["graph"][0]
        np.testing.assert_allclose(places[[0, -1]], [anchor, pointer])


def test_every_network_can_be_chosen_and_a_missing_one_leads_to_a_neighbor(visit, cases):
    page = visit()
    for one in cases.values():
        for value in one.scene.choices.values():
            page.locator(".segments label", has_text=value).click()
        assert ask(page, "select", {}) == one.scene.choices
        assert f"{len(one.partition):,} linear regions" in page.locator("#about").inner_text()
    page.locator(".segments label", has_text="deep").click()
    assert ask(page, "select", {}) == {"shape": "deep", "weights": "first draw"}
    assert page.locator("input:checked[type=radio]").count() == 2


def test_the_mouse_moves_the_point_and_a_click_pins_the_anchor(visit):
    page = visit()
    assert places(page)[0] == (0, 0)
    for panel in ("vq", "graph", "euclid"):
        page.mouse.move(*screen_place(page, panel, 0.2, 0.6))
        assert places(page) == [pytest.approx((0, 0)), pytest.approx((0.2, 0.6), abs=0.02)]
    page.mouse.click(*screen_place(page, "graph", -0.5, -0.3))
    page.mouse.move(*screen_place(page, "graph", 0.1, 0.1))
    assert places(page)[0] == pytest.approx((-0.5, -0.3), abs=0.02)


def test_the_keyboard_moves_the_point_within_the_square_and_pins_it(visit):
    page = visit()
    ask(page, "pointAt", 0, 0.5)
    page.locator("#panel-vq .marks").focus()
    for key in ("ArrowRight", "ArrowUp", "Shift+ArrowLeft", "Shift+ArrowDown"):
        page.keyboard.press(key)
    assert places(page)[1] == pytest.approx((-0.08, 0.42))
    page.keyboard.press("Enter")
    for _ in range(30):
        page.keyboard.press("Shift+ArrowRight")
    assert places(page) == [pytest.approx((-0.08, 0.42)), pytest.approx((1, 0.42))]


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


def drag(page, start, end):
    """Move one finger from place to place in small steps."""
    fingers = page.context.new_cdp_session(page)
    steps = np.linspace(start, end, 9)
    for kind, (x, y) in zip(["touchStart", *["touchMove"] * 8], steps, strict=True):
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    fingers.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_a_finger_drags_the_ring_and_scrolls_the_page_beside_it(visit):
    page = visit(**PHONE)
    page.locator("#panel-vq").scroll_into_view_if_needed()
    ring = places(page)[1]
    drag(page, screen_place(page, "vq", *ring), screen_place(page, "vq", -0.3, 0.5))
    assert places(page)[1] == pytest.approx((-0.3, 0.5), abs=0.02)
    page.touchscreen.tap(*screen_place(page, "vq", 0.4, -0.2))
    assert places(page) == [(0, 0), pytest.approx((0.4, -0.2), abs=0.02)]
    page.get_by_role("button", name="Pin the anchor here").tap()
    assert places(page)[0] == pytest.approx((0.4, -0.2), abs=0.02)
    page.locator("#panel-vq").scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    x, y = screen_place(page, "vq", -0.6, 0.1)
    drag(page, (x, y), (x, y - 200))
    page.wait_for_function("before => scrollY > before", arg=before)
    assert places(page)[1] == pytest.approx((0.4, -0.2), abs=0.02)


def test_a_phone_shows_one_distance_at_a_time(visit):
    page = visit(**PHONE)
    for tab, shown in (("VQ", "vq"), ("Regions", "graph"), ("Euclid", "euclid")):
        page.get_by_role("button", name=tab, exact=True).tap()
        assert [key for key in ("vq", "graph", "euclid") if page.locator(f"#panel-{key}").is_visible()] == [shown]
        assert page.evaluate(f"document.querySelector('#panel-{shown} .heat').width") > 300
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def counts(page):
    page.evaluate("() => new Promise(requestAnimationFrame)")
    return [int(page.locator(f"#panel-{key} .value").inner_text()) for key in ("vq", "graph")]


def test_presets_show_what_depth_changes(visit):
    page = visit()
    page.get_by_role("button", name="fewer units than borders").click()
    vq, graph = counts(page)
    assert vq < graph
    assert ask(page, "select", {})["shape"] == "deep"
    page.get_by_role("button", name="units and borders agree").click()
    vq, graph = counts(page)
    assert vq == graph > 1


def test_a_preset_that_no_pair_of_regions_fits_says_so(browser, cases, tmp_path):
    # The units of one hidden layer as if they were in two: no pair has more borders than units.
    scene = cases["shallow"].scene
    width = sum(width for _, width in scene.layers)
    split = replace(scene, layers=(("layer 1", width - 1), ("layer 2", 1)))
    (tmp_path / "page.html").write_text(explorer_page([split]), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    button = page.get_by_role("button", name="fewer units than borders")
    button.click()
    assert button.is_disabled()
    assert button.inner_text().endswith("(no such pair here)")
    page.close()


def test_the_address_keeps_network_ring_and_cross(visit):
    page = visit()
    ask(page, "select", {"shape": "deep"})
    ask(page, "pin", 0.25, -0.5)
    page.wait_for_function("() => location.hash.includes('ring')")
    before = page.evaluate("location.hash")
    page.mouse.move(*screen_place(page, "vq", -0.2, 0.6))
    page.locator("#panel-vq .marks").press("ArrowUp")
    page.wait_for_function("before => location.hash !== before", arg=before)
    seen = places(page)
    page.reload()
    assert places(page) == [pytest.approx(pair, abs=0.006) for pair in seen]
    assert ask(page, "select", {})["shape"] == "deep"


def test_sliders_weigh_and_the_button_resets(visit):
    page = visit()
    ask(page, "select", {"shape": "deep"})
    before = page.locator("#sum").inner_text()
    page.get_by_label("weight of layer 2").fill("0.5")
    places(page)
    assert "0.5 ×" in page.locator("#sum").inner_text()
    page.get_by_role("button", name="Reset weights").click()
    places(page)
    assert page.locator("#sum").inner_text() == before


# Read from a copy that is made for reading: the browser warns of reading a canvas that is made for drawing.
INKED = """key => {
  const drawn = document.querySelector(`#panel-${key} .lines`), copy = document.createElement("canvas");
  [copy.width, copy.height] = [drawn.width, drawn.height];
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(drawn, 0, 0);
  return context.getImageData(0, 0, copy.width, copy.height).data.some((value) => value > 0);
}"""


def test_borders_are_drawn_where_they_count_and_can_be_put_away(visit):
    page = visit()
    page.locator("#points").uncheck()
    assert [page.evaluate(INKED, key) for key in ("vq", "graph", "euclid")] == [True, True, False]
    page.locator("#borders").uncheck()
    assert not any(page.evaluate(INKED, key) for key in ("vq", "graph", "euclid"))


def test_a_dark_page_is_drawn_in_dark_colors_even_if_it_was_opened_light(visit, tmp_path):
    page = visit()
    light = page.screenshot(path=tmp_path / "light.png")
    strip = "document.querySelector('.strip canvas').toDataURL()"
    background = "getComputedStyle(document.body).backgroundColor"
    seen = page.evaluate(strip), page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    places(page)
    assert page.evaluate(strip) != seen[0]
    assert (seen[1], page.evaluate(background)) == ("rgb(251, 250, 247)", "rgb(20, 23, 27)")
    assert page.screenshot(path=tmp_path / "dark.png") != light


def test_the_time_of_a_frame_is_shown_on_request_and_reported(visit, capsys):
    page = visit()
    assert page.locator("#fps").is_hidden()
    page.evaluate("location.hash = '#fps'")
    ask(page, "select", {"shape": "deep"})
    page.evaluate("for (let i = 0; i < 60; i++) metriscope.pointAt(0.9 * Math.sin(i / 5), 0.9 * Math.cos(i / 7))")
    times = ask(page, "frameTimes")[-60:]
    assert page.locator("#fps").inner_text().endswith("ms a frame")
    with capsys.disabled():
        sys.stdout.write(f"\nexplorer: {np.mean(times):.1f} ms a frame on average, {max(times):.1f} ms at most\n")
