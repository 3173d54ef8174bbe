"""Many Gaussians: planted answers for every table, and a small real run that must give the study's own numbers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from metriscope.probes import lost_directions
from metriscope.report import Figure, Prose, Table, number
from metriscope.runs import Driver, Record, Store
from metriscope.runs.address import address
from metriscope.runs.records import shipped
from metriscope.studies.mahalanobis import landscape as many
from metriscope.studies.mahalanobis.experiments import POPULATIONS, LandscapeRule, PopulationTraining, population_jobs
from metriscope.studies.mahalanobis.judge import STATEMENTS
from metriscope.studies.mahalanobis.landscape import WORK, axes_of, starts_of
from metriscope.studies.mahalanobis.landscape_page import section
from metriscope.studies.mahalanobis.plan import DistanceRecipe, DistanceTraining, GaussianTask, MahalanobisOptions, plan
from metriscope.studies.mahalanobis.prediction import FEATURES, auc, conditional_logit, features
from metriscope.studies.mahalanobis.train import WORK as TRAINING
from metriscope.studies.mahalanobis.train import draw_problem, network
from metriscope.studies.mahalanobis.trials import mse, networks
from metriscope.studies.verdicts import judge

RULE = LandscapeRule(draws=300)
ONE_LOST = lost_directions(2, 1)


def asked(profile="paper", **options):
    return population_jobs(plan(MahalanobisOptions(profile, dims=(2, 10), **options)))


def test_quick_looks_up_what_paper_computes():
    assert asked("quick") == asked("paper")
    assert len({address(job) for job in asked()}) == len(asked())


@pytest.mark.parametrize("dim", POPULATIONS)
def test_every_gaussian_has_every_activation_once_and_the_published_one_is_not_among_them(dim):
    for activation in ("abs", "relu", "sigmoid"):
        usual = [job for job in asked() if job.task.dim == dim and job.usual and job.activation == activation]
        assert sorted(i for job in usual for i in range(*job.gaussians)) == [*range(1, POPULATIONS[dim].gaussians + 1)]
        assert all(job.trials == 4 for job in usual)


@pytest.mark.parametrize("option", [{"trials": 4}, {"epochs": 10}, {"samples": 50}])
def test_a_run_of_another_size_has_no_population(option):
    assert asked(**option) == ()


def test_paper_does_not_train_the_populations_gaussians_twice():
    assert not plan(MahalanobisOptions("paper")).others
    assert plan(MahalanobisOptions("paper", trials=5)).others


def test_a_network_has_as_many_units_as_asked_for_and_the_usual_ones_keep_their_address():
    job = DistanceTraining(GaussianTask(2, 30), DistanceRecipe(5), (0,), ("abs",))
    x = draw_problem(job.task).x
    assert [len(network(replace(job, hidden=k), "abs", 0, x).linear.weight) for k in (None, 3, 6)] == [2, 3, 6]
    assert address(job) != address(replace(job, hidden=3))
    # The first of more units are those of fewer, so that widths are compared from the same start.
    assert network(replace(job, hidden=3), "abs", 0, x).linear.weight[:2].equal(network(job, "abs", 0, x).linear.weight)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    job = PopulationTraining(GaussianTask(2, 60), (1, 3), DistanceRecipe(40), 2, "abs", test_samples=50, digits=9)
    driver = Driver(Store(tmp_path_factory.mktemp("landscape")))
    return job, driver, driver.perform([job], WORK, "population")[job]


def test_a_shard_gives_the_losses_of_the_studys_own_trainings(small):
    job, driver, run = small
    trials, own = run.table("trials"), driver.perform(job.trainings(), TRAINING, "training")
    assert len(trials) == 4
    for training in job.trainings():
        problem = draw_problem(training.task)
        for trained in networks(own[training], training):
            row = trials[(trials["gaussian"] == training.task.gaussian) & (trials["trial"] == trained.trial)].iloc[0]
            assert row["train_mse"] == pytest.approx(mse(trained.model, problem.x, problem.y), rel=1e-7)


def test_nothing_but_numbers_is_kept_of_a_shard(small):
    _, _, run = small
    assert set(run.tables) == {"trials", "recovered", "axes", "starts"}
    assert run.tensors() == {}


def test_the_axes_of_a_gaussian_hold_the_norm_of_its_whitened_mean():
    problem = draw_problem(GaussianTask(3, 20, gaussian=4))
    table, mean = axes_of(problem), problem.gaussian.mean
    expected = float(mean @ torch.linalg.solve(problem.gaussian.cov, mean))
    assert (table["mean"] ** 2 / table["variance"]).sum() == pytest.approx(expected)
    assert table["variance"].is_monotonic_decreasing


def test_a_start_gives_the_axes_what_its_metric_does():
    job = DistanceTraining(GaussianTask(3, 20), DistanceRecipe(1), (0, 1), ("abs",))
    problem = draw_problem(job.task)
    weight = network(job, "abs", 1, problem.x).linear.weight.detach().double()
    trace = float(torch.trace(weight @ problem.gaussian.cov @ weight.mT))
    table = starts_of(job, problem)
    assert table[table["trial"] == 1]["length"].sum() == pytest.approx(trace)


def planted(between, within, gaussians=400, trials=4, **columns):
    draw = np.random.default_rng(1)
    means = draw.normal(0.1, between, size=(gaussians, 1))
    values = means + draw.normal(0, within, size=(gaussians, trials))
    where = pd.MultiIndex.from_product([range(1, gaussians + 1), range(trials)], names=["gaussian", "trial"])
    base = {"dim": 2, "activation": "abs", "start": "random", "train_mse": values.ravel()}
    return pd.DataFrame({**base, **columns}, index=where).reset_index()


@pytest.mark.parametrize(("between", "within"), [(0.03, 0.01), (0.01, 0.03), (0.0, 0.02), (0.02, 0.0)])
def test_variance_components_are_those_planted(between, within):
    row = many.effects(planted(between, within), RULE).iloc[0]
    assert (row["gaussians"], row["trials"], row["published"]) == (400, 4, 0.122)
    # Three standard errors of the variance of 400 means.
    assert row["between_sd"] ** 2 == pytest.approx(between**2, abs=0.22 * (between**2 + within**2 / 4))
    assert row["within_sd"] == pytest.approx(within, abs=0.002)
    expected = between**2 / (between**2 + within**2)
    assert row["icc"] == pytest.approx(expected, abs=0.08)
    assert row["icc_low"] - 0.02 <= expected <= row["icc_high"] + 0.02
    # The mean's error is that of Gaussians, however many trials there are on each.
    assert row["high"] - row["low"] == pytest.approx(2 * 1.966 * np.sqrt((between**2 + within**2 / 4) / 400), rel=0.12)


def test_an_interval_of_a_share_is_over_gaussians_not_over_trials():
    gaussian = pd.Series(np.repeat(np.arange(60), 4))
    alike, mixed = pd.Series(gaussian % 2 == 0), pd.Series(np.arange(240) % 2 == 0)
    wide, narrow = (many.share_over_gaussians(values, gaussian, RULE) for values in (alike, mixed))
    assert wide["share"] == narrow["share"] == 0.5
    # A binomial of 60 Gaussians, and none at all where each Gaussian has the same share.
    assert wide["high"] - wide["low"] == pytest.approx(2 * 1.96 * 0.5 / 60**0.5, rel=0.15)
    assert narrow["high"] == narrow["low"] == 0.5


def test_a_choice_model_finds_the_planted_preferences():
    draw = np.random.default_rng(0)
    x, beta = draw.normal(size=(4_000, 5, 2)), np.array([1.5, -0.5])
    utility = x @ beta + draw.gumbel(size=(4_000, 5))
    found = conditional_logit(x, utility.argmax(1), np.arange(4_000), RULE)
    assert found.coefficients == pytest.approx(beta, abs=0.1)
    assert (np.abs(found.coefficients - beta) < 4 * found.errors).all()
    assert (found.errors < 0.1).all()
    blind = conditional_logit(x, draw.integers(5, size=4_000), np.arange(4_000), RULE)
    assert blind.explained == pytest.approx(0, abs=0.005)
    assert found.explained > 0.2
    assert found.right > 0.4 > blind.right


def test_repeating_every_choice_within_its_group_does_not_shrink_the_errors():
    draw = np.random.default_rng(2)
    x = draw.normal(size=(300, 3, 1))
    chosen = (x[..., 0] + draw.gumbel(size=(300, 3))).argmax(1)
    once = conditional_logit(x, chosen, np.arange(300), LandscapeRule(penalty=1e-9))
    four = conditional_logit(
        np.repeat(x, 4, 0), np.repeat(chosen, 4), np.arange(300).repeat(4), LandscapeRule(penalty=1e-9)
    )
    assert four.errors == pytest.approx(once.errors)


def test_auc_is_one_for_perfect_order_and_half_for_none():
    happened = np.array([False, False, True, True])
    assert auc(np.array([0.1, 0.2, 0.3, 0.4]), happened) == 1
    assert auc(np.array([0.4, 0.3, 0.2, 0.1]), happened) == 0
    assert auc(np.full(4, 0.5), happened) == 0.5
    assert np.isnan(auc(np.ones(4), np.ones(4, dtype=bool)))


def world(exact_if_wide=True, gaussians=60, trials=4):
    """Return runs of a world in which Abs is exact on Gaussians of large least variance, or at random."""
    draw = np.random.default_rng(3)
    job = replace(asked()[0], gaussians=(1, gaussians + 1))
    every, least = np.arange(1, gaussians + 1), draw.uniform(0.01, 1, gaussians)
    axes = pd.DataFrame({"gaussian": every.repeat(2), "axis": np.tile([0, 1], gaussians)})
    axes = axes.assign(
        variance=np.column_stack([np.ones(gaussians), least]).ravel(), mean=draw.uniform(1, 9, 2 * gaussians)
    )
    starts = axes.loc[axes.index.repeat(trials), ["gaussian", "axis"]]
    starts = starts.assign(trial=np.tile(range(trials), 2 * gaussians), length=draw.uniform(0.1, 2, len(starts)))
    trial = pd.DataFrame({"gaussian": every.repeat(trials), "trial": np.tile(range(trials), gaussians)})
    noise = draw.uniform(size=len(trial))
    exact = (least.repeat(trials) + 0.2 * noise > 0.6) if exact_if_wide else noise > 0.5
    loss = np.where(exact, 1e-7, ONE_LOST.loss)
    numbers = dict.fromkeys(("centering_sd", "sphericity", "data_sphericity", "eigenvalue_error"), 0.1 + 0.01 * noise)
    trials_ = trial.assign(
        train_mse=loss, test_mse=loss * (1 + 0.1 * noise),
        lost=(~exact).astype(int), lost_axis=np.where(exact, np.nan, 1.0),
        outcome=np.where(exact, "exact", "true minimum"), eigenvector_cosine=0.8, constant=0.0, **numbers,
    )  # fmt: skip
    shares = {"cosine_share": 0.1, "error_share": 0.1, "cosine": 0.8, "cosine_chance": 0.8, "cosine_high": 0.9}
    recovered = pd.DataFrame({"gaussian": every, "trials": 2, **shares})
    recovered["cosine_share"] += 0.01 * draw.normal(size=gaussians)
    wide = replace(job, hidden=4, gaussians=(1, 41))
    few = trials_[trials_["gaussian"] <= 40][["gaussian", "trial"]].assign(train_mse=1e-9, test_mse=1e-9, lost=0)
    starts_c = [replace(job, start=job.start.__class__(clusters=c), gaussians=(1, 51)) for c in (1, 2)]
    good = trials_[["gaussian", "trial", "lost"]].assign(train_mse=1e-9, test_mse=1e-9 * (1 + noise))
    return [
        (job, Record({}, {}, {"trials": trials_, "recovered": recovered, "axes": axes, "starts": starts})),
        (wide, Record({}, {}, {"trials": few})),
        *((c, Record({}, {}, {"trials": good})) for c in starts_c),
    ]


@pytest.fixture(scope="module")
def tables():
    return many._tables(world(), "record")


def test_the_axis_that_is_always_lost_has_the_whole_share(tables):
    lost = tables["landscape-lost"].set_index("axis")
    failed = tables["population"].query("start == 'random' and not exact")["gaussian"].nunique()
    # If all of n Gaussians agree, the share is at least the n-th root of half of 5 %.
    assert lost.loc[2, ["share", "low", "high"]].tolist() == pytest.approx([1, 0.025 ** (1 / failed), 1])
    assert lost.loc[1, "high"] == pytest.approx(1 - lost.loc[2, "low"])
    assert tables["landscape-choices"].empty


def test_the_axis_that_is_mostly_lost_is_told_by_its_variance():
    (job, record), *others = world()
    trials = record.table("trials")
    swapped = trials["lost_axis"].mask((trials["lost_axis"] == 1) & (trials["trial"] == 3), 0.0)
    frames = {**record.frames, "trials": trials.assign(lost_axis=swapped)}
    choice = many._tables([(job, replace(record, frames=frames)), *others], "record")["landscape-choices"]
    row = choice.set_index("feature").loc["variance"]
    assert row["odds"] < row["high"] < 1
    assert 0.6 < row["right"] < 0.9


def test_a_rule_predicts_unseen_gaussians_where_the_gaussian_decides(tables):
    row = tables["landscape-rule"].set_index("target").loc["exact"]
    assert row["auc_low"] > 0.8
    assert row["skill_low"] > 0.2
    shown = tables["landscape-predictions"]
    assert row["auc"] == pytest.approx(auc(shown["predicted"].to_numpy(), shown["happened"].to_numpy(dtype=bool)))
    assert (shown["gaussian"] % 2 == 0).all()
    weights = tables["landscape-weights"].set_index("feature")["weight"]
    assert set(weights.index) == set(FEATURES)
    assert weights["least variance"] > 0


def test_a_rule_does_not_predict_what_is_random():
    row = many._tables(world(exact_if_wide=False), "record")["landscape-rule"].set_index("target").loc["exact"]
    assert row["skill_low"] < 0.05
    assert row["auc_low"] < 0.6


def test_where_all_trials_end_alike_no_rule_is_fitted(tables):
    row = tables["landscape-rule"].set_index("target").loc["within reach"]
    assert np.isnan(row["auc"])


def test_features_are_logarithms_of_what_they_name(tables):
    (_, record), *_ = world()
    starts = record.table("starts").rename(columns={"length": "start_length"}).assign(dim=2)
    axes = record.table("axes").assign(dim=2)
    row = features(axes, starts).iloc[0]
    own = axes[axes["gaussian"] == 1]
    whitened = own["mean"] ** 2 / own["variance"]
    assert 10 ** (2 * row["whitened mean"]) == pytest.approx(whitened.sum())
    assert row["share on least variance"] == pytest.approx(whitened.iloc[-1] / whitened.sum())
    assert 10 ** row["least variance"] == pytest.approx(own["variance"].min())


def test_shares_by_width_compare_the_same_gaussians(tables):
    found = tables["landscape-widths"].set_index("units")
    assert found.loc[4, "share"] == 1
    assert (found["gaussians"] == 40).all()
    first = tables["population"].query("start == 'random' and gaussian <= 40")
    assert found.loc[2, "share"] == pytest.approx(first["exact"].mean())


def test_ends_count_every_trial_once_and_gaussians_on_which_all_failures_end_so(tables):
    found = tables["landscape-ends"].set_index("outcome")
    random = tables["population"].query("start == 'random'")
    assert found["trials"].sum() == len(random) == found["of"].iloc[0]
    failed = random[~random["exact"]]
    assert found.loc["true minimum", "alone"] == found.loc["true minimum", "gaussians"] == failed["gaussian"].nunique()


def test_the_populations_rows_replace_those_of_the_same_dimension_start_and_activation():
    own = pd.DataFrame({"dim": [2, 2, 100], "start": "random", "activation": ["abs", "relu", "abs"], "value": 1.0})
    more = pd.DataFrame({"dim": [2], "start": "random", "activation": "abs", "value": 2.0})
    found = many.combined(own, more, ("dim", "start", "activation"))
    assert sorted(found[["dim", "activation", "value"]].itertuples(index=False, name=None)) == [
        (2, "abs", 2.0), (2, "relu", 1.0), (100, "abs", 1.0),
    ]  # fmt: skip
    assert many.combined(own, None, ("dim",)) is own


def test_claims_are_judged_gaussian_by_gaussian_and_say_that_they_rest_on_a_record(tables, results):
    claims = {claim.id: claim for claim in judge(STATEMENTS, {**results.tables, **tables})}
    assert (claims["C03"].origin, claims["C01"].origin) == ("record", "run")
    assert "2-D: Abs, loss on new points over that of one lost direction" in claims["C03"].reason
    assert "60 Gaussians" in claims["C03"].reason


def test_the_section_states_the_numbers_of_its_tables(tables):
    (shown,) = section(tables)
    text = " ".join(block.text for block in shown.blocks if isinstance(block, Prose))
    effects = tables["landscape-effects"].set_index("metric").loc["train_mse"]
    rule = tables["landscape-rule"].iloc[0]
    assert number(effects["mean"]) in text
    assert f"AUC {number(rule['auc'])}" in text
    assert "the rule predicts" in text
    assert "60 of 200 Gaussians" in text
    assert "records of runs in the paper profile" in text
    names = {block.name for block in shown.blocks if isinstance(block, Figure | Table)}
    assert {"landscape-losses", "landscape-lost-axes", "landscape-units", "landscape-calibration"} <= names
    assert section({}) == ()


def test_trained_networks_of_another_width_are_rebuilt_for_measuring():
    job = PopulationTraining(GaussianTask(2, 30), (1, 2), DistanceRecipe(3), 1, "relu", hidden=5, test_samples=10)
    current = WORK.begin([job])
    current.run(lambda: None)
    table = current.result(job).tables["trials"]
    assert list(table["gaussian"]) == [1]
    assert job.units == 5


def test_the_records_that_come_with_the_package_are_those_that_quick_looks_up(tmp_path):
    quick = plan(MahalanobisOptions("quick"))
    driver = Driver(Store(tmp_path))
    found = many.landscape(quick, driver)
    recorded = {record.path.name for record in driver.shown.values()}
    assert recorded == {path.name for path in shipped("mahalanobis").glob("populationtraining-*.json")}
    assert not list(driver.store.runs())
    population = found["population"]
    assert (population["origin"] == "record").all()
    assert population["protocol"].all()
    assert not population.duplicated(["dim", "start", "activation", "gaussian", "trial"]).any()
