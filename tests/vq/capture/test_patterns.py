"""Patterns behave as a matrix of signs whose rows have names: slicing, joining, comparing, saving and loading."""

from __future__ import annotations

import errno
import json
import mmap

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metriscope.runs import StoreError
from metriscope.vq.capture import storage
from metriscope.vq.capture.capture import capture
from metriscope.vq.capture.patterns import Layer, Patterns, check_same_points
from metriscope.vq.capture.storage import Shards
from metriscope.vq.measures import vq_kernel
from vq.capture.networks import NETWORKS, drawn, points

patient = settings(max_examples=60)
BITS = np.ones((3, 2), bool)


def packed(bits: np.ndarray, widths: list[int], ids=None) -> Patterns:
    """Return bits, points x units, as patterns of layers of these widths."""
    layers = tuple(Layer(f"layer{number}", width, "relu", shape=(width,)) for number, width in enumerate(widths))
    ends = np.cumsum(widths).tolist()
    parts = [np.packbits(bits[:, end - width : end], axis=1) for end, width in zip(ends, widths, strict=True)]
    return Patterns(layers, np.concatenate(parts, axis=1), ids)


@st.composite
def cases(draw, least=0, words=None):
    """Return random bits, the widths of layers they belong to, and ids."""
    widths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    count = draw(st.integers(least, 12))
    seed = draw(st.integers(0, 2**32 - 1))
    bits = np.random.default_rng(seed).integers(0, 2, (count, sum(widths))).astype(bool)
    kind = (
        st.text(max_size=5) if (draw(st.booleans()) if words is None else words) else st.integers(-(2**63), 2**63 - 1)
    )
    ids = np.array(draw(st.lists(kind, min_size=count, max_size=count)))
    return bits, widths, ids if count else None


@pytest.fixture(scope="module")
def p() -> Patterns:
    kind, shape = NETWORKS["residual convolutions"]
    return capture(drawn(kind()), points(12, *shape), ids=[f"point {number}" for number in range(12)])


@given(case=cases())
@patient
def test_signs_are_plus_one_where_a_bit_is_set(case):
    bits, widths, ids = case
    p = packed(bits, widths, ids)
    assert p.signs().dtype == np.int8
    assert (p.signs() == np.where(bits, 1, -1)).all()
    assert (len(p), p.width) == bits.shape


@given(case=cases())
@patient
def test_an_array_of_patterns_is_their_signs_as_booleans(case):
    bits, widths, ids = case
    p = packed(bits, widths, ids)
    found = np.asarray(p)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, bits)
    np.testing.assert_array_equal(np.array(p, dtype=np.float32), bits.astype(np.float32))


def test_patterns_have_no_array_without_a_copy(p):
    with pytest.raises(ValueError, match="unpacking them into an array needs a copy"):
        np.array(p, copy=False)


@given(case=cases(), data=st.data())
@patient
def test_slicing_picks_rows_as_an_array_would_and_keeps_their_ids(case, data):
    bits, widths, ids = case
    p, count = packed(bits, widths, ids), len(bits)
    bound = st.none() | st.integers(-15, 15)
    rows = data.draw(
        st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, -1, -3]))
        | st.lists(st.booleans(), min_size=count, max_size=count).map(lambda mask: np.array(mask, bool))
        | (st.lists(st.integers(-count, count - 1), max_size=9) if count else st.just([]))
    )
    plain = rows if not isinstance(rows, list) else np.array(rows, int)
    q = p[rows]
    assert (q.signs() == np.where(bits, 1, -1)[plain]).all()
    assert q.ids.tolist() == p.ids[plain].tolist()
    assert q.layers == p.layers


@given(case=cases(least=1), data=st.data())
@patient
def test_one_row_is_patterns_of_one_point(case, data):
    bits, widths, ids = case
    p = packed(bits, widths, ids)
    row = data.draw(st.integers(-len(bits), len(bits) - 1))
    assert (p[row].signs() == np.where(bits, 1, -1)[[row]]).all()
    assert p[np.int64(row)].equals(p[torch.tensor(row)])
    assert p[row].ids.tolist() == [p.ids[row].item()]


