"""Heads: what their logits are, and what they start as."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import nn

from metriscope.nn import HEADS, MahalanobisHead, NearestMean, OffsetL2, build_head, init_head_
from metriscope.rng import stream


@pytest.fixture
def classes():
    """Return three Gaussian classes of unequal size and shape."""
    generator = np.random.default_rng(0)
    shapes = [np.diag([1.0, 2.0, 0.5]), np.array([[1.0, 0.5, 0], [0, 1.0, 0.2], [0, 0, 2.0]]), 0.3 * np.eye(3)]
    parts = [
        generator.normal(size=(n, 3)) @ s + 6 * np.eye(3)[k]
        for k, (n, s) in enumerate(zip((60, 90, 30), shapes, strict=True))
    ]
    return np.concatenate(parts), np.repeat([0, 1, 2], [60, 90, 30])


@pytest.mark.parametrize("name", HEADS)
def test_every_head_gives_one_finite_logit_per_class_for_any_leading_shape(name):
    head = build_head(name, 5, 4, generator=stream(0, "head"))
    x = torch.randn(2, 3, 5, generator=stream(1, "x"))
    logits = head(x)
    assert logits.shape == (2, 3, 4)
    assert torch.isfinite(logits).all()
    assert torch.allclose(logits[1, 2], head(x[1, 2]), atol=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_the_same_from_the_same_generator_and_leaves_the_global_one_alone(name):
    before = torch.get_rng_state()
    first, second = (build_head(name, 5, 4, generator=stream(0, "head")).state_dict() for _ in range(2))
    assert all(first[key].equal(second[key]) for key in first)
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("name", HEADS)
def test_a_started_head_tells_well_separated_classes_apart_untrained(name, classes):
    x, y = classes
    head = init_head_(build_head(name, 3, 3), x, y)
    found = head(torch.tensor(x, dtype=torch.float32)).argmax(1).numpy()
    assert (found == y).mean() > 0.9


# Not the form of the author's code: where a weight becomes negative, its distances are NaN.
@pytest.mark.parametrize("name", [name for name in HEADS if name != "offset-l2-code"])
def test_training_lowers_the_loss_of_a_head(name, classes):
    x, y = torch.tensor(classes[0], dtype=torch.float32), torch.tensor(classes[1])
    torch.manual_seed(0)
    head = init_head_(build_head(name, 3, 3), x, y)
    optimizer = torch.optim.Adam([p for p in head.parameters() if p.requires_grad], lr=0.01)
    losses = []
    for _ in range(60):
        loss = nn.functional.cross_entropy(head(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def test_a_linear_head_starts_as_scikit_learns_linear_discriminant(classes):
    x, y = classes
    head = init_head_(nn.Linear(3, 3).double(), x, y)
    peer = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1).fit(x, y)
    ours = head(torch.tensor(x)).detach().numpy()
    assert np.allclose(ours, peer.decision_function(x), atol=1e-8)


def test_the_shared_mahalanobis_head_starts_with_the_same_probabilities_as_the_linear_one(classes):
    x, y = classes
    shared = init_head_(MahalanobisHead(3, 3, shared=True, dtype=torch.float64), x, y)
    linear = init_head_(nn.Linear(3, 3).double(), x, y)
    points = torch.tensor(x)
    assert torch.allclose(shared(points).softmax(1), linear(points).softmax(1), atol=1e-10)


def test_mahalanobis_logits_are_log_densities_of_gaussians_with_the_heads_mean_and_factor(classes):
    x, y = classes
    head = init_head_(MahalanobisHead(3, 3, dtype=torch.float64), x, y)
    factors, shares = head.factor().detach().numpy(), np.bincount(y) / len(y)
    for c in range(3):
        cov = np.linalg.inv(factors[c].T @ factors[c])
        density = multivariate_normal(head.mu[c].detach().numpy(), cov).logpdf(x) + np.log(shares[c])
        ours = head(torch.tensor(x))[:, c].detach().numpy()
        # All densities lack the same factor (2π)^(-d/2).
        assert np.allclose(ours - density, 1.5 * np.log(2 * np.pi))


def test_offset_l2_starts_with_unit_spread_where_classes_have_many_points():
    generator = np.random.default_rng(0)
    x = np.concatenate(
        [generator.normal(size=(20_000, 2)) * [1.0, 3.0], generator.normal(size=(20_000, 2)) * [2.0, 0.5]]
    )
    y = np.repeat([0, 1], 20_000)
    for form, power in (("formula", 1), ("squared-weights", 2)):
        alpha = init_head_(OffsetL2(2, 2, form), x, y).alpha.detach().numpy()
        assert np.allclose(alpha, np.array([[1, 1 / 3], [1 / 2, 2]]) ** power, rtol=0.02)


def test_classes_of_one_point_each_start_with_euclidean_distances():
    head = init_head_(MahalanobisHead(2, 2), [[0.0, 0.0], [4.0, 0.0]], [0, 1])
    logits = head(torch.tensor([[1.0, 0.0]])).detach()
    assert float(logits[0, 0] - logits[0, 1]) == pytest.approx((9 - 1) / 2)


def test_only_the_temperature_of_the_nearest_mean_learns():
    head = NearestMean(3, 2)
    head(torch.ones(4, 3)).sum().backward()
    assert [name for name, p in head.named_parameters() if p.grad is not None] == ["log_scale"]


@pytest.mark.parametrize("p", [1, 2, 3.5, 4])
def test_offset_distances_are_scipys_minkowski_distances(p):
    from scipy.spatial.distance import minkowski

    layer = OffsetL2(4, 3, p=p, dtype=torch.float64)
    with torch.no_grad():
        layer.alpha.uniform_(0.5, 2.0)
    x = torch.randn(6, 4, dtype=torch.float64, generator=stream(0, "x"))
    mu, alpha = layer.mu.detach().numpy(), layer.alpha.detach().numpy()
    known = [[minkowski(a * v, a * m, p) for m, a in zip(mu, alpha, strict=True)] for v in x.numpy()]
    assert np.allclose(layer(x).detach().numpy(), known)


@pytest.mark.parametrize("p", [1, 4])
def test_the_gradient_of_a_p_norm_is_finite_at_the_prototype(p):
    layer = OffsetL2(2, 1, p=p)
    x = layer.mu.detach().clone().requires_grad_()
    layer(x).sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build_head("softmax", 2, 2), "name must be one of linear, offset-l2"),
        (lambda: build_head("rbf", 0, 2), "in_features must be"),
        (lambda: init_head_(nn.ReLU(), [[1.0]], [0]), "head must be one of Linear, OffsetL2, .*, got ReLU"),
        (
            lambda: init_head_(nn.Linear(2, 3), [[1.0, 2.0]], [0]),
            r"labels must hold every class from 0 to 2 .*, got \[0\]",
        ),
        (
            lambda: init_head_(nn.Linear(2, 1), [[1.0, 2.0]], [-1]),
            r"labels must hold every class from 0 to 0 .*, got \[-1\]",
        ),
        (lambda: init_head_(nn.Linear(2, 1), [[1.0]], [0]), "features must"),
        (lambda: OffsetL2(2, 2, "squared-weights", p=4), 'p = 4 needs form="formula"'),
        (lambda: OffsetL2(2, 2, p=0.5), "p must lie in"),
    ],
)
def test_bad_input_is_named_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
