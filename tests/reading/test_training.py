"""The tracker follows a training in a plain loop and as a callback of trainers that it does not import."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import metriscope as ms
from metriscope.reading.training import effective_rank

X = np.random.default_rng(0).normal(size=(60, 4))


def network():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh()).requires_grad_(False)


class Logger:
    def __init__(self):
        self.seen = {}

    def log(self, name, value, step):
        self.seen[name, step] = value


def test_units_that_die_and_revive_are_counted_and_the_kernel_drifts():
    net, logger = network(), Logger()
    tracker = ms.TrainingTracker(net, X, logger=logger)
    net[0].bias.zero_()
    tracker(0)
    bias = net[0].bias.clone()
    net[0].bias[:2] = -100
    tracker(1)
    net[0].bias.copy_(bias)
    tracker(2)
    table = tracker.to_pandas().set_index(["epoch", "layer"])
    first = table.xs("1", level="layer")
    assert first["dead"].tolist() == [0, 2, 0]
    assert first["dying"].tolist() == [0, 2, 0]
    assert first["revived"].tolist() == [0, 0, 2]
    assert first["units"].tolist() == [6, 6, 6]
    assert first["drift"].tolist() == pytest.approx([0, first["drift"][1], 0], abs=1e-9)
    assert first["drift"][1] > 0.01
    assert first["change"][2] == pytest.approx(first["change"][1])
    assert first["effective_rank"][1] < first["effective_rank"][0] <= 6
    assert logger.seen["1/dying", 1] == 2
    assert len(logger.seen) == 3 * 2 * 4


def test_equal_variance_in_r_directions_has_rank_r():
    draw = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0)).double()
    mixing = torch.linalg.qr(torch.randn(8, 3, generator=torch.Generator().manual_seed(1)).double())[0]
    assert effective_rank(draw @ mixing.T) == pytest.approx(3, abs=0.01)
    assert effective_rank(draw[:2]) == pytest.approx(1)
    assert math.isnan(effective_rank(torch.ones(5, 2)))


def test_it_is_called_as_lightning_and_hugging_face_call_their_callbacks():
    class Base:
        """What Lightning asks of a callback: to be an instance of its own class, and to have every hook."""

        def on_fit_start(self, trainer, module):
            """Do nothing."""

        def on_train_epoch_end(self, trainer, module):
            raise AssertionError("not overridden")

    tracker = ms.TrainingTracker(network(), X, every=2)
    callback = tracker.callback(Base)
    assert isinstance(callback, Base)
    for epoch in range(3):
        callback.on_fit_start(None, None)
        callback.on_train_epoch_end(SimpleNamespace(current_epoch=epoch), None)
    assert tracker.to_pandas()["epoch"].unique().tolist() == [0, 2]
    other = ms.TrainingTracker(network(), X)
    for event in ("on_init_end", "on_train_begin", "on_step_end", "on_epoch_end", "on_train_end"):
        state = SimpleNamespace(epoch=1.0)
        assert getattr(other, event)(SimpleNamespace(), state, SimpleNamespace(), model=None) is None
    assert other.to_pandas()["epoch"].unique().tolist() == [1]


@pytest.mark.parametrize("method", ["add_scalar", "log_metric"])
def test_loggers_of_other_libraries_fit(method):
    seen = []
    logger = type("Writer", (), {method: lambda self, name, value, step: seen.append((name, step))})()
    ms.TrainingTracker(network(), X, logger=logger)(3)
    assert ("1/dead", 3) in seen


def test_what_cannot_be_tracked_is_refused():
    with pytest.raises(ValueError, match="logger must have a method log, add_scalar or log_metric, got a int"):
        ms.TrainingTracker(network(), X, logger=3)
    with pytest.raises(ValueError, match="measured nothing yet"):
        ms.TrainingTracker(network(), X).to_pandas()
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = ms.TrainingTracker(network(), X).absent
