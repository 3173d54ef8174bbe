import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from metriscope.report.intervals import mean_interval, t_cover, t_quantile


@pytest.mark.parametrize(("df", "expected"), [(1, 12.706), (2, 4.303), (4, 2.776), (19, 2.093), (120, 1.980)])
def test_t_quantiles_agree_with_the_printed_table(df, expected):
    assert t_quantile(df) == pytest.approx(expected, abs=5e-4)


@given(st.integers(1, 300), st.floats(0.01, 0.999))
def test_t_quantiles_agree_with_scipy(df, level):
    assert t_quantile(df, level) == pytest.approx(scipy.stats.t.ppf((1 + level) / 2, df), rel=1e-8)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30))
def test_the_interval_of_a_mean_agrees_with_scipy(values):
    mean, low, high = mean_interval(values)
    spread = scipy.stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    np.testing.assert_allclose([mean, high - mean, mean - low], [np.mean(values), spread, spread], rtol=1e-7, atol=1e-9)


def test_a_seed_without_a_value_is_left_out():
    assert mean_interval([1.0, math.nan, 3.0]) == mean_interval([1.0, 3.0])


def test_too_few_values_have_no_interval():
    assert math.isnan(mean_interval([2.0])[1])
    assert all(map(math.isnan, mean_interval([math.nan])))


def test_impossible_questions_are_refused():
    with pytest.raises(ValueError, match="at least 1 degree of freedom, got 0"):
        t_cover(0.1, 0)
    with pytest.raises(ValueError, match="strictly between 0 and 1, got 95"):
        t_quantile(3, 95)
