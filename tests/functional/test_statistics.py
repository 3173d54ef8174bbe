from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from metriscope.functional import Summary, summarize

numbers = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30)


@given(values=numbers, confidence=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_interval_is_the_t_interval_of_scipy(values, confidence):
    summary = summarize(values, confidence)
    half = stats.t.ppf(0.5 + confidence / 2, len(values) - 1) * stats.sem(values)
    np.testing.assert_allclose(
        [summary.low, summary.high], np.mean(values) + np.array([-half, half]), rtol=1e-9, atol=1e-9
    )


@given(values=numbers)
def test_the_moments_are_those_of_numpy(values):
    summary = summarize(values)
    assert summary.count == len(values)
    assert (summary.minimum, summary.maximum) == (min(values), max(values))
    np.testing.assert_allclose(
        [summary.mean, summary.sd, summary.variance],
        [np.mean(values), np.std(values, ddof=1), np.var(values, ddof=1)],
        rtol=1e-9,
        atol=1e-12,
    )


def test_a_textbook_interval():
    # Ten values with mean 10 and deviation 2: 2.262 is the 97.5 % quantile of t with 9 degrees of freedom.
    values = 10 + 2 * stats.zscore(np.arange(10), ddof=1)
    summary = summarize(values)
    assert summary.high - 10 == pytest.approx(2.262157 * 2 / math.sqrt(10), rel=1e-6)


def test_one_value_has_a_mean_but_no_spread():
    summary = summarize([3.0])
    assert (summary.count, summary.mean, summary.minimum, summary.maximum) == (1, 3.0, 3.0, 3.0)
    assert all(math.isnan(value) for value in (summary.sd, summary.variance, summary.low, summary.high))


def test_equal_values_have_an_interval_of_no_width():
    summary = summarize([2.0, 2.0, 2.0])
    assert (summary.sd, summary.low, summary.high) == (0.0, 2.0, 2.0)


def test_a_nan_among_the_values_makes_every_number_nan():
    fields = summarize([1.0, math.nan, 2.0]).to_dict()
    assert fields.pop("count") == 3
    assert all(math.isnan(value) for value in fields.values())


def test_a_diverged_run_makes_the_mean_infinite_and_its_spread_undefined():
    summary = summarize([1.0, math.inf])
    assert summary.mean == summary.maximum == math.inf
    assert all(math.isnan(value) for value in (summary.sd, summary.low, summary.high))


def test_lists_arrays_tensors_and_generators_are_summarized_alike():
    expected = summarize([1.0, 2.0])
    for values in (np.array([1.0, 2.0]), torch.tensor([1.0, 2.0]), (float(i) for i in (1, 2)), (1.0, 2.0)):
        assert summarize(values) == expected


def test_a_summary_is_frozen_and_lists_its_fields():
    summary = summarize([1.0, 2.0])
    assert list(summary.to_dict()) == [field.name for field in dataclasses.fields(Summary)]
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.mean = 0.0


def test_what_cannot_be_summarized_is_refused():
    with pytest.raises(ValueError, match=r"values must hold at least one number, got the shape \(0,\)"):
        summarize([])
    with pytest.raises(ValueError, match=r"values must have the shape \(runs,\), got \(1, 2\)"):
        summarize([[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"confidence must lie in \(0, 1\), got 95"):
        summarize([1.0, 2.0], confidence=95)
