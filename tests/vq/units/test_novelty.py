from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from metriscope.nn import init_through_points_
from metriscope.nn.layers import empty_linear
from metriscope.rng import stream
from metriscope.vq.units.novelty import novelty
from vq.units.cases import hamming, patient, patterns, plain_bits

module = sys.modules["metriscope.vq.units.novelty"]


@pytest.fixture(params=[None, (3, 4), (1, 1)])
def blocks(request, monkeypatch):
    """Run with the blocks of every day, and with some so small that borders fall everywhere."""
    if request.param:
        monkeypatch.setattr(module, "_TEST_ROWS", request.param[0])
        monkeypatch.setattr(module, "_TRAIN_ROWS", request.param[1])


@st.composite
def two_sets(draw):
    units, seed = draw(st.integers(1, 30)), draw(st.integers(0, 2**31))
    generator = np.random.default_rng(seed)
    train, test = (generator.integers(0, 2, (draw(st.integers(1, 15)), units)) for _ in range(2))
    return train, test, draw(st.integers(1, len(train)))


@pytest.mark.usefixtures("blocks")
def test_novelty_is_the_kth_smallest_distance():
    # The fixture changes the blocks once for all the examples.
    @patient
    @given(case=two_sets())
    def check(case):
        train, test, k = case
        found = novelty(patterns(train), patterns(test), k)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, np.sort(hamming(test, train), axis=1)[:, k - 1])

    check()


def test_layers_of_any_width_are_compared_bit_by_bit():
    generator = np.random.default_rng(0)
    train, test = generator.integers(0, 2, (40, 31)), generator.integers(0, 2, (9, 31))
    found = novelty(patterns(train, (3, 17, 11)), patterns(test, (3, 17, 11)), k=3)
    np.testing.assert_array_equal(found, np.sort(hamming(test, train), axis=1)[:, 2])


def test_sets_larger_than_a_block_are_searched_whole():
    generator = np.random.default_rng(0)
    train, test = generator.integers(0, 2, (9000, 40)), generator.integers(0, 2, (300, 40))
    distances = (40 - (2 * test - 1) @ (2 * train - 1).T) // 2
    for k in (1, 5):
        expected = np.sort(distances, axis=1)[:, k - 1]
        np.testing.assert_array_equal(novelty(patterns(train), patterns(test), k), expected)


@patient
@given(case=two_sets(), seed=st.integers(0, 2**31))
def test_with_labels_only_the_points_of_the_same_class_are_neighbors(case, seed):
    train, test, _ = case
    generator = np.random.default_rng(seed)
    known = np.concatenate([np.arange(3), generator.integers(0, 3, len(train))])
    train = np.concatenate([generator.integers(0, 2, (3, train.shape[1])), train])
    asked = generator.integers(0, 3, len(test))
    found = novelty(patterns(train), patterns(test), 1, known.astype(str), asked.astype(str))
    expected = [hamming([row], train[known == label]).min() for row, label in zip(test, asked, strict=True)]
    np.testing.assert_array_equal(found, expected)


def test_a_training_point_is_at_distance_zero_and_its_opposite_at_all_units():
    row = np.array([[1, 0, 1, 1, 0]])
    np.testing.assert_array_equal(novelty(patterns(row), patterns(np.concatenate([row, 1 - row]))), [0, 5])