@given(case=cases(), cut=st.integers(0, 12))
@patient
def test_parts_that_are_joined_again_are_the_whole(case, cut):
    bits, widths, _ = case
    p = packed(bits, widths)
    assert Patterns.concatenate([p[:cut], p[cut:]]).equals(p)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (12, "index 12 is out of bounds"),
        ([0, -13], "index -13 is out of bounds"),
        ([True] * 5, r"a mask needs one boolean for each of the 12 points, got the shape \(5,\)"),
        ([0.5], "rows must be an integer, a slice, integers or booleans, got float64"),
        ("act", "rows must be an integer, a slice, integers or booleans"),
        ([[0, 1]], "rows must be an integer, a slice"),
        ((0, 1), "patterns are indexed by rows alone; choose a layer by its name"),
    ],
)
def test_rows_that_are_not_there_are_refused(p, rows, message):
    with pytest.raises(IndexError, match=message):
        p[rows]


def test_patterns_can_be_gone_through_point_by_point(p):
    assert [one.ids.item() for one in p] == p.ids.tolist()


def test_a_layer_is_patterns_of_its_own(p):
    ends = np.cumsum([layer.width for layer in p.layers])
    for layer, end in zip(p.layers, ends, strict=True):
        part = p.layer(layer.name)
        assert part.layers == (layer,)
        assert (part.signs() == p.signs()[:, end - layer.width : end]).all()
        assert part.ids.tolist() == p.ids.tolist()


def test_a_layer_that_is_not_there_is_refused_with_those_that_are(p):
    with pytest.raises(ValueError, match="there is no layer 'act#3'; there are 'act', 'act#2', 'pool', 'relu\\(\\)'"):
        p.layer("act#3")


def test_what_patterns_are_is_said_in_a_line(p):
    assert repr(p) == "Patterns(12 points, 4 layers, 547 bits per point)"
    assert repr(p[0].layer("act")) == "Patterns(1 point, 1 layer, 180 bits per point)"


def test_patterns_are_equal_if_layers_ids_and_bits_are(p):
    assert p.equals(p[:])
    assert not p.equals(p[::-1])
    assert not p.equals(p.layer("act"))
    assert not p.equals(Patterns(p.layers, p.packed, np.arange(12)))
    assert not p.equals(Patterns(p.layers, p.packed ^ 128, p.ids))


def test_patterns_of_the_same_points_may_be_compared(p):
    check_same_points(p, p.layer("act"))
    check_same_points(p[::2], p.layer("pool")[::2])
    check_same_points(packed(BITS, [2], np.arange(3, dtype=np.uint8)), packed(BITS, [1, 1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p[:5], "the patterns are of different points: 12 of them against 5"),
        (lambda p: p[::-1], "12 of 12 ids differ, the first at row 0: 'point 0' against 'point 11'"),
        (
            lambda p: p[[0, 1, 2, 4, 3, *range(5, 12)]],
            "2 of 12 ids differ, the first at row 3: 'point 3' against 'point 4'",
        ),
        (lambda p: Patterns(p.layers, p.packed), "12 of 12 ids differ, the first at row 0: 'point 0' against 0"),
    ],
)
def test_patterns_of_other_points_cannot_be_compared(p, change, message):
    with pytest.raises(ValueError, match=message):
        check_same_points(p, change(p))


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (lambda p: [p], "ids must be unique, but 'point 0' occurs more than once"),
        (lambda p: [p.layer("act")], r"different layers: act \(relu, 180\), .* against act \(relu, 180\)$"),
        (lambda p: [Patterns(p.layers, p.packed)], "some of the ids to concatenate are words and some are numbers"),
    ],
)
def test_patterns_that_do_not_fit_cannot_be_joined(p, others, message):
    with pytest.raises(ValueError, match=message):
        Patterns.concatenate([p, *others(p)])


