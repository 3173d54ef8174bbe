from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from metriscope.nn import stack_state
from metriscope.rng import stream
from metriscope.train import Cohort, Protocol, StackedEngine, fit
from metriscope.train.engines import POINT_LOSSES


def problem(points: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(points, 3, generator=stream(0, "x"), dtype=torch.float64)
    return x, torch.randint(2, (points,), generator=stream(0, "y"))


def network(seed: int) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    for index, value in enumerate(model.parameters()):
        nn.init.normal_(value, generator=stream(seed, "start", index))
    return model


def test_stacked_training_on_bce_is_torchs_adam_on_torchs_loss():
    x, y = problem()
    models = [network(seed) for seed in (3, 5)]
    recipe = Protocol(epochs=12, lr=1e-2, loss="bce")
    found = Cohort("stack", StackedEngine(models[0], x, y, recipe, (3, 5)), stack_state(models), recipe)
    fit([found], workers=1)
    for index, model in enumerate(models):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(12):
            loss = F.binary_cross_entropy_with_logits(model(x)[:, 0], y.double())
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for name, value in model.named_parameters():
            torch.testing.assert_close(found.parameters[name][index], value.detach(), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(found.history[index], torch.tensor(losses, dtype=torch.float64))


def test_a_confident_logit_costs_nothing_or_its_size():
    # Without the sigmoid inside the loss, 1 - sigmoid(200) would round to 0 and its logarithm to minus infinity.
    logits = torch.tensor([[200.0, 200.0, 0.0]])
    found = POINT_LOSSES["bce"](logits, torch.tensor([1, 0, 1]))
    torch.testing.assert_close(found, torch.tensor([[0.0, 200.0, 2.0]]).where(logits != 0, torch.tensor(2.0).log()))


@pytest.mark.parametrize(("outputs", "targets"), [((2, 5, 3), (5,)), ((2, 5, 1), (5, 1)), ((2, 5), (4,))])
def test_anything_but_one_logit_and_one_target_per_point_is_refused(outputs, targets):
    with pytest.raises(ValueError, match="bce needs one logit and one target per point"):
        POINT_LOSSES["bce"](torch.zeros(outputs), torch.zeros(targets))