ROWS = np.zeros((3, 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": patterns(ROWS[:0])}, "at least one training and one test point, got 0 and 3"),
        ({"test": patterns(ROWS[:0])}, "at least one training and one test point, got 3 and 0"),
        ({"test": patterns(np.zeros((3, 5)))}, r"same layers on both sides, got .*4.* and .*5"),
        ({"test": patterns(ROWS, (2, 2))}, "same layers"),
        ({"train": patterns(ROWS[:, :0], (0,)), "test": patterns(ROWS[:, :0], (0,))}, "without any unit"),
        ({"k": 4}, "train must hold at least k = 4 points, got 3"),
        ({"k": 0}, "k must be a positive integer, got 0"),
        ({"k": 1.5}, "k must be a positive integer, got 1.5"),
        ({"train_labels": [0, 0, 1]}, "test_labels must be given where the other labels are, got None"),
        ({"test_labels": [0, 0, 1]}, "train_labels must be given where the other labels are, got None"),
        ({"train_labels": [0, 1], "test_labels": [0, 0, 1]}, r"train_labels must have the shape \(3,\), got \(2,\)"),
        (
            {"k": 2, "train_labels": [0, 0, 1], "test_labels": [0, 0, 1]},
            "train must hold at least k = 2 points whose entry in train_labels is 1, got 1",
        ),
        ({"train_labels": [0, 0, 1], "test_labels": [0, 0, 7]}, "k = 1 points whose entry in train_labels is 7, got 0"),
        ({"index": "tree"}, "index must be one of exact, faiss, got 'tree'"),
        ({"nprobe": 3}, 'nprobe is for index="faiss"'),
        ({"nprobe": 0, "index": "faiss"}, "nprobe must be a positive integer"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        novelty(**{"train": patterns(ROWS), "test": patterns(ROWS)} | arguments)


def test_a_missing_faiss_is_named_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match="pip install faiss-cpu"):
        novelty(patterns(ROWS), patterns(ROWS), index="faiss")


class Lists:
    """The part of faiss that is used, with lists by the first byte of a point; it searches that list alone."""

    def __init__(self, quantizer, bits, lists):
        assert (quantizer, bits % 8, lists >= 1) == (bits, 0, True)

    def train(self, x):
        assert (x.dtype, x.flags.c_contiguous) == (np.uint8, True)

    def add(self, x):
        self.x = x

    def search(self, queries, k):
        distances = np.full((len(queries), k), 2**31 - 1, np.int32)
        neighbors = np.full((len(queries), k), -1, np.int64)
        for row, query in enumerate(queries):
            mine = np.flatnonzero(self.x[:, 0] == query[0])
            apart = hamming(np.unpackbits(query)[None], np.unpackbits(self.x[mine], axis=1))[0]
            best = np.argsort(apart, kind="stable")[:k]
            distances[row, : len(best)], neighbors[row, : len(best)] = apart[best], mine[best]
        return distances, neighbors


@patient
@given(case=two_sets())
def test_an_inverted_file_never_finds_a_nearer_point_and_is_exact_where_its_lists_are_short(case):
    train, test, k = case
    stub = ModuleType("faiss")
    stub.IndexBinaryFlat, stub.IndexBinaryIVF = lambda bits: bits, Lists
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "faiss", stub)
        found = novelty(patterns(train), patterns(test), k, index="faiss")
    exact = novelty(patterns(train), patterns(test), k)
    assert (found >= exact).all()
    first = np.packbits(train, axis=1)[:, 0]
    short = [(first == byte).sum() < k for byte in np.packbits(test, axis=1)[:, 0]]
    np.testing.assert_array_equal(found[short], exact[short])


def test_faiss_itself_is_exact_on_small_sets_and_agrees_closely_with_fewer_lists():
    pytest.importorskip("faiss")
    generator = np.random.default_rng(0)
    train, test = (patterns(generator.integers(0, 2, (rows, 64))) for rows in (2000, 50))
    exact, found = (novelty(train, test, 3, index=index) for index in ("exact", "faiss"))
    np.testing.assert_array_equal(found, exact)
    fewer = novelty(train, test, 3, index="faiss", nprobe=5)
    assert (fewer >= exact).all()
    assert fewer.mean() < 1.5 * exact.mean()


@pytest.mark.parametrize(("whole", "nprobe", "searched"), [(500, None, 12), (100, None, 1), (100, 7, 7), (100, 99, 12)])
def test_an_inverted_file_is_searched_in_full_on_small_sets_or_as_far_as_asked(monkeypatch, whole, nprobe, searched):
    made = []

    class Noted(Lists):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    stub = ModuleType("faiss")
    stub.IndexBinaryFlat, stub.IndexBinaryIVF = lambda bits: bits, Noted
    monkeypatch.setitem(sys.modules, "faiss", stub)
    monkeypatch.setattr("metriscope.vq.units.novelty._SEARCHED_WHOLE", whole)
    some = patterns(np.random.default_rng(0).integers(0, 2, (500, 8)))
    novelty(some, some[:3], index="faiss", nprobe=nprobe)
    assert [one.nprobe for one in made] == [searched]


def random_network_patterns(units, *sets):
    """Return the patterns of one layer of random hyperplanes, each through a random point of the first set."""
    linear = empty_linear(sets[0].shape[1], units)
    linear.weight.data.normal_(generator=stream(0, "weight"))
    init_through_points_(linear, sets[0], generator=stream(0, "through"))
    model = torch.nn.Sequential(linear, torch.nn.ReLU())
    return [patterns(*plain_bits(model, x)) for x in sets]


def test_points_far_from_the_training_data_are_more_novel():
    # In the plane, two points at distance e near the middle differ in about e / (pi * 1.4) of the units: with
    # 1,000 training points the nearest lies at e < 0.2, that is within 5 % of the units. From 100 deviations
    # away a training point at the rim, 3 deviations out, is seen at an angle of about 1/3 from the typical
    # hyperplane's point: about 1/(3 pi) = 10 % of the units differ. Only the few test points at the rim mix.
    train, normal = (torch.randn(n, 2, generator=stream(0, "gaussian", n)) for n in (1000, 300))
    far = normal + torch.tensor([100.0, 0.0])
    known, near, away = random_network_patterns(256, train, normal, far)
    scores = np.concatenate([novelty(known, near), novelty(known, away)])
    assert roc_auc_score([0] * 300 + [1] * 300, scores) > 0.95


def test_points_of_one_distribution_cannot_be_told_apart():
    # By symmetry the area is 1/2 in expectation, with a deviation of at most 1/sqrt(12) * sqrt(2/300) ~ 0.024.
    train, first, second = (torch.randn(n, 2, generator=stream(1, "gaussian", n)) for n in (1000, 300, 301))
    known, one, other = random_network_patterns(256, train, first, second)
    scores = np.concatenate([novelty(known, one), novelty(known, other)])
    assert abs(roc_auc_score([0] * 300 + [1] * 301, scores) - 0.5) < 4 * 0.024
