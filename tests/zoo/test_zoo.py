"""Architectures of timm and transformers: captured with the bits of an independent reference, or refused clearly."""

import pytest
import torch
from torch import nn

import metriscope as ms
from zoo.models import architectures, is_there
from zoo.reference import compared, seen
from zoo.table import row


def test_the_reference_agrees_on_a_small_network_and_notices_a_flipped_bit_and_a_missing_layer():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 6), nn.GELU(), nn.Linear(6, 2))
    points = torch.randn(5, 1, 6, 6)
    calls = seen(model, points)
    whole = compared(ms.capture(model, points), calls)
    assert (whole.equal, whole.differing, whole.unmatched) == (2, (), ())
    assert compared(ms.capture(model, points, layers="1"), calls).unmatched == ("gelu (5, 6)",)
    calls[0][1].flat[0] ^= True
    assert compared(ms.capture(model, points), calls).differing == ("1",)


POOLS = [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d((2, 3), (1, 2))]


@pytest.mark.parametrize("pool", [*POOLS, nn.MaxPool2d(2, 1, 0, 2)], ids=str)
def test_the_reference_finds_the_winner_of_every_window(pool):
    torch.manual_seed(0)
    model, points = nn.Sequential(nn.Conv2d(1, 3, 3), pool), torch.randn(5, 1, 11, 12)
    found = compared(ms.capture(model, points), seen(model, points))
    assert (found.equal, found.differing, found.unmatched) == (1, (), ())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("library", "name"), list(architectures()))
def test_an_architecture_is_captured_bit_identical_or_refused_clearly(library, name):
    if not is_there(library):
        pytest.skip(f"{library} is not installed")
    found = row(library, name)
    assert found["outcome"] in ("bit-identical", "refused"), found
