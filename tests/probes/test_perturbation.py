"""Perturbed pre-activations: neutral levels, a network worked by hand, homogeneity, and a model left as it was."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from metriscope.nn import build
from metriscope.probes import holding_range, perturb, perturbation
from metriscope.rng import stream


def small(name="relu"):
    return build(name, in_features=5, hidden=7, out_features=3, generator=stream(0, "network")).eval()


def points(n=60):
    x = torch.randn(n, 5, generator=stream(0, "points"))
    return x, torch.randint(3, (n,), generator=stream(0, "labels"))


def one_unit():
    """Return a network that says class 1 where its only unit, z = x, is above 1, and class 0 below."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2))
    model.load_state_dict(
        {
            "0.weight": torch.tensor([[1.0]]),
            "0.bias": torch.tensor([0.0]),
            "2.weight": torch.tensor([[0.0], [1.0]]),
            "2.bias": torch.tensor([1.0, 0.0]),
        }
    )
    return model


HAND_X, HAND_Y = torch.tensor([[-2.0], [0.5], [1.5], [2.0]]), torch.tensor([0, 0, 1, 1])


@given(z=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5), reach=st.floats(0, 1e6, width=32))
def test_neutral_levels_change_nothing(z, reach):
    values = torch.tensor([z])
    assert perturb(values, torch.full((len(z),), reach)).equal(values)


def test_a_perturbation_is_its_formula():
    z, reach = torch.tensor([[-1.0, 2.0], [3.0, 0.5]]), torch.tensor([4.0, 1.0])
    found = perturb(z, reach, scale=2.0, offset=0.25, clip=0.5)
    assert found.tolist() == [[-1.0, 0.5], [2.0, 0.5]]


def test_a_network_worked_by_hand():
    # The unit's range is 2 - (-2) = 4. Class 1 needs z > 1: scaled down, 1.5 falls first, then 2 as well.
    levels = {"scale": (1.0, 0.6, 0.5, 4.0), "offset": (0.0, -0.2, -0.3, 0.2), "clip": (1.0, 0.3, 0.25)}
    found = perturbation(one_unit(), HAND_X, HAND_Y, levels=levels).to_pandas()
    right = found.groupby("kind", sort=False)["accuracy"].apply(list)
    # Scaled by 4, the point 0.5 passes 1; offset by 0.8, it passes 1 as well; a ceiling at 1 leaves no class 1.
    assert right["scale"] == [1.0, 0.75, 0.5, 0.75]
    assert right["offset"] == [1.0, 0.75, 0.5, 0.75]
    assert right["clip"] == [1.0, 1.0, 0.5]
    assert (found["baseline"] == 1).all()
    assert (found["layer"] == "0").all()


@pytest.mark.parametrize("name", ["relu", "abs"])
def test_without_a_bias_behind_scaling_never_changes_the_largest_output(name):
    model = small(name).double()
    x, y = points()
    found = perturbation(model, x.double(), y, kinds=("scale",))
    assert set(found.accuracies) == {found.baseline}


def test_every_point_of_the_default_levels_is_there_and_neutral_ones_are_the_baseline():
    found = perturbation(small(), *points())
    table = found.to_pandas()
    ends = table.groupby("kind")["level"].agg(["min", "max"])
    assert ends.loc["scale"].tolist() == pytest.approx([0.01, 10])
    assert ends.loc["clip"].tolist() == pytest.approx([0.01, 10])
    assert ends.loc["offset"].tolist() == [-2, 1]
    neutral = table[
        (table["kind"] == "scale") & (table["level"] == 1) | (table["kind"] == "offset") & (table["level"] == 0)
    ]
    assert len(neutral) == 2
    assert (neutral["accuracy"] == found.baseline).all()
    # The largest value of a unit is below its range unless it is never below zero, so ten ranges clip nothing.
    assert table.query("kind == 'clip'")["accuracy"].iloc[-1] == found.baseline


def test_batches_give_what_one_pass_gives(monkeypatch):
    model, (x, y) = small("abs2"), points()
    whole = perturbation(model, x, y)
    # The function stands in front of its module under the same name.
    monkeypatch.setattr(sys.modules["metriscope.probes.perturbation"], "_BATCH", 7)
    assert perturbation(model, x, y).accuracies.tolist() == whole.accuracies.tolist()


