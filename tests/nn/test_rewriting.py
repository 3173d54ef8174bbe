from __future__ import annotations

import copy
from collections import OrderedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from metriscope.nn import Abs, Mahalanobis, Neg, OffsetL2, abs_to_relu, build, relu_to_abs
from metriscope.rng import stream

few = settings(max_examples=15)
seeds = st.integers(0, 2**32)
sizes = st.integers(1, 5)


class Tail(nn.Module):
    """A module of its own that holds a Sequential, as other people's networks do."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), Abs(), nn.Linear(4, 2))

    def forward(self, x):
        return self.body(x) + 1


def linear(*args, **kwargs):
    return nn.Linear(*args, dtype=torch.float64, **kwargs)


NETWORKS = {
    "linear": lambda d, k: [linear(d, k), Abs(), linear(k, 3)],
    "no-bias": lambda d, k: [linear(d, k, bias=False), Abs(), linear(k, 3, bias=False)],
    "deep": lambda d, k: [linear(d, k), Abs(), linear(k, 4), Abs(), linear(4, 3), Abs(), Neg()],
    "last": lambda d, k: [linear(d, k), Abs()],
    "prototypes": lambda d, k: [linear(d, k), Abs(), OffsetL2(k, 3, dtype=torch.float64)],
    "nested": lambda d, k: [
        nn.Sequential(linear(d, k), Abs()),
        nn.Sequential(linear(k, k), Abs(), linear(k, 3)),
    ],
    "twice": lambda d, k: [linear(d, k), Abs(), Abs(), linear(k, 3)],
    "distance": lambda d, k: [linear(d, k), Abs(), Mahalanobis(k, dtype=torch.float64)],
    "module": lambda d, k: [linear(d, k), nn.Sigmoid(), linear(k, 3), Tail().double()],
}


def network(name, seed, d=3, k=4):
    model = nn.Sequential(*NETWORKS[name](d, k))
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.normal_(generator=stream(seed, index))
    return model


def kinds(model):
    return {type(module) for module in model.modules()}


def points(seed, d):
    return 3 * torch.randn(20, d, generator=stream(seed, "x"), dtype=torch.float64)


@pytest.mark.parametrize("name", NETWORKS)
@few
@given(seed=seeds, d=sizes, k=sizes)
def test_an_abs_network_is_a_relu_network_with_mirrored_units_and_back(name, seed, d, k):
    model, x = network(name, seed, d, k), points(seed, d)
    relu = abs_to_relu(model)
    back = relu_to_abs(relu)
    assert Abs not in kinds(relu)
    assert nn.ReLU not in kinds(back)
    torch.testing.assert_close(relu(x), model(x), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(back(x), model(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "twice"])
def test_the_way_there_and_back_restores_the_layers_and_their_values(name):
    model = network(name, 0)
    back = relu_to_abs(abs_to_relu(model))
    assert repr(back) == repr(model)
    assert all(torch.equal(back.state_dict()[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_model_that_was_given_stays_as_it_was(name):
    model = network(name, 1)
    before, shape = copy.deepcopy(model.state_dict()), repr(model)
    relu = abs_to_relu(model)
    relu_to_abs(relu)
    with torch.no_grad():
        for parameter in relu.parameters():
            parameter.zero_()
    assert repr(model) == shape
    assert all(torch.equal(model.state_dict()[key], value) for key, value in before.items())


@pytest.mark.parametrize("name", ["abs", "abs2", "abs2-neg-bias", "abs-l2-neg"])
def test_named_networks_are_rewritten_in_float32(name):
    model, x = build(name, 6, 5, 3, generator=stream(2)), torch.randn(8, 6, generator=stream(3))
    relu = abs_to_relu(model)
    torch.testing.assert_close(relu(x), model(x))
    torch.testing.assert_close(relu_to_abs(relu)(x), model(x))


@few
@given(seed=seeds, d=sizes)
def test_a_mahalanobis_layer_is_rewritten_with_twice_the_units(seed, d):
    model, x = Mahalanobis(d, generator=stream(seed), dtype=torch.float64), points(seed, d)
    relu = abs_to_relu(model)
    assert relu.linear.out_features == 2 * d
    assert "activation='relu'" in repr(relu)
    torch.testing.assert_close(relu(x), model(x), rtol=1e-12, atol=1e-12)
    assert torch.equal(relu_to_abs(relu).linear.weight, model.linear.weight)


def test_pairs_are_found_in_any_order_of_units():
    relu = abs_to_relu(network("linear", 4, 3, 6))
    order = torch.randperm(12, generator=stream(4))
    with torch.no_grad():
        for tensor in (relu[0].weight, relu[0].bias):
            tensor.copy_(tensor[order])
        relu[2].weight.copy_(relu[2].weight[:, order])
    merged, x = relu_to_abs(relu), points(4, 3)
    assert merged[0].out_features == 6
    torch.testing.assert_close(merged(x), relu(x))


def test_a_zero_unit_with_signed_zeros_mirrors_another():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.0, -0.0], [0.0, 0.0]]))
        model[0].bias.zero_()
        model[2].weight.fill_(1.0)
    assert relu_to_abs(model)[0].out_features == 1


def test_named_layers_keep_their_names_and_a_sum_gets_its_own():
    model = nn.Sequential(OrderedDict(first=nn.Linear(3, 2), fold=Abs(), out=Neg()))
    relu = abs_to_relu(model)
    assert list(dict(relu.named_children())) == ["first", "fold", "fold_sum", "out"]
    assert list(dict(relu_to_abs(relu).named_children())) == ["first", "fold", "out"]


def test_one_abs_module_used_twice_is_rewritten_in_both_places():
    fold = Abs()
    model = nn.Sequential(nn.Linear(3, 2), fold, nn.Linear(2, 2), fold, nn.Linear(2, 1))
    relu, x = abs_to_relu(model), torch.randn(4, 3, generator=stream(5))
    assert Abs not in kinds(relu)
    torch.testing.assert_close(relu(x), model(x))


def test_frozen_layers_stay_frozen_trained_ones_trained_and_the_sum_is_fixed():
    model = nn.Sequential(nn.Linear(3, 2).requires_grad_(False), Abs(), nn.Linear(2, 2), Abs()).eval()
    relu = abs_to_relu(model)
    assert [p.requires_grad for p in relu.parameters()] == [False, False, True, True, False]
    assert not relu.training


def test_a_rewritten_network_exports():
    model, x = abs_to_relu(build("abs-l2", 3, 4, 2)), torch.randn(5, 3, generator=stream(6))
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), model(x))


def test_units_without_a_mirror_are_named_with_their_layer():
    relu = abs_to_relu(nn.Sequential(nn.Sequential(nn.Linear(3, 4), Abs(), nn.Linear(4, 1))))
    with torch.no_grad():
        relu[0][0].weight[1] += 1
    with pytest.raises(ValueError, match=r"ReLU layer '0\.1' is not made of mirrored pairs: units 1, 5 without mirror"):
        relu_to_abs(relu)
    with pytest.raises(ValueError, match="units 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 6 more without mirror"):
        relu_to_abs(build("relu", 3, 16, 2))
    with pytest.raises(ValueError, match="ReLU layer 'activation' is not made of mirrored pairs"):
        relu_to_abs(Mahalanobis(3, activation="relu"))


@pytest.mark.parametrize("change", [("0", "weight"), ("0", "bias"), ("2", "weight")])
def test_weights_biases_and_outgoing_weights_must_all_match(change):
    relu = abs_to_relu(network("linear", 7))
    layer, name = change
    with torch.no_grad():
        values = getattr(relu.get_submodule(layer), name)
        (values[:, 0] if layer == "2" else values[0]).add_(1e-9)
    with pytest.raises(ValueError, match="units 0, 4 without mirror"):
        relu_to_abs(relu)


def test_an_odd_unit_is_named_alone():
    model = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1))
    with pytest.raises(ValueError, match="mirrored pairs: unit 0 without mirror"):
        relu_to_abs(model)


def test_relu_units_that_no_linear_layer_sums_cannot_be_merged():
    with pytest.raises(ValueError, match="ReLU layer '1' cannot be rewritten: no Linear after it"):
        relu_to_abs(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


def test_activations_out_of_reach_are_named():
    for model, name in (
        (nn.Sequential(Abs(), nn.Linear(2, 2)), "Abs layer '0'"),
        (nn.Sequential(nn.Linear(2, 2), nn.Sequential(Abs())), "Abs layer '1.0'"),
        (nn.ModuleDict({"fold": Abs()}), "Abs layer 'fold'"),
    ):
        with pytest.raises(ValueError, match=f"{name} cannot be rewritten: it does not follow a Linear"):
            abs_to_relu(model)


def test_a_model_with_nothing_to_rewrite_is_refused():
    with pytest.raises(ValueError, match="Sequential has no Abs layer to rewrite"):
        abs_to_relu(build("relu", 3, 4, 2))
    with pytest.raises(ValueError, match="Mahalanobis has no ReLU layer to rewrite"):
        relu_to_abs(Mahalanobis(3))
