from __future__ import annotations

import math

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import distance
from torch import nn
from torch.autograd import gradcheck

from metriscope.nn import ACTIVATIONS, Abs, Mahalanobis, Neg, OffsetL2
from metriscope.rng import stream

few = settings(max_examples=25)
seeds = st.integers(0, 2**32)
sizes = st.integers(1, 6)

LAYERS = {
    "abs": lambda **kwargs: Abs(),
    "neg": lambda **kwargs: Neg(),
    "offset-l2": lambda **kwargs: OffsetL2(3, 4, **kwargs),
    "offset-l2-squared": lambda **kwargs: OffsetL2(3, 4, form="squared-weights", **kwargs),
    "mahalanobis-abs": lambda **kwargs: Mahalanobis(3, **kwargs),
    "mahalanobis-relu": lambda **kwargs: Mahalanobis(3, activation="relu", **kwargs),
    "mahalanobis-sigmoid": lambda **kwargs: Mahalanobis(3, activation="sigmoid", **kwargs),
}
every_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def draw(seed, *shape):
    return torch.randn(*shape, generator=stream(seed, *shape), dtype=torch.float64)


def gaussian(seed, d):
    root = draw(seed, d, d)
    return draw(seed, d), root @ root.mT + 0.1 * torch.eye(d, dtype=torch.float64)


@every_layer
def test_gradients_are_right(make):
    layer = make(generator=stream(1), dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    x = draw(3, 5, 3).requires_grad_()

    def call(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert gradcheck(call, (x, *layer.parameters()))


@every_layer
def test_an_exported_layer_takes_any_number_of_points(make):
    layer, x = make(generator=stream(2)), torch.randn(11, 3, generator=stream(2, "x"))
    exported = torch.export.export(layer, (x[:5],), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.testing.assert_close(exported.module()(x), layer(x))


@every_layer
def test_a_state_survives_a_safetensors_file(make, tmp_path):
    layer, other = make(generator=stream(3)), make(generator=stream(4))
    safetensors.torch.save_file(layer.state_dict(), tmp_path / "w.safetensors")
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "w.safetensors"))
    x = torch.randn(5, 3, generator=stream(5))
    assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("abs", "neg")])
def test_a_generator_decides_the_values_and_leaves_the_global_state_alone(name):
    before = torch.random.get_rng_state()
    one, other = (LAYERS[name](generator=stream(6)).state_dict() for _ in range(2))
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("abs", "neg")])
def test_without_a_generator_values_come_from_the_global_state_as_in_torch(name):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        one = LAYERS[name]().state_dict()
        torch.manual_seed(5)
        other = LAYERS[name](generator=None).state_dict()
    fresh = LAYERS[name](generator=torch.Generator().manual_seed(5)).state_dict()
    assert all(torch.equal(one[key], other[key]) and torch.equal(one[key], fresh[key]) for key in one)


@every_layer
def test_device_and_dtype_are_those_of_torch_layers(make):
    layer = make(device="meta", dtype=torch.float64)
    assert all(p.device.type == "meta" and p.dtype == torch.float64 for p in layer.parameters())
    with torch.device("meta"):
        assert all(p.device.type == "meta" for p in make().parameters())


@every_layer
def test_a_point_is_measured_alike_alone_and_under_leading_axes(make):
    layer = make(dtype=torch.float64)
    x = draw(7, 2, 5, 3)
    torch.testing.assert_close(layer(x)[1, 4], layer(x[1, 4]))


def test_a_layer_says_what_it_is():
    assert repr(Abs()) == "Abs()"
    assert repr(OffsetL2(3, 4)) == "OffsetL2(in_features=3, out_features=4, form='formula')"
    assert "in_features=3, hidden=6, activation='relu'" in repr(Mahalanobis(3, activation="relu"))


def test_offset_l2_starts_with_small_normal_prototypes_and_weights_of_one():
    layer = OffsetL2(100, 100, generator=stream(8))
    assert bool((layer.alpha == 1).all())
    # 10,000 draws: the deviation is known to 0.7 %, the mean to 0.001.
    assert layer.mu.std().item() == pytest.approx(0.1, rel=0.03)
    assert abs(layer.mu.mean().item()) < 0.005


def test_offset_l2_measures_the_euclidean_distance_at_the_start():
    layer, x = OffsetL2(3, 4, generator=stream(9), dtype=torch.float64), draw(9, 6, 3)
    np.testing.assert_allclose(layer(x).detach(), distance.cdist(x, layer.mu.detach()), rtol=1e-9)


def test_a_point_on_a_prototype_does_not_spoil_training():
    layer = OffsetL2(3, 4)
    layer(layer.mu.detach()[:1]).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@few
