"""What is measured on real, small runs, and on networks whose answer is known."""

import numpy as np
import pandas as pd
import pytest
import torch

from metriscope.functional import bias_through, summarize
from metriscope.nn import Mahalanobis
from metriscope.probes import lost_directions
from metriscope.rng import stream
from metriscope.runs import Driver, Finished, Store, Unfinished
from metriscope.studies.mahalanobis.experiments import Chance
from metriscope.studies.mahalanobis.measure import measure
from metriscope.studies.mahalanobis.plan import (
    ANALYTIC_POINTS,
    EXACT,
    METRICS,
    DistanceRecipe,
    DistanceTraining,
    GaussianTask,
    MahalanobisOptions,
    Measurement,
    plan,
)
from metriscope.studies.mahalanobis.train import draw_problem, network
from metriscope.studies.mahalanobis.trials import (
    analytic_error,
    axes_beside_chance,
    best_trials,
    chance,
    curve,
    epochs_saved,
    relative_error,
    shares,
    truth_row,
)
from metriscope.studies.tidy_tables import published


def one_job(dim, samples=500, **task):
    return DistanceTraining(GaussianTask(dim, samples, **task), DistanceRecipe(epochs=1), trials=(0,))


def test_published_numbers_are_within_their_own_extremes():
    table = published("mahalanobis").query("metric == 'train_mse'")
    assert len(table) == 9
    assert (table["minimum"] <= table["mean"]).all()
    assert (table["mean"] <= table["maximum"].fillna(np.inf)).all()


def test_all_activations_begin_from_the_same_hyperplanes_through_training_points(done):
    job = done.plan.group(2, "random")[0]
    x = draw_problem(job.task).x
    abs_, relu, sigmoid = (network(job, a, 1, x).linear for a in ("abs", "relu", "sigmoid"))
    assert relu.weight.equal(sigmoid.weight)
    assert abs_.weight.equal(relu.weight[:2])
    assert abs_.bias.equal(relu.bias[:2])
    offsets = torch.stack([bias_through(relu.weight, p.expand(4, 2)) for p in x])
    assert ((offsets - relu.bias).abs().min(0).values < 1e-5).all()


def test_trials_started_from_clusters_differ_and_start_nearly_white(done):
    job = done.plan.group(2, "clusters")[0]
    task = draw_problem(job.task)
    one, two = (network(job, "abs", t, task.x) for t in (0, 1))
    assert not one.linear.weight.equal(two.linear.weight)
    covariance = one.linear.weight.double() @ task.gaussian.cov @ one.linear.weight.double().mT
    assert torch.allclose(covariance, torch.eye(2).double(), atol=0.2)


def test_the_ground_truth_scores_perfectly_on_every_metric():
    row = truth_row(Measurement(one_job(10), test_samples=500)).iloc[0]
    assert row["train_mse"] < 1e-9
    assert row["test_mse"] < 1e-9
    assert row["sphericity"] < 1e-4
    assert row["whiteness"] < 1e-4
    assert row["centering_sd"] < 1e-4
    assert row["metric_error"] < 1e-5
    assert row["eigenvector_cosine"] == pytest.approx(1, abs=1e-6)
    assert row["rank"] == 10
    assert row["exact"]


def test_every_gaussian_has_every_metric_of_every_trial(results):
    trials = results.tables["trials"]
    counts = trials[trials["start"] == "random"].groupby(["gaussian", "activation"]).size()
    assert counts.to_dict() == {(g, a): 6 for g in (0, 1) for a in ("abs", "relu", "sigmoid")}
    assert trials["protocol"].all()
    assert (trials["length"] == 1).all()
    assert not trials[["train_mse", "test_mse", "centering", "data_sphericity", "loss_ratio"]].isna().any().any()
    # New points differ between Gaussians, as between trials, and are shared by activations and starts.
    assert trials[trials["activation"] == "abs"]["test_mse"].is_unique


