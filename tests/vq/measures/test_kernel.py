from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.vq import Layer, Patterns, vq_blocks, vq_kernel
from metriscope.vq.measures.kernel import layer_weights
from vq.measures.cases import clouds, columns, distances, module, patient, signs
from vq.units.cases import hamming, layered, patterns

kernel = module("kernel")


@patient
@given(drawn=layered())
def test_the_kernel_counts_the_units_on_different_sides(drawn):
    bits, widths = drawn
    found = vq_kernel(patterns(bits, widths))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, hamming(bits, bits))


@pytest.mark.parametrize("widths", [(13,), (5, 21, 1, 9), (130, 70), (1300, 33)])
def test_distances_are_a_quarter_of_squared_distances_of_signs(widths):
    p, q = clouds(30, widths), clouds(17, widths, seed=1)
    np.testing.assert_array_equal(vq_kernel(p), distances(signs(p)))
    np.testing.assert_array_equal(vq_kernel(p, q), distances(signs(p), signs(q)))


@pytest.mark.parametrize("worth", [0, 10**9], ids=["half and mirrored", "all"])
@pytest.mark.parametrize("widths", [(40,), (1500,)])
def test_a_symmetric_kernel_is_the_same_in_tiles_of_any_size(monkeypatch, worth, widths):
    monkeypatch.setattr(kernel, "_WORTH_MIRRORING", worth)
    monkeypatch.setattr(kernel, "_TILE", 24)
    monkeypatch.setattr(kernel, "_FEWEST", 7)
    p = clouds(61, widths)
    np.testing.assert_array_equal(vq_kernel(p), hamming(p.signs(), p.signs()))


WEIGHTS = {
    "a sequence": (lambda p: [2.0, 0.5, 0.0, 1.0], [2.0, 0.5, 0.0, 1.0]),
    "by name": (lambda p: {layer.name: 1.0 + i for i, layer in enumerate(p.layers)}, [1, 2, 3, 4]),
    "all the same": (lambda p: [3, 3, 3, 3], [3, 3, 3, 3]),
    "mean": (lambda p: "mean", [1 / (4 * width) for width in (5, 21, 1, 9)]),
}


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("device", [None, "cpu"])
def test_weights_scale_columns_of_signs_by_their_roots(name, device):
    p, q = clouds(30, (5, 21, 1, 9)), clouds(18, (5, 21, 1, 9), seed=1)
    given_weights, values = WEIGHTS[name][0](p), WEIGHTS[name][1]
    expected = distances(columns(p, values), columns(q, values))
    found = vq_kernel(p, q, weights=given_weights, device=device)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)
    itself = distances(columns(p, values))
    np.testing.assert_allclose(vq_kernel(p, weights=given_weights, device=device), itself, rtol=1e-13, atol=1e-13)


def test_mean_weights_average_the_share_of_differing_units_over_layers():
    p = clouds(20, (8, 40))
    shares = [vq_kernel(p.layer(layer.name)) / layer.width for layer in p.layers]
    np.testing.assert_allclose(vq_kernel(p, weights="mean"), np.mean(shares, axis=0), rtol=1e-13)
    assert vq_kernel(p, weights="mean").max() <= 1


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("block", [1, 7, 30, 1000])
@pytest.mark.parametrize("weights", [None, "mean", [1, 2]])
def test_blocks_are_rows_of_the_kernel_in_order(block, weights, device):
    p, q = clouds(30, (9, 30)), clouds(11, (9, 30), seed=1)
    for other in (None, q):
        whole = vq_kernel(p, other, weights)
        found = list(vq_blocks(p, other, block, weights, device))
        assert [rows.start for rows, _ in found] == list(range(0, 30, block))
        assert all(len(part) == rows.stop - rows.start and part.dtype == whole.dtype for rows, part in found)
        np.testing.assert_allclose(np.concatenate([part for _, part in found]), whole, rtol=1e-13)


def test_products_of_signs_on_a_device_are_the_same_integers():
    p, q = clouds(30, (5, 130, 20)), clouds(12, (5, 130, 20), seed=1)
    for other in (None, q):
        found = vq_kernel(p, other, device="cpu")
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, vq_kernel(p, other))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, "int64"])
@pytest.mark.parametrize("widths", [(120,), (5, 66)])
def test_a_smaller_type_holds_the_same_distances(dtype, widths):
    p = clouds(30, widths)
    found = vq_kernel(p, dtype=dtype)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, vq_kernel(p))


def test_very_wide_patterns_get_a_type_that_holds_their_squares():
    p = patterns(np.random.default_rng(0).integers(0, 2, (3, 46_341)))
    found = vq_kernel(p)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, hamming(p.signs(), p.signs()))


