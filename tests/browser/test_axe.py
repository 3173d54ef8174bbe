"""Accessibility of every page by axe-core, which npm fetches; and how the first page of a report behaves."""

import os
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from browser.scenes import case
from browser.test_network_page import subject
from metriscope.report import Page, Section, Table, render
from metriscope.report.explorer import explorer_page
from metriscope.report.network_comparison import compare_page
from metriscope.report.network_pages import inspect_page
from report.test_front import pages as front_pages

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")

report_pages = front_pages
SPANS = ["2 min 05 s", "–", "9.0 s"]
WIDE = pd.DataFrame(
    {"name": ["b", "c", "a"], "count": [10, 9, 1234], "small": [2e-6, 0.5, -1.0], "time": SPANS}
    | {f"more{i}": [i, i + 0.123456789, i] for i in range(5)}
)
FAULTS = """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations
  .filter(each => ["serious", "critical"].includes(each.impact))
  .flatMap(each => each.nodes.map(node => `${each.id}: ${node.html.slice(0, 120)}`)))"""


@pytest.fixture(scope="module")
def addresses(report_pages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    texts = dict(zip(("report", "appendix"), report_pages, strict=True))
    wide = Table("wide", "A wide table", WIDE, groups={"more": ("more0", "more1", "more2", "more3")})
    texts["tables"] = render(Page("Tables", "", (Section("All", (wide,)),)))
    texts["inspect"] = render(inspect_page(subject("net", 0), {"a": 1}))
    texts["compare"] = render(compare_page(subject("A: net", 0), subject("B: net", 1), {"a": 1}))
    texts["explorer"] = explorer_page([case("shallow", 0).scene])
    from browser.test_theory import first_page  # which takes the browser from here

    texts["theory"] = first_page()
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in texts}


@pytest.fixture(scope="module")
def opened(addresses):
    with sync_api.sync_playwright() as playwright:
        # Chromium refuses to make a sandbox for root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)

        def visit(name, fragment="", **settings):
            # axe is no script of the page, so the page's policy would refuse it.
            page = browser.new_context(bypass_csp=True, **settings).new_page()
            page.goto(addresses[name] + fragment)
            return page

        yield visit
        browser.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm, which fetches axe-core, is not installed")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run([npm, "install", "--silent", "axe-core"], cwd=folder, capture_output=True, check=False)
    script = Path(folder, "node_modules", "axe-core", "axe.min.js")
    if done.returncode or not script.is_file():
        pytest.skip("axe-core cannot be had from npm")
    return script.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report", "appendix", "tables", "inspect", "compare", "explorer", "theory"])
def test_axe_finds_no_serious_fault(opened, axe, name, scheme):
    page = opened(name, color_scheme=scheme)
    page.evaluate("() => document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.evaluate("() => new Promise(requestAnimationFrame)")
    page.evaluate(axe)
    assert page.evaluate(FAULTS) == []


@pytest.mark.parametrize("fragment", ["#C02", "#claim-C02"])
def test_a_link_to_a_claim_opens_it_alone(opened, fragment):
    page = opened("report", fragment)
    assert page.locator("details[open]:not(.study)").count() == 1
    assert page.locator("#claim-C02 .criterion").first.is_visible()


def test_a_figure_is_enlarged_and_shrunk_by_the_keyboard_and_the_page_fits_a_phone(opened):
    page = opened("report", viewport={"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    link = page.locator(".enlarge")
    for expanded in ("true", "false"):
        link.focus()
        page.keyboard.press("Enter")
        assert link.get_attribute("aria-expanded") == expanded
        assert page.locator("figure.large").count() == (expanded == "true")


def column(page, number):
    return page.locator(f"tbody tr > :nth-child({number})").all_inner_texts()


@pytest.mark.parametrize(
    ("number", "rising"),
    [
        (1, ["a", "b", "c"]),
        (2, ["9", "10", "1,234"]),
        (3, ["−1.00", "2.00 × 10⁻⁶", "0.500"]),
        (4, ["9.0 s", "2 min 05 s", "–"]),
    ],
)
def test_a_heading_sorts_by_value_and_what_is_missing_stays_last(opened, number, rising):
    page = opened("tables")
    sorting = page.locator(".sort").nth(number - 1)
    sorting.focus()
    page.keyboard.press("Enter")
    found = column(page, number)
    assert found == rising
    sorting.click()
    falling = found[::-1] if "–" not in found else [*found[-2::-1], "–"]
    assert column(page, number) == falling
    assert page.locator("th[aria-sort=descending]").count() == 1


def test_seven_columns_are_shown_until_all_are_asked_for(opened):
    page = opened("tables")
    rows = "tbody tr:first-child", "thead tr:last-child"
    spans = "() => [...document.querySelectorAll('.groups > :not(.away)')].reduce((sum, cell) => sum + cell.colSpan, 0)"
    for shown in (7, 9):
        assert [page.locator(f"{row} > *:visible").count() for row in rows] == [shown, shown]
        assert page.evaluate(spans) == shown
        page.locator(".files button").first.click()


def test_the_saved_table_has_every_digit_and_needs_no_file(opened):
    page = opened("tables")
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    assert saved.value.suggested_filename == "wide.csv"
    pd.testing.assert_frame_equal(pd.read_csv(saved.value.path()), WIDE)
    assert page.locator(".files a").count() == 0


def test_rows_are_cards_on_a_phone(opened):
    page = opened("tables", viewport={"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.querySelector('tbody td')).display") == "flex"
    assert page.locator("tbody td").first.get_attribute("data-label") == "count"