def test_ratios_are_those_of_one_lost_direction(results):
    trials = results.tables["trials"]
    theory = lost_directions(2, 1)
    np.testing.assert_allclose(trials["loss_ratio"], trials["test_mse"] / theory.loss)
    np.testing.assert_allclose(trials["whiteness"], trials["data_sphericity"] / theory.sphericity)
    np.testing.assert_allclose(trials["pair_share"].dropna() * 2, trials["mirrored"].dropna())
    # The largest variance is scaled to one, so that the distance is in largest standard deviations as it is.
    np.testing.assert_allclose(trials["centering_sd"], trials["centering"])


def test_exact_has_one_meaning_in_trials_and_diagnoses(results):
    trials = results.tables["trials"]
    assert (trials["exact"] == (trials["train_mse"] < EXACT * lost_directions(2, 1).loss)).all()
    keys = ["dim", "start", "activation", "trial"]
    both = results.tables["diagnoses"].merge(results.select(), on=keys)
    assert len(both) == len(results.tables["diagnoses"])
    assert ((both["outcome"] == "exact") == both["exact"]).all()
    assert 0 < both["exact"].sum() < len(both)


def test_a_relu_unit_weighs_as_often_as_it_is_on():
    linear = torch.nn.Linear(1, 3)
    linear.load_state_dict({"weight": torch.tensor([[1.0], [1.0], [-1.0]]), "bias": torch.tensor([-9.0, -4.5, 4.5])})
    x = torch.arange(1.0, 11.0)[:, None]
    assert shares(linear, x, "relu").tolist() == pytest.approx([0.1, 0.6, 0.4])
    assert shares(linear, x, "abs").tolist() == pytest.approx([0.9, 1, 1])  # one point lies on the first hyperplane


def test_a_rarely_active_unit_no_longer_dominates_the_metric():
    # Two mirrored pairs are the exact distance; a long unit that is never on changes no output, and no metric.
    job = one_job(2)
    task = draw_problem(job.task)
    whiten = torch.linalg.inv(torch.linalg.cholesky(task.gaussian.cov))
    model = Mahalanobis(2, hidden=5, activation="relu").requires_grad_(False)
    model.linear.weight.copy_(torch.cat([whiten, -whiten, 50 * whiten[:1]]))
    model.linear.bias.copy_(-model.linear.weight.double() @ task.gaussian.mean)
    model.linear.bias[4] -= 1e4
    weights = shares(model.linear, task.x, "relu")
    assert weights[4] == 0
    assert weights[:4].tolist() == pytest.approx([0.5] * 4, abs=0.1)


def test_the_analytic_network_is_the_distance_by_solving():
    assert analytic_error(GaussianTask(10, 100), ANALYTIC_POINTS) < 1e-10


def test_nan_is_never_the_smallest_error():
    ones = torch.ones(3)
    for place in range(3):
        broken = ones.clone()
        broken[place] = torch.nan
        assert np.isnan(relative_error(broken, ones))
    assert relative_error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0])) == 1.0


def test_identities_are_checked_on_every_gaussian_and_every_trained_abs_network(results):
    table = results.tables["identities"]
    assert (table["identity"] == "analytic").sum() == 2
    assert (table["identity"] == "mirrored").sum() == 3 * 6 + 6
    assert (table["error"] < 1e-9).all()


def abs_trials(cosines, **columns):
    base = {"dim": 3, "gaussian": 0, "activation": "abs", "start": "random", "lost": 0.0, "length": 1.0}
    rows = {"eigenvector_cosine": cosines, "eigenvalue_error": 0.1, "protocol": True}
    return pd.DataFrame({**rows, **base, **columns})


@pytest.fixture(scope="module")
def rotations(tmp_path_factory):
    spec = Chance(GaussianTask(3, 10), draws=300)
    result = chance(spec)
    driver = Driver(Store(tmp_path_factory.mktemp("chance")))
    return spec, driver.store.put(spec, {}, {}, dict(result.tables))