def test_joining_nothing_is_refused():
    with pytest.raises(ValueError, match="concatenating needs at least one Patterns, got none"):
        Patterns.concatenate([])


def test_points_that_come_twice_can_be_joined_under_new_ids(p):
    both = Patterns.concatenate([p, p], ids=range(24))
    assert both.ids.tolist() == list(range(24))
    assert (both.packed[:12] == both.packed[12:]).all()


@pytest.mark.parametrize(
    ("bits", "ids", "message"),
    [
        (np.zeros((2, 3), np.uint8), None, r"packed must be uint8 of shape \(n, 2\), got uint8 of shape \(2, 3\)"),
        (np.zeros((2, 2)), None, r"packed must be uint8 of shape \(n, 2\), got float64"),
        (np.zeros(2, np.uint8), None, r"got uint8 of shape \(2,\)"),
        (np.zeros((2, 2), np.uint8), np.arange(3), r"there are 2 points, but the ids have the shape \(3,\)"),
    ],
)
def test_bytes_and_ids_that_do_not_fit_the_layers_are_refused(bits, ids, message):
    with pytest.raises(ValueError, match=message):
        Patterns((Layer("act", 9, "relu"),), bits, ids)


@given(case=cases(), shard=st.integers(1, 200), verify=st.booleans())
@patient
def test_what_was_saved_is_loaded(case, shard, verify, tmp_path_factory):
    bits, widths, ids = case
    p = packed(bits, widths, ids)
    path = tmp_path_factory.mktemp("saved") / "deep" / "patterns"
    p.save(path, shard_bytes=shard)
    q = Patterns.load(path, verify=verify)
    assert len(q) == len(p)
    assert q.equals(p)
    assert q.layers == p.layers
    assert q.ids.tolist() == p.ids.tolist()


@given(case=cases(least=1), shard=st.integers(1, 200), data=st.data())
@patient
def test_rows_and_layers_of_loaded_patterns_are_those_of_the_saved(case, shard, data, tmp_path_factory):
    bits, widths, ids = case
    p = packed(bits, widths, ids)
    path = tmp_path_factory.mktemp("saved") / "patterns"
    p.save(path, shard_bytes=shard)
    q = Patterns.load(path)
    count, bound = len(p), st.none() | st.integers(-15, 15)
    rows = data.draw(
        st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, -1]))
        | st.lists(st.booleans(), min_size=count, max_size=count).map(lambda mask: np.array(mask, bool))
        | st.lists(st.integers(-count, count - 1), max_size=9)
        | st.integers(-count, count - 1)
    )
    assert q[rows].equals(p[rows])
    assert q.layer("layer0")[rows].equals(p.layer("layer0")[rows])
    again = path.with_name("again")
    q.save(again, shard_bytes=shard + 7)
    assert Patterns.load(again).equals(p)


def test_loading_maps_the_files_and_reads_no_row(p, tmp_path):
    p.save(tmp_path / "one")
    p.save(tmp_path / "many", shard_bytes=500)
    assert is_mapped(Patterns.load(tmp_path / "one").packed)
    q = Patterns.load(tmp_path / "many")
    assert isinstance(q._packed, Shards)
    assert len(q._packed.parts) > 2
    assert all(is_mapped(part) for part in q._packed.parts)
    assert is_mapped(q[:2].packed)
    assert isinstance(q.layer("act")._packed, Shards)
    assert isinstance(q[1:11]._packed, Shards)
    assert q.equals(p)


def is_mapped(array) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


def test_writing_into_loaded_patterns_leaves_the_file_alone(p, tmp_path):
    p.save(tmp_path / "saved")
    torch.from_numpy(Patterns.load(tmp_path / "saved").packed).zero_()
    assert Patterns.load(tmp_path / "saved", verify=True).equals(p)


def test_a_row_of_loaded_patterns_that_is_not_there_is_refused(p, tmp_path):
    p.save(tmp_path / "saved", shard_bytes=500)
    for rows in (12, [3, -13]):
        with pytest.raises(IndexError, match=r"there are 12 points, but row (12|-13) was asked for"):
            Patterns.load(tmp_path / "saved")[rows]


