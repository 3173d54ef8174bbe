import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metriscope.common.errors import Damage
from metriscope.runs.codec import from_json, from_parquet, from_tensors, to_json, to_parquet, to_tensors

DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool),
)
NUMBERS = st.none() | st.booleans() | st.integers() | st.floats()
WORDS = st.text().filter(lambda word: not word.startswith("$"))
RECORDS = st.dictionaries(
    WORDS,
    st.recursive(NUMBERS | st.text(), lambda x: st.lists(x, max_size=3) | st.dictionaries(WORDS, x, max_size=3)),
    max_size=4,
)


@st.composite
def tensors(draw):
    """Tensors of any bits, NaN payloads included, made from raw bytes."""
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    if dtype == torch.bool:
        return torch.tensor(draw(st.lists(st.booleans(), min_size=5, max_size=5)))
    size = math.prod(shape) * dtype.itemsize
    raw = bytearray(draw(st.binary(min_size=size, max_size=size)))
    return torch.frombuffer(raw, dtype=dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)


def bits(tensor):
    return tensor.dtype, tensor.shape, bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


@given(st.dictionaries(st.text().filter(lambda name: name != "__metadata__"), tensors(), max_size=4))
def test_tensors_come_back_bit_for_bit_in_the_order_of_their_names(named):
    back = from_tensors(to_tensors(named))
    assert list(back) == sorted(named)
    assert {name: bits(tensor) for name, tensor in back.items()} == {n: bits(t) for n, t in named.items()}


@given(st.permutations(["b", "a", "c"]))
def test_the_same_tensors_give_the_same_bytes_in_whatever_order_they_are_given(order):
    values = {
        "a": torch.arange(3.0),
        "b": torch.ones(2, dtype=torch.int64),
        "c": torch.zeros(1, dtype=torch.bool),
    }
    assert to_tensors({name: values[name] for name in order}) == to_tensors(values)


def test_views_and_tensors_that_share_memory_or_want_gradients_are_stored_as_their_values():
    base = torch.arange(6.0, requires_grad=True)
    turned = base.reshape(2, 3).mT
    back = from_tensors(to_tensors({"base": base, "turned": turned}))
    assert back["base"].equal(base.detach())
    assert back["turned"].equal(turned.detach())
    assert not back["base"].requires_grad


def test_what_comes_back_is_memory_of_its_own():
    back = from_tensors(to_tensors({"w": torch.zeros(2)}))
    back["w"].add_(1)
    assert back["w"].equal(torch.ones(2))


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"w": np.zeros(2)}, "tensor 'w' is a ndarray"),
        ({"w": torch.eye(2).to_sparse()}, "expected a dense tensor"),
        ({"w": torch.empty(2, device="meta")}, "expected a dense tensor"),
        ({"__metadata__": torch.zeros(1)}, "a tensor is named '__metadata__'"),
    ],
)
def test_what_is_not_a_dense_named_tensor_is_refused_in_words(named, message):
    with pytest.raises(ValueError, match=message):
        to_tensors(named)


@given(RECORDS)
def test_a_record_comes_back_as_it_was_with_nan_and_infinity(record):
    back = from_json(to_json(record, "record"))
    assert repr(back) == repr(record)


@given(RECORDS)
def test_a_record_is_json_for_strict_readers_too(record):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    json.loads(to_json(record, "record"), parse_constant=refuse)


def test_a_table_comes_back_with_its_types_and_its_index():
    table = pd.DataFrame(
        {
            "epoch": [1, 2, 3],
            "loss": [0.5, np.nan, np.inf],
            "name": ["a", "b", "c"],
            "ok": [True, False, True],
        },
        index=pd.Index([10, 20, 30], name="seed"),
    )
    pd.testing.assert_frame_equal(from_parquet(to_parquet("curves", table)), table)


def test_a_table_without_rows_or_columns_comes_back():
    for table in (pd.DataFrame(), pd.DataFrame({"x": pd.Series([], dtype="float64")})):
        pd.testing.assert_frame_equal(from_parquet(to_parquet("empty", table)), table)


@settings(max_examples=20)
@given(st.lists(st.floats(), max_size=30))
def test_the_same_table_gives_the_same_bytes(values):
    table = pd.DataFrame({"x": np.array(values, dtype=float)})
    assert to_parquet("t", table) == to_parquet("t", table.copy())


def test_a_table_with_columns_that_are_not_words_is_refused():
    with pytest.raises(ValueError, match=r"table 'curves' has the columns \[0, 1\]; expected words"):
        to_parquet("curves", pd.DataFrame([[1, 2]]))


def test_a_table_that_parquet_cannot_hold_is_refused_by_its_name():
    with pytest.raises(ValueError, match="table 'curves' cannot be written as Parquet"):
        to_parquet("curves", pd.DataFrame({"x": [1, "one"]}))


@given(st.binary(max_size=64))
def test_garbage_is_damage_and_never_another_error(data):
    for decode in (from_tensors, from_parquet):
        with pytest.raises(Damage):
            decode(data)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"x": NaN'])
def test_garbled_json_is_damage(data):
    with pytest.raises(Damage, match="not JSON"):
        from_json(data)
