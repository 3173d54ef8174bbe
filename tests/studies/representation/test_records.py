"""Records kept with the code: they hold what the runs held, and the page says what they hold."""

from pathlib import Path

import pandas as pd
import pytest

from metriscope.runs import Store
from metriscope.studies.representation.collect import trained
from metriscope.studies.representation.experiment import compute
from metriscope.studies.representation.markdown import markdown
from metriscope.studies.representation.records import add, main, read
from metriscope.studies.representation.spec import plan

ROOT = Path(__file__).parents[3]
RECORDS, PAGE = ROOT / "results" / "representation", ROOT / "docs" / "studies" / "representation.md"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def runs(out):
    small = plan("quick", models=("relu", "abs"), epochs=3, seeds=2, train_size=64, pixels="raw")
    return compute(small, Store(out / "runs"), lambda line: None)


def test_a_record_holds_every_number_of_its_run(out, runs, tmp_path):
    assert add(Store(out / "runs").runs(), tmp_path) == 4
    results, provenance = read(tmp_path)
    for asked, run in runs.items():
        (ours,) = (one for one in results.runs if (one.name, one.seed) == (asked.model, asked.number))
        whole = trained(asked, run)
        assert ours.setting == whole.setting
        pd.testing.assert_frame_equal(ours.history, whole.history, check_dtype=False)
        pd.testing.assert_frame_equal(ours.dead, whole.dead, check_dtype=False)
    assert provenance["packages"]["torch"]


def test_runs_that_are_recorded_already_stay(out, runs, tmp_path):
    main([str(out), str(tmp_path / "records"), str(tmp_path / "docs" / "page.md")])
    before = {path: path.read_text("utf-8") for path in tmp_path.rglob("*.*")}
    main([str(out), str(tmp_path / "records"), str(tmp_path / "docs" / "page.md")])
    assert {path: path.read_text("utf-8") for path in tmp_path.rglob("*.*")} == before
    assert "# Distance against intensity" in before[tmp_path / "docs" / "page.md"]


@pytest.mark.skipif(not RECORDS.is_dir(), reason="an installed package has no records")
def test_the_page_in_the_documentation_is_what_the_records_say():
    assert PAGE.read_text("utf-8") == markdown(*read(RECORDS))
