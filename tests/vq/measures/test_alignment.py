from __future__ import annotations

from itertools import permutations as orders

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from metriscope.vq import Alignment, Patterns
from metriscope.vq.measures import alignment
from vq.measures.cases import PLAIN, centered, clouds, cloudy, columns, module, patient, signs
from vq.units.cases import bit_matrices, patterns

kernels, resampling = module("centered_kernels"), module("resampling")
WAYS = ("units", "points")
ESTIMATORS = ("debiased", "biased")
FIRST, SECOND = (9, 14, 3), (33, 5)
both = pytest.mark.parametrize("estimator", ESTIMATORS)
ways = pytest.mark.parametrize("way", WAYS)


def pair(points=40, seed=0):
    return clouds(points, FIRST, seed), clouds(points, SECOND, seed + 1)


def go(monkeypatch, way):
    """Take one way, whichever is the cheaper."""
    for where in (kernels, resampling):
        monkeypatch.setattr(where, "by_points", lambda *_: way == "points")
    monkeypatch.setattr(resampling, "_pairs_are_cheaper", lambda *_: way == "points")


@both
@ways
@pytest.mark.parametrize("points", [4, 9, 150])
def test_the_value_is_the_cosine_of_the_centered_kernels(monkeypatch, way, estimator, points):
    go(monkeypatch, way)
    p, q = pair(points)
    assert alignment(p, q, estimator).value == pytest.approx(PLAIN[estimator](signs(p), signs(q)), rel=1e-9)


@both
@patient
@given(bits=bit_matrices((4, 20), (2, 20)), cut=st.integers(1, 19))
def test_any_patterns_are_aligned_as_their_dense_kernels_are(estimator, bits, cut):
    assume(cut < bits.shape[1])
    one, two = bits[:, :cut], bits[:, cut:]
    expected = PLAIN[estimator](*(2.0 * side - 1 for side in (one, two)))
    found = alignment(patterns(one), patterns(two), estimator)
    if np.isnan(found.value):
        assert found.reason
        norms = [kernel_norm(2.0 * side - 1, estimator) for side in (one, two)]
        assert min(norms) < 1e-9
    else:
        assert found.value == pytest.approx(expected, abs=1e-9)


def kernel_norm(a, estimator):
    n = len(a)
    kernel, centering = a @ a.T, np.eye(n) - 1 / n
    if estimator == "biased":
        return np.linalg.norm(centering @ kernel @ centering)
    off = ~np.eye(n, dtype=bool)
    kernel *= off
    sums = kernel.sum(0)
    middle = kernel - (sums + sums[:, None]) / (n - 2) + sums.sum() / (n - 1) / (n - 2)
    return np.linalg.norm(middle[off])


@ways
def test_the_biased_value_is_the_ratio_of_norms_of_products_of_units(monkeypatch, way):
    go(monkeypatch, way)
    p, q = pair()
    s, t = centered(p), centered(q)
    expected = np.linalg.norm(s.T @ t) ** 2 / np.linalg.norm(s.T @ s) / np.linalg.norm(t.T @ t)
    assert alignment(p, q, "biased").value == pytest.approx(expected, rel=1e-12)


@both
@ways
def test_layers_are_compared_one_with_each_other(monkeypatch, way, estimator):
    go(monkeypatch, way)
    p, q = pair()
    found = alignment(p, q, estimator, by_layer=True)
    parts = [[signs(side.layer(layer.name)) for layer in side.layers] for side in (p, q)]
    expected = [[PLAIN[estimator](one, other) for other in parts[1]] for one in parts[0]]
    assert found.value.shape == (3, 2)
    np.testing.assert_allclose(found.value, expected, rtol=1e-9)


@both
@pytest.mark.parametrize("points", [5, 60])
def test_weights_scale_the_units_of_a_layer_by_their_roots(estimator, points):
    p, q = pair(points)
    weights = [0.5, 3.0, 0.0], [2.0, 0.25]
    scaled = columns(p, weights[0]), columns(q, weights[1])
    found = alignment(p, q, estimator, permutations=4, interval=0.9, weights=weights)
    assert found.value == pytest.approx(PLAIN[estimator](*scaled), rel=1e-9)
    alone = alignment(p, q, estimator, permutations=4, interval=0.9, weights=([1, 1, 1], None))
    even = alignment(p, q, estimator, permutations=4, interval=0.9)
    np.testing.assert_allclose(alone.null, even.null, atol=1e-9)
    np.testing.assert_allclose(alone.interval, even.interval, atol=1e-9)
    assert np.abs(found.null - even.null).max() > 1e-6
    mean = alignment(p, q, estimator, weights=("mean", {"layer0": 1, "layer1": 1}))
    sized = columns(p, 1 / np.array(FIRST)), signs(q)
    assert mean.value == pytest.approx(PLAIN[estimator](*sized), rel=1e-9)