@given(seed=seeds, d=sizes)
def test_the_ground_truth_is_scipys_mahalanobis_distance(seed, d):
    mean, cov = gaussian(seed, d)
    x = mean + draw(seed, 5, d)
    expected = [distance.mahalanobis(point, mean, np.linalg.inv(cov)) for point in x.numpy()]
    np.testing.assert_allclose(Mahalanobis.from_gaussian(mean, cov)(x), expected, rtol=1e-7, atol=1e-9)


def test_the_ground_truth_is_not_trained_and_draws_nothing():
    before = torch.random.get_rng_state()
    layer = Mahalanobis.from_gaussian(*gaussian(0, 3))
    assert not any(parameter.requires_grad for parameter in layer.parameters())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_ground_truth_has_the_precision_given_or_asked_for():
    mean, cov = gaussian(1, 3)
    read_only = mean.numpy().copy()
    read_only.flags.writeable = False
    assert Mahalanobis.from_gaussian(read_only, cov.numpy()).linear.weight.dtype is torch.float64
    assert Mahalanobis.from_gaussian(mean.float(), cov.float()).linear.weight.dtype is torch.float32
    assert Mahalanobis.from_gaussian([0, 0], [[1, 0], [0, 1]]).linear.weight.dtype is torch.float32
    asked = Mahalanobis.from_gaussian(mean, cov, dtype=torch.float32)
    exact = Mahalanobis.from_gaussian(mean, cov)
    assert torch.equal(asked.linear.bias, exact.linear.bias.float())


@pytest.mark.parametrize(("activation", "units"), [("abs", 5), ("relu", 10), ("sigmoid", 10)])
def test_mahalanobis_starts_kaiming_normal_without_bias_and_with_enough_units(activation, units):
    layer = Mahalanobis(5, activation=activation)
    assert layer.linear.weight.shape == (units, 5)
    assert not layer.linear.bias.any()
    wide = Mahalanobis(100, hidden=400, activation=activation, generator=stream(10))
    assert wide.linear.weight.std().item() == pytest.approx(math.sqrt(2 / 100), rel=0.02)


def test_mahalanobis_draws_what_torch_would():
    weight = torch.empty(4, 3)
    nn.init.kaiming_normal_(weight, nonlinearity="relu", generator=stream(11))
    assert torch.equal(Mahalanobis(3, hidden=4, generator=stream(11)).linear.weight, weight)


@few
@given(seed=seeds)
def test_abs_and_its_mirrored_relu_units_measure_the_same_distance(seed):
    one = Mahalanobis(3, generator=stream(seed), dtype=torch.float64)
    two = Mahalanobis(3, activation="relu", dtype=torch.float64)
    with torch.no_grad():
        two.linear.weight.copy_(torch.cat([one.linear.weight, -one.linear.weight]))
    x = draw(seed, 5, 3)
    torch.testing.assert_close(two(x), one(x))


def test_a_point_at_distance_zero_does_not_spoil_training():
    layer = Mahalanobis(3)
    layer(torch.zeros(2, 3)).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_what_is_no_layer_is_refused():
    with pytest.raises(ValueError, match="in_features must be a positive integer, got 0"):
        OffsetL2(0, 4)
    with pytest.raises(ValueError, match=r"out_features must be a positive integer, got 2\.0"):
        OffsetL2(3, 2.0)
    with pytest.raises(ValueError, match="form must be one of formula, squared-weights, got 'cubed'"):
        OffsetL2(3, 4, form="cubed")
    with pytest.raises(ValueError, match="in_features must be a positive integer, got -1"):
        Mahalanobis(-1)
    with pytest.raises(ValueError, match="hidden must be a positive integer, got 0"):
        Mahalanobis(3, hidden=0)
    with pytest.raises(ValueError, match=f"activation must be one of {', '.join(ACTIVATIONS)}, got 'cubic'"):
        Mahalanobis(3, activation="cubic")


def test_points_of_the_wrong_width_are_refused():
    with pytest.raises(ValueError, match=r"x must end in the layer's 3 features, got the shape \(5, 2\)"):
        Mahalanobis(3)(torch.zeros(5, 2))
    with pytest.raises(ValueError, match=r"x must end in the 3 features of mu, got the shape \(5, 2\)"):
        OffsetL2(3, 4)(torch.zeros(5, 2))


def test_what_is_no_gaussian_is_refused():
    with pytest.raises(ValueError, match=r"cov must have the shape \(\.\.\., 2, 2\), got \(3, 3\)"):
        Mahalanobis.from_gaussian(torch.zeros(2), torch.eye(3))
    with pytest.raises(ValueError, match="mean must be finite"):
        Mahalanobis.from_gaussian([math.nan], [[1.0]])
    with pytest.raises(ValueError, match="that is positive definite"):
        Mahalanobis.from_gaussian([0.0, 0.0], [[1.0, 1.0], [1.0, 1.0]])
