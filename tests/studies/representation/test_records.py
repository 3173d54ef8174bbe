"""Records kept with the code: they hold what the runs held, and the page says what they hold."""

import json
from pathlib import Path

import pandas as pd
import pytest

from metriscope.runs import Driver, Result, Store, once
from metriscope.runs.records import add, read
from metriscope.studies.records import main, page
from metriscope.studies.representation.measure import recorded
from metriscope.studies.representation.units import asking
from studies.representation.made import dead, history, job

ROOT = Path(__file__).parents[3]
RECORDS, PAGE = ROOT / "results" / "representation", ROOT / "docs" / "studies" / "representation.md"
JOBS = [job(model, number) for model in ("relu", "abs") for number in range(2)]


def result(spec):
    """Return what a run of this specification might have stored; one loss is undefined."""
    if hasattr(spec, "training"):
        levels = [(kind, level) for kind, values in spec.levels for level in values]
        frame = pd.DataFrame(levels, columns=["kind", "level"])
        return Result({"levels": frame.assign(accuracy=0.5, baseline=0.9)})
    tables = {"history": history(0.9 + spec.number / 100), "dead": dead(output=False)}
    tables["history"].loc[0, "train_loss"] = float("nan")
    return Result(tables)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    driver = Driver(Store(folder / "runs"))
    driver.perform([*JOBS, *map(asking, JOBS)], once(result), "made")
    return folder


def test_a_record_holds_every_number_of_its_run(out, tmp_path):
    assert add(Store(out / "runs").runs(), tmp_path, "representation") == 8
    found = {json.dumps(record.spec, sort_keys=True): record for record in read(tmp_path)}
    for run in Store(out / "runs").runs():
        record = found[json.dumps(run.spec, sort_keys=True)]
        assert record.kind == run.kind
        assert record.provenance == run.provenance
        assert set(record.tables) == set(run.tables)
        for name in run.tables:
            pd.testing.assert_frame_equal(record.table(name), run.table(name), check_dtype=False)


def test_records_give_the_tables_that_need_no_network(out, tmp_path):
    add(Store(out / "runs").runs(), tmp_path, "representation")
    results = recorded(read(tmp_path))
    assert results.tables["runs"]["test_accuracy"].tolist() == pytest.approx([90, 91, 90, 91])
    assert set(results.tables["perturbed"]["network"]) == {"relu", "abs"}
    assert results.tables["perturbed"]["change"].unique() == pytest.approx([-40])


def test_runs_of_another_study_are_left_out_and_those_recorded_already_stay(out, tmp_path):
    assert add(Store(out / "runs").runs(), tmp_path, "another") == 0
    arguments = ["representation", str(out), str(tmp_path / "records"), str(tmp_path / "docs" / "page.md")]
    main(arguments)
    before = {path: path.read_text("utf-8") for path in tmp_path.rglob("*.*")}
    main(arguments)
    assert {path: path.read_text("utf-8") for path in tmp_path.rglob("*.*")} == before
    assert before[tmp_path / "docs" / "page.md"].startswith("# Distance against intensity\n")


@pytest.mark.skipif(not RECORDS.is_dir(), reason="an installed package has no records")
def test_the_first_records_which_have_no_study_and_no_hash_are_still_read():
    results = recorded(read(RECORDS))
    assert len(results.tables["runs"]) >= 11
    first = results.tables["runs"].query("network == 'relu-l2' and pixels == 'raw'").iloc[0]
    assert (first["protocol"], round(first["test_accuracy"], 2)) == (True, 95.88)
    assert not results.tables["runs"].query("pixels == 'normalized'")["protocol"].any()


@pytest.mark.skipif(not RECORDS.is_dir(), reason="an installed package has no records")
def test_the_page_in_the_documentation_is_what_the_records_say():
    assert PAGE.read_text("utf-8") == page("representation", read(RECORDS))


@pytest.mark.skipif(not RECORDS.is_dir(), reason="an installed package has no records")
def test_one_run_of_each_network_decides_nothing():
    from metriscope.studies.representation.accuracy import NEEDED
    from metriscope.studies.representation.judge import STATEMENTS
    from metriscope.studies.verdicts import judge

    results = recorded(read(RECORDS))
    runs = results.tables["runs"].groupby(["setting", "network"]).size()
    if runs.max() == 1:
        claims = judge(STATEMENTS, results.tables)
        assert {claim.verdict for claim in claims if claim.id in (*NEEDED, "C16")} == {"undecided"}
