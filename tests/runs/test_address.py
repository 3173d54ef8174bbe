import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metriscope.runs.address import address, canonical


@dataclass(frozen=True)
class Data:
    name: str
    noise: float = 0.5


@dataclass(frozen=True)
class Training:
    data: Data
    seed: int
    rate: float = 1e-3
    layers: tuple[int, ...] = (64, 64)
    note: str | None = None


@dataclass(frozen=True)
class Named:
    kind: str


@dataclass(frozen=True)
class Loose:
    extra: object = field(default_factory=list)


class Word(str, enum.Enum):
    ABS = "abs"


NUMBERS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text().filter(lambda word: not word.startswith("$"))
VALUES = st.recursive(
    NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
SPECS = st.dictionaries(WORDS, VALUES, max_size=5)


def test_the_address_of_a_fixed_specification_never_changes():
    # Worked out once with `printf '%s' TEXT | sha256sum`; if it moves, every store written so far is lost.
    text = (
        '{"data":{"kind":"Data","name":"moons","noise":0.5},"kind":"Training",'
        '"layers":[64,64],"note":null,"rate":0.001,"seed":7}'
    )
    spec = Training(Data("moons"), seed=7)
    assert canonical(spec) == text
    assert address(spec) == "6fbd45e5aaba6356300d3247dd00797c55ee554d"


@given(SPECS)
def test_a_specification_read_back_from_its_text_has_the_same_address(spec):
    assert address(json.loads(canonical(spec))) == address(spec)


@given(SPECS)
def test_the_order_of_keys_does_not_matter(spec):
    assert address(dict(reversed(spec.items()))) == address(spec)


@given(SPECS, SPECS)
def test_two_specifications_share_an_address_only_if_they_share_the_text(one, two):
    assert (address(one) == address(two)) == (canonical(one) == canonical(two))


def test_a_dataclass_and_the_mapping_of_its_fields_with_its_kind_are_one():
    assert address(Data("moons")) == address({"kind": "Data", "name": "moons", "noise": 0.5})


def test_one_as_int_float_and_truth_are_three_addresses():
    assert len({address({"x": value}) for value in (1, 1.0, True, "1")}) == 4


def test_positive_and_negative_zero_differ_because_they_can_train_differently():
    assert address({"x": 0.0}) != address({"x": -0.0})


def test_a_tuple_and_a_list_are_one():
    assert address({"x": (1, 2)}) == address({"x": [1, 2]})


def test_an_enumeration_of_words_and_a_numpy_double_are_their_plain_values():
    assert canonical({"a": Word.ABS, "x": np.float64(0.1)}) == '{"a":"abs","x":0.1}'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_by_the_name_of_its_field(value):
    with pytest.raises(ValueError, match=r"spec\.data\.noise is .*expected a finite number"):
        address(Training(Data("moons", noise=value), seed=7))


@pytest.mark.parametrize("value", [torch.zeros(2), np.zeros(2), {1, 2}, b"bytes", Data, object()])
def test_other_objects_are_refused_by_the_name_of_their_field(value):
    with pytest.raises(ValueError, match=r"spec\.extra\[1\] is a \w+; expected words, numbers"):
        address(Loose(extra=[0, value]))


def test_keys_must_be_words():
    with pytest.raises(ValueError, match=r"spec\.x has the key 1 of type int"):
        address({"x": {1: 2}})


def test_keys_that_begin_with_a_dollar_are_taken():
    with pytest.raises(ValueError, match=r"has the key '\$float'"):
        address({"$float": "nan"})


def test_a_field_named_kind_is_taken():
    with pytest.raises(ValueError, match="field named 'kind'"):
        address(Named("abs"))


@pytest.mark.parametrize("spec", [7, "moons", [1], Data])
def test_a_specification_is_a_dataclass_or_a_mapping(spec):
    assert not isinstance(spec, Mapping)
    with pytest.raises(ValueError, match="a specification is a dataclass or a mapping, not a"):
        address(spec)
