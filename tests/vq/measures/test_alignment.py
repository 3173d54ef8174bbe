from __future__ import annotations

from itertools import permutations as orders

import numpy as np
import pytest
from hypothesis import given

from metriscope.vq import Alignment, Patterns, alignment
from vq.measures.cases import aligned, centred, clouds, cloudy, module, patient, signs
from vq.units.cases import patterns

measure = module("alignment")
WAYS = ("_by_units", "_by_points")
FIRST, SECOND = (9, 14, 3), (33, 5)


def pair(points=40, seed=0):
    return clouds(points, FIRST, seed), clouds(points, SECOND, seed + 1)


def go(monkeypatch, way):
    """Take one way, whichever is the cheaper."""
    monkeypatch.setattr(measure, "_energies", getattr(measure, way))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("points", [2, 9, 150])
def test_the_value_is_the_cosine_of_the_centred_kernels(monkeypatch, way, points):
    go(monkeypatch, way)
    p, q = pair(points)
    assert alignment(p, q).value == pytest.approx(aligned(signs(p), signs(q)), rel=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_the_value_is_the_ratio_of_norms_of_products_of_units(monkeypatch, way):
    go(monkeypatch, way)
    p, q = pair()
    s, t = centred(p), centred(q)
    expected = np.linalg.norm(s.T @ t) ** 2 / np.linalg.norm(s.T @ s) / np.linalg.norm(t.T @ t)
    assert alignment(p, q).value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_layers_are_compared_one_with_each_other(monkeypatch, way):
    go(monkeypatch, way)
    p, q = pair()
    found = alignment(p, q, by_layer=True)
    parts = [[signs(side.layer(layer.name)) for layer in side.layers] for side in (p, q)]
    expected = [[aligned(one, other) for other in parts[1]] for one in parts[0]]
    assert found.value.shape == (3, 2)
    np.testing.assert_allclose(found.value, expected, rtol=1e-9)


@pytest.mark.parametrize("products", [1, 2_000])
def test_products_of_units_are_the_same_in_blocks(monkeypatch, products):
    p, q = pair()
    whole = alignment(p, q).value, alignment(p, q, by_layer=True).value
    monkeypatch.setattr(measure, "_PRODUCTS", products)
    assert alignment(p, q).value == pytest.approx(whole[0], rel=1e-12)
    np.testing.assert_allclose(alignment(p, q, by_layer=True).value, whole[1], rtol=1e-12)


def test_distances_of_points_are_the_same_in_blocks(monkeypatch):
    go(monkeypatch, "_by_points")
    p, q = pair()
    whole = alignment(p, q, by_layer=True).value
    monkeypatch.setattr(measure, "_DISTANCES", 1_000)
    np.testing.assert_allclose(alignment(p, q, by_layer=True).value, whole, rtol=1e-12)


@pytest.mark.parametrize(("points", "way"), [(10, "_by_points"), (600, "_by_units")])
def test_the_cheaper_way_is_taken(monkeypatch, points, way):
    taken = []
    for name in WAYS:
        original = getattr(measure, name)
        monkeypatch.setattr(measure, name, lambda *a, name=name, original=original: taken.append(name) or original(*a))
    alignment(*pair(points))
    assert set(taken) == {way}


@patient
@given(p=cloudy(), q=cloudy())
def test_the_value_lies_between_zero_and_one(p, q):
    count = min(len(p), len(q))
    value = alignment(p[:count], q[:count]).value
    assert np.isnan(value) or -1e-12 <= value <= 1 + 1e-12


@patient
@given(p=cloudy())
def test_a_network_is_fully_aligned_with_itself_and_with_its_units_repeated(p):
    twice = patterns(np.tile(p.signs() > 0, 2))
    values = [alignment(p, p).value, alignment(p, twice).value]
    assert np.isnan(values).all() or values == pytest.approx([1, 1], rel=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by_layer", [False, True])
def test_the_null_holds_the_values_of_shuffled_points(monkeypatch, way, by_layer):
    go(monkeypatch, way)
    p, q = pair(5)
    found = alignment(p, q, permutations=40, by_layer=by_layer)
    assert found.null.shape == ((40, 3, 2) if by_layer else (40,))
    every = [
        alignment(p, Patterns(q.layers, q.packed[list(order)]), by_layer=by_layer).value for order in orders(range(5))
    ]
    gaps = np.abs(found.null[:, None] - np.array(every)[None])
    assert (gaps.reshape(*gaps.shape[:2], -1).max(-1).min(1) <= 1e-12).all()
    assert len(np.unique(found.null.round(9))) > 10


@pytest.mark.parametrize("by_layer", [False, True])
def test_the_p_value_counts_the_value_among_the_permutations(by_layer):
    p, q = pair(12)
    found = alignment(p, q, permutations=30, by_layer=by_layer)
    expected = (1 + (found.null >= found.value).sum(0)) / 31
    np.testing.assert_array_equal(found.p_value, expected)


def test_like_networks_are_told_from_chance_and_unlike_ones_are_not():
    p, q = pair(200)
    other = clouds(200, SECOND, seed=7, noise=1e3)
    assert alignment(p, q, permutations=99).p_value == 0.01
    assert alignment(p, other, permutations=99).p_value > 0.01


def test_a_permutation_that_changes_nothing_reaches_the_value():
    # Two points: shuffled or not, the kernels are the same.
    p, q = patterns([[0, 1], [1, 0]]), patterns([[1], [0]])
    assert alignment(p, q, permutations=19).p_value == 1


@pytest.mark.parametrize("way", WAYS)
def test_the_interval_holds_the_middle_of_points_drawn_again(monkeypatch, way):
    go(monkeypatch, way)
    p, q = pair(60)
    found = alignment(p, q, bootstrap=80, seed=3)
    low, high = found.interval
    assert low < found.value < high
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 60, (300, 60))
    plain = np.array([aligned(signs(p)[row], signs(q)[row]) for row in rows])
    expected = np.percentile(plain - plain.mean() + found.value, [2.5, 97.5])
    assert np.abs(found.interval - expected).max() < 0.5 * plain.std()


def test_intervals_of_layers_are_those_of_each_alone():
    p, q = pair()
    found = alignment(p, q, bootstrap=12, seed=1, by_layer=True)
    alone = alignment(p.layer("layer1"), q.layer("layer0"), bootstrap=12, seed=1)
    np.testing.assert_allclose(found.interval[:, 1, 0], alone.interval, rtol=1e-9)


def test_a_network_is_aligned_with_itself_without_doubt():
    p, _ = pair()
    np.testing.assert_allclose(alignment(p, p, bootstrap=10).interval, [1, 1], rtol=1e-12)


def test_seeds_address_the_draws(undrawn):
    p, q = pair()
    first, again, other = (alignment(p, q, 6, 6, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.null, again.null)
    np.testing.assert_array_equal(first.interval, again.interval)
    assert not np.isin(first.null, other.null).any()
    np.testing.assert_array_equal(alignment(p, q, 3, seed=1).null, first.null[:3])


def test_what_was_not_asked_for_is_empty_or_undefined():
    found = alignment(*pair())
    assert found.null.shape == (0,)
    assert np.isnan([found.p_value, *found.interval]).all()
    assert found.reason == ""
    assert found.points == 40
    assert isinstance(found, Alignment)


@pytest.mark.parametrize("way", WAYS)
def test_a_pattern_that_is_the_same_everywhere_has_no_alignment(monkeypatch, way):
    go(monkeypatch, way)
    p, _ = pair()
    constant = patterns(np.ones((40, 5), np.uint8))
    found = alignment(p, constant, permutations=3, bootstrap=3)
    assert np.isnan([found.value, found.p_value, *found.interval, *found.null]).all()
    assert found.reason.startswith("the pattern is the same at all 40 points in all layers of the second network")


def test_a_constant_layer_is_undefined_and_the_others_are_not():
    p, _ = pair()
    q = patterns(np.hstack([np.ones((40, 4), np.uint8), p.layer("layer0").signs() > 0]), (4, 9))
    found = alignment(p, q, permutations=5, bootstrap=5, by_layer=True)
    assert np.isnan(found.value[:, 0]).all()
    assert np.isnan(found.p_value[:, 0]).all()
    assert np.isnan(found.interval[:, :, 0]).all()
    assert np.isfinite(found.value[:, 1]).all()
    assert np.isfinite(found.p_value[:, 1]).all()
    assert found.value[0, 1] == pytest.approx(1)
    assert "layer0 of the second network" in found.reason


def test_draws_of_one_pattern_leave_the_interval_undefined():
    p, q = patterns([[0, 1], [1, 0]]), patterns([[1], [0]])
    found = alignment(p, q, bootstrap=20)
    assert found.value == pytest.approx(1)
    assert np.isnan(found.interval).all()
    assert found.reason.endswith("of 20 bootstrap draws took points of one and the same pattern")


def test_a_table_has_a_row_for_each_pair():
    p, q = pair()
    found = alignment(p, q, 4, 4, by_layer=True)
    table = found.to_pandas()
    assert list(table.columns) == ["first", "second", "value", "low", "high", "p_value"]
    assert table["first"].tolist() == ["layer0"] * 2 + ["layer1"] * 2 + ["layer2"] * 2
    assert table["second"].tolist() == ["layer0", "layer1"] * 3
    np.testing.assert_array_equal(table["value"], found.value.ravel())
    np.testing.assert_array_equal(table["high"], found.interval[1].ravel())
    whole = alignment(p, q).to_pandas()
    assert whole[["first", "second"]].values.tolist() == [["all layers", "all layers"]]
    assert whole["value"].item() == alignment(p, q).value


def test_other_points_are_refused():
    p, q = pair()
    with pytest.raises(ValueError, match="the patterns are of different points: 39 of them against 40"):
        alignment(p[1:], q)
    with pytest.raises(ValueError, match="the patterns are of different points: 39 of 39 ids differ"):
        alignment(p[1:], q[:-1])


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_points_are_refused(count):
    p, q = pair()
    with pytest.raises(ValueError, match=f"an alignment needs at least two points, got {count}"):
        alignment(p[:count], q[:count])


@pytest.mark.parametrize("name", ["permutations", "bootstrap"])
def test_a_negative_number_of_draws_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
        alignment(*pair(), **{name: -1})
