"""What levels are shares of: the four definitions worked by hand, against plain loops, and where one is refused."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from metriscope.probes import DEFINITIONS, Definition, perturb, perturbation
from metriscope.rng import stream
from probes.test_perturbation import HAND_X, HAND_Y, one_unit, points, small

PROGRAM, TEXT = "post-activation-kept", "post-activation"
KINDS = {"scale": (0.05, 3.0), "clip": (0.2, 0.7, 1.3), "offset": (-0.4, 0.1, 0.9)}


def right(definition, model=None, x=HAND_X, y=HAND_Y, **levels):
    found = perturbation(model or one_unit(), x, y, kinds=tuple(levels), levels=levels, definition=definition)
    return found.accuracies.tolist()


@pytest.mark.parametrize(
    ("definition", "offset", "accuracies"),
    [
        # The activation runs from 0 to 2, so r = 2. Class 1 needs s z + t > 1, here (1 - p) z + 2 p > 1.
        (PROGRAM, (-0.5, -1.0, -10.0, 0.2, 0.4, 1.0), [1.0, 0.75, 0.75, 1.0, 0.75, 0.5]),
        # z + 2 p > 1
        (TEXT, (-0.2, -0.25, -0.5, 0.2, 0.3), [1.0, 0.75, 0.5, 1.0, 0.75]),
        # The pre-activation runs from -2 to 2: (1 - 2 p) z + 4 p > 1.
        ("pre-activation-kept", (-0.2, -0.5, -10.0, 0.1, 0.2), [1.0, 0.75, 0.75, 1.0, 0.75]),
        ("pre-activation", (-0.1, -0.2, -0.3, 0.1, 0.2), [1.0, 0.75, 0.5, 1.0, 0.75]),
    ],
)
def test_offsets_worked_by_hand(definition, offset, accuracies):
    assert right(definition, offset=offset) == accuracies


def test_ceilings_worked_by_hand():
    # The ceiling must be above 1 for class 1, a share above 1/2 of the activation's range, 1/4 of the other.
    for definition, edge in (("pre-activation", 0.25), (TEXT, 0.5), (PROGRAM, 0.5)):
        assert right(definition, clip=(edge - 0.01, edge + 0.01)) == [0.5, 1.0]


@given(
    high=st.floats(0.1, 1e3),
    low=st.floats(0, 0.09),
    offset=st.floats(-2, 1),
    below=st.floats(0, 1e3),
)
def test_an_offset_leaves_the_largest_value_where_it_was(high, low, offset, below):
    z = torch.tensor([[-below], [low], [high]], dtype=torch.float64)
    ends = torch.tensor([[low], [high]], dtype=torch.float64)
    reach = ends[1] - ends[0]
    found = perturb(z, reach, offset=offset, ends=ends)
    assert found[2].item() == pytest.approx(high)
    # It is a line through that point and (0, offset * reach), so below the largest value it has moved.
    assert (found[1] - low).item() == pytest.approx(offset * (high - low) * (1 - low / high), abs=1e-9 * high)


@pytest.mark.parametrize("name", ["relu", "abs", "relu-bias", "abs2"])
@pytest.mark.parametrize("definition", [PROGRAM, TEXT])
def test_a_ceiling_at_the_largest_activation_changes_nothing(name, definition):
    model, (x, y) = small(name).double(), points()
    whole, lower = right(definition, model, x.double(), y, clip=(1.0, 1.5)), right(definition, model, x, y, clip=(0.0,))
    baseline = perturbation(model, x, y, kinds=("clip",), levels={"clip": (1.0,)}).baseline
    assert whole == [baseline] * 2
    assert lower != [baseline]


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_scaling_is_the_same_by_every_definition_and_nothing_without_a_bias_behind(definition):
    model, (x, y) = small("relu").double(), points()
    found = perturbation(model, x.double(), y, kinds=("scale",), definition=definition)
    assert set(found.accuracies) == {found.baseline}
    biased = small("relu-bias")
    levels = {"scale": (0.01, 0.3, 8.0)}
    assert right(definition, biased, x, y, **levels) == right("pre-activation", biased, x, y, **levels)


def test_units_that_are_never_active_are_counted_and_left_as_they_are():
    model, (x, y) = small("relu-bias"), points()
    model[0].bias.data[[1, 4]] = -1e4
    found = perturbation(model, x, y, definition=PROGRAM)
    assert found.silent == 2
    assert perturbation(model, x, y).silent is None
    # Their range is zero too, so that no offset and no ceiling wakes them: without them all is the same.
    model[2].weight.data[:, [1, 4]] = 0
    assert perturbation(model, x, y, definition=PROGRAM).accuracies.tolist() == found.accuracies.tolist()


def plainly(model, x, y, kind, level, definition):
    """Return the accuracy by the definition of Oursland 2024b, unit by unit, or one of its neighbors."""
    z = model[0](x)
    a = model[1](z)
    changed = torch.empty_like(z)
    for k in range(z.shape[1]):
        low, high = a[:, k].min(), a[:, k].max()
        r = high - low if definition.activated else z[:, k].max() - z[:, k].min()
        s, t, c = 1.0, 0.0, float("inf")
        if kind == "scale":
            s = level
        elif kind == "clip":
            c = (low if definition.activated else 0.0) + level * r
        else:
            t = level * r
            s = (high - t) / high if definition.kept and high != 0 else 1.0
        changed[:, k] = (s * z[:, k] + t).clamp(max=c)
    return (model[1:](changed).argmax(-1) == y).double().mean().item()


@pytest.mark.parametrize("name", ["relu-bias", "abs-bias", "relu2-neg"])
@pytest.mark.parametrize("definition", DEFINITIONS)
def test_levels_give_what_a_plain_loop_gives(name, definition):
    model = small(name).double().requires_grad_(False)
    x, y = points(300)
    x = x.double()
    model[0].bias.data[2] = -1e3
    found = perturbation(model, x, y, levels=KINDS, definition=definition).to_pandas()
    for row in found.itertuples():
        assert row.accuracy == plainly(model, x, y, row.kind, row.level, DEFINITIONS[definition]), row


class Functional(nn.Module):
    """The hidden layer of a network whose activation is no module."""

    def __init__(self, source):
        super().__init__()
        self.first, self.second = source[0], source[2]

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


@pytest.mark.parametrize("activation", ["relu", torch.relu, nn.ReLU(inplace=True)])
def test_an_activation_that_is_no_module_can_be_named(activation):
    source, (x, y) = small("relu-bias"), points()
    whole = perturbation(source, x, y, definition=PROGRAM)
    meaning = Definition(activated=True, kept=True, activation=activation)
    assert perturbation(Functional(source), x, y, definition=meaning).accuracies.tolist() == whole.accuracies.tolist()


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_an_activation_that_overwrites_its_input_changes_nothing(definition):
    source, (x, y) = small("relu-bias"), points()
    other = nn.Sequential(source[0], nn.ReLU(inplace=True), source[2])
    found, expected = (perturbation(model, x, y, definition=definition) for model in (other, source))
    assert found.accuracies.tolist() == expected.accuracies.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"definition": "activation"}, "definition must be one of pre-activation, .*, got 'activation'"),
        ({"definition": 3}, "definition must be"),
        ({"definition": Definition(kept=True, activation="bend")}, "activation must be one of abs, relu.*, got 'bend'"),
        ({"definition": Definition(kept=True, activation=3)}, "activation must be a name or a function, got int"),
        (
            {"definition": Definition(kept=True, activation=lambda z: z[:, :2])},
            r"one value per unit and point, shape \(60, 7\), got the shape \(60, 2\)",
        ),
        ({"layer": "2", "definition": PROGRAM}, "activation after the layer, which is followed by no module of an nn"),
        (
            {"model": nn.Sequential(nn.Linear(5, 3), nn.Dropout(), nn.ReLU()), "definition": TEXT},
            r"which is followed by Dropout: name it, as in Definition\(activated=True, ",
        ),
    ],
)
def test_a_definition_without_its_activation_is_refused(change, message):
    x, y = points()
    with pytest.raises(ValueError, match=message):
        perturbation(**{"model": small("relu-bias"), "x": x, "y": y, **change})


def test_ends_of_the_wrong_shape_are_refused():
    z = torch.randn(4, 3, generator=stream(0, "z"))
    with pytest.raises(ValueError, match=r"ends must have the shape \(2, 3\), got \(2,\)"):
        perturb(z, torch.ones(3), offset=0.1, ends=torch.zeros(2))
