"""States over shards: equal to the measure on all points, to the last bit in any order of shards and merges."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.common.errors import StoreError
from metriscope.vq import (
    VQMDS,
    AlignmentState,
    MDSState,
    PairState,
    UtilizationState,
    alignment,
    heat_cosine,
    pair_counts,
    utilization,
    vq_kernel,
)
from vq.measures.cases import clouds, distances, patient, scaled
from vq.units.cases import layered, patterns


@st.composite
def sharded(draw, count):
    """Draw slices that divide so many points, in any order, some of them perhaps empty."""
    cuts = sorted(draw(st.lists(st.integers(0, count), max_size=4)))
    return draw(st.permutations([slice(a, b) for a, b in zip([0, *cuts], [*cuts, count], strict=True)]))


def merged(states, draw):
    """Merge states two at a time, in any order."""
    states = list(states)
    while len(states) > 1:
        one = states.pop(draw(st.integers(0, len(states) - 1)))
        other = states.pop(draw(st.integers(0, len(states) - 1)))
        states.append(one.merge(other))
    return states[0]


@patient
@given(
    data=st.data(), seed=st.integers(0, 99), by_layer=st.booleans(), estimator=st.sampled_from(["debiased", "biased"])
)
def test_the_alignment_of_merged_shards_is_that_of_all_points(data, seed, by_layer, estimator):
    p, q = clouds(40, (8, 13), seed), clouds(40, (21, 5), seed + 1)
    whole = AlignmentState().update(p, q).compute(estimator, by_layer)
    shards = data.draw(sharded(40))
    found = merged([AlignmentState().update(p[rows], q[rows]) for rows in shards], data.draw)
    np.testing.assert_array_equal(found.compute(estimator, by_layer).value, whole.value)
    expected = alignment(p, q, estimator, by_layer=by_layer)
    np.testing.assert_allclose(whole.value, expected.value, rtol=1e-9)
    assert (whole.first, whole.second, whole.points) == (expected.first, expected.second, expected.points)


@patient
@given(data=st.data(), seed=st.integers(0, 99))
def test_pairs_within_and_between_shards_are_all_pairs(data, seed):
    p, q = clouds(30, (9, 14), seed), clouds(30, (6, 5), seed + 1)
    shards = [(p[rows], q[rows]) for rows in data.draw(sharded(30)) if rows.stop > rows.start]
    states = [PairState().update(*shard) for shard in shards]
    for i, one in enumerate(shards):
        states += [PairState().update_between(one, other) for other in shards[:i]]
    found = merged(states, data.draw)
    np.testing.assert_array_equal(found.counts, pair_counts(p, q))
    np.testing.assert_array_equal(found.compute([0.5, 9.0], "squared"), heat_cosine(p, q, [0.5, 9.0], "squared"))


@patient
@given(data=st.data(), case=layered(points=(1, 12)))
def test_the_utilization_of_merged_shards_is_that_of_all_points(data, case):
    bits, widths = case
    p = patterns(bits, widths)
    found = merged([UtilizationState().update(p[rows]) for rows in data.draw(sharded(len(p)))], data.draw)
    pd.testing.assert_frame_equal(found.compute(0.3).to_pandas(), utilization(p, 0.3).to_pandas())


@patient
@given(data=st.data(), seed=st.integers(0, 99), weights=st.sampled_from([None, "mean", [2.0, 0.25]]))
def test_the_scaling_of_merged_shards_is_that_of_all_points(data, seed, weights):
    p = clouds(40, (8, 13), seed)
    whole = MDSState().update(p).compute(4, weights)
    found = merged([MDSState().update(p[rows]) for rows in data.draw(sharded(40))], data.draw).compute(4, weights)
    for name in ("eigenvalues_", "_axes", "_middle"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    expected = VQMDS(4, weights).fit(p)
    np.testing.assert_array_equal(found.eigenvalues_, expected.eigenvalues_)
    places = found.transform(p)
    np.testing.assert_allclose(places, expected.embedding_ * np.sign((places * expected.embedding_).sum(0)), atol=1e-9)


@patient
@given(data=st.data(), points=st.integers(2, 30), widths=st.sampled_from([(5,), (9, 14), (3, 40)]))
def test_eigenvalues_of_shards_are_those_of_the_doubly_centered_kernel(data, points, widths):
    p = clouds(points, widths)
    kernel = vq_kernel(p)
    if not kernel.any():
        return
    found = merged([MDSState().update(p[rows]) for rows in data.draw(sharded(points))], data.draw).compute(None)
    values = np.linalg.eigvalsh(scaled(kernel))[::-1]
    rank = len(found.eigenvalues_)
    np.testing.assert_allclose(found.eigenvalues_, values[:rank], atol=1e-9 * values[0])
    assert np.abs(values[rank:]).max(initial=0) <= 1e-9 * values[0]
    np.testing.assert_allclose(4 * distances(found.transform(p)), kernel, atol=1e-9)


def test_a_scaling_from_shards_has_places_for_points_but_no_embedding_of_its_own():
    found = MDSState().update(clouds(30, (9,))).compute(2)
    assert (found.method_, found.residual_, found.n_features_in_) == ("units", 0.0, 9)
    for name in ("embedding_", "eigenvectors_"):
        assert not hasattr(found, name)
        with pytest.raises(AttributeError, match=f"by MDSState has no {name}, because the state keeps no points"):
            getattr(found, name)
    with pytest.raises(AttributeError, match="'VQMDS' object has no attribute 'embedding_'"):
        _ = VQMDS().embedding_
    assert list(found.get_feature_names_out()) == ["vqmds0", "vqmds1"]


def test_a_scaling_from_shards_is_saved_and_loaded(tmp_path):
    p = clouds(30, (9, 4))
    found = MDSState().update(p).compute(2, "mean")
    found.save(tmp_path / "places")
    np.testing.assert_array_equal(VQMDS.load(tmp_path / "places").transform(p), found.transform(p))
    (tmp_path / "places").write_bytes(b"no estimator")
    with pytest.raises(StoreError):
        VQMDS.load(tmp_path / "places")


def test_a_state_goes_on_after_a_scaling_was_computed():
    p = clouds(40, (12,))
    state = MDSState().update(p[:25])
    np.testing.assert_array_equal(state.compute(2).eigenvalues_, VQMDS(2).fit(p[:25]).eigenvalues_)
    np.testing.assert_array_equal(state.update(p[25:]).compute(2).eigenvalues_, VQMDS(2).fit(p).eigenvalues_)


def test_a_scaling_of_too_few_points_or_patterns_is_refused():
    p = clouds(20, (9,))
    with pytest.raises(ValueError, match="at least two points, got 1"):
        MDSState().update(p[:1]).compute(1)
    with pytest.raises(ValueError, match="all 2 points have the same pattern"):
        MDSState().update(p[:1]).update(p[:1]).compute(1)
    with pytest.raises(ValueError, match="the patterns of the 2 points have only rank 1"):
        MDSState().update(p[:1]).update(p[3:4]).compute(2)
    with pytest.raises(ValueError, match="n_components must be a positive integer, got 0"):
        MDSState().update(p).compute(0)


def test_shards_of_other_layers_are_refused_by_a_scaling():
    one, other = MDSState().update(clouds(10, (9,))), clouds(10, (8,))
    with pytest.raises(ValueError, match="the same layers on both sides"):
        one.update(other)
    with pytest.raises(ValueError, match="the same layers on both sides"):
        one.merge(MDSState().update(other[:0]))


@pytest.mark.parametrize("kind", ["relu6", "hardshrink", "max_pool"])
def test_units_of_two_bits_channels_and_pools_are_counted_alike(kind):
    bits = np.random.default_rng(3).integers(0, 2, (9, 24))
    p = patterns(bits, (24,), shape=(3, 4, 2), bits_per_unit=2, channel_axis=0)
    p.layers = (type(p.layers[0])(**{**vars(p.layers[0]), "kind": kind}),)
    state, whole = UtilizationState().update(p[:4]).update(p[4:]), utilization(p, by="channel")
    pd.testing.assert_frame_equal(state.compute(by="channel").to_pandas(), whole.to_pandas())
    pd.testing.assert_frame_equal(state.compute(by="channel").pools, whole.pools)


def test_pairs_that_are_missing_or_came_twice_are_refused():
    p = clouds(10, (9,))
    one, two = (p[:4], p[:4]), (p[4:], p[4:])
    state = PairState().update(*one).update(*two)
    with pytest.raises(ValueError, match="10 points make 100 pairs, got 52"):
        state.compute(1.0)
    state.update_between(one, two)
    np.testing.assert_allclose(state.compute(1.0), [1.0])
    with pytest.raises(ValueError, match="100 pairs, got 148"):
        state.update_between(one, two).compute(1.0)


@pytest.mark.parametrize("state", [AlignmentState, PairState])
def test_shards_of_other_networks_are_refused(state):
    p, q = clouds(10, (9,)), clouds(10, (8,))
    with pytest.raises(ValueError, match="the same layers on both sides"):
        state().update(p, p).update(p, q)
    with pytest.raises(ValueError, match="the same layers on both sides"):
        state().update(p, p).merge(state().update(q, p))


def test_states_without_points_say_so():
    with pytest.raises(ValueError, match="has seen no points yet"):
        AlignmentState().merge(AlignmentState()).compute()
    with pytest.raises(ValueError, match="has seen no points yet"):
        PairState().compute(1.0)
    with pytest.raises(ValueError, match="at least one point and one unit, got 0"):
        UtilizationState().compute()
    with pytest.raises(ValueError, match="at least two points, got 0"):
        MDSState().merge(MDSState()).compute()
