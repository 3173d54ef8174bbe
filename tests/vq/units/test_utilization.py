from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from metriscope.rng import stream
from metriscope.vq.capture.capture import capture
from metriscope.vq.units.utilization import STATUSES, UtilizationTracker, utilization
from vq.units.cases import bit_matrices, layered, mlp, patient, patterns, plain_bits


def plain_status(column, rare):
    share = column.mean()
    if not column.any():
        return "dead"
    if column.all():
        return "always on"
    return "rare" if share < rare else "active"


def first_equal(columns, unit, wanted, end):
    """Return the first unit before ``end`` with the wanted column; none if there is none, or the unit never changes."""
    if columns[unit].all() or not columns[unit].any():
        return pd.NA
    return next((i for i in range(end) if (columns[i] == wanted).all()), pd.NA)


@patient
@given(case=layered(), rare=st.floats(0, 1))
def test_every_column_of_the_table_follows_its_plain_definition(case, rare):
    bits, widths = case
    table = utilization(patterns(bits, widths), rare).to_pandas()
    assert list(table.columns) == ["layer", "unit", "active", "status", "duplicate_of", "opposite_of", "saturated"]
    assert table["layer"].tolist() == np.repeat([f"layer{i}" for i in range(len(widths))], widths).tolist()
    assert table["unit"].tolist() == [unit for width in widths for unit in range(width)]
    np.testing.assert_array_equal(table["active"], bits.mean(0))
    assert table["status"].tolist() == [plain_status(column, rare) for column in bits.T]


@patient
@given(case=layered(points=(1, 4)))
def test_a_partner_is_the_first_unit_of_the_layer_that_is_equal_or_opposite_everywhere(case):
    bits, widths = case
    table = utilization(patterns(bits, widths)).to_pandas()
    expected = []
    for columns in np.split(bits.T, np.cumsum(widths)[:-1]):
        for unit, column in enumerate(columns):
            same = first_equal(columns, unit, column, unit)
            expected.append((same, first_equal(columns, unit, 1 - column, len(columns))))
    same, opposite = zip(*expected, strict=True)
    pd.testing.assert_series_equal(table["duplicate_of"], pd.Series(same, dtype="Int64", name="duplicate_of"))
    pd.testing.assert_series_equal(table["opposite_of"], pd.Series(opposite, dtype="Int64", name="opposite_of"))


@patient
@given(bits=bit_matrices(points=(1, 4), units=(24, 24)))
@pytest.mark.parametrize(
    ("layer", "axes"),
    [
        ({"shape": (3, 2, 4), "channel_axis": 0}, (3, 2, 4, 1)),
        ({"shape": (8, 3), "channel_axis": 1}, (8, 3, 1)),
        ({"shape": (3, 8), "channel_axis": 0}, (3, 8, 1)),
    ],
)
def test_a_channel_is_one_unit_of_all_its_positions(layer, axes, bits):
    found = utilization(patterns(bits, **layer), rare=0.3, by="channel")
    each = np.moveaxis(bits.reshape(-1, *axes), (1 + layer["channel_axis"], -1), (0, 1))
    channels = each.reshape(3 * axes[-1], -1)
    np.testing.assert_array_equal(found.active, channels.mean(1))
    assert found.status.tolist() == [plain_status(channel, 0.3) for channel in channels]


def test_equal_and_opposite_channels_are_found():
    channel = np.array([[0, 1], [1, 1], [0, 0]])
    bits = np.concatenate([channel, 1 - channel, channel, channel[:, ::-1]], axis=1)
    table = utilization(patterns(bits, shape=(4, 1, 2), channel_axis=0), by="channel").to_pandas()
    assert table["duplicate_of"].tolist() == [pd.NA, pd.NA, 0, pd.NA]
    assert table["opposite_of"].tolist() == [1, 0, 1, pd.NA]


def test_a_layer_without_positions_is_counted_bit_by_bit():
    by_unit, by_channel = (utilization(patterns(np.eye(5, 12), shape=(12,)), by=by) for by in ("unit", "channel"))
    pd.testing.assert_frame_equal(by_unit.to_pandas(), by_channel.to_pandas())


def test_many_blocks_of_points_and_units_give_what_one_would():
    generator = np.random.default_rng(0)
    bits = generator.random((9001, 300)) < generator.random(300)
    bits[:, 299], bits[:, 280] = bits[:, 3], ~bits[:, 4]
    found = utilization(patterns(bits, (270, 30)))
    np.testing.assert_array_equal(found.active, bits.mean(0))
    assert (found.duplicate_of < 0).all()  # a partner in another layer is none
    assert utilization(patterns(bits)).duplicate_of[299] == 3
    assert utilization(patterns(bits)).opposite_of[280] == 4


def test_memory_stays_below_that_of_the_unpacked_bits():
    generator = np.random.default_rng(0)
    p = patterns(generator.integers(0, 2, (200_000, 288), np.uint8), (96, 96, 96))
    tracemalloc.start()
    try:
        utilization(p)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(p) * p.width / 4


