"""The study on a real, small run: what it measures, and how verdicts follow the numbers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from metriscope.functional import bias_through
from metriscope.nn import Mahalanobis
from metriscope.probes import lost_directions
from metriscope.runs import Store
from metriscope.studies.contract import claims, published
from metriscope.studies.mahalanobis import claims as judges
from metriscope.studies.mahalanobis import plan
from metriscope.studies.mahalanobis.comparison import chance_cosine, epochs_saved, judged
from metriscope.studies.mahalanobis.experiment import network, problem
from metriscope.studies.mahalanobis.failures import diagnose, loss_and_gradient
from metriscope.studies.mahalanobis.measure import METRICS, Trained, best_trials, measure, truth
from metriscope.studies.mahalanobis.page import sections
from metriscope.studies.mahalanobis.results import collect
from metriscope.studies.mahalanobis.spec import STARTS

SHORT = replace(plan("paper", dims=(2,), trials=6), starts=("random", "clusters"), others={2: 1})


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return collect(SHORT, Store(tmp_path_factory.mktemp("store")), lambda line: None)


def verdict(results, claim):
    return judges.JUDGES[claim](results).verdict


def edited(results, where, **columns):
    rows = results.rows.copy()
    mask = np.logical_and.reduce([rows[k] == v for k, v in where.items()])
    for column, value in columns.items():
        rows.loc[mask, column] = value
    return replace(results, rows=rows)


def test_every_claim_of_the_ledger_has_a_judge_and_every_judge_a_claim():
    assert {entry.id for entry in claims("mahalanobis")} == set(judges.JUDGES)


def test_published_numbers_are_within_their_own_extremes():
    table = published("mahalanobis").query("metric == 'train_mse'")
    assert len(table) == 9
    assert (table["minimum"] <= table["mean"]).all()
    assert (table["mean"] <= table["maximum"].fillna(np.inf)).all()


def test_all_activations_begin_from_the_same_hyperplanes_through_training_points():
    group = SHORT.groups(2, "random")[0]
    x = problem(2, 1_000, 0).x
    abs_, relu, sigmoid = (network(group, a, 1, x).linear for a in ("abs", "relu", "sigmoid"))
    assert relu.weight.equal(sigmoid.weight)
    assert abs_.weight.equal(relu.weight[:2])
    assert abs_.bias.equal(relu.bias[:2])
    offsets = torch.stack([bias_through(relu.weight, p.expand(4, 2)) for p in x])
    assert ((offsets - relu.bias).abs().min(0).values < 1e-5).all()


def test_trials_started_from_clusters_differ_and_start_nearly_white():
    group = replace(SHORT.groups(2, "clusters")[0], start=STARTS["clusters"])
    task = problem(2, 1_000, 0)
    one, two = (network(group, "abs", t, task.x) for t in (0, 1))
    assert not one.linear.weight.equal(two.linear.weight)
    covariance = one.linear.weight.double() @ task.gaussian.cov @ one.linear.weight.double().mT
    assert torch.allclose(covariance, torch.eye(2).double(), atol=0.2)


def test_the_ground_truth_scores_perfectly_on_every_metric():
    task = problem(10, 500, 0)
    row = measure([truth(task)], task, 500, 0).iloc[0]
    assert row["train_mse"] < 1e-9
    assert row["test_mse"] < 1e-9
    assert row["sphericity"] < 1e-4
    assert row["centering"] < 1e-4
    assert row["metric_error"] < 1e-5
    assert row["eigenvector_cosine"] == pytest.approx(1, abs=1e-6)
    assert row["rank"] == 10


def test_the_gradient_of_the_diagnosis_is_autograds():
    task = problem(3, 50, 1)
    x = np.column_stack([task.x.double().numpy(), np.ones(50)])
    planes = np.random.default_rng(0).normal(size=(4, 4))
    for name, function in {"abs": torch.abs, "relu": torch.relu}.items():
        leaf = torch.from_numpy(planes).requires_grad_()
        z = function(torch.from_numpy(x) @ leaf.mT)
        loss = (torch.linalg.vector_norm(z, dim=-1) - task.y.double()).square().mean()
        loss.backward()
        ours, gradient = loss_and_gradient(planes, x, task.y.double().numpy(), name)
        assert ours == pytest.approx(loss.item())
        assert np.allclose(gradient, leaf.grad.numpy())


def trained(task, weight, bias):
    model = Mahalanobis(task.gaussian.dim, hidden=len(weight))
    model.linear.load_state_dict({"weight": weight.float(), "bias": bias.float()})
    return Trained(task.gaussian.dim, "random", "abs", 0, model.requires_grad_(False))


def test_a_diagnosis_tells_an_exact_network_from_an_unfinished_one():
    task = problem(2, 500, 3)
    exact = truth(task).model.linear
    weight, bias = exact.weight.double(), exact.bias.double()
    found = diagnose([trained(task, weight, bias), trained(task, 2 * weight, 2 * bias)], task, 1.0)
    assert found["outcome"].tolist() == ["exact", "out of reach"]
    assert found["polished"].max() < 1e-2
    sigmoid = Trained(2, "random", "sigmoid", 0, Mahalanobis(2, activation="sigmoid"))
    assert diagnose([sigmoid], task, 1.0).empty


def test_a_true_minimum_of_abs_has_lost_a_direction_and_no_downward_curvature(results):
    rows = results.diagnoses.query("activation == 'abs' and outcome == 'true minimum'")
    assert len(rows)
    assert (rows["lost"] == 1).all()
    row = rows.iloc[0]
    linear = results.network(2, "random", "abs", int(row["trial"])).model.linear
    task = results.tasks[2]
    x, y = torch.cat([task.x, torch.ones(len(task.x), 1)], 1).double(), task.y.double()

    def loss(flat):
        return (torch.linalg.vector_norm(x @ flat.reshape(2, 3).mT, dim=-1) - y).square().mean()

    flat = torch.cat([linear.weight, linear.bias[:, None]], 1).double().flatten()
    assert float(loss(flat)) == pytest.approx(row["loss"], rel=1e-5)
    curvature = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat))
    assert curvature[0] > -1e-3 * curvature[-1]
    # What theory says of one lost direction, within the noise of 1,000 points.
    assert row["loss"] == pytest.approx(lost_directions(2, 1).loss, rel=0.15)


def test_a_full_protocol_is_judged_and_a_shortened_one_is_not(results):
    assert judged(results) == (2,)
    sizes = {2: replace(SHORT.sizes[2], epochs=9_999)}
    shortened = replace(results, plan=replace(SHORT, sizes=sizes))
    assert judged(shortened) == ()
    assert [verdict(shortened, c) for c in ("C03", "C04", "C05", "C06", "C07", "C08")] == ["not run"] * 6
    fewer = {2: replace(SHORT.sizes[2], epochs=20_000, samples=100)}
    assert judged(replace(results, plan=replace(SHORT, sizes=fewer))) == ()
    few = replace(results, plan=replace(SHORT, sizes={2: replace(SHORT.sizes[2], trials=2)}))
    assert judged(few) == ()


def test_identities_hold_on_trained_networks(results):
    assert verdict(results, "C01") == "supported"
    assert verdict(results, "C02") == "supported"


def test_c03_follows_the_losses(results):
    good = edited(edited(results, {"activation": "abs"}, test_mse=1e-4), {"activation": "relu"}, test_mse=1e-4)
    assert verdict(good, "C03") == "supported"
    assert verdict(edited(good, {"activation": "abs"}, test_mse=0.2), "C03") == "depends"
    assert verdict(edited(good, {"activation": "sigmoid"}, test_mse=1e-4), "C03") == "contradicted"


def test_c04_follows_the_distances_to_the_mean(results):
    near = edited(edited(results, {"activation": "abs"}, centering=0.01), {"activation": "relu"}, centering=0.02)
    assert verdict(edited(near, {"activation": "sigmoid"}, centering=3.0), "C04") == "supported"
    assert verdict(edited(near, {"activation": "sigmoid"}, centering=0.01), "C04") == "contradicted"
    away = edited(edited(near, {"activation": "sigmoid"}, centering=3.0), {"activation": "abs"}, centering=1.0)
    assert verdict(away, "C04") == "depends"


def test_c05_follows_the_mirrored_pairs(results):
    for pairs, expected in ((2.0, "supported"), (1.0, "depends"), (0.0, "contradicted")):
        assert verdict(edited(results, {"activation": "relu"}, mirrored=pairs), "C05") == expected


def test_c06_follows_both_ways_to_measure_whiteness(results):
    white = edited(results, {"activation": "abs"}, sphericity=0.1, data_sphericity=0.1)
    rest = edited(white, {"activation": "relu"}, sphericity=2.0, data_sphericity=1.0)
    rest = edited(rest, {"activation": "sigmoid"}, sphericity=3.0)
    assert verdict(rest, "C06") == "supported"
    assert verdict(edited(rest, {"activation": "relu"}, data_sphericity=0.01), "C06") == "depends"
    both = edited(rest, {"activation": "relu"}, data_sphericity=0.01, sphericity=0.01)
    assert verdict(both, "C06") == "contradicted"


def test_c07_holds_recovery_against_a_random_turn(results):
    chance, edge = chance_cosine(results, 2)
    assert 0.5 < chance < edge <= 1
    assert verdict(edited(results, {"activation": "abs"}, eigenvector_cosine=1.0), "C07") == "supported"
    assert verdict(edited(results, {"activation": "abs"}, eigenvector_cosine=chance), "C07") == "contradicted"


def test_c08_follows_the_paired_comparison(results):
    good = edited(results, {"start": "clusters"}, test_mse=1e-9)
    good = edited(good, {"start": "random"}, test_mse=0.1)
    # Six pairs, all in favour: the least p a paired Wilcoxon test can give is 2^-6 = 0.016.
    assert judges.SIGNIFICANT < 2**-6
    assert verdict(good, "C08") == "contradicted"
    doubled = replace(good, rows=pd.concat([good.rows, good.rows.assign(trial=good.rows["trial"] + 6)]))
    assert verdict(doubled, "C08") == "supported"


def test_epochs_saved_are_counted_to_the_loss_the_other_start_begins_with(results):
    epochs, losses = results.curve(2, "random", "relu")
    _, other = results.curve(2, "clusters", "relu")
    saved = epochs_saved(results, 2, "relu", "clusters")
    for s, mine, begin in zip(saved, losses, other[:, 0], strict=True):
        reached = [e for e, value in zip(epochs, mine, strict=True) if value <= begin]
        assert s == (reached[0] if reached else np.inf)


def test_summaries_hold_every_metric_and_agree_with_pandas(results):
    table = results.summary.query("activation == 'abs' and start == 'random'").set_index("metric")
    assert set(table.index) == {m.name for m in METRICS} - {"mirrored"}
    rows = results.select(activation="abs", start="random")
    assert table.loc["train_mse", "variance"] == pytest.approx(rows["train_mse"].var())
    assert best_trials(rows)["train_mse"].item() == rows["train_mse"].min()


def test_the_page_has_every_part_and_every_verdict(results):
    from metriscope.report import Figure, Page, render

    page = Page("Metriscope", "test", sections(results))
    assert [claim.id for claim in page.claims] == [f"C0{i}" for i in range(1, 9)]
    names = {table.name for table in page.tables}
    assert {
        "protocol",
        "placement",
        "beside-2d",
        "metrics-2d",
        "lost-directions",
        "failures",
        "starts",
        "trials",
    } <= names
    figures = {block.name for block in page.blocks if isinstance(block, Figure)}
    assert figures == {
        "hyperplanes-2d",
        "loss-curves",
        "distributions",
        "eigenvalues",
        "metric-spectra",
        "gaussians",
    }
    assert "http" not in render(page).replace("http-equiv", "")
