"""Data of every shape gives the same patterns, and bad data is refused in one sentence."""

from __future__ import annotations

from collections import UserDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from metriscope.vq.capture.capture import capture
from vq.capture.networks import Text, drawn, points, signs_by_hand

MODEL = drawn(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh()))
X = points(10, 4)
Y = torch.arange(10)
EXPECTED = capture(MODEL, X)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(X)


@pytest.mark.parametrize(
    "data",
    [
        X,
        X.numpy(),
        X.double().numpy(),
        X.numpy().astype(">f4"),
        X.numpy()[::-1][::-1],
        TensorDataset(X, Y),
        DataLoader(TensorDataset(X, Y), batch_size=3),
        DataLoader(X, batch_size=4),
        DataLoader(Stream(), batch_size=4),
        [X[:3], X[3:]],
        [X[:3], X[3:3], X[3:]],
        [(X[:6], Y[:6]), (X[6:], Y[6:])],
        [[X.numpy()[:6], "anything"], [X.numpy()[6:]]],
        [{"input": X[:6], "labels": Y[:6]}, {"input": X[6:], "labels": Y[6:]}],
        {"input": X, "targets": Y},
        {"input": X.numpy()},
        UserDict(input=X),
    ],
    ids=lambda data: type(data).__name__,
)
def test_the_same_points_have_the_same_patterns_in_every_shape(data):
    assert capture(MODEL, data, batch_size=4).equals(EXPECTED)


def test_a_generator_of_batches_is_read_once():
    assert capture(MODEL, (X[start : start + 3] for start in range(0, 10, 3))).equals(EXPECTED)


def test_memory_that_may_not_be_written_is_read_without_a_warning():
    frozen = X.numpy().copy()
    frozen.flags.writeable = False
    assert capture(MODEL, frozen).equals(EXPECTED)


def test_an_array_takes_the_precision_of_the_model():
    model = drawn(nn.Sequential(nn.Linear(4, 6), nn.ReLU())).double()
    assert capture(model, X.numpy()).equals(capture(model, X.double()))


