"""All studies on one page: what each names its sections, tables and figures must differ from what the others do."""

import pytest

from metriscope.report.document import Figure, Page, Table, walk
from metriscope.runs import Driver, Store
from metriscope.studies import STUDIES
from metriscope.studies.contract import study
from metriscope.studies.runner import run_study

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
