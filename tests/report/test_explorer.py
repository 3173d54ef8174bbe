"""The explorer's page as text: one file, a strict policy, data that say what the scenes say, plain errors."""

import json
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import colormaps

from metriscope.report.explorer import Scene, explorer_page
from metriscope.report.explorer.web_page import encode, pack_signs, script, style


def chessboard(size, widths=(3, 2), **choices):
    """Return a square of size x size squares; every one has a pattern drawn for it."""
    ticks = np.linspace(-1, 1, size + 1)
    vertices = np.stack(np.meshgrid(ticks, ticks), -1).reshape(-1, 2)
    left = (np.arange(size)[:, None] * (size + 1) + np.arange(size)).ravel()
    corners = np.stack([left, left + 1, left + size + 2, left + size + 1], 1).ravel()
    signs = np.random.default_rng(0).choice(np.array([-1, 1], np.int8), (size**2, sum(widths)))
    layers = tuple((f"layer {i + 1}", width) for i, width in enumerate(widths))
    starts = np.arange(0, 4 * size**2 + 1, 4)
    words = choices or {"state": "trained"}
    return Scene(words, ((-1, 1), (-1, 1)), vertices, corners, starts, signs, layers, vertices[:4], np.arange(4) % 2)


@pytest.fixture(scope="module")
def document():
    return explorer_page([chessboard(3, state="initial"), chessboard(4, state="trained")], "A <title>")


def data_of(document):
    return json.loads(re.search(r'id="data">(.*?)</script>', document, re.DOTALL)[1])


def array_of(record, name):
    kind, text = record[name]
    return np.frombuffer(b64decode(text), f"<{kind}")


def test_the_page_needs_no_network(document):
    assert document.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?://|@import|url\(|\bsrc=|fetch\(|XMLHttpRequest|WebSocket", document)


def test_the_policy_lets_the_one_script_run_and_nothing_else(document):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', document)[1]
    (inline,) = re.findall(r"<script>(.*?)</script>", document, re.DOTALL)
    digest = b64encode(sha256(inline.encode()).digest()).decode()
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == "'unsafe-inline'"
    assert rules["img-src"] == "data:"
    assert rules["script-src"] == f"'sha256-{digest}'"


def test_the_same_scenes_give_the_same_bytes(document):
    again = explorer_page([chessboard(3, state="initial"), chessboard(4, state="trained")], "A <title>")
    assert again == document


def test_the_data_hold_what_the_scene_holds(document):
    scene, record = chessboard(4, state="trained"), data_of(document)["scenes"][1]
    assert record["choices"] == {"state": "trained"}
    assert record["layers"] == [["layer 1", 3], ["layer 2", 2]]
    assert record["bounds"] == [[-1, 1], [-1, 1]]
    np.testing.assert_array_equal(array_of(record, "vertices").reshape(-1, 2), scene.vertices.astype(np.float32))
    for name in ("corners", "starts", "labels"):
        np.testing.assert_array_equal(array_of(record, name), getattr(scene, name))
    assert array_of(record, "patterns").size == 2 * 16


def test_the_colors_are_matplotlib_s_viridis(document):
    expected = [round(255 * part) for part in colormaps["viridis"](0.0)]
    found = array_of(data_of(document), "palette").reshape(256, 4)
    assert found[0].tolist() == expected == [68, 1, 84, 255]
    assert (found[:, 3] == 255).all()


