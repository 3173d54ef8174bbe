"""The study of initialization: fair races with known answers, a plan without missing data, either verdict."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from metriscope.runs import Driver, Store
from metriscope.runs.records import add, read
from metriscope.studies.initialization.judge import PAIRS, STATEMENTS
from metriscope.studies.initialization.measure import gains, measure, recorded, standing
from metriscope.studies.initialization.page import overview, sections
from metriscope.studies.initialization.plan import (
    ENTRIES,
    KINDS,
    REAL,
    InitializationOptions,
    InitializationPlan,
    StartContest,
    plan,
)
from metriscope.studies.initialization.train import WORK, _Race, _Racer, _shares, contested, losses, problem, started
from studies.synthetic import check_statement, synthetic, verdict_on

EVERY = tuple(ENTRIES)
MIXTURE = StartContest(
    "mixture-3", "mixture", "relu", EVERY, "kaiming", 3, (1e-2,), 2, dim=4, starts=2, checks=2, hidden=8,
    component=(50, 20),
)  # fmt: skip
WHOLE = tuple(name for name in EVERY if name != "clusters-half")
GAUSSIAN = StartContest(
    "gaussian-2", "gaussian-2", "abs", WHOLE, "points", 1, (1e-2,), 4, dim=2, starts=2, checks=2, gaussians=2,
    sizes=(100, 50),
)  # fmt: skip


@pytest.mark.parametrize(
    "job", [MIXTURE, replace(MIXTURE, activation="abs"), GAUSSIAN], ids=["relu", "abs", "gaussian"]
)
def test_networks_raced_together_end_where_pytorchs_own_adam_does(job):
    """The reference is torch.optim.Adam on one network at a time, with the same falling rates and the same batches."""
    points = [problem(job, number) for number in range(job.gaussians or 1)]
    racers = [_Racer("kaiming", 0, 0, 1e-2), _Racer("lsuv", 1, len(points) - 1, 3e-3)]
    begun = {(r.entry, r.number, r.gaussian): started(job, r.entry, points[r.gaussian], r.number)[0] for r in racers}
    race = _Race(job, points, racers)
    state, curve = race.run(begun, "test")
    for place, (racer, model) in enumerate(zip(racers, begun.values(), strict=True)):
        batches = race._batches()
        optimizer = torch.optim.Adam(model.parameters(), racer.rate)
        x, y = points[racer.gaussian].train
        for step, rows in enumerate(batches):
            optimizer.param_groups[0]["lr"] = racer.rate * (1 - step / len(batches))
            some = ... if rows is None else rows[place]
            found = model(x[some])
            loss = F.mse_loss(found.abs().norm(dim=1), y[some]) if job.gaussians else F.cross_entropy(found, y[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for name, value in model.state_dict().items():
            torch.testing.assert_close(state[name][place], value, rtol=1e-3, atol=1e-4)
    assert curve.shape == (2, 3)


def test_starts_differ_only_where_they_say_and_networks_of_one_number_share_the_rest():
    points = problem(MIXTURE)
    models = {entry: started(MIXTURE, entry, points, 0)[0] for entry in EVERY}
    for entry in ("points", "clusters", "clusters-bic"):
        assert torch.equal(models[entry][2].weight, models["kaiming"][2].weight)
    assert torch.equal(models["points"][0].weight, models["kaiming"][0].weight)
    assert not torch.equal(models["points"][0].bias, models["kaiming"][0].bias)
    assert torch.equal(models["model"][4].weight, models["kaiming"][4].weight)
    counts = {entry: started(MIXTURE, entry, points, 0)[1] for entry in EVERY}
    assert (counts["clusters"], counts["clusters-half"], counts["clusters-double"]) == (3, 1, 6)
    assert np.isnan(counts["xavier"])


def test_random_starts_have_the_variance_of_their_definitions():
    wide = replace(MIXTURE, hidden=400)
    points = problem(wide)
    weights = {
        entry: started(wide, entry, points, 0)[0][2].weight.detach() for entry in ("kaiming", "xavier", "orthogonal")
    }
    assert float(weights["kaiming"].var()) == pytest.approx(2 / 400, rel=0.02)
    assert float(weights["xavier"].var()) == pytest.approx(2 * 2 / 800, rel=0.02)
    torch.testing.assert_close(weights["orthogonal"] @ weights["orthogonal"].mT, 2 * torch.eye(400), atol=1e-4, rtol=0)


def test_time_is_counted_to_the_loss_of_the_reference_halfway():
    job = replace(GAUSSIAN, checks=4, gaussians=1)
    table = pd.DataFrame({"entry": ["points", "points", "lsuv", "xavier", "model"], "gaussian": 0})
    curve = np.array([[8, 4, 2, 1, 1], [8, 4, 2, 1, 1], [2, 1, 1, 1, 1], [9, 9, 9, 2, 1], [9, 9, 9, 9, 9.0]])
    assert _shares(job, table, curve).tolist() == [0.5, 0.5, 0.0, 0.75, 1.0]


def test_the_right_whitening_starts_at_the_sampling_error_and_keeps_all_directions():
    job = replace(GAUSSIAN, sizes=(2_000, 500), entries=("points", "clusters"))
    table = contested(job).tables["starts"].set_index("entry")
    assert table.loc["clusters", "first"].max() < 0.02
    assert table.loc["points", "first"].min() > 0.02
    assert table.loc["clusters", "kept"].tolist() == [1.0] * 4
    assert table.loc["clusters", "aside"].max() == 0


@pytest.mark.parametrize("job", [MIXTURE, GAUSSIAN], ids=["mixture", "gaussian"])
def test_a_contest_is_repeatable_and_every_start_has_its_row(job):
    first, second = (contested(job).tables for _ in range(2))
    for name in first:
        pd.testing.assert_frame_equal(first[name], second[name])
    assert len(first["starts"]) == len(job.entries) * job.starts * max(1, job.gaussians)
    assert len(first["curves"]) == len(job.entries) * 3
    assert first["starts"]["share"].between(0, 1).all()
    assert ("kept" in first["starts"]) == bool(job.gaussians)


def test_units_without_a_positive_training_point_count_as_dead(monkeypatch):
    from metriscope.studies.initialization import train

    def shifted(*arguments):
        model, count = started(*arguments)
        with torch.no_grad():
            model[0].bias[:4], model[0].bias[4:6] = -1e6, 1e6
            nn.init.ones_(model[2].weight[:1])
        return model, count

    monkeypatch.setattr(train, "started", shifted)
    table = contested(replace(MIXTURE, entries=("kaiming",), epochs=1, checks=1)).tables["starts"]
    assert (table["dead"] >= 4 / 16).all()
    assert (table["aside"] >= 6 / 16).all()


def test_new_points_are_new_and_losses_are_those_of_the_definitions():
    points = problem(MIXTURE)
    seen = [{tuple(x) for x in part[0].numpy()} for part in (points.train, points.validation, points.test)]
    assert len(set.union(*seen)) == sum(len(part) for part in seen)
    assert [len(part) for part in seen] == [120, 30, 60]
    x, y = problem(GAUSSIAN).train
    state = {"0.weight": torch.zeros(1, 2, 2), "0.bias": torch.zeros(1, 2)}
    assert float(losses(GAUSSIAN, state, (x[None], y[None]))) == pytest.approx(float(y.square().mean()), rel=1e-4)


def test_data_that_is_missing_is_left_out_of_the_paper_profile_and_named(monkeypatch):
    from metriscope import data

    monkeypatch.setattr(data, "available", lambda name: name != "letter")
    asked = plan(InitializationOptions("paper"))
    assert asked.missing == ("letter",)
    assert {job.data for job in asked.jobs() if job.family == "real"} == set(REAL) - {"letter"}
    assert len(plan(InitializationOptions("quick")).contests) == 38


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (InitializationOptions("slow"), "unknown profile 'slow': there are quick, paper"),  # type: ignore[arg-type]
        (InitializationOptions(seeds=0), "--seeds must be at least 1, not 0"),
        (InitializationOptions(epochs=-1), "--epochs must be at least 1, not -1"),
    ],
)
def test_invalid_options_are_refused_in_one_sentence(options, text):
    with pytest.raises(ValueError, match=text):
        plan(options)


def test_the_claim_can_go_either_way():
    check_statement(STATEMENTS[0])


def test_fewer_data_sets_than_could_contradict_are_undecided():
    tables = {name: table[table["unit"] < PAIRS - 1] for name, table in synthetic(STATEMENTS[0]).items()}
    found = verdict_on(STATEMENTS[0], tables)
    assert found.verdict == "undecided"
    assert f"{PAIRS - 1} data sets, {PAIRS} are needed" in found.reason


def test_a_start_that_helps_on_gaussians_alone_depends_on_the_kind_of_data():
    tables = synthetic(STATEMENTS[0])
    rows = tables["starts"]
    worse = (rows["kind"] == "real") & (rows["entry"] == "clusters")
    base = rows[(rows["kind"] == "real") & (rows["entry"] == "kaiming")].set_index("unit")["log_loss"]
    rows.loc[worse, "log_loss"] = base.loc[rows.loc[worse, "unit"]].to_numpy() + 0.1
    found = verdict_on(STATEMENTS[0], tables)
    assert found.verdict == "depends"
    assert f"contradicted for {KINDS['real']}" in found.reason


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return a tiny plan with its driver and its finished runs."""
    others = replace(MIXTURE, data="mixture-2", right=2, entries=("kaiming", "clusters"))
    jobs = (GAUSSIAN, replace(MIXTURE, entries=("kaiming", "clusters", "clusters-bic")), others)
    asked = InitializationPlan("paper", jobs, ("letter",))
    driver = Driver(Store(tmp_path_factory.mktemp("runs")))
    return asked, driver, driver.perform(jobs, WORK, "starts")


