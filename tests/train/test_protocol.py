from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.train import Protocol, recorded_epochs


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"epochs": -1}, "epochs must be an integer of at least 0, got -1"),
        ({"optimizer": "lion"}, "optimizer must be one of adam, sgd, got 'lion'"),
        ({"loss": "hinge"}, "loss must be one of mse, cross-entropy, bce, got 'hinge'"),
        ({"lr": 0.0}, r"lr must lie in \(0, inf\), got 0.0"),
        ({"lr": math.nan}, r"lr must lie in \(0, inf\), got nan"),
        ({"betas": (0.9, 1.0)}, r"betas must lie in \[0, 1\), got 1.0"),
        ({"betas": (-0.1, 0.9)}, r"betas must lie in \[0, 1\), got -0.1"),
        ({"eps": 0.0}, r"eps must lie in \(0, inf\), got 0.0"),
        ({"batch_size": 0}, "batch_size must be a positive integer, got 0"),
    ],
)
def test_a_protocol_that_cannot_be_followed_is_refused(asked, sentence):
    with pytest.raises(ValueError, match=sentence):
        Protocol(**({"epochs": 1} | asked))


def test_a_protocol_is_what_torch_does_by_default_and_does_not_change():
    protocol = Protocol(epochs=0)
    assert (protocol.lr, protocol.betas, protocol.eps) == (1e-3, (0.9, 0.999), 1e-8)
    with pytest.raises(FrozenInstanceError):
        protocol.lr = 1.0


@given(epochs=st.integers(1, 1_000_000), points=st.integers(2, 500))
def test_recorded_epochs_go_from_the_first_to_the_last_without_repeats(epochs, points):
    found = recorded_epochs(epochs, points)
    assert found[0] == 0
    assert found[-1] == epochs - 1
    assert (np.diff(found) > 0).all()
    assert len(found) <= points
    assert np.issubdtype(found.dtype, np.integer)


@given(epochs=st.integers(0, 240))
def test_a_short_training_records_every_epoch(epochs):
    assert recorded_epochs(epochs).tolist() == list(range(epochs))


@given(epochs=st.integers(10_000, 1_000_000))
def test_a_long_training_is_recorded_evenly_in_proportion(epochs):
    steps = np.diff(np.log(recorded_epochs(epochs) + 1.0))
    # From where rounding to whole epochs no longer shows, each record is the same factor behind the last.
    later = steps[len(steps) // 2 :]
    assert later.max() < 2 * later.min()


def test_fewer_than_two_recorded_epochs_are_refused():
    with pytest.raises(ValueError, match="points must be an integer of at least 2, got 1"):
        recorded_epochs(10, points=1)