@given(data=st.data(), widths=st.lists(st.integers(1, 70), min_size=1, max_size=4), rows=st.integers(1, 5))
def test_words_that_differ_in_n_bits_are_patterns_that_differ_in_n_units(data, widths, rows):
    bits = st.lists(st.sampled_from([-1, 1]), min_size=sum(widths), max_size=sum(widths))
    signs = np.array([data.draw(bits) for _ in range(rows)], np.int8)
    words = pack_signs(signs, widths)
    assert words.shape == (rows, sum(-(-width // 32) for width in widths))
    for row, other in zip(words, signs, strict=True):
        distance = sum(int(a ^ b).bit_count() for a, b in zip(row.tolist(), words[0].tolist(), strict=True))
        assert distance == (other != signs[0]).sum()


@given(values=st.lists(st.integers(0, 2**32 - 1)))
def test_whole_numbers_survive_in_the_smallest_kind(values):
    kind, text = encode(np.array(values, np.int64))
    assert np.frombuffer(b64decode(text), f"<{kind}").tolist() == values
    assert (kind == "u2") == (max(values, default=0) < 2**16)


def test_a_page_of_sixteen_scenes_stays_under_two_megabytes():
    scenes = [chessboard(39, (32, 32, 32), seed=str(seed)) for seed in range(16)]
    assert len(explorer_page(scenes).encode()) < 2_000_000


@pytest.mark.parametrize("evil", ["</script><script>alert(1)</script>", "<!--<script>", "\u2028'\"&"])
def test_words_never_end_a_block_or_begin_a_tag(evil):
    safe, document = explorer_page([chessboard(2, a="b")]), explorer_page([chessboard(2, **{evil: evil})], evil)
    assert [document.count(tag) for tag in ("<script", "</script", "<!--")] == [
        safe.count(tag) for tag in ("<script", "</script", "<!--")
    ]
    assert data_of(document)["scenes"][0]["choices"] == {evil: evil}


def test_the_script_cannot_end_itself_early():
    assert "</" not in script()
    assert "<!--" not in script()


def test_light_and_dark_are_the_report_s_own():
    assert "--paper: #fbfaf7" in style()
    assert "--paper: #14171b" in style()
    assert style().count("{") == style().count("}")


@given(size=st.integers(1, 6))
def test_a_board_of_n_by_n_has_equal_areas_and_two_n_times_n_minus_one_shared_edges(size):
    scene = chessboard(size)
    np.testing.assert_allclose(scene.mesh.areas, 4 / size**2)
    assert len(scene.mesh.sides.left) == 2 * size * (size - 1)


def torn():
    """Return two halves of the square that meet, but share no vertices."""
    left = np.array([[-1, -1], [0, -1], [0, 1], [-1, 1]])
    return {
        "vertices": np.concatenate([left, left + np.array([1, 0])]).astype(float),
        "corners": np.arange(8),
        "starts": np.array([0, 4, 8]),
        "signs": np.ones((2, 5), np.int8),
    }


BOARD = chessboard(2)
FAULTS = {
    "turned over": ({"corners": BOARD.corners[::-1]}, "tile the square counter-clockwise, got -1 of its area"),
    "a piece missing": (
        {"corners": BOARD.corners[:12], "starts": BOARD.starts[:4], "signs": BOARD.signs[:3]},
        "tile the square counter-clockwise, got 0.75 of its area",
    ),
    "out of range": ({"corners": BOARD.corners + 1}, "number the 9 vertices, got 1 to 9"),
    "below the range": ({"corners": BOARD.corners - 1}, "number the 9 vertices, got -1 to 7"),
    "fractions": ({"corners": BOARD.corners * 1.0}, "flat integers, got float64"),
    "short starts": ({"starts": BOARD.starts[:-1]}, "run from 0 to the 16 corners, got 0 to 12"),
    "two corners": ({"starts": np.array([0, 2, 8, 12, 16])}, "3 corners or more, got one with 2"),
    "no regions": ({"starts": np.array([0])}, "run from 0 to the 16 corners, got 1 of them"),
    "flat vertices": ({"vertices": BOARD.vertices.ravel()}, r"shape \(V, 2\), got the shape \(18,\)"),
    "nowhere": ({"vertices": BOARD.vertices * np.nan}, "vertices must be finite"),
    "signs of others": ({"signs": BOARD.signs[:3]}, r"shape \(4, 5\) \(regions, units\), got \(3, 5\)"),
    "signs of bits": ({"signs": np.zeros((4, 5), np.int8)}, r"\+1 or -1, got \[0\]"),
    "no layers": ({"layers": ()}, r"a width of 1 or more, got \(\)"),
    "labels": ({"labels": np.arange(3)}, r"3 labels need points of shape \(3, 2\), got \(4, 2\)"),
    "high labels": ({"labels": np.arange(4) + 255}, "within 0 and 255, got 255 to 258"),
    "points": ({"points": np.full((4, 2), np.inf)}, "points must be finite, got 8 numbers"),
    "bounds": ({"bounds": ((-1, 1), (-1, 2))}, r"must be a square .* got \(\(-1, 1\), \(-1, 2\)\)"),
    "words": ({"choices": {"depth": 3}}, "words for words, got {'depth': 3}"),
    "torn": (torn(), "share the two vertices of their edge, got 2 pieces"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_scene_that_cannot_be_drawn_is_refused_in_one_sentence(name):
    changes, sentence = FAULTS[name]
    with pytest.raises(ValueError, match=sentence):
        replace(BOARD, **changes)


def test_an_edge_of_three_polygons_is_refused():
    twice = np.concatenate([BOARD.corners, BOARD.corners[:4], BOARD.corners[:4][::-1]])
    with pytest.raises(ValueError, match="2 polygons at most, got one that belongs to 4"):
        replace(BOARD, corners=twice, starts=np.arange(0, 25, 4), signs=np.ones((6, 5), np.int8))


@pytest.mark.parametrize(
    ("scenes", "sentence"),
    [
        ([], "at least one scene, got none"),
        ([chessboard(2, a="x"), chessboard(2, b="x")], r"must name its \['a'\], got one with \['b'\]"),
        ([chessboard(2, a="x"), chessboard(3, a="x")], "choices of its own, got {'a': 'x'} twice"),
    ],
    ids=["none", "other keys", "twice"],
)
def test_scenes_that_a_page_cannot_tell_apart_are_refused(scenes, sentence):
    with pytest.raises(ValueError, match=sentence):
        explorer_page(scenes)
