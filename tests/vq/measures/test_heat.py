from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.vq import Patterns, heat_cosine, pair_counts
from vq.measures.cases import clouds, module, patient
from vq.units.cases import hamming, patterns

heat = module("heat")
FORMS = {"distance": lambda d: d, "squared": np.square}
SCALES = np.array([0.01, 1.0, 7.5, 300.0])


def kernels(*both):
    return [hamming(p.signs(), p.signs()) for p in both]


def plain_cosine(first, second, scale, form):
    a, b = (np.exp(-FORMS[form](d.astype(np.float64)) / scale) for d in (first, second))
    return (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())


def small_tiles(monkeypatch):
    monkeypatch.setattr(heat, "_ROWS", 5)
    monkeypatch.setattr(heat, "_COLUMNS", 12)


@pytest.mark.parametrize("largest", [1 << 24, 0], ids=["from counts", "tile by tile"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("points", [1, 2, 47])
def test_the_cosine_is_that_of_the_kernels_written_out(monkeypatch, form, points, largest):
    small_tiles(monkeypatch)
    monkeypatch.setattr(heat, "LARGEST", largest)
    p, q = clouds(points, (9, 14)), clouds(points, (33, 5, 2), seed=1)
    expected = [plain_cosine(*kernels(p, q), scale, form) for scale in SCALES]
    np.testing.assert_allclose(heat_cosine(p, q, SCALES, form), expected, rtol=1e-12)


@patient
@given(points=st.integers(1, 40), widths=st.sampled_from([(3,), (9, 14), (130,)]), seed=st.integers(0, 99))
def test_pairs_are_counted_in_both_orders_with_every_point_beside_itself(points, widths, seed):
    p, q = clouds(points, widths, seed), clouds(points, (6, 5), seed + 1)
    first, second = kernels(p, q)
    expected = np.zeros((p.width + 1, q.width + 1), np.int64)
    np.add.at(expected, (first.ravel(), second.ravel()), 1)
    found = pair_counts(p, q)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


def test_counts_do_not_depend_on_tiles_or_threads(monkeypatch):
    p, q = clouds(100, (9, 14)), clouds(100, (20,), seed=1)
    whole = pair_counts(p, q)
    small_tiles(monkeypatch)
    for workers in (1, 2, 5):
        monkeypatch.setattr(heat, "workers_available", lambda workers=workers: workers)
        np.testing.assert_array_equal(pair_counts(p, q), whole)


def test_wide_tables_are_shared_by_fewer_threads(monkeypatch):
    p, q = clouds(60, (9, 14)), clouds(60, (20,), seed=1)
    whole = pair_counts(p, q)
    monkeypatch.setattr(heat, "_ALL_TABLES", 1)
    np.testing.assert_array_equal(pair_counts(p, q), whole)


def test_patterns_wide_enough_for_numkong_are_counted_alike():
    p, q = clouds(30, (1300,)), clouds(30, (6,), seed=1)
    first, second = kernels(p, q)
    np.testing.assert_allclose(heat_cosine(p, q, 400.0), [plain_cosine(first, second, 400.0, "distance")], rtol=1e-12)


def test_one_scale_gives_an_array_of_one_value():
    p, q = clouds(20, (9,)), clouds(20, (7,), seed=1)
    found = heat_cosine(p, q, 4.0)
    assert found.shape == (1,)
    assert found.dtype == np.float64
    # One scale and several are summed in another order: each sum of n positive terms is right to n eps, and the cosine
    # is made of three.
    rtol = 3 * (p.width + 1) * (q.width + 1) * np.finfo(np.float64).eps
    np.testing.assert_allclose(found, heat_cosine(p, q, [1.0, 4.0])[1:], rtol=rtol)
    np.testing.assert_array_equal(found, heat_cosine(p, q, 4.0))


@pytest.mark.parametrize("form", FORMS)
def test_a_network_is_fully_like_itself(form):
    p = clouds(30, (9, 14))
    np.testing.assert_allclose(heat_cosine(p, p, SCALES, form), 1, rtol=1e-13)


@pytest.mark.parametrize("form", FORMS)
def test_any_networks_look_alike_at_a_very_large_scale(form):
    p, q = clouds(30, (9, 14)), clouds(30, (40,), seed=1)
    assert heat_cosine(p, q, 1e12, form)[0] == pytest.approx(1, abs=1e-8)


def test_at_a_very_small_scale_only_equal_patterns_count():
    # Six points in groups of two and of three: kernels of ones on blocks, 4 x 3 and 9 x 2 of them, 6 in common.
    p = patterns(np.repeat(np.eye(3, 4, dtype=np.uint8), 2, axis=0))
    q = patterns(np.repeat(np.eye(2, 4, dtype=np.uint8), 3, axis=0))
    both = 4 + 4 + 2  # (0,1), (4,5) whole; of (2,3) only the diagonal, for 2 and 3 lie in different groups of q
    assert heat_cosine(p, q, 1e-3)[0] == pytest.approx(both / np.sqrt(12 * 18))


@pytest.mark.parametrize("sigma2", [0.0, -1.0, [1.0, 0.0], np.nan, np.inf, [[1.0]]])
def test_scales_that_are_not_positive_numbers_are_refused(sigma2):
    p = clouds(5, (9,))
    with pytest.raises(ValueError, match=r"sigma2 must (hold positive numbers|be finite|have the shape)"):
        heat_cosine(p, p, sigma2)


def test_an_unknown_form_is_refused():
    p = clouds(5, (9,))
    with pytest.raises(ValueError, match="form must be one of distance, squared, got 'cubed'"):
        heat_cosine(p, p, 1.0, "cubed")


def test_other_points_are_refused():
    p, q = clouds(5, (9,)), clouds(6, (9,))
    with pytest.raises(ValueError, match="the patterns are of different points: 5 of them against 6"):
        heat_cosine(p, q, 1.0)
    with pytest.raises(ValueError, match="the patterns are of different points: 5 of 5 ids differ"):
        pair_counts(p, Patterns(p.layers, p.packed, np.arange(5) + 10))


def test_no_points_are_refused():
    p = clouds(5, (9,))[:0]
    with pytest.raises(ValueError, match="comparing networks needs at least one point, got none"):
        heat_cosine(p, p, 1.0)
