"""Damaged, lying and hostile files: every reader gives what was written or one clear sentence, and never runs code."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tempfile
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from metriscope.common.errors import Damage, StoreError
from metriscope.data import DataError, read_idx
from metriscope.reading.networks import load_model
from metriscope.reading.points import load_points
from metriscope.runs import codec, records
from metriscope.sklearn import MahalanobisNovelty

FIXED = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
SHORT, LONG = 60, 2000
CLEAR = (ValueError, DataError, StoreError, Damage)
X = np.arange(24, dtype=np.float32).reshape(8, 3)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(shape: object, descr: object = "<f4", body: bytes = b"") -> bytes:
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def tensors() -> bytes:
    return codec.to_tensors({"weight": torch.ones(2, 3), "bias": torch.zeros(2)}, "note")


def estimator() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        MahalanobisNovelty().fit(X[:, :2] + np.eye(8, 2)).save(Path(folder) / "e")
        return (Path(folder) / "e").read_bytes()


IDX = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])
RECORD = json.dumps(
    {"spec": {"kind": "A"}, "provenance": {}, "record": {"x": 1.0}, "tables": {"t": {"a": [1, 2]}}}
).encode()
TABLE = codec.to_parquet("t", pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]}))
LINEAR = "torch.nn.modules.linear:Linear"


def from_file(read, ending: str):
    def call(content: bytes):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"file{ending}"
            path.write_bytes(content)
            return read(path)

    return call


READERS = {
    "npy": (npy(X), from_file(load_points, ".npy")),
    "npz": (npz(x=X, y=np.arange(8)), from_file(load_points, ".npz")),
    "idx": (IDX, from_file(read_idx, "")),
    "gzipped idx": (gzip.compress(IDX, mtime=0), from_file(read_idx, ".gz")),
    "safetensors": (tensors(), codec.from_tensors),
    "safetensors header": (tensors(), codec.header),
    "weights": (tensors(), from_file(lambda path: load_model("tests_hostile_net:net", path), ".safetensors")),
    "parquet": (TABLE, codec.from_parquet),
    "json": (RECORD, codec.from_json),
    "record": (RECORD, from_file(records._record, ".json")),
    "estimator": (estimator(), from_file(MahalanobisNovelty.load, "")),
}


@pytest.fixture(autouse=True)
def networks(tmp_path_factory, monkeypatch):
    place = tmp_path_factory.mktemp("net")
    (place / "tests_hostile_net.py").write_text("from torch import nn\ndef net():\n    return nn.Linear(3, 2)\n")
    monkeypatch.syspath_prepend(str(place))


def unclear(read, content: bytes) -> str:
    """Return the error of a reader unless it is one sentence; empty if it read the file."""
    try:
        read(content)
    except CLEAR as error:
        text = str(error)
        return "" if "Traceback" not in text and len(text) < 2000 else f"long: {text[:200]}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@st.composite
def damaged(draw, whole: bytes) -> bytes:
    """Draw a file that was cut, changed in some bytes, repeated, or has something else in its middle."""
    content, how = bytearray(whole), draw(st.sampled_from(["cut", "bytes", "insert", "swap", "early"]))
    if how == "cut":
        return bytes(content[: draw(st.integers(0, len(content)))])
    if how == "insert":
        at = draw(st.integers(0, len(content)))
        return bytes(content[:at] + draw(st.binary(max_size=40)) + content[at:])
    if how == "swap":
        at = draw(st.integers(0, len(content)))
        return bytes(content[at:] + content[:at])
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, (min(len(content), 128) if how == "early" else len(content)) - 1))
        content[at] = draw(st.integers(0, 255))
    return bytes(content)


def searched(name: str, count: int) -> None:
    whole, read = READERS[name]
    assert unclear(read, whole) == ""

    @settings(FIXED, max_examples=count)
    @given(damaged(whole))
    @example(b"")
    def search(content):
        assert unclear(read, content) == ""

    search()


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(name):
    searched(name, SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_thousands_of_damaged_files_are_read_or_refused_in_a_sentence(name):
    searched(name, LONG)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (header((10**9, 10**3), body=b"abc"), "which takes 4,000,000,000,000 bytes, but holds 3"),
        (header((2**62, 2**62)), "declares the shape"),
        (header((-5, 3)), "which no array can have"),
        (header((True, 3), body=b"a" * 12), "which no array can have"),
        (npy(X) + b"more", "which takes 96 bytes, but holds 100"),
        (npy(np.array([["a"]])), "holds words, not numbers"),
        (npy(np.zeros(4, dtype=[("a", float)])), "holds records, not numbers"),
        (npy(np.zeros(4, "M8[s]")), "holds dates, not numbers"),
        (npy(X[:, 0]), r"has the shape \(8,\): save 8 points of one number as \(8, 1\)"),
        (header((1,), "|O"), "holds Python objects"),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'((", "its header cannot be read"),
    ],
)
def test_an_array_that_is_none_is_refused(content, sentence):
    with pytest.raises(ValueError, match=sentence):
        from_file(load_points, ".npy")(content)


def archive(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as found:
        found.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"PK\x03\x04abc", "is not a complete .npz file"),
        (archive("a.txt", b"hi"), "holds 'a.txt', which is not an array"),
        (archive("x.npy", header((10**9, 10**3), body=b"abc")), "which takes 4,000,000,000,000 bytes, but holds 3"),
        (npz(x=X, texts=np.array(["a"])), "texts of .* must be words, one for each of 8 points, got words of shape"),
        (npz(x=X, columns=np.array("a")), "columns of .* must be words, one for each of 3 columns"),
    ],
)
def test_an_archive_that_lies_is_refused(content, sentence):
    with pytest.raises(ValueError, match=sentence):
        from_file(load_points, ".npz")(content)


BOMB = 64 << 20


def largest(call) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_gzip_bomb_is_unpacked_only_as_far_as_its_header_promises():
    bomb = gzip.compress(IDX[:12] + bytes(BOMB), 1)

    def call():
        with pytest.raises(DataError, match="has extra bytes after the 6 bytes of values"):
            from_file(read_idx, ".gz")(bomb)

    assert largest(call) < BOMB / 16


def test_an_archive_bomb_is_not_unpacked_at_all():
    bomb = archive("x.npy", header((3, 3), body=bytes(BOMB)))

    def call():
        with pytest.raises(ValueError, match="which takes 36 bytes, but holds"):
            from_file(load_points, ".npz")(bomb)

    assert largest(call) < BOMB / 16


def png(side: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (png(30_000), "holds more than 89,478,485 pixels"),
        (png(12_000), "holds more than 89,478,485 pixels"),
        (b"", "is not a picture"),
        (b"GIF89a", "is not a picture"),
    ],
)
def test_a_picture_that_is_none_or_a_bomb_is_refused(content, sentence, tmp_path):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        load_points(tmp_path)


def test_the_levels_of_a_picture_of_16_bits_are_not_cut_off(tmp_path):
    from PIL import Image

    Image.fromarray(np.array([[0, 13_107], [39_321, 65_535]], np.uint16)).save(tmp_path / "a.png")
    np.testing.assert_allclose(load_points(tmp_path).take(slice(None)), [[[[0, 0.2], [0.6, 1]]]], rtol=1e-6)


@pytest.mark.parametrize("depth", [10, 500, 1_000, 100_000])
@pytest.mark.parametrize("pair", [("[", "]"), ('{"a":', "}")])
def test_json_of_any_depth_is_read_or_refused(depth, pair):
    content = (pair[0] * depth + "1" + pair[1] * depth).encode()
    assert unclear(codec.from_json, content) == ""
    assert unclear(READERS["record"][1], content) == ""


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", '{"$float": null}', '{"$float": "1e999"}', "9" * 5000, '"\\ud800']
)
def test_json_that_no_record_holds_is_refused(text):
    with pytest.raises(Damage):
        codec.from_json(text.encode())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int32])
def test_weights_of_another_kind_of_number_are_refused(dtype, tmp_path):
    save_file({"weight": torch.ones(2, 3).to(dtype), "bias": torch.zeros(2)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=f"'weight' holds {str(dtype).removeprefix('torch.')}, not float32"):
        load_model("tests_hostile_net:net", tmp_path / "w.safetensors")
