"""The largest curvature: against the whole Hessian, and against what it is for."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn import functional as F

from metriscope.nn import build
from metriscope.probes import sharpness
from metriscope.rng import stream

X = torch.randn(40, 3, generator=stream(0, "x"), dtype=torch.float64)
Y = torch.randint(4, (40,), generator=stream(0, "y"))


@pytest.mark.parametrize("name", ["relu", "abs2", "gelu"])
def test_it_is_the_largest_eigenvalue_of_the_whole_hessian(name):
    model = build(name, 3, 5, 4, generator=stream(1, "start")).double()
    state = dict(model.named_parameters())
    sizes = [value.numel() for value in state.values()]

    def loss(flat):
        parts = zip(state, flat.split(sizes), strict=True)
        return F.cross_entropy(functional_call(model, {k: v.view_as(state[k]) for k, v in parts}, (X,)), Y)

    whole = hessian(loss, torch.cat([value.detach().flatten() for value in state.values()]))
    known = torch.linalg.eigvalsh(whole)
    assert sharpness(model, X, Y, steps=300) == pytest.approx(float(known[known.abs().argmax()]), rel=1e-3)


def test_pixels_times_255_are_curved_by_its_square_more_in_a_linear_model():
    model = nn.Linear(3, 4, bias=False).double()
    with torch.no_grad():
        model.weight.zero_()
    assert sharpness(model, 255 * X, Y) == pytest.approx(255**2 * sharpness(model, X, Y), rel=1e-6)


def test_the_model_is_not_changed():
    model = build("relu", 3, 5, 4).double()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    sharpness(model, X, Y)
    assert all(before[key].equal(value) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_frozen_model_is_refused():
    with pytest.raises(ValueError, match="no parameter that needs a gradient"):
        sharpness(nn.Linear(3, 4).requires_grad_(False), X, Y)
