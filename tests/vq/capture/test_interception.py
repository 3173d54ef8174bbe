"""After the first batch, only those modules are followed that can run activations."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from metriscope.vq.capture import capture
from metriscope.vq.capture.interception import can_follow_leaves
from vq.capture.networks import points


def leaves(model):
    return {module for module in model.modules() if not (list(module.children()) or list(module.parameters()))}


def convolutions():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 5), nn.GELU()
    )


class Bent(nn.Linear):
    """A linear layer whose own code runs an activation."""

    def forward(self, x):
        return F.relu(super().forward(x))


def bent_instance():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].forward = lambda x: F.relu(x)
    return model


def hooked():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, output: F.relu(output))
    return model


@pytest.mark.parametrize(
    ("model", "can"),
    [
        (convolutions(), True),
        (nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.LayerNorm(3)), True),
        (nn.Sequential(Bent(3, 3), nn.ReLU()), False),
        (bent_instance(), False),
        (hooked(), False),
        (nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 3)), nn.ReLU()), False),
        (nn.TransformerEncoderLayer(4, 2, 8), False),
    ],
)
def test_leaves_are_enough_only_inside_pytorchs_plain_containers_and_linear_layers(model, can):
    assert can_follow_leaves(model, leaves(model)) is can


def test_global_hooks_may_run_activations_anywhere():
    model = convolutions()
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    try:
        assert not can_follow_leaves(model, leaves(model))
    finally:
        handle.remove()


@pytest.mark.parametrize("conv", ["positions", "channels"])
def test_batches_whose_leaves_alone_are_followed_have_the_signs_of_a_single_batch(conv):
    model, x = convolutions(), points(30, 2, 6, 6)
    assert capture(model, x, conv=conv, batch_size=4).equals(capture(model, x, conv=conv, batch_size=30))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_an_activation_used_twice_keeps_both_names_in_later_batches():
    act = nn.Tanh()
    patterns = capture(nn.Sequential(nn.Linear(3, 4), act, nn.Linear(4, 5), act), points(9, 3), batch_size=2)
    assert [(layer.name, layer.width) for layer in patterns.layers] == [("1", 4), ("1#2", 5)]


def test_values_that_are_not_finite_in_a_later_batch_leave_no_hook_and_no_mode():
    model, x = convolutions(), points(8, 2, 6, 6)
    x[5] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        capture(model, x, batch_size=2)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.overrides._get_current_function_mode() is None
