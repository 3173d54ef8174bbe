from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.vq.measures import sign_products as module
from metriscope.vq.measures.sign_products import products_and_sums, project, sign_products, tables_of, unit_sums
from vq.measures.cases import patient

shapes = st.tuples(st.integers(1, 70), st.integers(1, 6), st.integers(1, 9))


def drawn(points, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (points, width), dtype=np.uint8)


def signs(packed):
    return np.unpackbits(packed, axis=1) * 2.0 - 1


def plain_products(s, t):
    return (s - s.mean(0)).T @ (t - t.mean(0))


@patient
@given(shape=shapes, seed=st.integers(0, 99))
def test_products_of_units_are_those_of_the_centered_signs(shape, seed):
    a, b = drawn(shape[0], shape[1], seed), drawn(shape[0], shape[2], seed + 1)
    np.testing.assert_allclose(products_and_sums(a).centered, plain_products(signs(a), signs(a)), atol=1e-9)
    np.testing.assert_allclose(products_and_sums(a, b).centered, plain_products(signs(a), signs(b)), atol=1e-9)


@pytest.mark.parametrize("at_once", [8, 64, 1 << 16])
@pytest.mark.parametrize("points", [63, 64, 65, 200])
def test_any_number_of_passes_adds_up_to_the_same(monkeypatch, at_once, points):
    monkeypatch.setattr(module, "_points_at_once", lambda _: at_once)
    a, b = drawn(points, 5), drawn(points, 3, 1)
    np.testing.assert_allclose(products_and_sums(a).centered, plain_products(signs(a), signs(a)), atol=1e-9)
    np.testing.assert_allclose(products_and_sums(a, b).centered, plain_products(signs(a), signs(b)), atol=1e-9)
    np.testing.assert_array_equal(unit_sums(a), signs(a).sum(0))


def test_products_of_many_units_are_symmetric_beyond_one_range_of_rows():
    a = drawn(40, 90)
    found = products_and_sums(a).centered
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, plain_products(signs(a), signs(a)), atol=1e-9)


@patient
@given(seed=st.integers(0, 99))
def test_rows_may_be_taken_in_any_order_and_more_than_once(seed):
    rng = np.random.default_rng(seed)
    a, b, rows, others = drawn(30, 3, seed), drawn(30, 2, seed + 1), rng.integers(0, 30, 50), rng.integers(0, 30, 50)
    expected = plain_products(signs(a)[rows], signs(b)[others])
    np.testing.assert_allclose(products_and_sums(a, b, (rows, others)).centered, expected, atol=1e-9)
    np.testing.assert_array_equal(unit_sums(a, rows), signs(a)[rows].sum(0))


def test_a_constant_unit_has_exactly_no_products():
    a = drawn(33, 2)
    a[:, 1] = 0b01100000
    assert (products_and_sums(a).centered[8:] == 0).all()


@patient
@given(points=st.integers(1, 100), width=st.integers(1, 9))
def test_bits_turned_over_are_packed_by_points(points, width):
    a = drawn(points, width)
    turned = np.packbits(np.unpackbits(a, axis=1).T, axis=1)
    np.testing.assert_array_equal(module._transposed(a), turned)
    np.testing.assert_array_equal(module._transposed(a, None), turned)


@pytest.mark.parametrize("count", [1, 15, 16, 100, 2304])
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_ranges_of_a_triangle_cover_it_in_about_equal_areas(count, parts):
    ranges = module._equal_areas(count, parts)
    assert [row for part in ranges for row in range(count)[part]] == list(range(count))
    areas = [sum(count - row for row in range(count)[part]) for part in ranges]
    assert max(areas) <= count * (count + 1) / 2 / parts + 32 * count


@pytest.mark.parametrize("components", [1, 3, 8, 11])
def test_looking_up_bytes_is_multiplying_signs(components):
    a, axes = drawn(50, 4), np.random.default_rng(0).normal(size=(32, components))
    np.testing.assert_allclose(project(a, tables_of(axes)), signs(a) @ axes, atol=1e-12)


def test_equal_patterns_project_to_equal_bits():
    a = np.repeat(drawn(3, 5), 2_000, axis=0)
    found = project(a, tables_of(np.random.default_rng(0).normal(size=(40, 3))))
    assert len(np.unique(found, axis=0)) == 3


@pytest.mark.parametrize("unpacked", [1, 300, 1 << 22])
def test_products_with_signs_are_the_same_in_blocks_of_any_size(monkeypatch, unpacked):
    monkeypatch.setattr(module, "_UNPACKED", unpacked)
    a, y = drawn(21, 3), np.random.default_rng(0).normal(size=(21, 2))
    np.testing.assert_allclose(sign_products(a, y), signs(a).T @ y, atol=1e-12)