def test_nothing_that_is_there_is_overwritten(p, tmp_path):
    path = tmp_path / "saved"
    p.save(path)
    with pytest.raises(StoreError, match=r"cannot save the patterns to .*saved: the path already exists"):
        p[:2].save(path)
    assert Patterns.load(path).equals(p)


def test_a_disk_that_is_full_leaves_nothing_behind(p, tmp_path, monkeypatch):
    def write(path, *chunks):
        if path.name == storage.INDEX:
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(b"".join(chunks))

    monkeypatch.setattr(storage, "write", write)
    with pytest.raises(StoreError, match=r"cannot save the patterns to .*: the disk is full"):
        p.save(tmp_path / "saved", shard_bytes=500)
    assert list(tmp_path.iterdir()) == []


def test_ids_that_are_neither_numbers_nor_words_cannot_be_saved(p, tmp_path):
    with pytest.raises(ValueError, match="ids must be whole numbers or words to be saved, got float64"):
        Patterns(p.layers, p.packed, np.arange(12) / 2).save(tmp_path / "saved")


FIRST = "shard-00000.safetensors"


def edit_index(path, **changes):
    """Change the index as somebody would who knows the format: its SHA-256 fits again."""
    file = path / storage.INDEX
    index = {**json.loads(file.read_text()), **changes}
    file.write_bytes(storage.sealed({name: one for name, one in index.items() if name not in ("format", "sha256")}))


def edit_layer(path, **changes):
    layers = json.loads((path / storage.INDEX).read_text())["layers"]
    edit_index(path, layers=[{**layers[0], **changes}, *layers[1:]])


def edit_shard(path, **changes):
    shards = json.loads((path / storage.INDEX).read_text())["shards"]
    edit_index(path, shards=[{**shards[0], **changes}, *shards[1:]])


def flip_last_byte(path):
    data = bytearray((path / FIRST).read_bytes())
    data[-1] ^= 1
    (path / FIRST).write_bytes(data)


def scramble_header(path):
    data = (path / FIRST).read_bytes()
    (path / FIRST).write_bytes(data[:8] + b"?" * (len(data) - 8))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.rename(path.with_name("elsewhere")), "index.json: missing"),
        (lambda path: (path / storage.INDEX).unlink(), "index.json: missing"),
        (lambda path: (path / storage.INDEX).write_text("{"), "index.json: not JSON"),
        (lambda path: (path / storage.INDEX).write_text("[]"), "index.json: not an index of patterns"),
        (
            lambda path: (path / storage.INDEX).write_text('{"format": "another"}'),
            "index.json: not an index of patterns",
        ),
        (
            lambda path: (path / storage.INDEX).write_text(
                (path / storage.INDEX).read_text().replace('"points": 12', '"points": 13')
            ),
            "index.json: edited: its content does not match its SHA-256",
        ),
        *(
            (lambda path, change=change: edit_layer(path, **change), "index.json: a layer or a shard is not valid.*")
            for change in (
                {"width": -8},
                {"width": 10**400},
                {"width": True},
                {"bits_per_unit": 0},
                {"bits_per_unit": -1},
                {"shape": [-1]},
                {"shape": ["x"]},
                {"shape": [2**70]},
                {"shape": [1]},
            )
        ),
        (lambda path: edit_shard(path, file="../saved/" + FIRST), "index.json: a layer or a shard is not valid.*"),
        (lambda path: edit_shard(path, file="\0"), "index.json: a layer or a shard is not valid.*"),
        (lambda path: edit_index(path, layers=[{"name": "act"}]), "index.json: fields are missing"),
        (lambda path: edit_index(path, shards=[]), "index.json: fields are missing"),
        (lambda path: edit_index(path, points=5), "index.json lists 5 points, its shards hold 12"),
        (lambda path: edit_shard(path, points=1), f"{FIRST}: expected 1 points of 70 bytes"),
        (lambda path: (path / FIRST).unlink(), f"{FIRST}: missing"),
        (lambda path: (path / FIRST).write_bytes(b"short"), f"{FIRST}: it has 5 bytes, [0-9]+ were written"),
        (scramble_header, f"{FIRST}: not safetensors"),
        (flip_last_byte, f"{FIRST}: its content is not what was written"),
    ],
)
def test_what_is_damaged_or_missing_is_said_in_one_sentence(p, tmp_path, damage, message):
    path = tmp_path / "saved"
    p.save(path, shard_bytes=500)
    damage(path)
    with pytest.raises(StoreError, match=f"^cannot load the patterns from .*saved: {message}$"):
        Patterns.load(path, verify=True)


