from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from metriscope.nn import ARCHITECTURES, Mahalanobis, build, stack_state, stacked_forward, unstack
from metriscope.rng import stream

few = settings(max_examples=10)
NETWORKS = {name: lambda g, name=name: build(name, 6, 5, 3, generator=g).double() for name in ARCHITECTURES}
for activation in ("abs", "relu", "sigmoid"):
    NETWORKS[f"mahalanobis-{activation}"] = lambda g, activation=activation: Mahalanobis(
        6, activation=activation, generator=g, dtype=torch.float64
    )
NETWORKS["sigmoid"] = lambda g: nn.Sequential(*build("relu", 6, 5, 3, generator=g)[:1], nn.Sigmoid()).double()
every_network = pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)


def networks(make, seed=0, size=4):
    return [make(stream(seed, index)) for index in range(size)]


def points(seed, *shape):
    return torch.randn(*shape, generator=stream(seed, "x"), dtype=torch.float64)


@every_network
@few
@given(seed=st.integers(0, 2**32))
def test_each_network_of_a_stack_computes_what_it_does_alone(make, seed):
    modules = networks(make, seed)
    forward, state = stacked_forward(modules[0]), stack_state(modules)
    shared, own = points(seed, 7, 6), points(seed, 4, 7, 6)
    torch.testing.assert_close(forward(state, shared), torch.stack([module(shared) for module in modules]))
    expected = torch.stack([module(x) for module, x in zip(modules, own, strict=True)])
    torch.testing.assert_close(forward(state, own), expected)


@every_network
def test_each_network_of_a_stack_gets_the_gradient_it_does_alone(make):
    modules, x = networks(make), points(1, 7, 6)
    state = {name: value.requires_grad_() for name, value in stack_state(modules).items()}
    stacked_forward(modules[0])(state, x).square().sum().backward()
    for index, module in enumerate(modules):
        module(x).square().sum().backward()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(state[name].grad[index], parameter.grad)


@every_network
def test_a_network_taken_out_of_a_stack_is_the_one_put_in(make):
    modules = networks(make)
    state = stack_state(modules)
    taken = unstack(modules[0], state, 2)
    assert taken is not modules[0]
    assert all(torch.equal(taken.state_dict()[key], modules[2].state_dict()[key]) for key in state)
    with torch.no_grad():
        next(taken.parameters()).zero_()
    assert next(iter(state.values()))[2].any()


def test_a_seed_computes_the_same_alone_and_stacked():
    make, x = NETWORKS["abs-l2-neg"], points(2, 7, 6)
    modules = networks(make, size=8)
    forward = stacked_forward(modules[0])
    alone, among = forward(stack_state(modules[5:6]), x)[0], forward(stack_state(modules), x)[5]
    torch.testing.assert_close(alone, among)


def test_the_template_gives_shapes_and_no_values():
    modules, x = networks(NETWORKS["abs"]), points(3, 7, 6)
    forward, state = stacked_forward(modules[0]), stack_state(modules)
    expected = forward(state, x)
    with torch.no_grad():
        modules[0][0].weight.zero_()
    assert torch.equal(forward(state, x), expected)
    assert modules[0][0].weight.device.type == "cpu"


def test_what_does_not_stack_is_refused():
    with pytest.raises(ValueError, match="needs at least one module, got none"):
        stack_state([])
    with pytest.raises(ValueError, match=r"same layers; module 1 has {'weight': \(2, 4\)"):
        stack_state([nn.Linear(3, 2), nn.Linear(4, 2)])


def test_what_does_not_fit_the_stack_is_refused():
    modules = networks(NETWORKS["abs"])
    forward, state = stacked_forward(modules[0]), stack_state(modules)
    for shape in ((6,), (3, 7, 6), (1, 4, 7, 6)):
        with pytest.raises(ValueError, match=r"points for 4 networks must have the shape \(n, d\) or \(4, n, d\)"):
            forward(state, torch.zeros(*shape))
    with pytest.raises(ValueError, match="the stack holds 4 networks, so there is no network 4"):
        unstack(modules[0], state, 4)
    with pytest.raises(ValueError, match=r"must hold the same number of networks, got \[3, 4\]"):
        forward({**state, "0.bias": state["0.bias"][:3]}, torch.zeros(7, 6))
    with pytest.raises(ValueError, match=r"must hold the same number of networks, got \[\]"):
        forward({}, torch.zeros(7, 6))