class Twice(nn.Module):
    """Call one layer twice, the second time on what the first gave."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.layer.weight)

    def forward(self, x):
        return self.layer(torch.relu(self.layer(x)))


def test_a_layer_that_is_called_twice_is_perturbed_twice():
    x = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    found = perturbation(Twice(), x, torch.tensor([0, 1]), kinds=("offset",), levels={"offset": (-0.6,)})
    # Ranges are 1, 2, 0. Shifted once, 1 - 0.6 and 2 - 1.2 stay the largest; shifted again all outputs of the second
    # point are (-0.6, 0.8 - 1.2, 0), and its class is lost, as is the first one's: (-0.2, -1.2, 0).
    assert found.accuracies.tolist() == [0.0]


def test_the_model_is_left_as_it_was_also_after_an_error():
    class Fragile(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls > 2:
                raise RuntimeError("broken on purpose")
            return x

    model = nn.Sequential(nn.Linear(5, 7), nn.Dropout(), Fragile(), nn.Linear(7, 3))
    model[1].eval()
    modes = [module.training for module in model.modules()]
    with pytest.raises(RuntimeError, match="broken on purpose"):
        perturbation(model, *points())
    assert [module.training for module in model.modules()] == modes
    assert not model[0]._forward_hooks
    assert "forward" not in vars(model[0])
    assert torch.is_grad_enabled()


def test_dropout_sleeps_while_it_is_measured():
    model = nn.Sequential(small()[0], nn.Dropout(0.5), nn.ReLU(), small()[2])
    x, y = points()
    assert (
        perturbation(model, x, y, kinds=("scale",), levels={"scale": (1.0,)}).baseline
        == perturbation(small(), x, y, kinds=("scale",), levels={"scale": (1.0,)}).baseline
    )
    assert model.training


def test_a_layer_is_chosen_by_name_or_by_itself():
    model, (x, y) = small("relu-bias"), points()
    by_name = perturbation(model, x, y, layer="2", kinds=("offset",))
    by_itself = perturbation(model, x.numpy().astype(np.float64), y.numpy(), layer=model[2], kinds=("offset",))
    assert by_name.layer == by_itself.layer == "2"
    assert by_name.accuracies.tolist() == by_itself.accuracies.tolist()


def test_the_levels_between_which_accuracy_holds_are_interpolated():
    levels, values = np.array([0.5, -1.0, 0.0, 1.0, 2.0]), np.array([1.0, 0.0, 1.0, 0.5, 1.0])
    # From 0 at -1 to 1 at 0, 0.9 is met at -0.1; from 1 at 0.5 to 0.5 at 1, at 0.6; what comes after does not count.
    assert holding_range(levels, values, 0.9, 0.0) == pytest.approx((-0.1, 0.6))
    assert holding_range(levels, values, 0.0, 0.0) == (-math.inf, math.inf)
    assert all(math.isnan(end) for end in holding_range(levels, values, 1.5, 0.0))
    assert holding_range(levels, values, 0.9, math.inf) == pytest.approx((1.8, math.inf))


def test_a_measured_perturbation_says_how_far_it_holds():
    levels = {"scale": (1.0, 0.6, 0.5, 2.0)}
    found = perturbation(one_unit(), HAND_X, HAND_Y, kinds=("scale",), levels=levels)
    # From 1 at a scale of 1 to 0.75 at 0.6: 0.9 is met at 1 - 0.4 x 0.4 = 0.84.
    assert found.holds("scale", points=0.1) == pytest.approx((0.84, math.inf))
    with pytest.raises(ValueError, match="'clip' was not measured: there are scale"):
        found.holds("clip")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": nn.ReLU()}, "needs a linear layer to perturb, ReLU has none"),
        ({"layer": "1"}, "must be a linear layer of the model, one of '0', '2'"),
        ({"layer": nn.Linear(5, 7)}, "must be a linear layer of the model"),
        ({"kinds": ("shift",)}, "a kind of perturbation must be one of scale, offset, clip, got 'shift'"),
        ({"levels": {"shift": (1.0,)}}, "a kind of perturbation must be one of scale, offset, clip, got 'shift'"),
        ({"kinds": ()}, "at least one kind"),
        ({"levels": {"scale": ()}}, r"levels of scale must hold at least one number, got the shape \(0,\)"),
        ({"y": torch.zeros(3)}, r"y must have the shape \(60,\), got \(3,\)"),
        ({"x": torch.zeros(0, 5), "y": torch.zeros(0)}, r"x must hold at least one number, got the shape \(0, 5\)"),
    ],
)
def test_bad_requests_are_refused(change, message):
    x, y = points()
    with pytest.raises(ValueError, match=message):
        perturbation(**{"model": small(), "x": x, "y": y, **change})


def test_a_layer_that_is_never_called_is_refused():
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused, self.used = nn.Linear(5, 3), nn.Linear(5, 3)

        def forward(self, x):
            return self.used(x)

    with pytest.raises(ValueError, match="does not call the layer"):
        perturbation(Idle(), *points())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_points_or_outputs_that_are_not_finite_are_refused(bad):
    x, y = points()
    broken = x.clone()
    broken[7, 2] = bad
    with pytest.raises(ValueError, match=r"x must be finite, got 1 NaN or infinite of 300 entries, .* \(7, 2\)"):
        perturbation(small(), broken, y)
    with pytest.raises(ValueError, match="x must be finite, got 300 NaN or infinite of 300 entries"):
        perturbation(small(), torch.full_like(x, bad), y)
    model = small()
    model[0].weight.data[0, 0] = bad
    with pytest.raises(ValueError, match="the model must give finite outputs, got NaN or infinity at"):
        perturbation(model, x, y)


@pytest.mark.parametrize("bad", [[0.5] * 60, [math.nan] * 60, [-1] * 60, ["a"] * 60])
def test_labels_that_are_no_classes_are_refused(bad):
    with pytest.raises(ValueError, match=r"^y must"):
        perturbation(small(), points()[0], bad)


def test_outputs_that_are_not_one_row_a_point_are_refused():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, x):
            return self.layer(x).sum(-1)

    with pytest.raises(ValueError, match=r"one row of outputs for each of 60 points, got the shape \(60,\)"):
        perturbation(Sum(), *points())


def test_the_range_of_a_unit_is_taken_over_all_points(monkeypatch):
    # The one point far out is in the last of many batches: with it the range is 4, and the level moves by 0.8.
    monkeypatch.setattr(sys.modules["metriscope.probes.perturbation"], "_BATCH", 2)
    x = torch.cat([torch.full((20, 1), 0.5), torch.full((20, 1), 1.5), torch.tensor([[-2.0], [2.0]])])
    y = (x[:, 0] > 1).long()
    found = perturbation(one_unit(), x, y, kinds=("offset",), levels={"offset": (0.1, 0.2)})
    assert found.accuracies.tolist() == [1.0, pytest.approx(22 / 42)]
