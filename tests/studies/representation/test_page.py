"""The report of the MNIST study renders from whatever was run, and leaves out with a sentence what was not."""

import re
from html.parser import HTMLParser

import pytest

from metriscope.report import Page, Prose, render
from metriscope.report.markdown import markdown, verdicts_text
from metriscope.studies.representation.accuracy_page import shortened
from metriscope.studies.representation.judge import STATEMENTS
from metriscope.studies.representation.measure import RepresentationResults
from metriscope.studies.representation.page import sections
from metriscope.studies.representation.plan import MODELS
from metriscope.studies.verdicts import judge
from studies.representation.made import inspected, recorded, runs

ALL = {name: (0.9, 0.92, 0.91) for name in MODELS}
SUBSETS = {
    "one network, one seed": runs({"relu": (0.9,)}),
    "distance layers only": runs({"abs-l2": (0.9,), "relu-l2-neg": (0.9, 0.95)}),
    "runs that all agree": runs({"relu": (0.9, 0.9, 0.9), "relu2": (0.1, 0.1, 0.1)}, {"relu2": 10}),
    "records without networks": runs({"relu": (0.9, 0.92), "abs-l2": (0.9, 0.91)}, model=False),
    "the paper's size, two forms of pixels": runs({"relu": (0.95,)}, paper=True, pixels=("raw", "normalized")),
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


def page_of(results):
    return Page("Metriscope", "representation", sections(None, results, judge(STATEMENTS, results.tables)))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return page_of(inspected(runs(ALL, {"relu2": 3}), tmp_path_factory.mktemp("whole")))


def test_the_whole_study_has_every_part(page):
    html = render(page)
    parser = Balanced()
    parser.feed(html)
    assert parser.depth == 0
    figures = {block.name for block in page.blocks if type(block).__name__ == "Figure"}
    assert figures == {
        "accuracy-0", "learning-0", "dying", "unit-distributions", "output-hyperplanes", "prototypes", "alpha",
        "perturbations", "collapse-cells", "collapse-deaths",
    }  # fmt: skip
    assert {claim.id for claim in page.claims} == {*(f"C{n}" for n in range(12, 18)), "C26", "C27"}
    assert {claim.strength for claim in page.claims} == {"hint"}
    accuracy = next(table for table in page.tables if table.name == "accuracies-0")
    assert len(accuracy.frame) == 16
    assert "Not the paper's protocol" in accuracy.note
    assert "Made by hand." in html


@pytest.mark.parametrize("name", SUBSETS)
def test_any_subset_of_runs_renders(name, tmp_path):
    some = SUBSETS[name]
    results = recorded(some) if name == "records without networks" else inspected(some, tmp_path)
    page = page_of(results)
    assert not re.search(r"\bnan\b", render(page))
    assert len(markdown("A title", "", page.sections)) > 1_000


@pytest.mark.parametrize(
    ("seeds", "pixels", "words"),
    [
        (20, "raw", "The paper's protocol."),
        (1, "raw", "Not the paper's protocol: 1 of 20 runs of each network."),
        (20, "normalized", "Not the paper's protocol (5,000 epochs on the raw pixels of 60,000 images)."),
    ],
)
def test_only_twenty_runs_on_raw_pixels_are_labeled_the_papers_protocol(seeds, pixels, words):
    results = recorded(runs({"relu": [0.95] * seeds}, paper=True, pixels=(pixels,), model=False))
    assert words in shortened(results, results.settings[0])


def test_what_cannot_be_measured_is_said():
    page = page_of(recorded(SUBSETS["records without networks"]))
    texts = " ".join(b.text for b in page.blocks if isinstance(b, Prose))
    assert "No trained ReLU or Abs network with its images is available." in texts
    assert "No trained network with an OffsetL2 head is available." in texts
    assert "Not run here" in texts


def test_networks_trained_in_both_forms_are_compared_in_words():
    page = page_of(recorded(runs({"abs-l2": (0.9, 0.91), "abs-l2-code": (0.92, 0.93)}, model=False)))
    texts = " ".join(b.text for b in page.blocks if isinstance(b, Prose))
    assert "Trained in both forms: Abs-L2-code − Abs-L2 +2.00 points" in texts


def test_no_run_at_all_is_a_sentence():
    for results in (RepresentationResults({}), recorded(())):
        (only,) = sections(None, results, ())
        assert "No run is finished." in only.blocks[0].text


@pytest.fixture(scope="module")
def text(page):
    where = {"package": "metriscope 0.1.0", "packages": {"torch": "2"}}
    return markdown("A title", verdicts_text(page.claims), page.sections, where)


def test_markdown_has_accuracies_tests_verdicts_and_provenance(text):
    assert "| ReLU2-Neg + bias | 3 | 91.00 |" in text
    assert "94.92 ± 0.18" in text
    assert "| ReLU − Abs | 3 |" in text
    assert re.search(r"### C14: \w+ \(hint\)", text)
    assert "| C17 | " in text
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