@both
@pytest.mark.parametrize("products", [1, 2_000])
def test_products_of_units_are_the_same_in_blocks(monkeypatch, estimator, products):
    p, q = pair()

    def found(by_layer):
        whole = alignment(p, q, estimator, permutations=3, interval=0.9, by_layer=by_layer)
        return np.concatenate([np.ravel(part) for part in (whole.value, whole.null, whole.interval)])

    whole = found(False), found(True)
    monkeypatch.setattr(kernels, "_PRODUCTS", products)
    monkeypatch.setattr(resampling, "_BLOCK", 100)
    np.testing.assert_allclose(found(False), whole[0], atol=1e-11)
    np.testing.assert_allclose(found(True), whole[1], atol=1e-11)


@both
def test_distances_of_points_are_the_same_in_blocks(monkeypatch, estimator):
    go(monkeypatch, "points")
    p, q = pair()
    whole = alignment(p, q, estimator, by_layer=True).value
    monkeypatch.setattr(kernels, "_DISTANCES", 1_000)
    np.testing.assert_allclose(alignment(p, q, estimator, by_layer=True).value, whole, rtol=1e-12)


@pytest.mark.parametrize(("points", "way"), [(10, "_by_points"), (600, "_by_units")])
def test_the_cheaper_way_is_taken(monkeypatch, points, way):
    taken = []
    for name in ("_by_points", "_by_units"):
        original = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, lambda *a, name=name, original=original: taken.append(name) or original(*a))
    alignment(*pair(points))
    assert set(taken) == {way}


@pytest.mark.parametrize(("width", "way"), [(40, "_Units"), (2_000, "_Pairs")])
def test_permutations_take_the_cheaper_way(monkeypatch, width, way):
    taken = []
    for name in ("_Pairs", "_Units"):
        original = getattr(resampling, name)
        monkeypatch.setattr(
            resampling, name, lambda *a, name=name, original=original: taken.append(name) or original(*a)
        )
    alignment(clouds(30, (width,), 0), clouds(30, (width,), 1), permutations=2)
    assert taken == [way]


@both
@patient
@given(p=cloudy(4), q=cloudy(4))
def test_the_value_lies_within_its_range(estimator, p, q):
    count = min(len(p), len(q))
    value = alignment(p[:count], q[:count], estimator).value
    assert np.isnan(value) or {"biased": 0, "debiased": -1}[estimator] - 1e-9 <= value <= 1 + 1e-9


@both
@patient
@given(p=cloudy(4))
def test_a_network_is_fully_aligned_with_itself_and_with_its_units_repeated(estimator, p):
    twice = patterns(np.tile(p.signs() > 0, 2))
    values = [alignment(p, p, estimator).value, alignment(p, twice, estimator).value]
    assert np.isnan(values).all() or values == pytest.approx([1, 1], rel=1e-9)


def test_unrelated_networks_are_aligned_by_chance_alone_and_only_the_biased_value_hides_it():
    rng = np.random.default_rng(0)
    values = [
        [
            alignment(*(patterns(rng.integers(0, 2, (50, 100))) for _ in "ab"), estimator).value
            for estimator in ESTIMATORS
        ]
        for _ in range(40)
    ]
    debiased, biased = np.array(values).T
    # Independent signs: the diagonals alone give units / (units + points).
    assert biased.mean() == pytest.approx(100 / 150, abs=0.01)
    assert abs(debiased.mean()) < 4 * debiased.std() / np.sqrt(40)


