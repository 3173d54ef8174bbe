"""Replayed starts: when they count as the published ones, and which runs a study compares."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from metriscope.runs import records
from metriscope.studies.representation.experiments import Identifying
from metriscope.studies.representation.judge import STATEMENTS
from metriscope.studies.representation.measure import compared, numbered, ordered
from metriscope.studies.representation.page import sections
from metriscope.studies.representation.plan import PERTURBED, TABLES
from metriscope.studies.representation.starts import identified, moments_of, starts
from metriscope.studies.verdicts import judge
from studies.representation.made import recorded, run, runs

ASKED = Identifying()
PRINTED = np.array([47.2, 12.0, 2.2, 1.77])


def drawn(n, seed=0):
    """Return runs from a distribution like that of ReLU2: fewer dead outputs with a higher accuracy."""
    generator = np.random.default_rng(seed)
    dead = generator.integers(0, 7, size=n)
    return np.stack([70 - 7 * dead + generator.normal(0, 6, size=n), dead], axis=1)


def test_runs_with_the_printed_numbers_are_identified():
    published = drawn(20)
    found = identified(published, None, np.round(moments_of(published), 2), ASKED)
    assert found.distance == 0
    assert found.p == pytest.approx(1 / (1 + ASKED.draws))


@pytest.mark.parametrize("pool", ["own", "replayed"])
def test_other_starts_are_rarely_identified(pool):
    other = drawn(400, seed=1)
    ps = []
    for seed in range(40):
        replayed, published = drawn(20, seed=2 + seed), drawn(20, seed=100 + seed)
        ps.append(identified(replayed, other if pool == "own" else None, moments_of(published), ASKED).p)
    assert sum(p < ASKED.alpha for p in ps) <= 2
    # Drawn from starts like the published ones, the p-value is uniform.
    assert np.mean(ps) == pytest.approx(0.5 if pool == "own" else 0.3, abs=0.17)


@pytest.mark.parametrize("change", [(40, 0, 0, 0), (0, 30, 0, 0), (-40, 30, 4, 4), (0, -6, 0, -1.5)])
def test_runs_far_from_the_printed_numbers_are_not_identified_whichever_way_they_miss(change):
    values = drawn(20)
    found = identified(values, None, moments_of(values) + np.array(change), ASKED)
    assert 0.25 < found.p < 0.75


def test_deviations_are_divided_by_the_number_of_runs():
    values = drawn(20)
    wanted = [values[:, 0].mean(), values[:, 0].std(ddof=0), values[:, 1].mean(), values[:, 1].std(ddof=0)]
    assert moments_of(values) == pytest.approx(wanted)


def relu2(n, **more):
    return [run("relu2", i, a / 100, int(d), model=False, **more) for i, (a, d) in enumerate(drawn(n))]


def test_the_table_says_how_many_runs_are_replayed_and_decides_only_with_all():
    some = starts(relu2(7, paper=True, replay=TABLES), ASKED)
    assert some["images"].tolist() == ["train", "test"]
    assert (some["runs"].unique(), some["verdict"].unique()) == ([7], ["open"])
    assert some[["printed mean", "printed sd", "printed dead mean", "printed dead sd"]].iloc[0].tolist() == (
        PRINTED.tolist()
    )
    whole = starts(relu2(20, paper=True, replay=TABLES), ASKED)
    assert (whole["runs"].unique(), whole["verdict"].unique()) == ([20], ["not identified"])
    assert whole["mean"].iloc[0] == pytest.approx(drawn(20)[:, 0].mean())
    assert starts([*relu2(20, paper=True), *relu2(20, replay=TABLES)], ASKED).empty


def test_sets_are_drawn_from_starts_of_our_own_where_there_are_enough():
    both = [*relu2(20, paper=True, replay=TABLES), *relu2(20, paper=True)]
    assert set(starts(both, ASKED)["drawn from"]) == {"own"}
    assert set(starts(both[:39], ASKED)["drawn from"]) == {"replayed"}


def test_runs_of_the_perturbation_experiment_are_not_compared():
    ours, theirs = run("abs-bias", 0, 0.9), run("abs-bias", 0, 0.1, replay=PERTURBED)
    assert compared([theirs, ours]) == [ours]


def test_a_replayed_run_stands_for_its_number_and_the_others_are_of_our_own():
    own = [run("relu2", i, 0.9, model=False) for i in range(3)]
    replayed = [run("relu2", i, 0.5, model=False, replay=TABLES) for i in range(2)]
    table = recorded(ordered([*own, *replayed])).tables["runs"]
    assert table["start"].tolist() == ["author", "author", "own"]
    assert table["test_accuracy"].tolist() == pytest.approx([50, 50, 90])
    trained = run("relu2", 0, 0.8)
    assert numbered([own[0], trained]) == [trained]


def test_replayed_runs_are_no_pairs_and_pixels_are_compared_at_equal_starts():
    raw = [run(n, i, 0.9 + i / 100, model=False, replay=TABLES) for n in ("relu", "abs") for i in range(3)]
    tables = recorded(ordered(raw)).tables
    assert tables["compared"]["paired t"].isna().all()
    assert tables["compared"]["welch t"].notna().all()
    mixed = [*raw, run("relu", 0, 0.8, model=False), run("relu", 0, 0.7, pixels="normalized", model=False)]
    table = recorded(ordered(mixed)).tables["pixels"]
    assert table[["raw", "other", "seeds"]].iloc[0].tolist() == pytest.approx([80, 70, 1])
    assert len(table) == 1


def test_the_page_says_whether_the_starts_are_identified():
    results = recorded(ordered(relu2(5, paper=True, replay=TABLES)))
    texts = [
        block.text for section in sections(None, results, ()) for block in section.blocks if hasattr(block, "text")
    ]
    (found,) = [text for text in texts if "published random numbers" in text]
    assert "5 of the 20 published runs of ReLU2 are replayed." in found
    assert "(printed: 47.20 ± 12.00)" in found
    assert found.endswith("All published runs have to be replayed before their starts can count as identified.")


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Return a function that ships runs as records."""
    folder = tmp_path / "results" / "representation"
    folder.mkdir(parents=True)
    monkeypatch.setattr(records, "_FOLDERS", (tmp_path / "results",))
    records._names.cache_clear()
    yield folder
    records._names.cache_clear()


