from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from metriscope.nn import ARCHITECTURES, Abs, Neg, OffsetL2, architectures, build
from metriscope.rng import stream

# What each name of the papers means, written out.
LAYERS = {
    "relu": [nn.Linear, nn.ReLU, nn.Linear],
    "abs": [nn.Linear, Abs, nn.Linear],
    "relu2": [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU],
    "abs2": [nn.Linear, Abs, nn.Linear, Abs],
    "relu2-neg": [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, Neg],
    "abs2-neg": [nn.Linear, Abs, nn.Linear, Abs, Neg],
    "relu-l2": [nn.Linear, nn.ReLU, OffsetL2],
    "relu-l2-neg": [nn.Linear, nn.ReLU, OffsetL2, Neg],
    "abs-l2": [nn.Linear, Abs, OffsetL2],
    "abs-l2-neg": [nn.Linear, Abs, OffsetL2, Neg],
}
SMOOTH = {"gelu": nn.GELU, "silu": nn.SiLU, "softplus": nn.Softplus, "tanh": nn.Tanh, "elu": nn.ELU}
LAYERS_SMOOTH = {
    f"{name}{suffix}": [nn.Linear, kind, nn.Linear, *([kind] if suffix else []), *([Neg] if "neg" in suffix else [])]
    for name, kind in SMOOTH.items()
    for suffix in ("", "2", "2-neg")
}
every_name = pytest.mark.parametrize("name", ARCHITECTURES)


def test_the_table_holds_the_papers_sixteen_networks_four_as_in_its_code_and_smooth_ones():
    more = {f"{name}-code" if "l2" in name else f"{name}-bias" for name in LAYERS}
    assert set(ARCHITECTURES) == {*LAYERS, *more, *LAYERS_SMOOTH}


@every_name
def test_only_the_code_weighs_squared_differences(name):
    form = getattr(build(name, 7, 5, 3)[2], "form", None)
    assert form == ("squared-weights" if name.endswith("-code") else "formula" if "l2" in name else None)


@every_name
def test_a_name_builds_its_layers_with_a_first_bias_and_a_second_only_if_asked(name):
    model = build(name, 7, 5, 3)
    assert type(model) is nn.Sequential
    assert [type(layer) for layer in model] == {**LAYERS, **LAYERS_SMOOTH}[
        name.removesuffix("-bias").removesuffix("-code")
    ]
    assert model[0].bias is not None
    assert (getattr(model[2], "bias", None) is not None) == name.endswith("-bias")
    assert model(torch.zeros(4, 7)).shape == (4, 3)


@every_name
def test_the_listing_names_the_layers_that_are_built(name):
    listed = [text.split(" ")[0] for text in architectures()[name]]
    assert listed == [type(layer).__name__ for layer in build(name, 7, 5, 3)]
    if name.endswith("-bias") or "l2" in name:
        assert "Linear (no bias)" not in architectures()[name]
    else:
        assert architectures()[name].count("Linear (no bias)") == 1


@every_name
def test_a_generator_decides_every_value_and_leaves_the_global_state_alone(name):
    before = torch.random.get_rng_state()
    one, other = (build(name, 7, 5, 3, generator=stream(1, "init")).state_dict() for _ in range(2))
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert torch.equal(torch.random.get_rng_state(), before)


@every_name
@pytest.mark.parametrize("given", [False, True])
def test_values_are_those_of_torchs_own_initialization(name, given):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        expected = nn.Linear(7, 5), nn.Linear(5, 3, bias=name.endswith("-bias"))
        torch.manual_seed(3)
        model = build(name, 7, 5, 3, generator=torch.Generator().manual_seed(3) if given else None)
    pairs = list(zip(expected, (model[0], model[2]), strict=True))[: 1 if "l2" in name else 2]
    for reference, layer in pairs:
        assert all(torch.equal(reference.state_dict()[key], layer.state_dict()[key]) for key in layer.state_dict())


@every_name
def test_a_built_network_exports_with_any_number_of_points(name):
    model, x = build(name, 4, 5, 3, generator=stream(2)), torch.randn(9, 4, generator=stream(2, "x"))
    exported = torch.export.export(model, (x[:5],), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.testing.assert_close(exported.module()(x), model(x))


def test_rows_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ARCHITECTURES["relu"].bias = True


def test_unknown_names_and_sizes_are_refused():
    with pytest.raises(ValueError, match=r"name must be one of relu, abs, relu2, .*, got 'cubic'"):
        build("cubic", 7, 5, 3)
    with pytest.raises(ValueError, match="hidden must be a positive integer, got 0"):
        build("relu", 7, 0, 3)