@both
@ways
@pytest.mark.parametrize("by_layer", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_null_holds_the_values_of_shuffled_points(monkeypatch, way, estimator, by_layer, swapped):
    go(monkeypatch, way)
    p, q = pair(5)[:: -1 if swapped else 1]
    found = alignment(p, q, estimator, permutations=40, by_layer=by_layer)
    assert found.null.shape == ((40, *np.shape(found.value)) if by_layer else (40,))
    every = [
        alignment(p, Patterns(q.layers, q.packed[list(order)]), estimator, by_layer=by_layer).value
        for order in orders(range(5))
    ]
    gaps = np.abs(found.null[:, None] - np.array(every)[None])
    assert (np.nan_to_num(gaps).reshape(*gaps.shape[:2], -1).max(-1).min(1) <= 1e-9).all()
    assert len(np.unique(found.null.round(9))) > 10


@both
@pytest.mark.parametrize("swapped", [False, True])
def test_every_way_shuffles_alike(monkeypatch, estimator, swapped):
    p, q = pair(70)[:: -1 if swapped else 1]
    nulls = []
    for way in WAYS:
        go(monkeypatch, way)
        nulls.append(alignment(p, q, estimator, permutations=6, by_layer=True).null)
    np.testing.assert_allclose(*nulls, atol=1e-12)


@both
def test_shuffling_in_passes_of_few_points_changes_nothing(monkeypatch, estimator):
    go(monkeypatch, "units")
    p, q = pair(150)
    whole = alignment(p, q, estimator, permutations=3, interval=0.9)
    monkeypatch.setattr(module("sign_products"), "_points_at_once", lambda _: 64)
    again = alignment(p, q, estimator, permutations=3, interval=0.9)
    np.testing.assert_allclose(again.null, whole.null, atol=1e-12)
    np.testing.assert_allclose(again.interval, whole.interval, atol=1e-12)


@both
@pytest.mark.parametrize("by_layer", [False, True])
def test_the_p_value_counts_the_value_among_the_permutations(estimator, by_layer):
    p, q = pair(12)
    found = alignment(p, q, estimator, permutations=30, by_layer=by_layer)
    expected = (1 + (found.null >= found.value).sum(0)) / 31
    np.testing.assert_array_equal(found.p_value, expected)


@both
def test_like_networks_are_told_from_chance_and_unlike_ones_are_not(estimator):
    p, q = pair(200)
    other = clouds(200, SECOND, seed=7, noise=1e3)
    assert alignment(p, q, estimator, permutations=99).p_value == 0.01
    assert alignment(p, other, estimator, permutations=99).p_value > 0.01


@both
def test_a_permutation_that_changes_nothing_reaches_the_value(estimator):
    # Two pairs of equal points, told apart by one side alone: of 24 orders, 8 keep the pairs together.
    p, q = patterns([[0], [0], [1], [1]]), patterns([[1], [1], [0], [0]])
    found = alignment(p, q, estimator, permutations=400)
    assert found.value == pytest.approx(1)
    assert (np.abs(found.null - 1) < 1e-9).mean() == pytest.approx(1 / 3, abs=0.1)
    assert found.p_value == (1 + (np.abs(found.null - 1) < 1e-9).sum()) / 401


def test_seeds_address_the_draws(undrawn):
    p, q = pair()
    first, again, other = (alignment(p, q, permutations=6, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.null, again.null)
    assert not np.isin(first.null, other.null).any()
    np.testing.assert_array_equal(alignment(p, q, permutations=3, seed=1).null, first.null[:3])


def test_permutations_can_be_drawn_from_a_generator(undrawn):
    p, q = pair()
    generator = torch.Generator().manual_seed(3)
    first, more = (alignment(p, q, permutations=6, generator=generator).null for _ in range(2))
    assert not np.isin(first, more).any()
    again = alignment(p, q, permutations=6, generator=torch.Generator().manual_seed(3)).null
    np.testing.assert_array_equal(first, again)
    with pytest.raises(ValueError, match=r"generator must be a torch\.Generator, got 3"):
        alignment(p, q, permutations=6, generator=3)


def test_what_was_not_asked_for_is_empty_or_undefined():
    found = alignment(*pair())
    assert found.null.shape == (0,)
    assert np.isnan([found.p_value, *found.interval]).all()
    assert found.reason == found.interval_reason == ""
    assert found.points == 40
    assert found.estimator == "debiased"
    assert isinstance(found, Alignment)
    assert isinstance(found.value, float)


def test_a_table_has_a_row_for_each_pair():
    p, q = pair()
    found = alignment(p, q, permutations=4, interval=0.9, by_layer=True)
    table = found.to_pandas()
    assert list(table.columns) == ["first", "second", "value", "low", "high", "p_value"]
    assert table["first"].tolist() == ["layer0"] * 2 + ["layer1"] * 2 + ["layer2"] * 2
    assert table["second"].tolist() == ["layer0", "layer1"] * 3
    np.testing.assert_array_equal(table["value"], found.value.ravel())
    np.testing.assert_array_equal(table["high"], found.interval[1].ravel())
    whole = alignment(p, q).to_pandas()
    assert whole[["first", "second"]].values.tolist() == [["all layers", "all layers"]]
    assert whole["value"].item() == alignment(p, q).value
