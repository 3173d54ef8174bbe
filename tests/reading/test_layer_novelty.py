"""Novelty by layers: distances against scikit-learn's, streaming, weighting, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import nn

import metriscope as ms


def network(seed=0):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 6), nn.LeakyReLU(), nn.Linear(6, 4), nn.ReLU()).double()
    for weight in model.parameters():
        nn.init.normal_(weight, generator=generator)
    return model.requires_grad_(False)


def points(count, seed):
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 3, count)
    return draw.normal(size=(count, 5)) + 2 * np.eye(5)[y], y


def test_scores_are_mahalanobis_distances_to_the_nearest_class_with_a_common_covariance():
    model, (x, y), (new, _) = network(), points(300, 0), points(7, 1)
    found = ms.LayerNovelty(model, relative=False, shrinkage=0.0).partial_fit(x, y).layer_scores(new)
    hidden, asked = (model[:2](torch.tensor(z)).numpy().astype(np.float32).astype(float) for z in (x, new))
    # Linear discriminant analysis has the same model: class means and one covariance.
    fitted = LinearDiscriminantAnalysis(store_covariance=True, solver="lsqr").fit(hidden, y)
    inverse = np.linalg.inv(fitted.covariance_)
    expected = [min(mahalanobis(z, mean, inverse) ** 2 for mean in fitted.means_) for z in asked]
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6)
    relative = ms.LayerNovelty(model, shrinkage=0.0).partial_fit(x, y).layer_scores(new)
    overall = np.linalg.inv(np.cov(hidden.T, ddof=0))
    whole = [mahalanobis(z, hidden.mean(0), overall) ** 2 for z in asked]
    np.testing.assert_allclose(relative[:, 0], np.array(expected) - whole, rtol=1e-5, atol=1e-6)


def test_points_in_parts_of_any_size_and_order_of_classes_give_the_same_scores():
    model, (x, y), (new, _) = network(), points(200, 0), points(9, 1)
    whole = ms.LayerNovelty(model).partial_fit(x, y)
    parts = ms.LayerNovelty(model, batch_size=7)
    order = np.argsort(y, kind="stable")
    for rows in np.array_split(order, 9):
        parts.partial_fit(x[rows], y[rows])
    np.testing.assert_allclose(parts.layer_scores(new), whole.layer_scores(new), rtol=1e-6, atol=1e-6)


def test_the_layer_that_tells_strangers_gets_the_weight_and_strangers_the_larger_scores():
    model, (x, y), (held, _) = network(), points(600, 0), points(300, 1)
    fitted = ms.LayerNovelty(model, relative=False).partial_fit(x, y)
    assert fitted.calibrate(held).weights().tolist() == [0.5, 0.5]
    with torch.no_grad():
        model[2].weight.zero_()
    blind = ms.LayerNovelty(model, relative=False).partial_fit(x, y).calibrate(held, 4 * points(300, 2)[0])
    weights = blind.weights()
    assert weights["1"] > 0.95
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)
    inside, outside = blind.score(points(200, 3)[0]), blind.score(4 * points(200, 4)[0])
    assert np.median(outside) > np.quantile(inside, 0.9)


def test_what_cannot_be_scored_is_refused_in_one_sentence():
    model, (x, y) = network(), points(20, 0)
    with pytest.raises(ValueError, match="nothing was fitted yet"):
        ms.LayerNovelty(model).layer_scores(x)
    with pytest.raises(ValueError, match="the layers were not weighted yet"):
        ms.LayerNovelty(model).partial_fit(x, y).score(x)
    with pytest.raises(ValueError, match=r"labels must have the shape \(20,\), got \(3,\)"):
        ms.LayerNovelty(model).partial_fit(x, y[:3])
    with pytest.raises(ValueError, match="labels must have one entry per point, got 30 for 20 points"):
        ms.LayerNovelty(model).partial_fit([torch.tensor(x)], np.zeros(30))
    with pytest.raises(ValueError, match="shrinkage must lie in"):
        ms.LayerNovelty(model, shrinkage=2.0)
