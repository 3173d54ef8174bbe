import math

import numpy as np
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from metriscope.report.numbers import mean_interval


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
