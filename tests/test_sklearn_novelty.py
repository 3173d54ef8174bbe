"""Novelty by Mahalanobis distance agrees with scikit-learn's covariances and with theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.covariance import EmpiricalCovariance, LedoitWolf, ShrunkCovariance
from sklearn.metrics import roc_auc_score

from metriscope.rng import stream
from metriscope.sklearn import MahalanobisNovelty
from metriscope.sklearn.unsupervised import ledoit_wolf_shrinkage, merge, moments, priorities


def gaussian(rows, dim, *names):
    mixing = torch.randn(dim, dim, generator=stream(0, "mixing"), dtype=torch.float64)
    drawn = torch.randn(rows, dim, generator=stream(0, *names), dtype=torch.float64)
    return (drawn @ mixing + 3).numpy()


@st.composite
def pieces(draw):
    """Draw points, some far from the origin, cut into pieces of at least one."""
    dim, sizes = draw(st.integers(1, 4)), draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    x = generator.normal(size=(sum(sizes), dim)) * generator.uniform(0.1, 10, dim) + draw(st.floats(-100, 100))
    return np.split(x, np.cumsum(sizes)[:-1])


@given(parts=pieces())
def test_moments_joined_piece_by_piece_are_those_of_the_whole(parts):
    joined, whole = moments(parts[0]), moments(np.concatenate(parts))
    for part in parts[1:]:
        joined = merge(joined, moments(part))
    assert joined.count == whole.count
    scale = 1 + np.sqrt(np.trace(whole.scatter))
    for name, power in (("mean", 1), ("scatter", 2), ("cubic", 3), ("quartic", 4)):
        np.testing.assert_allclose(getattr(joined, name), getattr(whole, name), rtol=1e-9, atol=1e-9 * scale**power)


@given(parts=pieces())
def test_shrinkage_from_moments_is_that_of_ledoit_and_wolf(parts):
    x = np.concatenate(parts)
    if len(x) > 1:
        assert ledoit_wolf_shrinkage(moments(x)) == pytest.approx(LedoitWolf().fit(x).shrinkage_, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("shrinkage", "reference"),
    [(0.0, EmpiricalCovariance()), (0.3, ShrunkCovariance(shrinkage=0.3)), ("ledoit-wolf", LedoitWolf())],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_distances_are_those_of_scikit_learns_covariance(shrinkage, reference, streamed):
    train, test = gaussian(60, 5, "train"), gaussian(20, 5, "test")
    model, reference = MahalanobisNovelty(shrinkage), reference.fit(train)
    for part in np.split(train, [1, 20]) if streamed else [train]:
        model = model.partial_fit(part) if streamed else model.fit(part)
    np.testing.assert_allclose(model.covariance_, reference.covariance_, rtol=1e-9)
    np.testing.assert_allclose(model.novelty(test), np.sqrt(reference.mahalanobis(test)), rtol=1e-8)


def test_larger_means_more_novel_and_scikit_learns_scores_go_the_other_way():
    model = MahalanobisNovelty().fit(gaussian(100, 3, "train"))
    line = model.location_ + np.outer(np.arange(5), [1.0, 0.0, 0.0])
    assert (np.diff(model.novelty(line)) > 0).all()
    np.testing.assert_array_equal(model.score_samples(line), -model.novelty(line))
    assert model.novelty(model.location_[None]) == pytest.approx(0)


@pytest.mark.parametrize("contamination", [0.05, 0.2, 0.5])
def test_the_share_of_training_points_beyond_the_threshold_is_the_contamination(contamination):
    x = gaussian(1000, 3, "train")
    model = MahalanobisNovelty(contamination=contamination).fit(x)
    assert (model.predict(x) == -1).mean() == pytest.approx(contamination, abs=1e-3)
    model = MahalanobisNovelty(contamination=contamination).partial_fit(x)
    assert (model.predict(x) == -1).mean() == pytest.approx(contamination, abs=1e-3)


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.0, 8.0])
def test_the_area_under_the_curve_is_the_one_theory_gives(shift):
    # Squared distances are chi-squared, and noncentral chi-squared after a shift; their ratio is noncentral F.
    # With 4,000 points of each kind the area's deviation is below sqrt(1 / (6 * 4000)) = 0.0065, times four.
    dim, rows = 4, 4000
    train, normal, other = (torch.randn(rows, dim, generator=stream(0, n), dtype=torch.float64).numpy() for n in "abc")
    moved = other + shift * np.eye(dim)[0]
    scores = MahalanobisNovelty(0.0).fit(train).novelty(np.concatenate([normal, moved]))
    expected = 0.5 if shift == 0 else stats.ncf.sf(1, dim, dim, shift**2)
    assert roc_auc_score(np.repeat([0, 1], rows), scores) == pytest.approx(expected, abs=4 * 0.0065)


def test_a_far_shift_is_told_apart_almost_surely():
    # The mean moves by ten deviations: a normal point would have to be further out than that.
    train, normal = gaussian(500, 4, "train"), gaussian(200, 4, "normal")
    model = MahalanobisNovelty().fit(train)
    step = np.linalg.cholesky(np.cov(train.T))[:, 0] * 10
    scores = model.novelty(np.concatenate([normal, normal + step]))
    assert roc_auc_score(np.repeat([0, 1], 200), scores) > 0.999


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shrinkage": 1.5}, r"shrinkage must lie in \[0, 1\], got 1.5"),
        ({"shrinkage": "oracle"}, "shrinkage must be one of ledoit-wolf, got 'oracle'"),
        ({"shrinkage": math.nan}, r"shrinkage must lie in \[0, 1\]"),
        ({"contamination": 0.0}, r"contamination must lie in \(0, 0.5\], got 0.0"),
        ({"contamination": 0.6}, r"contamination must lie in \(0, 0.5\], got 0.6"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_bad_parameters_are_refused(options, message, method):
    with pytest.raises(ValueError, match=message):
        getattr(MahalanobisNovelty(**options), method)(gaussian(10, 2, "train"))


def test_points_that_do_not_spread_have_no_distance_without_shrinkage():
    flat = np.outer(np.arange(10.0), [1.0, 2.0])
    with pytest.raises(ValueError, match="cov must be a covariance that is positive definite"):
        MahalanobisNovelty(shrinkage=0.0).fit(flat)
    assert np.isfinite(MahalanobisNovelty(shrinkage=0.1).fit(flat).novelty(flat)).all()
    with pytest.raises(ValueError, match="cov must be a covariance that is positive definite"):
        MahalanobisNovelty().fit(np.ones((5, 2)))


def test_streaming_may_begin_with_one_point_and_measures_when_it_can():
    model = MahalanobisNovelty().partial_fit([[1.0, 2.0]])
    with pytest.raises(ValueError, match="cov must be a covariance that is positive definite"):
        model.novelty([[1.0, 2.0]])
    x = gaussian(30, 2, "train")
    model.partial_fit(x)
    np.testing.assert_allclose(model.location_, np.concatenate([[[1.0, 2.0]], x]).mean(0))


@pytest.mark.parametrize("rows", [40, 20_000])
@pytest.mark.parametrize("cuts", [[], [1], [7, 9, 30]])
def test_the_threshold_does_not_depend_on_how_the_points_were_split(rows, cuts):
    x = gaussian(rows, 3, "train")
    whole, streamed = MahalanobisNovelty().fit(x), MahalanobisNovelty()
    for part in np.split(x, cuts):
        streamed.partial_fit(part)
    assert streamed.offset_ == pytest.approx(whole.offset_, rel=1e-9)
    np.testing.assert_array_equal(streamed.predict(x), whole.predict(x))
    # Of many points a sample is kept, whose share is that of all within three standard errors.
    assert (whole.predict(x) == -1).mean() == pytest.approx(0.1, abs=3 * math.sqrt(0.09 / 8192))


def test_points_that_come_after_a_fit_are_added_to_it():
    x = gaussian(50, 3, "train")
    model = MahalanobisNovelty().fit(x[:30]).partial_fit(x[30:])
    assert model.offset_ == pytest.approx(MahalanobisNovelty().fit(x).offset_, rel=1e-9)


def test_there_is_no_threshold_before_the_first_point():
    with pytest.raises(AttributeError, match="no threshold yet: call fit or partial_fit first"):
        _ = MahalanobisNovelty().offset_


@given(first=st.integers(0, 2**40))
def test_priorities_are_even_and_those_of_their_places(first):
    places = np.arange(first, first + 1000)
    found = priorities(places)
    np.testing.assert_array_equal(found[500:], priorities(places[500:]))
    # The mean of a thousand even numbers strays by five standard errors about once in two million.
    assert found.astype(np.float64).mean() / 2**64 == pytest.approx(0.5, abs=5 * math.sqrt(1 / 12 / 1000))
