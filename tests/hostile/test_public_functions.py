"""Degenerate arrays and values in every public function: a clear refusal, or a result that is right."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import metriscope as ms
from common.cases import Case, network, numbers
from common.odd import Kind
from common.outcomes import _is_clear, _is_pytorchs, _plain
from common.public_calls import EVERY_CASE, OF_PATTERNS, VALUES
from metriscope import functional
from metriscope.common.errors import StoreError
from metriscope.data import DataError
from metriscope.vq import Layer, Patterns

# The compiled loops of these take a second per case; tests/common calls them with every kind of array.
SLOW = ("heat_cosine", "similarity", "perturbation", "Distance", "TrainingTracker", "sharpness", "VQMDS", "init_from_c")
# Documented: a unit of length 0 implies an infinite variance or distance, and a value may hold at all levels.
INFINITE = ("distance_to_point", "eigen_recovery", "holding_range", "best_temperature")
ABOUT = re.compile(r"\b(points?|data sets|classes|features)\b")
QUICK = [case for case in EVERY_CASE if not case.name.startswith(SLOW)]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 5e-324, -2.5e-310, 1e-160, 1e155, -1.7e308, np.nan, np.inf, -np.inf]
COUNT = 6
FIXED = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@st.composite
def degenerate(draw, array: np.ndarray) -> np.ndarray:
    """Draw an array like another one: fewer rows, equal rows, equal numbers, or special numbers in some places."""
    rows = draw(st.sampled_from([len(array), 0, 1, 2]))
    found = np.array(array[:rows])
    how = draw(st.sampled_from(["as it is", "equal rows", "constant", "special", "all special"]))
    if how == "equal rows" and rows:
        found[:] = found[0]
    if how == "constant" or (how != "as it is" and found.dtype.kind != "f"):
        found[:] = 0 if found.dtype.kind != "f" else draw(st.sampled_from(SPECIAL[:9]))
    elif how in ("special", "all special") and found.size:
        some = st.sets(st.integers(0, found.size - 1), max_size=4)
        for place in range(found.size) if how == "all special" else draw(some):
            found.reshape(-1)[place] = draw(st.sampled_from(SPECIAL))
    return found


def fault(case: Case, given: dict[str, object]) -> str:
    """Return what is wrong with the outcome of a call; empty if nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = numbers(case.call(**given))
    except Exception as error:
        about = type(error) is ValueError and ABOUT.search(str(error)) and "\n" not in str(error)
        clear = about or _is_clear(case, error) or _is_pytorchs(case, Kind("float32 tensor", np.asarray, "same"))
        return "" if clear else f"{type(error).__name__}: {error}"
    moderate = all(np.all(np.abs(np.asarray(one)[np.asarray(one) != 0]) < 1e100) for one in given.values())
    infinite = any(np.isinf(part).any() for part in found)
    wrong = moderate and infinite and not case.carries and case.name not in INFINITE
    return "an infinite result of moderate numbers" if wrong else ""


def searched(case: Case, count: int) -> None:
    @settings(FIXED, max_examples=count)
    @given(st.data())
    def search(data):
        named = {name: _plain(case, array) for name, array in case.arrays.items()}
        name = data.draw(st.sampled_from(sorted(case.arrays)))
        odd = data.draw(degenerate(case.arrays[name]))
        named[name] = torch.tensor(odd) if case.tensors else odd
        assert fault(case, named) == ""

    search()


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_a_degenerate_array_is_refused_clearly_or_measured(case):
    searched(case, COUNT)


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY_CASE, ids=lambda case: case.name)
def test_a_hundred_degenerate_arrays_are_refused_clearly_or_measured(case):
    searched(case, 100)