def ship(found, folder):
    from metriscope.runs import Driver, Result, Store, once

    tables = {one.job: Result({"history": one.history, "dead": one.dead}) for one in found}
    store = Store(folder.parent.parent / "runs")
    Driver(store).perform(list(tables), once(tables.__getitem__), "made")
    assert records.add(store.runs(), folder, "representation") == len(tables)


@pytest.mark.parametrize(("count", "origin"), [(5, "record"), (4, "run")])
def test_recorded_runs_of_the_protocol_judge_a_short_report_where_they_are_enough(shipped, tmp_path, count, origin):
    from metriscope.runs import Driver, Store
    from metriscope.studies.representation.measure import _beside_records

    noise = np.array([0, 1, -1, 2, -2]) / 1e4
    long = [run(n, i, 0.95 + noise[i], model=False, paper=True) for n in ("relu", "relu2-neg") for i in range(count)]
    ship(long, shipped)
    short = recorded(runs({"relu": 0.90 + noise[:3], "relu2-neg": 0.5 + noise[:3]}))
    driver = Driver(Store(tmp_path / "store"))
    both = _beside_records(short, driver)
    claim = {c.id: c for c in judge(STATEMENTS, both.tables)}["C13"]
    assert (claim.verdict, claim.origin) == (("supported", "record") if origin == "record" else ("contradicted", "run"))
    assert ("Decided at look 1 of 3" in claim.reason) is (origin == "record")
    pd.testing.assert_frame_equal(both.tables["runs"], short.tables["runs"])
    assert len(driver.shown) == 2 * count
    titles = [section.title for section in sections(None, both, ())]
    assert "The paper's protocol, from records" in titles


def test_recorded_runs_of_a_plan_are_shown_and_not_trained(shipped, tmp_path):
    from metriscope.runs import Driver, Finished, Store
    from metriscope.studies.representation.measure import measure
    from metriscope.studies.representation.plan import Part, RepresentationPlan

    models = ("relu", "abs-bias")
    plan = RepresentationPlan("paper", "mnist", 60_000, 5_000, 2, (Part(models),), start="author")
    made = [replace(run(job.model, job.number, 0.9, model=False), job=job) for job in plan.asked()]
    assert plan.jobs() == plan.asked()
    ship(made, shipped)
    records._names.cache_clear()
    assert plan.jobs() == ()
    assert replace(plan, retrain=True).jobs() == plan.asked()
    results = measure(plan, Finished({}, 0), Driver(Store(tmp_path / "store")))
    rows = results.tables["runs"]
    # The runs with the perturbation paper's starts are recorded too, and compared nowhere.
    assert rows[["network", "seed", "start"]].to_numpy().tolist() == [
        ["relu", 0, "author"], ["relu", 1, "author"], ["abs-bias", 0, "own"], ["abs-bias", 1, "own"],
    ]  # fmt: skip
    assert set(rows["origin"]) == {"record"}
    assert "6 runs are shown from records and were not repeated; `--retrain` trains them." in results.deviations
    assert results.beside is None
    assert any("Test accuracy" in table.title for table in _tables(sections(plan, results, ())))


def _tables(found):
    from metriscope.report import Page

    return Page("Metriscope", "representation", found).tables
