"""Names of layers, the choice among them, and what a description shows."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from metriscope.vq.capture.capture import capture, describe
from vq.capture.networks import drawn, points


class Block(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear, self.act = nn.Linear(width, width), nn.ReLU()

    def forward(self, x):
        return torch.tanh(self.act(self.linear(x)) + F.relu(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.blocks = nn.ModuleList([Block(), Block()])
        self.shared = nn.GELU()

    def forward(self, x):
        x = self.shared(self.stem(x))
        for block in self.blocks:
            x = self.shared(block(x))
        return x


EVERYTHING = ["stem.1", "shared"]
EVERYTHING += ["blocks.0.act", "blocks.0.relu()", "blocks.0.tanh()", "shared#2"]
EVERYTHING += ["blocks.1.act", "blocks.1.relu()", "blocks.1.tanh()", "shared#3"]
MODEL = drawn(Model())


def names(layers=None):
    return [layer.name for layer in capture(MODEL, points(3, 4), layers).layers]


def test_layers_are_named_by_module_function_and_use_in_the_order_in_which_they_run():
    assert names() == EVERYTHING


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("stem.1", ["stem.1"]),
        ("shared*", ["shared", "shared#2", "shared#3"]),
        ("blocks.?.relu()", ["blocks.0.relu()", "blocks.1.relu()"]),
        (nn.ReLU, ["stem.1", "blocks.0.act", "blocks.1.act"]),
        (Block, [name for name in EVERYTHING if name.startswith("blocks")]),
        (MODEL.blocks[1], ["blocks.1.act", "blocks.1.relu()", "blocks.1.tanh()"]),
        (lambda layer: not layer.piecewise_affine and layer.seen == "function", ["blocks.0.tanh()", "blocks.1.tanh()"]),
        (["stem.1", nn.GELU], ["stem.1", "shared", "shared#2", "shared#3"]),
        (("shared#2", lambda layer: layer.name == "stem.1"), ["stem.1", "shared#2"]),
        ("*", EVERYTHING),
    ],
)
def test_layers_are_chosen_by_name_glob_type_module_or_function(layers, expected):
    assert names(layers) == expected


def test_a_choice_has_the_bits_that_the_whole_has_there():
    x = points(20, 4)
    whole, part = capture(MODEL, x), capture(MODEL, x, "blocks.1.*")
    assert all(part.layer(layer.name).equals(whole.layer(layer.name)) for layer in part.layers)


@pytest.mark.parametrize(
    ("layers", "missing"),
    [
        ("absent", "'absent'"),
        (["stem.1", "nothing.*"], "'nothing.\\*'"),
        (nn.PReLU, "PReLU"),
        (nn.ReLU(), "this ReLU"),
        (lambda layer: False, "<lambda>"),
    ],
)
def test_a_choice_that_matches_nothing_is_refused_with_what_there_is(layers, missing):
    with pytest.raises(ValueError, match=f"no layer matches .*{missing}; there are 'stem.1' \\(relu\\), 'shared' \\(g"):
        names(layers)


@pytest.mark.parametrize("layers", [3, int, [None], [["stem.1"]]])
def test_a_choice_of_another_kind_is_refused(layers):
    with pytest.raises(ValueError, match="layers are chosen by name, glob, type of module, module or a function"):
        names(layers)


def test_an_empty_choice_is_refused():
    with pytest.raises(ValueError, match=r"no activation was selected among 'stem.1' \(relu\)"):
        names([])


def test_a_description_is_a_table_of_what_would_be_taken_and_what_not():
    text = str(describe(MODEL, points(2, 4), ["stem.1", "shared"]))
    lines = text.splitlines()
    assert lines[0].split() == ["layer", "kind", "bits", "shape", "affine", "seen"]
    assert lines[1].split() == ["stem.1", "relu", "4", "4", "yes", "module"]
    assert lines[2].split() == ["shared", "gelu", "4", "4", "no", "module"]
    assert lines[3].endswith("not taken: not chosen")
    assert lines[-2:] == ["2 layers, 8 bits, 2 bytes per point", "2 layers taken; nothing missed"]
    assert len(lines) == 3 + len(EVERYTHING)


def test_a_description_agrees_with_a_capture():
    found = describe(MODEL, (points(2, 4), torch.zeros(2)))
    assert found.layers == capture(MODEL, points(5, 4)).layers
    assert found.others == ()
    assert found.to_pandas()["name"].tolist() == EVERYTHING


class Pairs(nn.Module):
    """A ReLU of points, and one of all pairs of points."""

    def forward(self, x):
        return torch.relu(torch.relu(x) @ x.mT)[..., None].flatten(0, 1).sum() + F.gelu((x[:, None] - x).flatten(0, 1))


def test_a_layer_without_an_axis_of_points_is_dropped_described_and_refused_if_it_was_chosen():
    x = points(5, 4)
    p = capture(Pairs(), x)
    assert [layer.name for layer in p.layers] == ["relu"]
    assert str(p.missed) == "1 layer taken; dropped: 2 (rows are not points)"
    assert str(describe(Pairs(), x)).count("not taken: rows are not points") == 2
    with pytest.raises(
        ValueError, match=r"layer 'gelu' has the shape \(25, 4\) for 5 points: rows are not points; leave"
    ):
        capture(Pairs(), x, "gelu")
    with pytest.raises(ValueError, match=r"strict: 1 layer taken; dropped: 2 \(rows are not points\)"):
        capture(Pairs(), x, strict=True)


def test_a_batch_of_no_points_cannot_be_described():
    with pytest.raises(ValueError, match="batch must hold at least one point, got none"):
        describe(MODEL, points(0, 4))
