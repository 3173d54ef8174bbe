from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.common.threads import in_parallel, row_slices
from metriscope.vq.measures import hamming
from metriscope.vq.measures.hamming import columns_of, compact_dtype, write_distances
from vq.measures.cases import patient


def random_bytes(rows, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (rows, width), dtype=np.uint8)


def plainly(a, b):
    return (np.unpackbits(a, axis=1)[:, None] != np.unpackbits(b, axis=1)[None]).sum(-1)


def found(a, b, dtype):
    out = np.full((len(a), len(b)), 77, dtype)
    write_distances(a, columns_of(b, np.dtype(dtype)), out)
    return out


@pytest.mark.parametrize("narrow", [10**6, 0], ids=["compiled", "numkong"])
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
@pytest.mark.parametrize("width", [1, 2, 3, 15, 16, 17, 32, 36, 65])
def test_distances_count_the_bits_that_differ(monkeypatch, narrow, dtype, width):
    monkeypatch.setattr(hamming, "NARROW", narrow)
    a, b = random_bytes(7, width), random_bytes(21, width, 1)
    np.testing.assert_array_equal(found(a, b, dtype), plainly(a, b))


@patient
@given(rows=st.integers(0, 5), others=st.integers(0, 40), width=st.integers(1, 200), seed=st.integers(0, 99))
def test_both_ways_agree_for_any_shape(rows, others, width, seed):
    a, b = random_bytes(rows, width, seed), random_bytes(others, width, seed + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hamming, "NARROW", 0)
        wide = found(a, b, np.int32)
    np.testing.assert_array_equal(found(a, b, np.int16), wide)


def test_columns_beyond_one_stretch_are_all_written():
    a, b = random_bytes(3, 9), random_bytes(2_500, 9, 1)
    np.testing.assert_array_equal(found(a, b, np.int16), plainly(a, b))


@pytest.mark.parametrize("width", [6, 150])
def test_rows_may_be_read_only_and_spread_out(width):
    whole = random_bytes(12, 2 * width)
    whole.setflags(write=False)
    a, b = whole[::2, :width], whole[1::2, width:]
    np.testing.assert_array_equal(found(a, b, np.int32), plainly(a, b))


def test_distances_of_few_bits_fit_the_compact_type():
    assert [compact_dtype(width) for width in (1, 32_767, 32_768)] == [np.int16, np.int16, np.int32]


@given(count=st.integers(0, 50), size=st.integers(1, 60))
def test_row_slices_cover_every_row_once(count, size):
    rows = [row for part in row_slices(count, size) for row in range(count)[part]]
    assert rows == list(range(count))


@pytest.mark.parametrize("workers", [None, 1, 4])
def test_parallel_results_come_in_the_order_of_the_tasks(workers):
    assert in_parallel(lambda task: task * task, range(9), workers) == [task * task for task in range(9)]


def test_an_error_in_a_thread_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda task: 1 // task, [1, 0, 2], 2)
