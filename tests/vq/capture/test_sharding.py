"""Shards captured into a folder: the same bits as one capture, opened lazily, and continued after a stop."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
import torch
from torch import nn

from metriscope.vq import Patterns, UtilizationState, capture, capture_shards, utilization

X = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
CUTS = X.split([20, 3, 27])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 11), nn.ReLU(), nn.Linear(11, 5), nn.ReLU())


@pytest.mark.parametrize("values", [None, "float32"])
def test_shards_hold_the_bits_of_one_capture(model, tmp_path, values):
    found, whole = capture_shards(model, CUTS, tmp_path, values=values), capture(model, X, values=values)
    assert [len(part) for part in found.shards()] == [20, 3, 27]
    assert np.array_equal(found[18:25].packed, whole[18:25].packed)
    assert found.equals(whole)
    assert Patterns.load(tmp_path, verify=True).equals(whole)
    if values:
        np.testing.assert_allclose(found.values("1"), whole.values("1"), rtol=1e-5, atol=1e-6)


def mapping(array):
    """Return what an array's memory belongs to in the end."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def test_opening_and_going_through_shards_keeps_them_on_the_disk(model, tmp_path):
    found, state = capture_shards(model, CUTS, tmp_path), UtilizationState()
    for part in found.shards():
        assert isinstance(mapping(part.packed), mmap.mmap)
        state.update(part)
    assert state.compute().to_pandas().equals(utilization(capture(model, X)).to_pandas())


def test_a_call_that_was_stopped_goes_on_where_it_was(model, tmp_path):
    def stopped():
        raise KeyboardInterrupt

    def unused():
        raise AssertionError("this shard is there already")

    with pytest.raises(KeyboardInterrupt):
        capture_shards(model, [lambda: CUTS[0], stopped], tmp_path)
    found = capture_shards(model, [unused, lambda: CUTS[1], CUTS[2]], tmp_path)
    assert found.equals(capture(model, X))


def test_a_folder_is_for_one_model_and_one_set_of_options(model, tmp_path):
    capture_shards(model, CUTS[:1], tmp_path)
    with pytest.raises(ValueError, match="captured with other options"):
        capture_shards(model, CUTS, tmp_path, layers="1")
    with torch.no_grad():
        model[0].bias += 1
    with pytest.raises(ValueError, match="captured with another model"):
        capture_shards(model, CUTS, tmp_path)


def test_no_shards_and_ids_are_refused(model, tmp_path):
    with pytest.raises(ValueError, match="at least one shard, got none"):
        capture_shards(model, [], tmp_path)
    with pytest.raises(ValueError, match="takes no ids"):
        capture_shards(model, CUTS, tmp_path, ids=[1])
