from __future__ import annotations

import gzip
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from metriscope.data import DataError, read_idx

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
patient = settings(max_examples=60)


def idx(array):
    """Return the bytes of an IDX file, as its description on MNIST's page has them."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, CODES[array.dtype.str[1:]], array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def read(content, *expected, folder=None):
    with tempfile.TemporaryDirectory() as name:
        path = Path(folder or name) / "some-file"
        path.write_bytes(content)
        return read_idx(path, *expected)


def array_or_sentence(content):
    try:
        return read(content)
    except DataError as error:
        return str(error)


arrays = st.sampled_from(sorted(CODES)).flatmap(
    lambda kind: hnp.arrays(np.dtype(kind), hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5))
)
SMALL = idx(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))


@patient
@given(array=arrays, packed=st.booleans())
def test_what_is_written_is_read_plain_or_packed(array, packed):
    found = read(gzip.compress(idx(array)) if packed else idx(array))
    assert found.dtype == array.dtype
    assert found.dtype.isnative
    assert found.flags.writeable
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("length", range(len(SMALL)))
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_cut_anywhere_is_truncated(length, pack, tmp_path):
    with pytest.raises(DataError, match=r"some-file is truncated: \d+ of (the 4|12|24) bytes"):
        read(pack(SMALL[:length]), folder=tmp_path)


@pytest.mark.parametrize(("length", "share"), [(3, "3 of the 4"), (11, "7 of 12"), (20, "4 of 24"), (39, "23 of 24")])
def test_the_sentence_says_what_is_missing(length, share):
    with pytest.raises(DataError, match=f"some-file is truncated: {share} bytes"):
        read(SMALL[:length])


@pytest.mark.parametrize("length", range(2, len(gzip.compress(SMALL))))
def test_a_packed_file_cut_anywhere_is_damaged(length):
    with pytest.raises(DataError, match="some-file is a damaged gzip file: "):
        read(gzip.compress(SMALL)[:length])


@patient
@given(place=st.integers(0, len(gzip.compress(SMALL, mtime=0)) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_of_a_packed_file_never_gives_other_values(place, bit):
    content = bytearray(gzip.compress(SMALL, mtime=0))
    content[place] ^= 1 << bit
    found = array_or_sentence(bytes(content))
    if isinstance(found, np.ndarray):
        np.testing.assert_array_equal(found, np.arange(24).reshape(2, 3, 4))
    else:
        assert "some-file" in found
        assert "\n" not in found


@patient
@given(more=st.binary(min_size=1, max_size=9), packed=st.booleans())
def test_bytes_behind_the_values_are_refused(more, packed):
    with pytest.raises(
        DataError, match=r"some-file has extra bytes after the 24 bytes of values for shape \(2, 3, 4\)"
    ):
        read(gzip.compress(SMALL + more) if packed else SMALL + more)


def test_rubbish_behind_a_packed_file_is_refused():
    with pytest.raises(DataError, match="some-file is a damaged gzip file: Not a gzipped file"):
        read(gzip.compress(SMALL) + b"rubbish")


@pytest.mark.parametrize("start", ["89504e47", "3c68746d", "00010803", "01000803", "00000800"])
def test_another_beginning_is_no_idx_file(start):
    with pytest.raises(DataError, match=f"some-file is not an IDX file: it begins with {start}, expected 0000"):
        read(bytes.fromhex(start) + SMALL[4:])


@pytest.mark.parametrize("code", sorted(set(range(256)) - set(CODES.values()))[::17])
def test_an_unknown_type_is_named(code):
    with pytest.raises(DataError, match=f"values of the unknown type {code:02x}, expected one of 08, 09, 0b"):
        read(bytes([0, 0, code, 1]) + SMALL[4:])


def test_another_type_or_number_of_axes_than_expected_is_refused():
    with pytest.raises(DataError, match="some-file holds float32 values, expected uint8"):
        read(idx(np.zeros(3, np.float32)), "uint8")
    with pytest.raises(DataError, match="some-file holds an array of 3 axes, expected 1"):
        read(SMALL, "uint8", 1)


@pytest.mark.parametrize("lengths", [(2**32 - 1,) * 3, (2**31, 2**31), (2**32 - 1,)])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_header_that_promises_too_much_costs_no_memory(lengths, pack):
    content = struct.pack(f">BBBB{len(lengths)}I", 0, 0, 0x0E, len(lengths), *lengths) + bytes(100)
    with pytest.raises(DataError, match="some-file is truncated: 100 of"):
        read(pack(content))


@pytest.mark.parametrize("lengths", [(0, *[2**32 - 1] * 3), (1,) * 255])
def test_a_shape_that_no_array_can_have_is_refused(lengths):
    content = struct.pack(f">BBBB{len(lengths)}I", 0, 0, 0x08, len(lengths), *lengths) + bytes(min(lengths))
    with pytest.raises(DataError, match="which no array can have"):
        read(content)


def test_a_file_that_is_not_there_and_a_folder_are_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*nowhere: No such file"):
        read_idx(tmp_path / "nowhere")
    with pytest.raises(DataError, match=f"cannot read {tmp_path}"):
        read_idx(tmp_path)


@patient
@given(content=st.binary(max_size=60))
def test_any_bytes_at_all_give_an_array_or_a_sentence(content):
    found = array_or_sentence(content)
    assert idx(found) == content if isinstance(found, np.ndarray) else "some-file" in found