def unclear(call) -> str:
    """Return the error of a call unless it is one clear sentence; empty if there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call()
    except Exception as error:
        text, kinds = str(error), (ValueError, TypeError, DataError, StoreError)
        clear = isinstance(error, kinds) and "\n" not in text and len(text) < 600 and "has no attribute" not in text
        return "" if clear else f"{type(error).__name__}: {text[:200]}"
    return ""


ODD_VALUES = [
    None, True, -1, 0, 1.5, float("nan"), float("inf"), 2**63, 10**400, "x", "", "\0", "../..", "x" * 10_000,
    "\ud800", b"x", [], {}, {"a": 1}, (1, 2), object(), np.zeros(0), np.array("x"), torch.zeros(2, 0),
]  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_an_odd_value_is_refused_in_one_sentence_or_taken(name):
    said = {repr(value)[:40]: unclear(lambda value=value: VALUES[name](value)) for value in ODD_VALUES}
    assert {value: one for value, one in said.items() if one} == {}


WIDE = Layer("act", 10, "relu")
PATTERNS = {
    "no points": np.zeros((0, 2), np.uint8),
    "one point": np.array([[129, 64]], np.uint8),
    "equal points": np.array([[129, 64]] * 4, np.uint8),
    "all off": np.zeros((3, 2), np.uint8),
    "two points": np.array([[129, 64], [0, 0]], np.uint8),
}


@pytest.mark.parametrize("kind", PATTERNS)
@pytest.mark.parametrize("name", OF_PATTERNS)
def test_degenerate_patterns_are_measured_or_refused_in_a_sentence(name, kind):
    found: list[np.ndarray] = []

    def call():
        found.extend(numbers(OF_PATTERNS[name](Patterns((WIDE,), PATTERNS[kind]))))

    assert unclear(call) == ""
    assert found or kind in ("no points", "one point") or name in ("vq.check_same_points", "VQMDS", "vq.MDSState")
    assert not any(np.isinf(part).any() for part in found) or name == "naswot_score"


def test_numbers_of_degenerate_patterns_are_those_of_the_definitions():
    one, equal = (Patterns((WIDE,), PATTERNS[kind]) for kind in ("one point", "equal points"))
    two, off = (Patterns((WIDE,), PATTERNS[kind]) for kind in ("two points", "all off"))
    assert ms.vq_kernel(one).tolist() == [[0]]
    np.testing.assert_array_equal(ms.vq_kernel(equal), np.zeros((4, 4)))
    assert ms.vq_kernel(two).tolist() == [[0, 3], [3, 0]]
    assert (ms.region_count(one), ms.region_count(equal), ms.region_count(two)) == (1, 1, 2)
    np.testing.assert_array_equal(ms.novelty(equal, two), [0, 3])
    assert ms.utilization(off).to_pandas()["status"].unique().tolist() == ["dead"]
    # A centered kernel of equal points is zero: nothing is left to align.
    assert np.isnan(ms.alignment(equal, equal, estimator="biased").value)
    assert ms.alignment(two, two, estimator="biased").value == 1
    np.testing.assert_array_equal(ms.heat_cosine(equal, equal, [0.5, 2.0]), [1, 1])


def test_numbers_of_degenerate_arrays_are_those_of_the_definitions():
    constant = functional.moments([2.0, 2.0, 2.0])
    assert (constant.mean, constant.sd, constant.runs) == (2.0, 0.0, 3)
    np.testing.assert_array_equal(functional.norm(torch.zeros(2, 3)), [0, 0])
    tiny = torch.tensor([[3.0, 4.0]], dtype=torch.float64) * 2.0**-500
    np.testing.assert_array_equal(functional.norm(tiny), [5 * 2.0**-500])
    huge = torch.tensor([[3.0, 4.0]], dtype=torch.float64) * 2.0**500
    np.testing.assert_array_equal(functional.norm(huge), [5 * 2.0**500])
    same = ms.capture(network(), np.ones((5, 3)))
    assert ms.region_count(same) == 1
    assert functional.expected_calibration_error([[1.0, 0.0]], [0]) == 0
    assert functional.expected_calibration_error([[1.0, 0.0]], [1]) == 1
    with pytest.raises(ValueError, match="labels must hold real numbers, got words"):
        functional.expected_calibration_error([[1.0, 0.0]], ["cat"])
