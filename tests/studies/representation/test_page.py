"""The report of the MNIST study renders from whatever was run, and leaves out with a sentence what was not."""

import re
from html.parser import HTMLParser

import pytest

from metriscope.nn import architectures
from metriscope.report import Page, Prose, render
from metriscope.studies.representation.markdown import markdown
from metriscope.studies.representation.page import sections
from metriscope.studies.representation.results import Results
from studies.representation.made_runs import results

ALL = {name: (0.9, 0.92, 0.91) for name in architectures()}
SUBSETS = {
    "one network, one seed": results({"relu": (0.9,)}),
    "distance layers only": results({"abs-l2": (0.9,), "relu-l2-neg": (0.9, 0.95)}),
    "runs that all agree": results({"relu": (0.9, 0.9, 0.9), "relu2": (0.1, 0.1, 0.1)}, never={"relu2": 10}),
    "records without networks": results({"relu": (0.9, 0.92), "abs-l2": (0.9, 0.91)}, model=False),
    "the paper's size, two forms of pixels": results({"relu": (0.95,)}, paper=True, pixels=("raw", "normalized")),
}


class Balanced(HTMLParser):
    """Count what is opened and closed."""

    def __init__(self):
        super().__init__()
        self.depth = 0

    def handle_starttag(self, tag, attrs):
        self.depth += tag in ("section", "table", "svg", "details")

    def handle_endtag(self, tag):
        self.depth -= tag in ("section", "table", "svg", "details")


@pytest.fixture(scope="module")
def whole():
    return results(ALL, pixels=("raw",), never={"relu2": 3})


def page_of(some):
    return Page("Metriscope", "representation", sections(some))


def test_the_whole_study_has_every_part(whole):
    page = page_of(whole)
    html = render(page)
    parser = Balanced()
    parser.feed(html)
    assert parser.depth == 0
    figures = {block.name for block in page.blocks if type(block).__name__ == "Figure"}
    assert figures == {
        "accuracy-0", "learning-0", "dying", "unit-distributions", "output-hyperplanes", "prototypes", "alpha",
        "perturbations",
    }  # fmt: skip
    assert {claim.id for claim in page.claims} == {f"C{n}" for n in range(12, 18)}
    assert not any(claim.verdict == "not run" for claim in page.claims)
    accuracy = next(table for table in page.tables if table.name == "accuracies-0")
    assert len(accuracy.frame) == 16
    assert "Smaller than the paper's protocol" in accuracy.note
    assert "Made by hand." in html


@pytest.mark.parametrize("name", SUBSETS)
def test_any_subset_of_runs_renders(name):
    html = render(page_of(SUBSETS[name]))
    assert not re.search(r"\bnan\b", html)
    assert len(markdown(SUBSETS[name])) > 1_000


def test_what_cannot_be_measured_is_said():
    texts = " ".join(b.text for b in page_of(SUBSETS["records without networks"]).blocks if isinstance(b, Prose))
    assert "No trained ReLU or Abs network with its images is at hand." in texts
    assert "No trained network with an OffsetL2 head is at hand." in texts
    assert "Not run here" in texts


def test_no_run_at_all_is_a_sentence():
    (only,) = sections(Results(()))
    assert "No run is finished." in only.blocks[0].text
    assert "No run is finished." in markdown(Results(()))


@pytest.fixture(scope="module")
def text(whole):
    return markdown(whole, {"package": "metriscope 0.1.0", "packages": {"torch": "2"}})


def test_networks_without_their_images_are_records_only():
    text = markdown(Results(results({"relu": (0.9,), "abs-l2": (0.9,)}).runs))
    assert "| C17 | not run |" in text
    assert "no trained network with an OffsetL2 head" in text


def test_markdown_has_accuracies_tests_verdicts_and_provenance(text):
    assert "| ReLU2-Neg + bias | 3 | 91.00 |" in text
    assert "94.92 ± 0.18" in text
    assert "| ReLU − Abs | 3 |" in text
    assert "### C14: " in text
    assert "- packages · torch: 2" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)


def test_every_table_of_markdown_is_rectangular(text):
    width = None
    for line in text.splitlines():
        if not line.startswith("|"):
            width = None
            continue
        count = line.replace("\\|", "").count("|")
        assert width in (None, count)
        width = count