def test_a_model_of_language_takes_its_batch_by_name():
    model = drawn(Text())
    words = torch.arange(30).reshape(6, 5) % 13
    batch = {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": torch.zeros(6)}
    p = capture(model, batch, batch_size=4)
    assert (p.signs() == signs_by_hand(model, words)).all()
    (layer,) = p.layers
    assert (layer.name, layer.shape, layer.channel_axis) == ("act", (5, 12), 1)


def test_sequences_of_any_length_have_the_same_channels():
    model = drawn(Text())
    short, long = torch.arange(6).reshape(2, 3), torch.arange(10).reshape(2, 5)
    p = capture(model, [{"input_ids": short}, {"input_ids": long}], conv="channels")
    halves = [capture(model, {"input_ids": words}, conv="channels").signs() for words in (short, long)]
    assert (p.signs() == np.concatenate(halves)).all()
    with pytest.raises(
        ValueError, match=r"layer 'act' was gelu of shape \(3, 12\) in the first batch and is .* \(5, 12\)"
    ):
        capture(model, [{"input_ids": short}, {"input_ids": long}])


def test_a_key_that_the_model_does_not_know_is_refused():
    with pytest.raises(ValueError, match="a batch has the key 'pixels', but the model takes attention_mask, input_ids"):
        capture(Text(), {"input_ids": torch.zeros(2, 3, dtype=torch.long), "pixels": torch.zeros(2)})


def test_labels_are_handed_over_to_a_model_that_asks_for_them():
    class Asking(nn.Module):
        def forward(self, x, labels):
            return F.relu(x + labels[:, None])

    p = capture(Asking(), {"x": -torch.ones(3, 2), "labels": torch.tensor([0.0, 2.0, 0.0])})
    assert p.signs().tolist() == [[-1, -1], [1, 1], [-1, -1]]


def test_a_model_may_return_nothing():
    class Silent(nn.Module):
        def forward(self, x):
            F.relu(x)

    assert (capture(Silent(), X).signs() == np.where(X >= 0, 1, -1)).all()


def test_a_single_point_is_enough():
    assert capture(MODEL, X[:1]).equals(EXPECTED[:1])


def test_a_model_without_weights_and_points_of_one_number_are_fine():
    p = capture(nn.ReLU(), torch.tensor([1.0, -1.0]))
    assert (p.signs().tolist(), p.layers[0].name, p.layers[0].width) == ([[1], [-1]], "relu", 1)


@pytest.mark.parametrize("ids", [list("abcdefghij"), np.arange(10) * 7, Y + 3, np.array(list("abcdefghij"), object)])
def test_ids_are_carried_along(ids):
    for data in (X, DataLoader(X, batch_size=3)):
        p = capture(MODEL, data, ids=ids)
        assert p.ids.tolist() == [one if isinstance(one, str) else int(one) for one in ids]
        assert (p.packed == EXPECTED.packed).all()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (range(9), r"there are 10 points, but the ids have the shape \(9,\)"),
        ([0, *range(9)], "ids must be unique, but 0 occurs more than once"),
        (list("aacdefghij"), "ids must be unique, but 'a' occurs more than once"),
        (np.arange(10) / 2, "ids must be whole numbers or words, got float64"),
        (np.arange(10, dtype=np.uint64) + 2**63, "ids must be below 2\\^63"),
        (np.zeros((10, 1), int), r"there are (10|some) points, but the ids have the shape \(10, 1\)"),
    ],
)
def test_bad_ids_are_refused(ids, message):
    for data in (X, DataLoader(X, batch_size=3)):
        with pytest.raises(ValueError, match=message):
            capture(MODEL, data, ids=ids)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (X[:0], "data must hold at least one point, got none"),
        ([], "data must hold at least one point, got none"),
        (DataLoader([], batch_size=2), "data must hold at least one point, got none"),
        ({"input": X[:0]}, "data must hold at least one point, got none"),
        (3.0, "data must be a tensor, an array, a data set, a loader or batches, got 3.0"),
        ("words", "data must be a tensor, .* got 'words'"),
        (None, "data must be a tensor, .* got None"),
        (torch.tensor(1.0), "data must have an axis of points, got a single number"),
        ([1.0, 2.0], "a batch of data must be a tensor, an array, a tuple or a mapping, got 1.0"),
        ([()], "a batch of data must be a tensor, an array, a tuple or a mapping, got a tuple"),
        ([torch.tensor(1.0)], "a batch of data must have an axis of points, got a single number"),
        ({"input": "words"}, "a batch of data must hold a tensor, got a mapping with the keys \\['input'\\]"),
        (np.array(["a", "b"]), "data must hold real numbers, got words"),
        ([X[:3], X[:3, :2]], r"a batch has points of shape \(2,\), but those of the first batch have \(4,\)"),
    ],
    ids=str,
)
def test_bad_data_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        capture(MODEL, data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": F.relu}, "model must be a torch.nn.Module, got a function"),
        ({"model": nn.Linear(4, 2)}, "the model ran no known activation; the known ones are abs, celu, clamp"),
        ({"model": nn.Sequential(nn.LazyLinear(3), nn.ReLU())}, "the parameter '0.weight' has no shape yet"),
        ({"batch_size": 0}, "batch_size must be a positive integer, got 0"),
        ({"batch_size": 2.5}, "batch_size must be a positive integer, got 2.5"),
        ({"conv": "pixels"}, "conv must be one of positions, channels, got 'pixels'"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        capture(**{"model": MODEL, "data": X, **change})


class Fickle(nn.Module):
    """A network that does something else with every batch whose first number is large."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def forward(self, x):
        return self.other(x) if x[0, 0] > 9 else F.relu(x)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda x: x, r"layer 'relu' ran in the first batch, but not in a later one"),
        (lambda x: F.tanh(F.relu(x)), r"layer 'tanh' runs in a later batch, but did not in the first one"),
        (lambda x: F.relu(x[:, :2]), r"layer 'relu' was relu of shape \(4,\) .* and is relu of shape \(2,\)"),
        (lambda x: F.relu(x[:1]), r"layer 'relu' has the shape \(1, 4\) for 3 points in a later batch"),
    ],
)
def test_a_network_whose_layers_change_between_batches_is_refused(other, message):
    with pytest.raises(ValueError, match=message):
        capture(Fickle(other), [torch.zeros(3, 4), torch.full((3, 4), 10.0)])
