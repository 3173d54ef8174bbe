import math
import re
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.report.numbers import as_printed, interval, mean_sd, number, power_of_ten, seconds

SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"


def read(text: str) -> Decimal:
    """Read a formatted number back the way a person would."""
    mantissa, _, power = text.replace("−", "-").replace(",", "").partition(" × 10")
    exponent = "".join("-" if sign == "⁻" else str(SUPERSCRIPTS.index(sign)) for sign in power)
    return Decimal(mantissa).scaleb(int(exponent or 0))


@pytest.mark.parametrize(
    ("x", "digits", "expected"),
    [
        (0.0284, 3, "0.0284"),
        (0.122, 3, "0.122"),
        (1.9, 3, "1.90"),
        (-1.9, 3, "−1.90"),
        (96.6214, 4, "96.62"),
        (0.0009996, 3, "0.00100"),
        (0.000999, 3, "9.99 × 10⁻⁴"),
        (999_999.9, 3, "1.00 × 10⁶"),
        (12345.6, 3, "12,346"),
        (2e-6, 1, "2 × 10⁻⁶"),
        (-3.2e12, 2, "−3.2 × 10¹²"),
        (20, 3, "20"),
        (-250_000, 3, "−250,000"),
        (np.int64(60_000), 2, "60,000"),
        (np.float32(0.5), 2, "0.50"),
        (0.0, 3, "0"),
        (-0.0, 3, "0"),
        (math.inf, 3, "∞"),
        (-math.inf, 3, "−∞"),
        (math.nan, 3, "–"),
        (None, 3, "–"),
    ],
)
def test_a_number_is_written_as_a_person_would(x, digits, expected):
    assert number(x, digits) == expected


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15), st.integers(1, 8))
def test_a_written_number_differs_by_at_most_half_its_last_digit(x, digits):
    if abs(x) < 1e-300:
        return
    leading = math.floor(math.log10(abs(x)))
    assert abs(read(number(x, digits)) - Decimal(x)) <= Decimal("0.5001") * Decimal(10) ** (leading - digits + 1)


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_no_hyphen_ever_stands_for_a_minus(x):
    assert "-" not in number(x) + as_printed(x) + interval(x, 1.0) + mean_sd(x, 0.1)


def test_a_missing_number_can_say_why():
    assert number(math.nan, reason="one run only") == "– (one run only)"


def test_a_number_without_digits_is_refused():
    with pytest.raises(ValueError, match="at least 1 significant digit, got 0"):
        number(1.0, 0)


@given(st.integers(1, 99_999_999), st.integers(-12, 4))
def test_a_published_number_keeps_the_digits_it_was_typed_with(digits, exponent):
    typed = Decimal(digits).scaleb(exponent)
    assert read(as_printed(float(typed))) == typed


@pytest.mark.parametrize(
    ("x", "expected"), [(0.2675, "0.2675"), (0.4, "0.4"), (3, "3"), (9e-7, "9 × 10⁻⁷"), (None, "–")]
)
def test_published_examples(x, expected):
    assert as_printed(x) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (95.21, 101.34, "[95.2, 101.3]"),
        (0.481, 0.7102, "[0.48, 0.71]"),
        (-0.021, 0.034, "[−0.021, 0.034]"),
        (2e-6, 0.208, "[2.0 × 10⁻⁶, 0.21]"),
        (1e-6, 3e-6, "[1.0, 3.0] × 10⁻⁶"),
        (0.0, 0.5, "[0.00, 0.50]"),
        (1.5, 1.5, "[1.5, 1.5]"),
        (math.nan, math.nan, "[–, –]"),
        (None, 1.0, "[–, 1.0]"),
    ],
)
def test_an_interval_shows_two_digits_of_its_width(low, high, expected):
    assert interval(low, high) == expected


@pytest.mark.parametrize(
    ("mean", "sd", "expected"),
    [
        (96.6214, 0.1704, "96.62 ± 0.17"),
        (56.31, 19.31, "56 ± 19"),
        (0.0284, 0.044, "0.028 ± 0.044"),
        (2e-6, 3e-7, "(2.00 ± 0.30) × 10⁻⁶"),
        (-1.5, 0.25, "−1.50 ± 0.25"),
        (0.001, 5.0, "0.0 ± 5.0"),
        (0.5, math.nan, "0.500 ± –"),
        (0.5, 0.0, "0.500 ± 0"),
        (None, None, "– ± –"),
    ],
)
def test_a_mean_has_the_decimals_of_its_deviation(mean, sd, expected):
    assert mean_sd(mean, sd) == expected


@pytest.mark.parametrize(
    ("t", "expected"),
    [
        (0, "0 s"),
        (3.2e-6, "3.20 µs"),
        (0.0123, "12.3 ms"),
        (0.99999, "1.00 s"),
        (4.2, "4.20 s"),
        (59.9, "59.9 s"),
        (59.99, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7440, "2 h 04 min"),
        (-185, "−3 min 05 s"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_a_duration_uses_the_units_of_a_clock(t, expected):
    assert seconds(t) == expected


@given(st.integers(-400, 400))
def test_powers_of_ten_use_superscripts_only(exponent):
    assert re.fullmatch("10⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+", power_of_ten(exponent))
