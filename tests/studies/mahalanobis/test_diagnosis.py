"""Why trials end as they do, on networks whose end is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from metriscope.nn import Mahalanobis
from metriscope.probes import lost_directions
from metriscope.studies.mahalanobis.diagnosis import _outcome, diagnose, loss_and_gradient
from metriscope.studies.mahalanobis.experiments import OUTCOMES, Diagnosis
from metriscope.studies.mahalanobis.plan import DistanceRecipe, DistanceTraining, GaussianTask
from metriscope.studies.mahalanobis.train import draw_problem
from metriscope.studies.mahalanobis.trials import TrainedDistance, networks

SPEC = Diagnosis(DistanceTraining(GaussianTask(2, 500, seed=3), DistanceRecipe(epochs=1_000), trials=(0,)))


@pytest.fixture(scope="module")
def task():
    return draw_problem(SPEC.training.task)


def trained(task, weight, bias, activation="abs"):
    model = Mahalanobis(task.gaussian.dim, hidden=len(weight), activation=activation)
    model.linear.load_state_dict({"weight": weight.float(), "bias": bias.float()})
    return TrainedDistance(task.gaussian.dim, "random", activation, 0, model.requires_grad_(False))


def exact_planes(task):
    linear = Mahalanobis.from_gaussian(task.gaussian.mean, task.gaussian.cov).linear
    return linear.weight.double(), linear.bias.double()


def test_the_gradient_of_the_diagnosis_is_autograds():
    task = draw_problem(GaussianTask(3, 50, seed=1))
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


def test_an_exact_network_is_told_from_one_that_was_still_on_its_way(task):
    weight, bias = exact_planes(task)
    found = diagnose([trained(task, weight, bias), trained(task, 2 * weight, 2 * bias)], task, SPEC)
    assert found["outcome"].tolist() == ["exact", "reaches exact"]
    assert found["polished"].max() < 1e-9
    assert found["lost_polished"].tolist() == [0, 0]
    assert found["loss"][1] == pytest.approx(float(task.y.double().square().mean()), rel=1e-4)


def test_only_networks_with_a_metric_to_lose_are_diagnosed(task):
    sigmoid = TrainedDistance(2, "random", "sigmoid", 0, Mahalanobis(2, activation="sigmoid"))
    found = diagnose([sigmoid], task, SPEC)
    assert found.empty
    assert {"dim", "start", "activation", "outcome"} <= set(found)


def lost_minima(done):
    """Return the trained Abs networks that lost a direction and stand at a minimum."""
    rows = done.results.tables["diagnoses"].query("activation == 'abs' and start == 'random'")
    rows = rows[rows["outcome"] == "true minimum"]
    known = {
        n.trial: n
        for job in done.plan.group(2, "random")
        for n in networks(done.runs[job], job)
        if n.activation == "abs"
    }
    return rows, known


def test_a_true_minimum_of_abs_has_lost_a_direction_and_no_downward_curvature(done):
    rows, known = lost_minima(done)
    assert len(rows)
    assert (rows["lost"] == 1).all()
    assert (rows["gradient"] <= SPEC.gradient).all()
    row = rows.iloc[0]
    linear = known[row["trial"]].model.linear
    task = draw_problem(done.plan.group(2, "random")[0].task)
    x, y = torch.cat([task.x, torch.ones(len(task.x), 1)], 1).double(), task.y.double()

    def loss(flat):
        return (torch.linalg.vector_norm(x @ flat.reshape(2, 3).mT, dim=-1) - y).square().mean()

    flat = torch.cat([linear.weight, linear.bias[:, None]], 1).double().flatten()
    assert float(loss(flat)) == pytest.approx(row["loss"], rel=1e-5)
    curvature = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat))
    assert curvature[0] > -1e-3 * curvature[-1]
    # What theory says of one lost direction, within the noise of 1,000 points.
    assert row["loss"] == pytest.approx(lost_directions(2, 1).loss, rel=0.15)


def test_a_descent_to_another_point_that_lost_a_direction_is_not_a_way_to_the_exact_distance(done):
    rows, known = lost_minima(done)
    network = known[rows.iloc[0]["trial"]]
    task = draw_problem(done.plan.group(2, "random")[0].task)
    state = {name: 1.3 * value for name, value in network.model.linear.state_dict().items()}
    away = trained(task, state["weight"], state["bias"])
    row = diagnose([away], task, SPEC).iloc[0]
    assert row["polished"] < 0.9 * row["loss"]
    assert row["outcome"] == "descends elsewhere"
    assert row["lost_polished"] == 1


def test_without_iterations_nothing_is_said_of_where_a_trial_goes(task):
    weight, bias = exact_planes(task)
    spec = replace(SPEC, iterations=0, large_iterations=0)
    row = diagnose([trained(task, 2 * weight, 2 * bias)], task, spec).iloc[0]
    assert row["outcome"] == "not converged"
    assert row["gradient"] > spec.gradient
    assert row["polished"] == row["loss"]
    assert np.isnan(row["curvature"])


ONE = lost_directions(2, 1).loss


@pytest.mark.parametrize(
    ("loss", "polished", "gradient", "curvature", "outcome"),
    [
        (ONE, 0.01 * ONE, 1e-9, 0.0, "reaches exact"),
        (ONE, 0.01 * ONE, 1e-2, np.nan, "reaches exact"),
        (ONE, 0.99 * ONE, 1e-2, np.nan, "not converged"),
        (2 * ONE, 0.5 * ONE, 1e-2, np.nan, "not converged"),
        (2 * ONE, ONE, 1e-9, 0.1, "descends elsewhere"),
        (2 * ONE, ONE, 1e-9, -0.1, "descends elsewhere"),
        (ONE, 0.99 * ONE, 1e-9, 0.0, "true minimum"),
        (ONE, 0.99 * ONE, 1e-9, -1e-6, "true minimum"),
        (ONE, 0.99 * ONE, 1e-9, -1e-3, "saddle"),
        (ONE, 0.99 * ONE, 1e-9, np.nan, "stationary"),
        (ONE, np.nan, np.nan, np.nan, "not converged"),
    ],
)
def test_outcomes_follow_loss_then_gradient_then_curvature(loss, polished, gradient, curvature, outcome):
    network = TrainedDistance(2, "random", "abs", 0, Mahalanobis(2))
    assert _outcome(network, (loss, polished, gradient, curvature), SPEC) == outcome
    assert outcome in OUTCOMES


def test_a_diagnosis_does_not_depend_on_the_coordinates(task):
    # The same network of the same points, both moved and stretched.
    weight, bias = exact_planes(task)
    here = diagnose([trained(task, 2 * weight, 2 * bias)], task, SPEC).iloc[0]
    gaussian = replace(task.gaussian, mean=3 * task.gaussian.mean, cov=9 * task.gaussian.cov)
    there = replace(task, gaussian=gaussian, x=3 * task.x)
    moved = diagnose([trained(there, 2 * weight / 3, 2 * bias)], there, SPEC).iloc[0]
    assert moved["outcome"] == here["outcome"]
    assert moved["loss"] == pytest.approx(here["loss"], rel=1e-5)