ENTRY = {"dtype": "U8", "shape": [12, 70], "data_offsets": [0, 840]}
HEADERS = [
    [], 3, None, "words", {"packed": 3}, {"packed": []}, {"packed": {**ENTRY, "shape": 3}},
    {"packed": {**ENTRY, "shape": [2**63, 2**63]}}, {"packed": {**ENTRY, "shape": [-1, 70]}},
    {"packed": {**ENTRY, "data_offsets": []}}, {"packed": {**ENTRY, "data_offsets": [-8, 832]}},
    {"packed": {**ENTRY, "data_offsets": [0, 10**30]}}, {"packed": {**ENTRY, "dtype": "F8"}},
    {"packed": {**ENTRY, "dtype": None}}, {"packed": ENTRY, "ids": ENTRY}, {"__metadata__": 3},
]  # fmt: skip


def with_header(path, header):
    """Give a shard another header of the same length, as far as it fits."""
    data = (path / FIRST).read_bytes()
    length = int.from_bytes(data[:8], "little")
    text = json.dumps(header).encode()
    (path / FIRST).write_bytes(data[:8] + text.ljust(length)[:length] + data[8 + length :])


@pytest.mark.parametrize("header", HEADERS, ids=repr)
def test_a_hostile_header_is_one_sentence(p, tmp_path, header):
    p.save(tmp_path / "saved")
    with_header(tmp_path / "saved", header)
    with pytest.raises(StoreError, match=rf"^cannot load the patterns from .*saved: {FIRST}: "):
        Patterns.load(tmp_path / "saved")


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_whatever_a_header_holds_is_one_sentence_or_the_patterns_that_were_saved(p, tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzzed") / "saved"
    p.save(path)
    content = bytearray((path / FIRST).read_bytes())
    end = 8 + int.from_bytes(content[:8], "little")
    for place in data.draw(st.lists(st.integers(0, end - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    (path / FIRST).write_bytes(content)
    try:
        found = Patterns.load(path).packed
    except (StoreError, ValueError):
        return
    assert found.shape == p.packed.shape


def test_an_index_without_a_hash_of_its_own_is_still_read(p, tmp_path):
    p.save(tmp_path / "saved")
    file = tmp_path / "saved" / storage.INDEX
    index = json.loads(file.read_text())
    del index["sha256"]
    file.write_text(json.dumps({**index, "format": "metriscope patterns 1"}))
    assert Patterns.load(tmp_path / "saved", verify=True).equals(p)


def test_bits_outside_of_the_layers_change_no_distance(tmp_path):
    p = Patterns((Layer("act", 3, "relu"), Layer("pool", 8, "relu")), np.array([[0b10111111, 1], [0, 2]], np.uint8))
    sentence = "layer 'act' has 3 bits per point, but bits beyond them are set"
    with pytest.raises(ValueError, match=sentence):
        vq_kernel(p)
    with pytest.raises(ValueError, match=sentence):
        p.signs()
    assert vq_kernel(p.layer("pool")).tolist() == [[0, 2], [2, 0]]
    assert vq_kernel(p[1:]).tolist() == [[0]]
    p.save(tmp_path / "saved", shard_bytes=1)
    with pytest.raises(ValueError, match=sentence):
        Patterns.load(tmp_path / "saved", verify=True)
    with pytest.raises(ValueError, match=sentence):
        vq_kernel(Patterns.load(tmp_path / "saved"))