def test_a_small_plan_is_measured_judged_and_shown(small):
    asked, driver, runs = small
    results = measure(asked, runs, driver)
    table = results.tables["starts"]
    assert set(table["origin"]) == {"run"}
    assert set(table[table["kind"] == "gaussian-2"]["unit"]) == {"0", "1"}
    np.testing.assert_allclose(10 ** table["log_loss"], table["loss"])
    assert (gains(table, "mixture")["kaiming"] == 0).all()
    ranking, names = standing(table, "mixture")
    assert (names, ranking.ranks.sum()) == (["kaiming", "clusters"], 3)
    assert standing(table, "real") is None
    own = overview(table, "gaussian-2").set_index("start")
    rows = table[(table["kind"] == "gaussian-2") & (table["entry"] == "clusters")]
    assert own.loc["Clusters", "share of training to the loss"] == rows["share"].mean()
    assert own.loc["Clusters", "directions kept"] == rows["kept"].mean()
    text, shown, _ = sections(asked, results, ())
    assert "not available: letter" in text.blocks[0].text
    assert [block.name for block in shown.blocks if hasattr(block, "name")] == [
        "starts-losses", "starts-curves", "starts-mixture-ranks", "starts-gaussian-2", "starts-mixture",
    ]  # fmt: skip


def test_records_show_the_same_as_the_runs(small, tmp_path):
    asked, driver, runs = small
    assert add(driver.store.runs(), tmp_path, "initialization") == 3
    again = recorded(read(tmp_path)).tables["starts"]
    first = measure(asked, runs, driver).tables["starts"]
    keys = ["data", "entry", "start", "gaussian"]
    one, other = (table.sort_values(keys, ignore_index=True).drop(columns="origin") for table in (first, again))
    pd.testing.assert_frame_equal(one, other[one.columns], check_dtype=False)
    assert sections(None, recorded(read(tmp_path)), ())


def test_nothing_recorded_is_said_so(tmp_path):
    asked = InitializationPlan("quick", ())
    results = measure(asked, {}, Driver(Store(tmp_path)))
    assert "No run of this experiment is recorded." in sections(asked, results, ())[1].blocks[0].text
    assert verdict_on(STATEMENTS[0], results.tables).strength == "not run"
