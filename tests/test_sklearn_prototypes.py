"""The classifier and the regressor by distances to prototypes: gradients, starts, weights, what training reaches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, load_wine, make_friedman1
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from metriscope.nn import Neg, OffsetL2
from metriscope.sklearn import DistanceClassifier, DistanceRegressor
from metriscope.sklearn.fitting import (
    Adam,
    Examples,
    FitRecipe,
    PrototypeNetwork,
    Shape,
    batch_loss,
    draw_network,
    train,
)

IRIS, WINE = load_iris(return_X_y=True), load_wine(return_X_y=True)
FRIEDMAN = make_friedman1(400, noise=0.5, random_state=0)


def random_examples(outputs):
    draws = np.random.default_rng(0)
    y = draws.normal(size=(20, outputs)).astype(np.float32) if outputs else draws.integers(0, 3, 20)
    weight = draws.uniform(0.5, 2, 20).astype(np.float32)
    return Examples(draws.normal(size=(20, 4)).astype(np.float32), y, weight), draws


def loss_in_torch(network, examples):
    """Return the loss of a batch and its gradient by PyTorch's autograd, in float64."""
    parts = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays_of(network)]
    depth = len(network.weights)
    z = torch.tensor(examples.x, dtype=torch.float64)
    for weight, bias in zip(parts[:depth], parts[depth : 2 * depth], strict=True):
        z = {"abs": torch.abs, "relu": torch.relu}[network.shape.activation](z @ weight + bias)
    mu, alpha, *output = parts[2 * depth :]
    distances = ((z[:, None] - mu) * alpha).square().sum(-1).sqrt()
    if output:
        each = (distances @ output[0] + output[1] - torch.tensor(examples.y)).square().sum(1) / 2
    else:
        each = nn.functional.cross_entropy(-distances, torch.tensor(examples.y), reduction="none")
    loss = (each * torch.tensor(examples.weight)).mean()
    return float(loss.detach()), [g.numpy() for g in torch.autograd.grad(loss, parts)]


def arrays_of(network):
    return [*network.weights, *network.biases, network.mu, network.alpha, *network.output]


@pytest.mark.parametrize("outputs", [0, 2], ids=["classes", "targets"])
@pytest.mark.parametrize("units", [(4,), (4, 6), (4, 6, 5)], ids=str)
@pytest.mark.parametrize("activation", ["abs", "relu"])
def test_loss_and_gradient_are_those_of_autograd(activation, units, outputs):
    examples, draws = random_examples(outputs)
    network = draw_network(Shape(units, 3, outputs, activation), examples, draws)
    network.vector += draws.normal(size=network.vector.shape).astype(np.float32) / 4
    gradient = PrototypeNetwork(network.shape)
    loss, (expected, derivatives) = batch_loss(network, examples, gradient), loss_in_torch(network, examples)
    assert loss == pytest.approx(expected, rel=1e-5)
    largest = max(np.abs(one).max() for one in derivatives)
    for mine, theirs in zip(arrays_of(gradient), derivatives, strict=True):
        # Float32 has seven digits, of which the expanded squares lose about one.
        np.testing.assert_allclose(mine, theirs, atol=1e-5 * largest)


@pytest.mark.parametrize("hidden", [None, 16, (8, 6)], ids=str)
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.usefixtures("undrawn")
def test_the_network_takes_features_as_they_came_and_returns_what_is_predicted(hidden, standardize):
    x, y = IRIS
    model = DistanceClassifier(hidden, max_iter=3, standardize=standardize).fit(x, y)
    assert [type(layer) for layer in model.network_][-2:] == [OffsetL2, Neg]
    with torch.no_grad():
        scores = model.network_(torch.tensor(x)).numpy()
    np.testing.assert_allclose(scores, model.decision_function(x), rtol=1e-9)
    np.testing.assert_array_equal(model.classes_[scores.argmax(1)], model.predict(x))
    regressor = DistanceRegressor(hidden, max_iter=3, standardize=standardize).fit(x, x[:, :2])
    with torch.no_grad():
        np.testing.assert_allclose(regressor.network_(torch.tensor(x)).numpy(), regressor.predict(x), rtol=1e-9)


@pytest.mark.parametrize("hidden", [None, 16])
def test_without_training_the_prototypes_are_the_weighted_means_of_the_classes(hidden):
    x, y = IRIS
    weight = np.random.default_rng(0).uniform(0.5, 2, len(x))
    model = DistanceClassifier(hidden, max_iter=0).fit(x, y, sample_weight=weight)
    with torch.no_grad():
        features = model.network_[:-2](torch.tensor(x)).numpy()
    means = [np.average(features[y == label], axis=0, weights=weight[y == label]) for label in range(3)]
    np.testing.assert_allclose(model.prototypes_, means, atol=1e-5)
    np.testing.assert_array_equal(model.alphas_, np.ones_like(model.prototypes_))


