"""A layer read from shards of points: in any order, it is what `read_layer` says of all points."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import metriscope as ms
from metriscope.reading.unit_statistics import RowSample

NAMES = np.array(["a", "b", "c"])


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).double()


def labeled(count=120):
    generator = np.random.default_rng(0)
    codes = np.arange(count) % 3
    return torch.tensor(generator.normal(size=(count, 5)) + codes[:, None]), NAMES[codes]


def read_in_shards(model, x, labels, order):
    """Return a state into which one state per shard was merged, in an order."""
    size = len(x) // len(order)
    found = ms.LayerState(model, "0", NAMES)
    for number in order:
        some = slice(number * size, (number + 1) * size)
        found.merge(ms.LayerState(model, "0", NAMES).update(x[some], labels[some], first=number * size))
    return found


def assert_equal_readings(one, other):
    for mine, theirs in ((one.units, other.units), (one.classes, other.classes)):
        pd.testing.assert_frame_equal(mine, theirs, rtol=1e-7, atol=1e-9)
    assert (one.points, one.rows, one.metric.rank) == (other.points, other.rows, other.metric.rank)
    assert one.sphericity == pytest.approx(other.sphericity, rel=1e-7)


@settings(max_examples=20)
@given(order=st.permutations(range(4)))
def test_shards_merged_in_any_order_read_as_all_points_at_once(order):
    model, (x, labels) = network(), labeled()
    state = read_in_shards(model, x, labels, order)
    assert state.points == len(x)
    assert_equal_readings(state.compute(x, labels), ms.read_layer(model, "0", x, labels))


def test_shards_that_update_one_state_are_numbered_one_after_another():
    model, (x, labels) = network(), labeled()
    state = ms.LayerState(model, "0", NAMES)
    for some in (slice(0, 50), slice(50, 57), slice(57, 120)):
        state.update(x[some], labels[some], batch_size=16)
    assert_equal_readings(state.compute(x, labels), ms.read_layer(model, "0", x, labels))


def test_convolutions_without_labels():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)).double()
    x = torch.randn(20, 1, 6, 6, generator=torch.Generator().manual_seed(1)).double()
    one, other = ms.LayerState(model, "0").update(x[:8]), ms.LayerState(model, "0").update(x[8:], first=8)
    assert_equal_readings(other.merge(one).compute(x), ms.read_layer(model, "0", x))


@settings(max_examples=20)
@given(order=st.permutations(range(5)), positions=st.integers(1, 3))
def test_the_sample_of_rows_does_not_depend_on_how_points_are_divided(order, positions):
    z = torch.arange(50 * positions).double().reshape(50, positions, 1)
    codes = torch.arange(50)
    whole, found = RowSample(20), RowSample(20)
    whole.add(z, codes, 0)
    for number in order:
        part = RowSample(20)
        part.add(z[10 * number : 10 * number + 10], codes[10 * number : 10 * number + 10], 10 * number)
        found.merge(part)
    assert torch.equal(found.z, whole.z)
    assert torch.equal(found.codes, whole.codes)
    assert len(torch.unique(whole.z)) == 20


def test_without_points_to_perturb_no_unit_has_a_kind_and_the_reason_is_told():
    reading = ms.LayerState(network(), "0").update(labeled()[0]).compute()
    assert set(reading.units["kind"]) == {"neither"}
    assert "no points were given" in reading.reasons["kind"]


def test_misuse_is_told_in_one_sentence():
    model, (x, labels) = network(), labeled()
    state = ms.LayerState(model, "0", NAMES).update(x, labels)
    with pytest.raises(ValueError, match="points 0 to 9 were added twice"):
        state.update(x[:10], labels[:10], first=0)
    with pytest.raises(ValueError, match="points 5 to 119 were added twice"):
        state.merge(ms.LayerState(model, "0", NAMES).update(x, labels, first=5))
    with pytest.raises(ValueError, match="labels and classes must be given together"):
        state.update(x)
    with pytest.raises(ValueError, match=r"labels must be among the classes .*, got \['z'\]"):
        state.update(x[:1], np.array(["z"]))
    with pytest.raises(ValueError, match="the same classes"):
        state.merge(ms.LayerState(model, "0"))
    with pytest.raises(ValueError, match="with the same weights"):
        state.merge(
            ms.LayerState(nn.Sequential(nn.Linear(5, 8), nn.ReLU()).double(), "0", NAMES).update(x, labels, 200)
        )
    with pytest.raises(ValueError, match="no points yet"):
        ms.LayerState(model, "0").compute()
    with pytest.raises(ValueError, match=r"every class must have points, got none of \['c'\]"):
        ms.LayerState(model, "0", NAMES).update(x[:2], labels[:2]).compute()
    with pytest.raises(ValueError, match=r"labels must have the shape \(120,\), got \(5,\)"):
        state.compute(x, labels[:5])


def test_a_state_that_refused_is_as_it_was():
    model, (x, labels) = network(), labeled()
    state = ms.LayerState(model, "0", NAMES).update(x, labels)
    with pytest.raises(ValueError, match="were added twice"):
        state.merge(ms.LayerState(model, "0", NAMES).update(x, labels, first=60))
    assert_equal_readings(state.compute(x, labels), ms.read_layer(model, "0", x, labels))