def test_the_null_of_recovered_axes_is_averaged_as_the_estimate_is(rotations):
    spec, run = rotations
    drawn = run.table("chance")["cosine"]
    few, many = (axes_beside_chance(abs_trials([0.7] * n), {spec: run}).iloc[0] for n in (2, 32))
    assert few["cosine_chance"] == many["cosine_chance"] == pytest.approx(drawn.mean())
    widths = [row["cosine_high"] - row["cosine_low"] for row in (few, many)]
    # Means of 32 spread a quarter as much as means of 2: not as much as single draws do.
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.15)
    assert widths[1] == pytest.approx(2 * 1.96 * drawn.std() / 32**0.5, rel=0.15)


def test_recovery_is_a_share_of_the_way_from_chance_to_the_axes(rotations):
    spec, run = rotations
    drawn = run.table("chance")["cosine"].mean()
    for cosine, share in ((1.0, 1.0), (drawn, 0.0), ((1 + drawn) / 2, 0.5)):
        assert axes_beside_chance(abs_trials([cosine]), {spec: run}).iloc[0]["cosine_share"] == pytest.approx(share)


def test_trials_that_lost_a_direction_say_nothing_of_the_axes(rotations):
    spec, run = rotations
    kept = abs_trials([0.9, 0.1], lost=[0.0, 1.0])
    row = axes_beside_chance(kept, {spec: run}).iloc[0]
    assert (row["trials"], row["cosine"]) == (1, 0.9)
    assert axes_beside_chance(abs_trials([0.1], lost=1.0), {spec: run}).empty


def test_random_rotations_recover_what_random_directions_do():
    # Rotated by an angle a in 2-D, units match axes with max(|cos a|, |sin a|), on average 2 sqrt(2) / pi.
    spec = Chance(GaussianTask(2, 10, ridge=1e6), draws=400)
    assert chance(spec).tables["chance"]["cosine"].mean() == pytest.approx(2 * 2**0.5 / np.pi, abs=0.02)


def test_epochs_saved_are_counted_to_the_loss_the_other_start_begins_with(results):
    history = results.tables["history"]
    epochs, losses = curve(history, 2, "random", "relu")
    _, other = curve(history, 2, "clusters", "relu")
    saved = epochs_saved(history, 2, "relu", "clusters")
    for s, mine, begin in zip(saved, losses, other[:, 0], strict=True):
        reached = [e for e, value in zip(epochs, mine, strict=True) if value <= begin]
        assert s == (reached[0] if reached else np.inf)


def test_summaries_hold_every_metric_and_agree_with_their_definition(results):
    table = results.tables["summary"].query("activation == 'abs' and start == 'random'").set_index("metric")
    assert set(table.index) == {m.name for m in METRICS} - {"mirrored"}
    rows = results.select(activation="abs", start="random")
    assert table.loc["train_mse", "variance"] == pytest.approx(rows["train_mse"].var())
    assert table.loc["train_mse", "low"] == pytest.approx(summarize(rows["train_mse"]).low)
    assert best_trials(rows)["train_mse"].item() == rows["train_mse"].min()


def test_trials_that_are_not_there_end_the_measuring(tmp_path):
    small = plan(MahalanobisOptions(dims=(3,), trials=1, epochs=5))
    with pytest.raises(Unfinished, match="0 of 3 runs are finished"):
        measure(small, Finished({}, 3), Driver(Store(tmp_path)))


def test_panels_hold_the_distance_on_the_nodes_they_are_drawn_on(done):
    truth = done.results.panels[0]
    task = draw_problem(done.plan.group(2, "random")[0].task)
    assert truth.title == "Ground truth"
    with pytest.raises(ValueError, match="measured on 14641 nodes, not on 3"):
        truth.distance(np.zeros((3, 2)))
    x = task.gaussian.sample(5, stream(1)).numpy()
    ours = np.linalg.norm(x @ truth.weight.T + truth.bias, axis=1)
    np.testing.assert_allclose(ours, task.gaussian.distance(torch.from_numpy(x)), rtol=1e-4)