def test_no_points_make_an_empty_kernel():
    p = clouds(5, (9, 2))
    for widths in ((9, 2), (1300, 2)):
        p = clouds(5, widths)
        assert vq_kernel(p[:0], p).shape == (0, 5)
        assert vq_kernel(p, p[:0]).shape == (5, 0)
        assert vq_kernel(p[:0]).shape == (0, 0)
    assert list(vq_blocks(p[:0])) == []


@given(rows=st.permutations(range(12)))
@patient
def test_a_kernel_is_read_from_any_slice_of_patterns(rows):
    p = clouds(12, (9, 30))
    np.testing.assert_array_equal(vq_kernel(p[np.array(rows)], p[2:5]), vq_kernel(p)[rows][:, 2:5])


def test_weights_default_to_one_for_every_layer():
    assert layer_weights(clouds(2, (3, 4)).layers, None).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("median", r"weights must be one number per layer or \"mean\", got 'median'"),
        ([1.0], r"weights must have the shape \(2,\), got \(1,\)"),
        (3.0, r"weights must have the shape \(2,\), got \(\)"),
        ({"layer0": 1.0}, r"weights must name the layers \['layer0', 'layer1'\], got \['layer0'\]"),
        ({"layer0": 1, "layer1": 1, "x": 1}, r"got \['layer0', 'layer1', 'x'\]"),
        ([1.0, -1.0], r"weights must not be negative, got -1.0"),
        ([1.0, np.nan], "weights must be finite, got 1 NaN or infinite of 2 entries"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, message):
    p = clouds(4, (5, 6))
    with pytest.raises(ValueError, match=message):
        vq_kernel(p, weights=weights)
    with pytest.raises(ValueError, match=message):
        vq_blocks(p, weights=weights)


def test_distances_between_different_layers_are_refused():
    message = r"the same layers on both sides, got \[\('layer0', 5\)\] and \[\('layer0', 6\)\]"
    with pytest.raises(ValueError, match=message):
        vq_kernel(clouds(4, (5,)), clouds(4, (6,)))
    with pytest.raises(ValueError, match=message):
        vq_blocks(clouds(4, (5,)), clouds(4, (6,)))


def test_a_block_without_rows_is_refused():
    with pytest.raises(ValueError, match="block must be a positive integer, got 0"):
        vq_blocks(clouds(4, (5,)), block=0)


@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_a_type_that_cannot_hold_the_distances_is_refused(dtype):
    with pytest.raises(ValueError, match="an integer type that holds distances up to 130, got"):
        vq_kernel(clouds(4, (130,)), dtype=dtype)


def test_weighted_distances_of_another_type_are_refused():
    with pytest.raises(ValueError, match="weighted distances are float64; dtype=int16 is for distances without"):
        vq_kernel(clouds(4, (5,)), weights="mean", dtype=np.int16)


def test_a_kernel_too_large_to_hold_names_its_size_and_vq_blocks(monkeypatch):
    p = Patterns((Layer("act", 8, "relu"),), np.zeros((1000, 1), np.uint8))
    monkeypatch.setattr(kernel, "_memory", lambda: 3e6)
    with pytest.raises(
        MemoryError, match=r"1,000 x 1,000 points take 0.0 GB, .* vq_blocks gives them in blocks of rows"
    ):
        vq_kernel(p)
    assert vq_kernel(p, dtype=np.uint8).shape == (1000, 1000)


@pytest.mark.parametrize("weights", [None, "mean"])
def test_a_kernel_is_written_where_it_is_asked_to(tmp_path, weights):
    rows = np.random.default_rng(0).integers(0, 256, (30, 400), dtype=np.uint8)
    p = Patterns((Layer("a", 1600, "relu"), Layer("b", 1600, "relu")), rows)
    dtype = np.int16 if weights is None else np.float64
    out = np.memmap(tmp_path / "kernel", dtype, "w+", shape=(30, 30))
    assert vq_kernel(p, weights=weights, out=out) is out
    np.testing.assert_array_equal(out, vq_kernel(p, weights=weights))


def test_a_place_of_another_shape_or_type_is_refused():
    p = Patterns((Layer("act", 8, "relu"),), np.zeros((3, 1), np.uint8))
    with pytest.raises(ValueError, match=r"out must be a writeable array of shape \(3, 3\), got one of shape \(3, 2\)"):
        vq_kernel(p, out=np.empty((3, 2), np.int32))
    with pytest.raises(ValueError, match="dtype must be an integer type"):
        vq_kernel(p, out=np.empty((3, 3), np.float32))
