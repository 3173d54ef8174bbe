"""Ranks over data sets: against scipy, and the numbers of the textbook."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from metriscope.functional import rank_methods

# AUC of four classifiers on fourteen data sets: table 6 of Demšar (2006).
DEMSAR = np.array(
    [
        [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975], [0.957, 0.978, 0.946, 0.970],
    ]
)  # fmt: skip


def test_the_textbooks_ranks_statistic_and_critical_difference_are_found():
    found = rank_methods(DEMSAR)
    assert np.round(found.ranks, 3).tolist() == [3.143, 2.000, 2.893, 1.964]
    # The book's q for four classifiers is 2.569; it prints a difference of 1.25.
    assert found.critical_difference == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), rel=1e-3)


def test_friedmans_p_value_is_scipys():
    scores = np.random.default_rng(0).integers(0, 5, (9, 4)).astype(float)
    assert rank_methods(scores).p_value == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)


def test_ranks_ignore_the_scale_of_each_data_set_and_sum_to_a_constant():
    scores = np.random.default_rng(1).normal(size=(7, 5))
    scaled = np.exp(3 * scores) * np.arange(1, 8)[:, None]
    assert np.allclose(rank_methods(scaled).ranks, rank_methods(scores).ranks)
    assert rank_methods(scores).ranks.sum() == pytest.approx(15)


def test_equal_methods_have_equal_ranks_and_a_p_value_of_one():
    found = rank_methods(np.ones((3, 4)))
    assert found.ranks.tolist() == [2.5] * 4
    assert found.p_value == 1


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1.0, 2.0]], "at least two data sets and two methods, got 1 and 2"),
        ([[1.0], [2.0]], "got 2 and 1"),
        ([[1.0, np.nan], [1.0, 2.0]], "scores"),
    ],
)
def test_bad_input_is_named(scores, message):
    with pytest.raises(ValueError, match=message):
        rank_methods(scores)
