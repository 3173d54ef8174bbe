"""Whole networks initialized from data: laws that hold in every layer, and a model that is otherwise as before."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import metriscope as ms
from metriscope.nn import Abs, init_lsuv_, init_model_
from metriscope.nn.layerwise import _patches, _Sampling
from metriscope.rng import stream


class Residual(nn.Module):
    """A network that is no Sequential: a residual block, a layer used twice, functional activations."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.twice = nn.Linear(8, 8)
        self.first = nn.Linear(5, 8)
        self.unused = nn.Linear(5, 5)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        h = F.gelu(self.first(x))
        h = h + self.drop(F.silu(self.twice(h)))
        return self.head(self.twice(input=h))


def mlp(act=nn.ReLU, bias=True):
    return nn.Sequential(
        nn.Linear(5, 12, bias), act(), nn.LayerNorm(12), nn.Linear(12, 20, bias), act(), nn.Linear(20, 3)
    )


def images(act=nn.ReLU, bias=True):
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1, bias=bias), nn.BatchNorm2d(6), act(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, stride=2, groups=2, bias=bias), act(), nn.Flatten(), nn.Linear(8 * 4, 3),
    )  # fmt: skip


def sequences(act=nn.ReLU, bias=True):
    return nn.Sequential(
        nn.Conv1d(2, 6, 5, dilation=2, padding="same", bias=bias), act(), nn.Flatten(), nn.Linear(96, 3)
    )


SHAPES = {mlp: (300, 5), images: (60, 2, 10, 10), sequences: (60, 2, 16), Residual: (300, 5)}


def points(make, seed=0):
    return torch.randn(*SHAPES[make], generator=stream(seed, "points")) * 3 + 2


def outputs_of(model, x):
    """Return the outputs of each linear or convolutional layer at its first use, units last, in order of use."""
    found = {}

    def note(layer, _, out):
        found.setdefault(layer, out if isinstance(layer, nn.Linear) else out.movedim(1, -1))

    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d)]
    handles = [layer.register_forward_hook(note) for layer in layers]
    was = model.training
    with torch.no_grad():
        model.eval()(x)
    model.train(was)
    for handle in handles:
        handle.remove()
    return {layer: out.flatten(0, -2) for layer, out in found.items()}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("act", [nn.ReLU, Abs, nn.Tanh, nn.SiLU])
@pytest.mark.parametrize("make", [mlp, images, sequences])
def test_every_unit_has_unit_scale_and_inputs_on_both_sides(make, act, bias):
    model, x = make(act, bias), points(make)
    init_model_(model, x, stream(1))
    outputs = outputs_of(model, x)
    for layer, z in list(outputs.items())[:-1]:
        # All inputs are used but where there are more than 5,000 patches, of which the sample has its own scale.
        scale = 1e-3 if len(z) <= 5_000 else 0.1
        torch.testing.assert_close(z.square().mean(0).sqrt(), torch.ones(z.shape[1]), rtol=scale, atol=0)
        assert (z > 0).any(0).all(), layer
        assert (z < 0).any(0).all(), layer


def test_a_network_that_is_no_sequence_is_set_in_the_order_in_which_it_runs():
    model, x = Residual(), points(Residual)
    before = copy.deepcopy(model.state_dict())
    assert init_model_(model, x, stream(2)) is model
    outputs = outputs_of(model, x)
    assert list(outputs) == [model.first, model.twice, model.head]
    for layer in (model.first, model.twice):
        z = outputs[layer]
        torch.testing.assert_close(z.square().mean(0).sqrt(), torch.ones(8), rtol=1e-3, atol=0)
        assert bool(((z > 0).any(0) & (z < 0).any(0)).all())
    after = model.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {"head.weight", "head.bias", "unused.weight", "unused.bias"}


def test_units_beyond_the_directions_are_all_different():
    model, x = nn.Sequential(nn.Linear(2, 64), Abs(), nn.Linear(64, 2)), points(mlp)[:, :2]
    init_model_(model, x, stream(3), n_clusters=2)
    planes = torch.cat([model[0].weight, model[0].bias[:, None]], 1).detach()
    cosines = F.normalize(planes) @ F.normalize(planes).mT
    assert cosines.fill_diagonal_(0).abs().max() < 1 - 1e-6


