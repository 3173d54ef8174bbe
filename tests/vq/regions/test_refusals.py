"""What has no exact linear regions is refused in one sentence that names it, and no model is changed."""

import re

import numpy as np
import pytest
import torch
from torch import nn

import metriscope as ms
from vq.regions.networks import mlp

SOFT = [
    (mlp(2, 4, 1, act=nn.GELU), "layer '1' (gelu) is not piecewise affine"),
    (nn.Sequential(mlp(2, 4, 1), nn.Sigmoid()), "layer '1' (sigmoid) is not piecewise affine"),
    (nn.Sequential(*mlp(2, 4, 3), nn.Softmax(-1)), "layer '3' (Softmax) is not affine"),
    (nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4), nn.ReLU()), "layer '1' (LayerNorm) is not affine"),
    (mlp(2, 4, 1, act=nn.Hardshrink), "layer '1' (hardshrink) jumps"),
    (nn.Sequential(nn.Linear(2, 4), ms.OffsetL2(4, 2)), "layer '1' (OffsetL2) is not affine"),
]
BAD = [
    ({"bounds": ((0, 1), (0, np.nan))}, "bounds must be finite, got 1 NaN or infinite of 4 entries"),
    ({"bounds": ((1, 0), (0, 1))}, "bounds must rise from low to high"),
    ({"bounds": "square"}, "bounds must hold real numbers, got 'square'"),
    ({"bounds": (0, 1, 2)}, "bounds must be ((s0, s1), (t0, t1))"),
    ({"plane": (np.zeros(2), np.ones(2), np.ones(2))}, "parallel or zero"),
    ({"plane": (np.zeros(2), np.ones(3), np.ones(2))}, "of one shape"),
    ({"plane": (np.zeros(2), np.ones(2))}, "an origin and two directions"),
    ({"plane": (np.zeros(2), np.full(2, np.inf), np.ones(2))}, "must be finite"),
    ({"plane": (np.zeros(3), np.eye(3)[0], np.eye(3)[1])}, "the model does not run on inputs of shape (3,)"),
]


@pytest.mark.parametrize(("model", "sentence"), SOFT)
def test_what_is_not_piecewise_affine_is_refused_by_name(model, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ms.linear_regions(model)


@pytest.mark.parametrize(("asked", "sentence"), BAD)
def test_a_bad_request_is_refused_in_one_sentence(asked, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        ms.linear_regions(mlp(2, 4, 1), **asked)
    assert "\n" not in str(caught.value)


def test_a_product_of_features_is_refused_though_no_module_makes_it():
    class Product(nn.Module):
        def forward(self, x):
            return torch.relu(x.prod(1, keepdim=True))

    with pytest.raises(ValueError, match=r"what reaches layer 'relu' \(relu\) is not piecewise affine"):
        ms.linear_regions(Product())


def test_weights_that_are_not_numbers_are_refused():
    model = mlp(2, 4, 1)
    model[0].weight.data[0, 0] = float("nan")
    with pytest.raises(ValueError, match="NaN or infinite"):
        ms.linear_regions(model)


@pytest.mark.parametrize("thing", [None, torch.relu, "model"])
def test_what_is_no_module_is_refused(thing):
    with pytest.raises(ValueError, match=r"model must be a torch\.nn\.Module"):
        ms.linear_regions(thing)


@pytest.mark.parametrize("regions", [[-1], [99], [0.5]])
def test_a_region_that_is_not_there_is_refused(regions):
    with pytest.raises(ValueError, match="i must hold whole numbers"):
        ms.linear_regions(nn.Linear(2, 1)).distance(regions, 0)


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        ([[0.0]], r"points must have the shape \(points, 2\), got \(1, 1\)"),
        ([[np.nan, 0.0]], "points must be finite, got 1 NaN or infinite of 2 entries"),
        (3.0, r"points must have the shape \(points, 2\), got \(\)"),
    ],
)
def test_points_of_another_shape_are_refused(points, sentence):
    with pytest.raises(ValueError, match=sentence):
        ms.linear_regions(nn.Linear(2, 1)).locate(points)


@pytest.mark.parametrize(
    ("color", "sentence"), [("red", "color must be"), ([1.0], r"color must have the shape \(1,\)")]
)
def test_a_color_that_is_none_is_refused(color, sentence):
    if color == [1.0]:
        color = [1.0, 2.0]
    with pytest.raises(ValueError, match=sentence):
        ms.linear_regions(nn.Linear(2, 1)).plot(color=color)


def test_the_model_is_given_back_as_it_was():
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 1)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    ms.linear_regions(model).check()
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(
        torch.equal(value, before[name]) and value.dtype == before[name].dtype
        for name, value in model.state_dict().items()
    )
    assert torch.equal(state, torch.get_rng_state())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_more_regions_than_asked_for_are_refused_while_cutting():
    model = nn.Sequential(nn.Linear(2, 2), ms.Abs(), nn.Linear(2, 1), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
        model[0].bias.zero_()
    assert len(ms.linear_regions(nn.Sequential(*model[:2]), max_regions=4, progress=True)) == 4
    with pytest.raises(
        ValueError, match=r"more than max_regions = 3 regions: 4 after 2 of 3 units, in layer '1'; choose"
    ):
        ms.linear_regions(model, max_regions=3)
    with pytest.raises(ValueError, match="max_regions must be a positive integer"):
        ms.linear_regions(model, max_regions=0)