def test_the_summary_counts_the_table():
    # Columns: dead, always on, rare, active, its copy, its opposite; then one dead unit in a second layer.
    bits = np.zeros((1000, 7))
    bits[:, 1], bits[:5, 2], bits[::2, 3], bits[::2, 4], bits[1::2, 5] = 1, 1, 1, 1, 1
    summary = utilization(patterns(bits, (6, 1)), rare=0.01).summary()
    assert list(summary.columns) == ["layer", "units", *STATUSES, "duplicates", "opposites"]
    assert summary.to_numpy().tolist() == [["layer0", 6, 1, 1, 1, 0, 3, 1, 3], ["layer1", 1, 1, 0, 0, 0, 0, 0, 0]]


def test_rare_means_on_in_less_than_that_share_of_points():
    bits = np.zeros((100, 2))
    bits[0, 0], bits[:2, 1] = 1, 1
    assert utilization(patterns(bits), rare=0.02).status.tolist() == ["rare", "active"]
    assert utilization(patterns(bits), rare=0.0).status.tolist() == ["active", "active"]


def test_a_layer_without_units_has_no_rows():
    assert utilization(patterns([[0, 1, 1]], (1, 0, 2))).layer.tolist() == ["layer0", "layer2", "layer2"]


def test_one_point_makes_every_unit_dead_or_always_on():
    assert utilization(patterns([[0, 1, 1]])).status.tolist() == ["dead", "always on", "always on"]