@pytest.mark.parametrize("init", [init_model_, init_lsuv_])
def test_modes_hooks_gradients_buffers_and_random_states_are_as_before(init):
    model, x = images(), points(images)
    model.insert(3, nn.Dropout(0.5))
    model[1].eval()
    model[0].bias.requires_grad_(False)
    handle = model[0].register_forward_pre_hook(lambda *_: None)
    buffers = copy.deepcopy(dict(model.named_buffers()))
    modes = [module.training for module in model.modules()]
    torch.manual_seed(5)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    init(model, x)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert [module.training for module in model.modules()] == modes
    assert list(model[0]._forward_pre_hooks) == [handle.id]
    assert sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()) == 1
    assert all(torch.equal(value, buffers[name]) for name, value in model.named_buffers())
    assert [p.requires_grad for p in model.parameters()] == [True, False] + [True] * 6
    assert all(p.grad is None for p in model.parameters())


def test_the_generator_decides_and_without_one_the_global_seed_does():
    x, models = points(mlp), [mlp() for _ in range(4)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
    one, other = (init_model_(model, x, stream(6)).state_dict() for model in models[:2])
    torch.testing.assert_close(one, other)
    found = []
    for model, seed in zip(models[2:], (1, 2), strict=True):
        torch.manual_seed(seed)
        found.append(init_model_(model, x)[0].weight)
    assert not torch.allclose(*found)


def test_frozen_and_parametrized_layers_stay_and_shared_weights_are_set_once():
    model = nn.Sequential(*(nn.Linear(5, 5) for _ in range(5)))
    model[0].requires_grad_(False)
    nn.utils.parametrizations.weight_norm(model[1])
    model[3].weight = model[2].weight
    before = [[p.clone() for p in layer.parameters()] for layer in model]
    init_model_(model, points(mlp), stream(7))
    outputs = outputs_of(model, points(mlp))
    stayed = [
        all(torch.equal(a, b) for a, b in zip(layer.parameters(), old, strict=True))
        for layer, old in zip(model, before, strict=True)
    ]
    assert stayed == [True, True, False, False, True]
    torch.testing.assert_close(outputs[model[2]].square().mean(0).sqrt(), torch.ones(5), rtol=1e-3, atol=0)


def test_the_head_is_kept_or_scaled_or_set_like_the_others():
    x, model = points(mlp), mlp()
    head = model[-1].weight.detach().clone()
    kept, scaled, clustered = (
        init_model_(copy.deepcopy(model), x, stream(8), head=h) for h in ("keep", "scale", "clusters")
    )
    assert torch.equal(kept[-1].weight, head)
    z = scaled(x).detach()
    torch.testing.assert_close(z.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(z.std(0, correction=0), torch.ones(3))
    torch.testing.assert_close(F.normalize(scaled[-1].weight), F.normalize(head))
    torch.testing.assert_close(clustered(x).square().mean(0), torch.ones(3))


@pytest.mark.parametrize("make", [mlp, images, sequences, Residual])
def test_lsuv_gives_orthogonal_weights_and_unit_variance_in_every_layer(make):
    model, x = make(), points(make)
    init_lsuv_(model, x, stream(9))
    for layer, z in outputs_of(model, x).items():
        torch.testing.assert_close(z.var(correction=0), torch.ones(()), rtol=1e-3 if len(z) <= 5_000 else 0.05, atol=0)
        assert not layer.bias.any()
        weight = layer.weight.detach().flatten(1)[: layer.weight.shape[0] // getattr(layer, "groups", 1)]
        gram = weight @ weight.mT if len(weight) <= weight.shape[1] else weight.mT @ weight
        torch.testing.assert_close(gram / gram[0, 0], torch.eye(len(gram)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect"])
@pytest.mark.parametrize(
    "options",
    [{"stride": 2, "padding": 1}, {"dilation": 2, "padding": "same"}, {"padding": "valid"}, {"padding": (2, 0)}],
)
def test_patches_are_what_a_convolution_sees(options, mode):
    layer = nn.Conv2d(2, 5, (3, 2), padding_mode=mode, **options).requires_grad_(False)
    x = torch.randn(3, 2, 7, 6, generator=stream(10))
    patches = _patches(layer, x, _Sampling(100, stream(10)))
    expected = layer(x).movedim(1, -1).flatten(0, -2)
    torch.testing.assert_close(patches @ layer.weight.flatten(1).mT + layer.bias, expected)


def test_more_dimensions_words_and_wide_inputs_work():
    tokens = torch.randint(20, (50, 7), generator=stream(11))
    text = nn.Sequential(nn.Embedding(20, 6), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    outputs = outputs_of(init_model_(text, tokens.numpy(), stream(11)), tokens)
    torch.testing.assert_close(outputs[text[1]].square().mean(0), torch.ones(8))
    wide, x = (
        nn.Sequential(nn.Linear(1_500, 8), nn.ReLU(), nn.Linear(8, 2)),
        torch.randn(40, 1_500, generator=stream(11)),
    )
    assert bool((init_model_(wide, x, stream(11))[0](x) > 0).any(0).all())
    volume = nn.Sequential(nn.Conv3d(1, 4, 2), nn.Flatten(), nn.Linear(4 * 8, 2))
    assert bool(init_model_(volume, torch.randn(20, 1, 3, 3, 3, generator=stream(11)))[0].weight.isfinite().all())


@pytest.mark.parametrize("how", ["silhouette", "bic", 1, 50])
def test_any_number_of_clusters_works_and_few_points_and_constant_features_too(how):
    x = torch.zeros(7, 5)
    x[:, :3] = torch.randn(7, 3, generator=stream(12))
    model = init_model_(mlp(), x, stream(12), n_clusters=how)
    for z in list(outputs_of(model, x).values())[:-1]:
        assert bool(((z > 0).any(0) & (z < 0).any(0)).all())


def test_inputs_on_one_ray_leave_units_without_bias_alive():
    x = torch.arange(1.0, 9)[:, None] * torch.tensor([1.0, 2.0, 3.0])
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2))
    assert bool((init_model_(model, x, stream(13))[0](x) > 0).any(0).all())


@pytest.mark.parametrize("init", [init_model_, init_lsuv_])
def test_what_cannot_be_is_refused_and_the_model_stays(init):
    model = mlp()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"^x must be finite, got 1 NaN"):
        init(model, torch.tensor([[np.nan, 0, 0, 0, 0]]))
    with pytest.raises(ValueError, match=r"^x must hold at least one number, got the shape \(0, 5\)"):
        init(model, torch.ones(0, 5))
    with pytest.raises(ValueError, match="sample must be a positive integer, got 0"):
        init(model, torch.ones(3, 5), sample=0)
    with pytest.raises(ValueError, match=r"^the layer '0' cannot be initialized from x: its inputs are all"):
        init(model, torch.zeros(9, 5))
    with pytest.raises(ValueError, match=r"^the model does not run on x of shape \(3, 4\) and type float32: mat1"):
        init(model, torch.ones(3, 4))
    with pytest.raises(ValueError, match="model has no linear or convolutional layer that runs on x"):
        init(nn.Sequential(nn.ReLU()), torch.ones(3, 4))
    with pytest.raises(ValueError, match="model has no layer to initialize: all are frozen"):
        init(mlp().requires_grad_(False), torch.ones(3, 5))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_an_error_in_a_later_layer_gives_earlier_layers_their_values_back():
    class Broken(nn.Module):
        def forward(self, x):
            return x * 0

    model = nn.Sequential(nn.Linear(5, 6), Broken(), nn.Linear(6, 6), nn.Linear(6, 2))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="the layer '2' cannot be initialized from x: its inputs are all the same"):
        init_model_(model, points(mlp))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_bad_options_of_a_model_are_refused():
    for options, text in (
        ({"head": "drop"}, "head must be one of keep, scale, clusters"),
        ({"n_clusters": 0}, "positive integer"),
    ):
        with pytest.raises(ValueError, match=text):
            ms.init_model_(mlp(), points(mlp), **options)
    model = mlp()
    nn.init.zeros_(model[-1].weight)
    with pytest.raises(ValueError, match="an output is the same for all inputs"):
        init_model_(model, points(mlp), head="scale")
