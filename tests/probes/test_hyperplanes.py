from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn

from metriscope import probes
from metriscope.rng import stream

few = settings(max_examples=20)
seeds = st.integers(0, 2**32)
sizes = st.tuples(st.integers(1, 6), st.integers(1, 5))


def layer(weight, bias=None):
    weight = torch.as_tensor(weight, dtype=torch.float64)
    linear = nn.Linear(weight.shape[1], len(weight), bias=bias is not None, dtype=torch.float64)
    state = {"weight": weight} if bias is None else {"weight": weight, "bias": torch.as_tensor(bias).double()}
    linear.load_state_dict(state)
    return linear


def planes(seed, units, dim):
    g = stream(seed, "planes")
    shapes = ((units, dim), (units,), (dim,))
    return [torch.randn(*shape, generator=g, dtype=torch.float64) for shape in shapes]


@few
@given(seed=seeds, size=sizes)
def test_centering_is_the_distance_of_each_hyperplane_to_the_mean(seed, size):
    weight, bias, mean = planes(seed, *size)
    found = probes.centering(layer(weight, bias), mean)
    expected = [abs(float(w @ mean + b)) / float(w.norm()) for w, b in zip(weight, bias, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert found.dtype == np.float64


@few
@given(seed=seeds, size=sizes, factor=st.floats(0.01, 100), sign=st.sampled_from([1, -1]))
def test_centering_does_not_change_with_the_scale_or_sign_of_a_unit(seed, size, factor, sign):
    weight, bias, mean = planes(seed, *size)
    scaled = probes.centering(layer(sign * factor * weight, sign * factor * bias), mean)
    np.testing.assert_allclose(scaled, probes.centering(layer(weight, bias), mean), rtol=1e-9, atol=1e-12)


@few
@given(seed=seeds, size=sizes, shift=st.floats(0.1, 10))
def test_centering_changes_by_a_shift_along_the_normal(seed, size, shift):
    weight, _, mean = planes(seed, *size)
    through = -(weight @ mean)
    lengths = torch.linalg.vector_norm(weight, dim=1)
    np.testing.assert_allclose(probes.centering(layer(weight, through), mean), 0, atol=1e-9)
    moved = probes.centering(layer(weight, through + shift * lengths), mean)
    np.testing.assert_allclose(moved, shift, rtol=1e-9)


def test_a_layer_without_bias_has_hyperplanes_through_the_origin():
    assert probes.centering(layer([[3.0, 4.0]]), [5.0, 0.0]).tolist() == [3.0]


def test_a_unit_without_weights_has_no_distance():
    found = probes.centering(layer([[0.0, 0.0], [0.0, 1.0]], [2.0, 0.0]), np.zeros(2))
    assert np.isnan(found).tolist() == [True, False]


def test_a_mean_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"mean must have the shape \(2,\), got \(3,\)"):
        probes.centering(layer([[1.0, 0.0]]), np.zeros(3))


def greedy_pairs(weight, threshold):
    """Return the pairs that taking the most mirrored first, one by one, leads to."""
    directions = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    cosines, free, pairs = directions @ directions.T, set(range(len(weight))), []
    while True:
        open_pairs = [(cosines[i, j], i, j) for i in free for j in free if i < j and cosines[i, j] <= -threshold]
        if not open_pairs:
            return pairs
        cosine, i, j = min(open_pairs)
        pairs.append((i, j, cosine))
        free -= {i, j}


@few
@given(seed=seeds, size=st.tuples(st.integers(1, 9), st.integers(2, 4)), threshold=st.floats(0.1, 0.99))
def test_mirrored_pairs_are_those_a_patient_search_finds(seed, size, threshold):
    weight = planes(seed, *size)[0].numpy()
    found, expected = probes.mirrored_pairs(weight, threshold), greedy_pairs(weight, threshold)
    assert [(pair.i, pair.j) for pair in found] == [(i, j) for i, j, _ in expected]
    np.testing.assert_allclose([pair.cosine for pair in found], [cosine for *_, cosine in expected], rtol=1e-12)


@few
@given(seed=seeds, size=sizes, factors=arrays(np.float64, 6, elements=st.floats(0.01, 100)))
def test_every_unit_and_its_scaled_opposite_make_a_pair(seed, size, factors):
    weight = planes(seed, *size)[0]
    cosines = torch.nn.functional.cosine_similarity(weight[:, None], weight[None], dim=-1).fill_diagonal_(0)
    assume(cosines.abs().max() < 0.99)
    mirrored = torch.cat([weight, -weight * torch.from_numpy(factors[: len(weight), None])])
    found = probes.mirrored_pairs(mirrored.float())
    assert {(pair.i, pair.j) for pair in found} == {(i, i + len(weight)) for i in range(len(weight))}
    assert all(pair.cosine == pytest.approx(-1, abs=1e-6) for pair in found)
    assert probes.mirrored_pairs(weight) == ()


def test_probes_read_arrays_that_cannot_be_written_and_layers_in_training():
    weight, mean = np.array([[1.0, 0.0], [-1.0, 0.0]], np.float32), np.ones(2, np.float32)
    for array in (weight, mean):
        array.setflags(write=False)
    linear = nn.Linear(2, 2)
    linear.load_state_dict({"weight": torch.tensor(weight), "bias": torch.zeros(2)})
    assert probes.centering(linear, mean).tolist() == [1.0, 1.0]
    assert len(probes.mirrored_pairs(weight)) == len(probes.mirrored_pairs(linear.weight)) == 1
    assert probes.sphericity(weight, np.eye(2)) == probes.sphericity(linear.weight, torch.eye(2))
    assert linear.weight.requires_grad


def test_thresholds_and_shapes_that_make_no_pairs_are_refused():
    with pytest.raises(ValueError, match=r"threshold must lie in \(0, 1\], got 0"):
        probes.mirrored_pairs(torch.eye(2), threshold=0)
    with pytest.raises(ValueError, match=r"weight must have the shape \(units, features\), got \(2,\)"):
        probes.mirrored_pairs(torch.ones(2))


def test_a_layer_its_weight_and_its_parameters_are_measured_alike():
    weight, bias, mean = planes(3, 4, 3)
    linear, cov = layer(weight, bias), np.diag([3.0, 2.0, 1.0])
    measures = {
        "mirrored_pairs": lambda given: probes.mirrored_pairs(given, 0.1),
        "sphericity": lambda given: probes.sphericity(given, cov),
        "metric_error": lambda given: probes.metric_error(given, cov),
        "eigen_recovery": lambda given: probes.eigen_recovery(given, cov).to_pandas().to_numpy().tolist(),
        "metric_rank": lambda given: probes.metric_rank(given, mean, cov).eigenvalues.tolist(),
    }
    for name, measure in measures.items():
        expected = measure(linear)
        assert expected, name
        assert measure(weight) == measure(weight.numpy()) == measure((weight, bias)) == expected, name


def test_probes_that_need_biases_take_a_layer_or_both_parameters():
    weight, bias, mean = planes(4, 4, 3)
    expected = probes.centering(layer(weight, bias), mean)
    np.testing.assert_array_equal(probes.centering((weight, bias.numpy()), mean), expected)
    constant = probes.metric_rank(layer(weight, bias), mean, np.eye(3)).constant
    assert probes.metric_rank((weight, bias), mean, np.eye(3)).constant == constant
    without = probes.metric_rank(layer(weight), mean, np.eye(3)).constant
    assert probes.metric_rank(weight, mean, np.eye(3)).constant == without != constant


@pytest.mark.parametrize("thing", [None, "layer", np.ones((2, 2)), nn.ReLU(), 3])
def test_centering_of_what_has_no_bias_is_refused(thing):
    with pytest.raises(ValueError, match=r"^layer must be a torch\.nn\.Linear or a pair \(weight, bias\), got "):
        probes.centering(thing, np.zeros(2))


@pytest.mark.parametrize("thing", [None, "layer", nn.Linear, nn.ReLU(), {}, 3])
def test_what_is_neither_a_layer_nor_a_weight_is_refused(thing):
    for probe in (probes.sphericity, probes.metric_error, probes.eigen_recovery):
        with pytest.raises(ValueError, match=r"^weight must [^\n]*, got [^\n]*$"):
            probe(thing, np.eye(2))
    with pytest.raises(ValueError, match=r"^weight must [^\n]*, got [^\n]*$"):
        probes.metric_rank(thing, np.zeros(2), np.eye(2))
    with pytest.raises(ValueError, match=r"^bias must have the shape \(2,\), got \(3,\)"):
        probes.centering((np.eye(2), np.ones(3)), np.zeros(2))
