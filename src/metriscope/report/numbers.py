"""Write numbers the way people read them: significant digits, true minus signs, powers of ten.

Everything here takes numbers and returns plain Unicode text, fit for HTML, SVG and terminals alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral

import numpy as np
import numpy.typing as npt

__all__ = [
    "MISSING",
    "as_printed",
    "estimate_texts",
    "interval",
    "mean_interval",
    "mean_sd",
    "mean_text",
    "number",
    "p_value",
    "plural",
    "power_of_ten",
    "seconds",
]

MISSING = "–"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SMALLEST_EXPONENT = -3
_LARGEST_EXPONENT = 5


def power_of_ten(exponent: int) -> str:
    """Return a power of ten in superscripts.

    >>> power_of_ten(-6)
    '10⁻⁶'
    """
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"


def number(x: float | None, digits: int = 3, reason: str = "") -> str:
    """Return ``x`` with ``digits`` significant digits; integers whole; a missing value as a dash.

    >>> number(0.0284), number(-1.9), number(2e-6), number(60000)
    ('0.0284', '−1.90', '2.00 × 10⁻⁶', '60,000')
    >>> number(float("nan"), reason="rank 0")
    '– (rank 0)'
    """
    if digits < 1:
        raise ValueError(f"a number needs at least 1 significant digit, got {digits}")
    if x is None or math.isnan(x):
        return f"{MISSING} ({reason})" if reason else MISSING
    if math.isinf(x):
        return _signed("∞" if x > 0 else "-∞")
    if x == 0:
        return "0"
    if isinstance(x, Integral):
        return _signed(f"{int(x):,}")
    return _significant(float(x), digits)


def as_printed(x: float | None) -> str:
    """Return ``x`` with the digits it was typed with, neither rounded nor padded, up to eight.

    >>> as_printed(0.2675), as_printed(0.4), as_printed(9e-7), as_printed(0.1 + 0.2)
    ('0.2675', '0.4', '9 × 10⁻⁷', '0.3')
    """
    if x is None or isinstance(x, Integral) or not math.isfinite(x):
        return number(x)
    mantissa = f"{x:.7e}".partition("e")[0]
    return number(x, max(len(mantissa.strip("-").replace(".", "").rstrip("0")), 1))


def p_value(p: float | None) -> str:
    """Return a p-value with two digits, or ``< 0.001``.

    >>> p_value(0.0312), p_value(2e-7), p_value(1.0)
    ('0.031', '< 0.001', '1.0')
    """
    return "< 0.001" if p is not None and p < 0.001 else number(p, 2)


def interval(low: float | None, high: float | None, digits: int = 2) -> str:
    """Return both ends with the decimals that show ``digits`` digits of the width.

    >>> interval(95.21, 101.34), interval(2e-6, 0.208), interval(1e-6, 3e-6)
    ('[95.2, 101.3]', '[2.0 × 10⁻⁶, 0.21]', '[1.0, 3.0] × 10⁻⁶')
    """
    ends = (low, high)
    shared = _shared(ends, None if low is None or high is None else high - low, digits)
    if shared is None:
        return f"[{', '.join(number(end, digits) for end in ends)}]"
    texts, scale = shared
    return f"[{', '.join(texts)}]{scale}"


def estimate_texts(estimate: float, low: float, high: float) -> tuple[str, str, str]:
    """Return an estimate and both ends of its interval with the decimals that show two digits of the shorter arm.

    >>> estimate_texts(-5.7e-15, -0.284, 0.284), estimate_texts(-0.13, -1.1, -0.091), estimate_texts(2.0, 2.0, 2.0)
    (('0.00', '−0.28', '0.28'), ('−0.130', '−1.100', '−0.091'), ('2.00', '2.00', '2.00'))
    """
    arms = [arm for arm in (estimate - low, high - estimate) if arm > SAME * (high - low)]
    shared = _shared((estimate, low, high), min(arms, default=None), 2, keep_all=False)
    if shared is None:
        return number(estimate), number(low), number(high)
    texts, scale = ([text.removeprefix("−") if not text.strip("−0.") else text for text in shared[0]], shared[1])
    return texts[0] + scale, texts[1] + scale, texts[2] + scale


def mean_sd(mean: float | None, sd: float | None, digits: int = 2) -> str:
    """Return ``mean ± sd``, both with the decimals that show ``digits`` digits of ``sd``.

    >>> mean_sd(96.6214, 0.1704), mean_sd(2e-6, 3e-7), mean_sd(0.5, None)
    ('96.62 ± 0.17', '(2.00 ± 0.30) × 10⁻⁶', '0.500 ± –')
    """
    # A mean of exactly 0 has nothing to lose; a mean far under its deviation is honestly shown as 0.00.
    shared = _shared((mean, sd), sd, digits, keep_all=False)
    if shared is None:
        return f"{number(mean)} ± {number(sd, digits)}"
    texts, scale = shared
    joined = " ± ".join(texts)
    return f"({joined}){scale}" if scale else joined


def seconds(t: float | None) -> str:
    """Return a duration in the units a person would use.

    >>> seconds(0.0123), seconds(4.2), seconds(185), seconds(7440)
    ('12.3 ms', '4.20 s', '3 min 05 s', '2 h 04 min')
    """
    if t is None or not math.isfinite(t) or t == 0:
        return number(t) if t != 0 else "0 s"
    if t < 0:
        return f"−{seconds(-t)}"
    if t < 59.95:
        unit, factor = next(pair for pair in _SHORT_UNITS if t * pair[1] < 999.5 or pair[0] == "s")
        return f"{number(float(t * factor))} {unit}"
    if round(t) < 3600:
        return "{} min {:02d} s".format(*divmod(round(t), 60))
    return "{:,} h {:02d} min".format(*divmod(round(t / 60), 60))


_SHORT_UNITS = (("µs", 1e6), ("ms", 1e3), ("s", 1.0))


def _signed(text: str) -> str:
    """Replace the hyphen in front by a minus sign."""
    return text.replace("-", "−")


def _exponent(x: float, digits: int) -> int:
    """Return the power of ten of ``x`` after rounding, so that 0.9996 counts as 1.00."""
    return int(f"{x:.{digits - 1}e}".partition("e")[2])


def _significant(x: float, digits: int) -> str:
    exponent = _exponent(x, digits)
    if _SMALLEST_EXPONENT <= exponent <= _LARGEST_EXPONENT:
        return _signed(f"{x:,.{max(digits - 1 - exponent, 0)}f}")
    mantissa = f"{x:.{digits - 1}e}".partition("e")[0]
    return f"{_signed(mantissa)} × {power_of_ten(exponent)}"


def _shared(
    values: tuple[float | None, ...], ruler: float | None, digits: int, keep_all: bool = True
) -> tuple[list[str], str] | None:
    """Return ``values`` with the decimals of ``ruler`` and a common power of ten, or None if that is impossible.

    It is impossible if a value is missing, if the ruler is 0, or, with ``keep_all``, if a value other than 0 would be
    rounded to 0.
    """
    present = [float(value) for value in values if value is not None and math.isfinite(value)]
    if len(present) < len(values) or ruler is None or ruler <= 0:
        return None
    exponent = _exponent(max(map(abs, present)), digits)
    shift = 0 if _SMALLEST_EXPONENT <= exponent <= _LARGEST_EXPONENT else exponent
    decimals = max(digits - 1 - _exponent(ruler, digits) + shift, 0)
    texts = [f"{value / 10.0**shift:,.{decimals}f}" for value in present]
    if keep_all and any(value and not text.strip("-0.,") for value, text in zip(present, texts, strict=True)):
        return None
    return [_signed(text) for text in texts], f" × {power_of_ten(shift)}" if shift else ""


# A spread below this share of the mean is rounding: the values are one and the same.
SAME = 1e-9


def mean_interval(values: npt.ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    """Return the mean of ``values`` and both ends of its interval; NaN where there are too few.

    >>> mean_interval([1.0])
    (1.0, nan, nan)
    """
    # functional brings torch along, which a page without plots does not need.
    from metriscope.functional import summarize

    array = np.asarray(values, dtype=np.float64).ravel()
    present = array[~np.isnan(array)]
    if len(present) == 0:
        return math.nan, math.nan, math.nan
    found = summarize(present, level)
    return found.mean, found.low, found.high


def mean_text(values: Iterable[float], digits: int = 2) -> str:
    """Return a mean with its 95 % interval, with the decimals that show two digits of the interval's width.

    NaN is left out. A single value, or values that agree, have no interval and are rounded to ``digits`` decimals.

    >>> mean_text([1.0, 2.0, 3.0]), mean_text([2.0]), mean_text([])
    ('2.0 [−0.5, 4.5]', '2', '–')
    """
    kept = [float(v) for v in values if not math.isnan(v)]
    mean, low, high = mean_interval(kept)
    if math.isnan(mean):
        return MISSING
    width = high - low
    if not width > SAME * max(abs(mean), SAME):
        return f"{round(mean, digits) + 0.0:g}".replace("-", "−")
    decimals = max(0, 1 - math.floor(math.log10(width)))
    texts = [f"{round(v, decimals) + 0.0:.{decimals}f}" for v in (mean, low, high)]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]".replace("-", "−")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "point"), plural(2_000, "point")
    ('1 point', '2,000 points')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
