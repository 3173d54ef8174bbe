"""All studies on one page: what each names its sections, tables and figures must differ from what the others do."""

import os
import shutil
from dataclasses import replace

import pytest

from metriscope.report import Front
from metriscope.report.document import Figure, Page, Table, walk
from metriscope.report.front import render_front
from metriscope.runs import Driver, Store
from metriscope.studies import STUDIES
from metriscope.studies.contract import study
from metriscope.studies.runner import _front_study, _problems, run_study

# Small sizes for the studies whose quick profile trains; the others show their records.
SMALL = {
    "mahalanobis": {"dims": (2,), "trials": 2, "epochs": 20, "samples": 50, "activations": ("abs",)},
    "representation": {"models": ("relu", "abs-l2"), "seeds": 1, "epochs": 2, "train_size": 200},
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    driver = Driver(Store(tmp_path_factory.mktemp("all")))
    found = {}
    for name in STUDIES:
        if name != "vq":  # its names begin with its own, which a test of its page checks
            own = study(name)
            found[name] = run_study(own, own.plan.plan(own.plan.OPTIONS(**SMALL.get(name, {}))), driver)
    return found


def test_all_studies_fit_on_one_page(pages):
    sections = [section for shown, _ in pages.values() for section in shown]
    page = Page("All", "", tuple(sections))
    assert {section.anchor.partition("-")[0] for section in page.sections} == set(pages)


def test_every_table_and_figure_belongs_to_one_study(pages):
    owners = {}
    for name, (sections, _) in pages.items():
        for section in sections:
            for block in walk(section.blocks):
                if isinstance(block, Table | Figure):
                    owners.setdefault((type(block), block.name), set()).add(name)
    assert {key: value for key, value in owners.items() if len(value) > 1} == {}


@pytest.fixture(scope="module")
def front(pages, tmp_path_factory):
    """Return the first page of a report of small runs."""
    parts = [
        replace(_front_study(study(name), sections, "quick"), claims=claims)
        for name, (sections, claims) in pages.items()
    ]
    ledger = tuple(replace(claim, study=part.name) for part in parts for claim in part.claims)
    page = Front("Do neural networks learn distances?", "Trust.", tuple(parts), _problems(), {"seed": 1}, ledger)
    file = tmp_path_factory.mktemp("front") / "report.html"
    file.write_text(render_front(page), encoding="utf-8")
    return file


def test_the_first_page_is_at_most_two_and_a_half_megabytes(front):
    assert front.stat().st_size <= 2_500_000


# Words that are seen without opening anything, those in drawings left out.
WORDS = """() => {
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  let count = 0;
  for (let node; (node = walker.nextNode());) {
    const parent = node.parentElement;
    if (parent.closest("svg, script, .unseen")) continue;
    if (!parent.checkVisibility() || !parent.getClientRects().length) continue;
    count += node.data.split(/\\s+/).filter(Boolean).length;
  }
  return count;
}"""


def test_the_first_page_is_short_quiet_and_fits_a_phone(front):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no chromium is installed")
    with sync_api.sync_playwright() as playwright:
        # Chromium refuses to make a sandbox for root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        page, heard = browser.new_page(viewport={"width": 1280, "height": 800}), []
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.goto(front.as_uri())
        screens, words = page.evaluate("document.documentElement.scrollHeight") / 800, page.evaluate(WORDS)
        summary = page.locator("#summary").bounding_box()
        page.set_viewport_size({"width": 360, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        browser.close()
    assert heard == []
    assert screens <= 6.5
    assert 500 < words <= 2_500
    assert summary["y"] + summary["height"] <= 800