@pytest.mark.parametrize("hidden", [None, 16])
def test_units_of_measurement_do_not_matter(hidden):
    x, y = IRIS
    stretched = x * [0.001, 1.0, 1000.0, 10.0] + [5.0, 0.0, -3000.0, 0.0]
    # Standardized features differ by rounding in float32, which training may amplify.
    probabilities = [DistanceClassifier(hidden, max_iter=3).fit(z, y).predict_proba(z) for z in (x, stretched)]
    np.testing.assert_allclose(*probabilities, atol=1e-3)


@pytest.mark.parametrize("data", [IRIS, WINE], ids=["iris", "wine"])
def test_defaults_reach_logistic_regression(data):
    # Within two points: both tables are known to be almost linearly separable.
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    ours, theirs = (cross_val_score(model, *data, cv=3).mean() for model in (DistanceClassifier(), linear))
    assert ours > theirs - 0.02


def test_the_regressor_sees_what_a_line_cannot():
    # Friedman 1991: the noise leaves R² = 0.99 at most, a linear model reaches about 0.75.
    linear, ours = (cross_val_score(model, *FRIEDMAN, cv=3).mean() for model in (Ridge(), DistanceRegressor()))
    assert ours > linear + 0.1


def test_standardized_features_are_bounded():
    # 5 tanh(z / 5) reaches 5 in double precision beyond z = 100.
    model, far = DistanceClassifier(8, max_iter=2).fit(*IRIS), np.array([[1.0, -1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(model.distances(1e6 * far), model.distances(1e300 * far))
    assert np.isfinite(DistanceClassifier(8, max_iter=2, standardize=False).fit(*IRIS).distances(1e6 * far)).all()


@pytest.mark.parametrize("make", [DistanceClassifier, DistanceRegressor])
@pytest.mark.usefixtures("undrawn")
def test_the_same_random_state_gives_a_bit_identical_network_and_another_a_different_one(make):
    first, again, other = (make(4, max_iter=2, random_state=s).fit(*IRIS).prototypes_ for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_random_state_may_be_a_number_a_generator_or_none():
    def prototypes(random_state):
        return DistanceClassifier(4, max_iter=1, random_state=random_state).fit(*IRIS).prototypes_

    first, again = (prototypes(np.random.RandomState(5)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(prototypes(None), prototypes(None))
    with pytest.raises(ValueError, match="random_state must be an integer, got 'seven'"):
        prototypes("seven")


@pytest.mark.parametrize("make", [DistanceClassifier, DistanceRegressor])
def test_weights_are_repetitions_and_order_does_not_matter(make):
    x, y = IRIS
    weight, order = np.arange(len(x)) % 4, np.random.default_rng(0).permutation(len(x))
    weighted = make(8, max_iter=2).fit(x[order], y[order], sample_weight=weight[order])
    repeated = make(8, max_iter=2).fit(np.repeat(x, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_array_equal(weighted.prototypes_, repeated.prototypes_)


def test_balanced_classes_are_weights_in_inverse_proportion():
    x, y = IRIS
    x, y = x[:110], y[:110]  # 50, 50 and 10 points
    balanced = DistanceClassifier(8, max_iter=2, class_weight="balanced").fit(x, y)
    weighted = DistanceClassifier(8, max_iter=2).fit(x, y, sample_weight=110 / (3 * np.bincount(y)[y]))
    np.testing.assert_array_equal(balanced.prototypes_, weighted.prototypes_)
    plain = DistanceClassifier(8, max_iter=2).fit(x, y)
    assert balanced.predict_proba(x)[:, 2].mean() > plain.predict_proba(x)[:, 2].mean()


@pytest.mark.parametrize(("make", "data"), [(DistanceClassifier, IRIS), (DistanceRegressor, FRIEDMAN)])
def test_early_stopping_stops_and_keeps_the_best_weights(make, data):
    model = make(16, max_iter=200, early_stopping=True, n_iter_no_change=3, tol=1e-2).fit(*data)
    losses = model.validation_loss_curve_
    assert model.n_iter_ == len(losses) == len(model.loss_curve_) < 200
    assert min(losses[-3:]) > min(losses[:-3]) - 1e-2


def test_the_weights_of_the_lowest_held_out_loss_are_kept():
    draws = np.random.default_rng(0)
    train_on, held_out = (
        Examples(*(draws.normal(size=(n, c)).astype(np.float32) for c in (4, 1)), np.ones(n, np.float32))
        for n in (20, 20)
    )
    network = draw_network(Shape((4, 32), 4, 1, "abs"), train_on, draws)
    adam = Adam(np.zeros_like(network.vector), np.zeros_like(network.vector), 0)
    # Targets are noise, so what is learned does not help on other points.
    history = train(
        network, adam, (train_on, held_out), FitRecipe(50, 0.01, 20, 1, 0.0, patience=50), draws, lambda _: None
    )
    assert history.held_out[-1] > min(history.held_out)
    assert batch_loss(network, held_out) == min(history.held_out)


@pytest.mark.parametrize("make", [DistanceClassifier, DistanceRegressor])
def test_partial_fits_add_epochs_and_lower_the_loss(make):
    x, y = IRIS
    first = {"classes": [0, 1, 2]} if make is DistanceClassifier else {}
    model = make().partial_fit(x, y, **first)
    for _ in range(19):
        model.partial_fit(x, y)
    assert model.n_iter_ == len(model.loss_curve_) == 20
    assert model.loss_curve_[-1] < 0.5 * model.loss_curve_[0]
    assert model.score(x, y) > 0.9


def test_a_class_may_come_later_but_not_unannounced():
    x, y = IRIS
    model = DistanceClassifier().partial_fit(x[:100], y[:100], classes=[0, 1, 2])
    for _ in range(20):
        model.partial_fit(x, y)
    assert model.score(x[100:], y[100:]) > 0.8
    with pytest.raises(ValueError, match="classes must be given to the first call"):
        DistanceClassifier().partial_fit(x, y)
    with pytest.raises(ValueError, match=r"y must hold only the classes \[0 1 2\], got"):
        model.partial_fit(x, y + 1)
    with pytest.raises(ValueError, match=r"classes must be those of the first call, \[0 1 2\]"):
        model.partial_fit(x, y, classes=[0, 1])


@pytest.mark.parametrize("make", [DistanceClassifier, DistanceRegressor])
def test_a_warm_start_goes_on_from_the_last_fit(make):
    cold, warm = make(max_iter=3), make(max_iter=3, warm_start=True)
    for model in (cold, warm):
        model.fit(*IRIS)
        assert model.n_iter_ == 3
        model.fit(*IRIS)
    assert warm.loss_curve_[0] < cold.loss_curve_[0]
    warm.set_params(hidden=3)
    with pytest.raises(ValueError, match="the network was fitted with other sizes"):
        warm.fit(*IRIS)


def test_a_warm_start_needs_the_same_classes():
    x, y = IRIS
    model = DistanceClassifier(max_iter=1, warm_start=True).fit(x, y)
    with pytest.raises(ValueError, match="warm_start needs the classes of the last fit"):
        model.fit(x[:100], y[:100])


def test_training_that_diverges_says_so():
    x, y = IRIS
    with pytest.raises(ValueError, match="training diverged: choose a smaller lr, or standardize=True"):
        DistanceClassifier(standardize=False).fit(x * 1e30, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, "hidden must be a positive integer, got 0"),
        ({"hidden": (4, 0)}, "hidden must be a positive integer, got 0"),
        ({"activation": "tanh"}, "activation must be one of abs, relu, got 'tanh'"),
        ({"max_iter": -1}, "max_iter must be an integer of at least 0, got -1"),
        ({"lr": 0.0}, r"lr must lie in \(0, inf\), got 0.0"),
        ({"weight_decay": -1.0}, r"weight_decay must lie in \[0, inf\), got -1.0"),
        ({"batch_size": 0}, "batch_size must be a positive integer, got 0"),
        ({"validation_fraction": 0.9}, r"validation_fraction must lie in \(0, 0.5\], got 0.9"),
        ({"n_iter_no_change": 0}, "n_iter_no_change must be a positive integer, got 0"),
        ({"tol": -1.0}, r"tol must lie in \[0, inf\), got -1.0"),
        ({"early_stopping": True}, "early_stopping needs at least 10 different rows, got 2"),
    ],
)
@pytest.mark.parametrize("make", [DistanceClassifier, DistanceRegressor])
def test_bad_settings_are_refused(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options).fit([[0.0], [1.0]], [0, 1])


def test_a_progress_bar_is_shown_if_wanted(monkeypatch):
    from contextlib import contextmanager

    from metriscope.sklearn import prototypes

    shown = []

    @contextmanager
    def bar(description, total):
        shown.append((description, total))
        yield shown.append

    monkeypatch.setattr(prototypes, "progress", bar)
    DistanceClassifier(4, max_iter=2).fit(*IRIS)
    assert shown == []
    DistanceClassifier(4, max_iter=2, verbose=True).fit(*IRIS)
    assert shown == [("DistanceClassifier", 2), 1, 2]