@pytest.mark.parametrize(
    ("p", "options", "message"),
    [
        (patterns(np.zeros((0, 3))), {}, "at least one point and one unit, got 0 and 3"),
        (patterns(np.zeros((2, 0)), (0,)), {}, "at least one point and one unit, got 2 and 0"),
        (patterns(np.zeros((2, 3))), {"rare": 1.5}, r"rare must lie in \[0, 1\], got 1.5"),
        (patterns(np.zeros((2, 3))), {"rare": float("nan")}, r"rare must lie in \[0, 1\], got nan"),
        (patterns(np.zeros((2, 3))), {"by": "layer"}, "by must be one of unit, channel, got 'layer'"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(p, options, message):
    with pytest.raises(ValueError, match=message):
        utilization(p, **options)


def test_a_tracker_follows_a_unit_until_it_dies():
    model = mlp((3, 4, 5))
    x = torch.linspace(-1, 1, 30, dtype=torch.float64).reshape(10, 3)
    tracker = UtilizationTracker(model, x, every=2, layers=["1"])
    for step in range(5):
        if step == 3:
            model[0].weight.data[1], model[0].bias.data[1] = 0.0, -1.0
        measured = tracker(step)
        assert (measured is None) == (step % 2 == 1)
    np.testing.assert_array_equal(tracker.records[4].active, plain_bits(model, x)[0][:, :4].mean(0))
    table = tracker.to_pandas()
    assert table["step"].tolist() == [0] * 4 + [2] * 4 + [4] * 4
    assert table.query("step == 4 and unit == 1")["status"].tolist() == ["dead"]
    assert table.query("step < 4 and unit == 1")["status"].tolist() == ["active"] * 2
    summary = tracker.summary()
    assert summary["step"].tolist() == [0, 2, 4]
    assert summary["dead"].diff().tolist()[1:] == [0, 1]


def test_a_dead_channel_of_a_convolution_is_dead_at_every_position():
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(48, 2), nn.ReLU6())
    for parameter in model.parameters():
        parameter.data.normal_(generator=stream(0, "parameter", parameter.numel()))
    model[0].bias.data[1] = -1000.0
    p = capture(model, torch.randn(200, 1, 6, 6, generator=stream(0, "x")))
    found = utilization(p, by="channel")
    assert found.layer.tolist() == ["1"] * 3 + ["4"] * 2  # a ReLU6 has two thresholds, and is one unit
    assert (found.status[:3] == "dead").tolist() == [False, True, False]
    by_position = utilization(p).active[:48].reshape(3, 16)
    np.testing.assert_allclose(found.active[:3], by_position.mean(1))


# Values of six units at four points: below, between and above the thresholds 0 and 6 of a ReLU6.
LEVELS = torch.tensor(
    [[-1.0, 1, 7, 1, 7, -1], [-2, 2, 8, 7, 1, 1], [-3, 3, 9, 1, 7, -1], [-1, 4, 7, 7, -2, 1]], dtype=torch.float64
)


def test_a_unit_with_two_thresholds_is_one_unit_with_a_share_of_saturation():
    table = utilization(capture(nn.ReLU6(), LEVELS)).to_pandas()
    assert table["active"].tolist() == [0, 1, 1, 1, 0.75, 0.5]
    assert table["status"].tolist() == ["dead", "always on", "saturated", "always on", "active", "active"]
    assert table["saturated"].tolist() == [0, 0, 1, 0.5, 0.5, 0]


def test_a_relu6_that_never_reaches_six_is_not_dead():
    z = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None] * torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    table = utilization(capture(nn.ReLU6(), z + 1e-3)).to_pandas()
    assert table["status"].tolist() == ["active"] * 3
    assert table["duplicate_of"].tolist() == [pd.NA, 0, pd.NA]
    assert table["opposite_of"].tolist() == [2, 2, 0]


@pytest.mark.parametrize(
    ("activation", "scale"), [(nn.Hardtanh(), 1.0), (nn.Hardsigmoid(), 3.0), (nn.Softshrink(), 0.5)]
)
def test_opposite_units_with_symmetric_thresholds_are_found(activation, scale):
    z = scale * torch.linspace(-2, 2, 20, dtype=torch.float64)[:, None] * torch.tensor([1.0, -1.0, 0.3, 1.0])
    table = utilization(capture(activation, z)).to_pandas()
    assert table["opposite_of"].tolist()[:2] == [1, 0]
    assert table["duplicate_of"].tolist()[3] == 0


def test_a_shrinking_unit_is_on_outside_its_thresholds():
    z = torch.tensor([[-0.1, -2.0, 2.0], [0.2, 2.0, 3.0], [0.3, 0.1, 2.0], [-0.4, 0.0, 5.0]])
    table = utilization(capture(nn.Hardshrink(), z)).to_pandas()
    assert table["active"].tolist() == [0, 0.5, 1]
    assert table["status"].tolist() == ["dead", "active", "always on"]
    assert table["saturated"].isna().all()


def test_a_channel_with_two_thresholds_is_one_unit():
    p = capture(nn.Sequential(nn.Conv2d(1, 3, 1), nn.ReLU6()), torch.randn(20, 1, 2, 2, generator=stream(0, "x")))
    on = np.asarray(p).reshape(20, 3, 4, 2)
    found = utilization(p, by="channel")
    np.testing.assert_allclose(found.active, on[..., 0].mean((0, 2)))
    np.testing.assert_allclose(found.saturated, on[..., 1].mean((0, 2)))


def test_elements_of_a_pool_are_no_units_and_are_counted_apart():
    x = torch.tensor([[[1.0, 0, 5, 4]], [[2, 1, 0, 9]], [[3, 0, 1, 8]]])
    found = utilization(capture(nn.Sequential(nn.ReLU(), nn.MaxPool1d(2)), x))
    assert set(found.layer) == {"0"}
    assert found.pools.to_dict("list") == {
        "layer": ["1", "1"],
        "window": [0, 1],
        "elements": [2, 2],
        "winners": [1, 2],
        "top": [1.0, 2 / 3],
    }
    alone = utilization(capture(nn.MaxPool1d(2), x))
    assert (len(alone), len(alone.pools), len(alone.to_pandas())) == (0, 2, 0)
    assert alone.summary().empty


class Maxout(nn.Module):
    def forward(self, x):
        return x.unflatten(1, (2, 2)).amax(2)


class Bounded(nn.Module):
    def forward(self, x):
        return x.clamp(torch.zeros(()), torch.full((), 6.0))


def test_alternatives_of_a_maxout_are_no_units_and_one_that_never_wins_is_not_dead():
    found = utilization(capture(Maxout(), torch.tensor([[1.0, 0, 5, 4], [2, 1, 0, 9], [3, 0, 1, 8]])))
    assert (len(found), found.pools["winners"].tolist(), found.pools["elements"].tolist()) == (0, [1, 2], [2, 2])


def test_a_relu6_of_a_convolution_is_one_unit_per_channel_also_if_it_never_reaches_six():
    conv = nn.Conv2d(1, 3, 1)
    conv.weight.data[:, 0, 0, 0], conv.bias.data[:] = torch.tensor([1.0, 1.0, -1.0]), torch.tensor([0.0, 8.0, -8.0])
    x = torch.linspace(-3, 3, 20 * 16).reshape(20, 1, 4, 4)
    for activation in (nn.ReLU6(), Bounded()):
        found = utilization(capture(nn.Sequential(conv, activation), x), by="channel")
        assert found.to_pandas()["status"].tolist() == ["active", "always on", "dead"]
        # Of the second channel, 8 + x reaches 6 where x is at least -2: five sixths of all places.
        np.testing.assert_allclose(found.saturated, [0, 5 / 6, 0], atol=1 / 320)


def test_a_tracker_that_measured_nothing_says_so():
    with pytest.raises(ValueError, match="measured nothing yet"):
        UtilizationTracker(mlp((3, 4)), torch.zeros(1, 3)).summary()


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_a_tracker_refuses_a_pace_that_is_none(every):
    with pytest.raises(ValueError, match="every must be a positive integer"):
        UtilizationTracker(mlp((3, 4)), torch.zeros(1, 3), every=every)
