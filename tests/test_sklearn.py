"""The estimators keep scikit-learn's contract, and agree with its covariances and with theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.covariance import EmpiricalCovariance, LedoitWolf, ShrunkCovariance
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from metriscope.nn import Neg, OffsetL2
from metriscope.rng import stream
from metriscope.sklearn import DistanceClassifier, MahalanobisNovelty, ledoit_wolf_shrinkage, merge, moments, priorities

ESTIMATORS = [
    MahalanobisNovelty(),
    MahalanobisNovelty(shrinkage=0.1, contamination=0.25),
    DistanceClassifier(),
    DistanceClassifier(hidden=8, max_iter=2),
]


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


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_every_check_of_scikit_learn_passes(estimator):
    results = check_estimator(estimator, on_skip=None)
    assert {result["status"] for result in results} <= {"passed", "skipped"}
    # What may be skipped is what scikit-learn asks for only where SciPy is set up for other array libraries.
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}


@settings(deadline=None)
@given(parts=pieces())
def test_moments_joined_piece_by_piece_are_those_of_the_whole(parts):
    joined, whole = moments(parts[0]), moments(np.concatenate(parts))
    for part in parts[1:]:
        joined = merge(joined, moments(part))
    assert joined.count == whole.count
    scale = 1 + np.sqrt(np.trace(whole.scatter))
    for name, power in (("mean", 1), ("scatter", 2), ("cubic", 3), ("quartic", 4)):
        np.testing.assert_allclose(getattr(joined, name), getattr(whole, name), rtol=1e-9, atol=1e-9 * scale**power)


@settings(deadline=None)
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


@settings(deadline=None)
@given(first=st.integers(0, 2**40))
def test_priorities_are_even_and_those_of_their_places(first):
    places = np.arange(first, first + 1000)
    found = priorities(places)
    np.testing.assert_array_equal(found[500:], priorities(places[500:]))
    # The mean of a thousand even numbers strays by five standard errors about once in two million.
    assert found.astype(np.float64).mean() / 2**64 == pytest.approx(0.5, abs=5 * math.sqrt(1 / 12 / 1000))


@pytest.mark.parametrize("hidden", [None, 16])
def test_the_network_takes_features_as_they_came(hidden):
    x, y = load_wine(return_X_y=True)
    model = DistanceClassifier(hidden=hidden, max_iter=3).fit(x, y)
    assert isinstance(model.network_, nn.Sequential)
    assert [type(layer) for layer in model.network_][-2:] == [OffsetL2, Neg]
    with torch.no_grad():
        scores = model.network_(torch.tensor(x)).numpy()
    np.testing.assert_allclose(scores, model.decision_function(x))
    np.testing.assert_array_equal(model.classes_[scores.argmax(1)], model.predict(x))


@pytest.mark.parametrize("hidden", [None, 16])
def test_without_training_the_prototypes_are_the_means_of_the_classes(hidden):
    x, y = load_iris(return_X_y=True)
    network = DistanceClassifier(hidden=hidden, max_iter=0).fit(x, y).network_
    with torch.no_grad():
        features = network[:-2](torch.tensor(x)).numpy()
    means = [features[y == label].mean(0) for label in range(3)]
    np.testing.assert_allclose(network[-2].mu.detach(), means, rtol=1e-9)


@pytest.mark.parametrize("hidden", [None, 16])
def test_units_of_measurement_do_not_matter(hidden):
    x, y = load_iris(return_X_y=True)
    stretched = x * [0.001, 1.0, 1000.0, 10.0] + [5.0, 0.0, -3000.0, 0.0]
    probabilities = [DistanceClassifier(hidden, max_iter=5).fit(z, y).predict_proba(z) for z in (x, stretched)]
    np.testing.assert_allclose(*probabilities, atol=1e-6)


def test_training_beats_the_means_and_reaches_what_is_known_of_iris():
    # Three species, of which two overlap: nearly every method gets 95 % or a little more.
    x, y = load_iris(return_X_y=True)
    means, trained = (cross_val_score(DistanceClassifier(max_iter=e), x, y, cv=3).mean() for e in (0, 30))
    assert trained > means
    assert trained > 0.93


@pytest.mark.usefixtures("undrawn")
def test_the_same_random_state_gives_a_bit_identical_network_and_another_a_different_one():
    x, y = load_iris(return_X_y=True)
    first, again, other = (
        DistanceClassifier(hidden=4, max_iter=2, random_state=s).fit(x, y).predict_proba(x) for s in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_constant_feature_is_no_obstacle():
    x, y = load_iris(return_X_y=True)
    model = DistanceClassifier(max_iter=2).fit(np.column_stack([x, np.full(len(x), 7.0)]), y)
    assert all(bool(parameter.isfinite().all()) for parameter in model.network_.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, "hidden must be a positive integer, got 0"),
        ({"max_iter": -1}, "max_iter must be an integer of at least 0, got -1"),
        ({"lr": 0.0}, r"lr must lie in \(0, inf\), got 0.0"),
    ],
)
def test_bad_settings_of_the_classifier_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DistanceClassifier(**options).fit([[0.0], [1.0]], [0, 1])


def test_a_random_state_may_be_a_number_a_generator_or_none():
    x, y = load_iris(return_X_y=True)

    def probabilities(random_state):
        return DistanceClassifier(hidden=4, max_iter=1, random_state=random_state).fit(x, y).predict_proba(x)

    first, again = (probabilities(np.random.RandomState(5)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(probabilities(None), probabilities(None))
    with pytest.raises(ValueError, match="random_state must be an integer, got 'seven'"):
        probabilities("seven")


def test_the_number_of_epochs_is_recorded():
    x, y = load_iris(return_X_y=True)
    assert DistanceClassifier(max_iter=3).fit(x, y).n_iter_ == 3
