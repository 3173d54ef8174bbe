"""Both lemmas over every pair of regions of random networks, the tent map, and what a wider window changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from metriscope.rng import stream
from metriscope.studies.vq.plan import KINDS, Lot, TentMaps
from metriscope.studies.vq.regions import (
    Steps,
    Tent,
    both_distances,
    compare,
    compare_windows,
    lot_rows,
    random_network,
    tent_rows,
    wider_distances,
)
from metriscope.vq import capture, linear_regions

NETWORKS = range(60)
SHALLOW, DEEP = (Lot(kind, 0, seed=7) for kind in KINDS)


def regions(lot, index):
    return linear_regions(random_network(lot, index), bounds=lot.bounds)


@pytest.mark.parametrize("index", NETWORKS)
def test_behind_one_hidden_layer_both_distances_are_equal_for_every_pair(index):
    vq, graph = both_distances(regions(SHALLOW, index))
    assert len(vq) >= 1
    assert np.array_equal(vq, graph)


@pytest.mark.parametrize("index", NETWORKS)
def test_in_a_deep_network_the_vq_distance_is_never_the_larger(index):
    vq, graph = both_distances(regions(DEEP, index))
    assert len(vq) >= 1
    assert (vq <= graph).all()
    # Crossing a unit's border once changes its sign, so there and back adds two.
    assert ((graph - vq) % 2 == 0).all()


def test_deep_networks_are_strict_often_enough_to_tell_the_lemmas_apart():
    found = [both_distances(regions(Lot(KINDS[1], 1), i)) for i in range(12)]
    assert sum(bool((vq < graph).any()) for vq, graph in found) >= 6


@pytest.mark.parametrize("index", range(0, 60, 5))
def test_a_wider_window_never_makes_a_path_longer_and_never_shorter_than_the_vq_distance(index):
    partition = regions(DEEP, index)
    wide = linear_regions(random_network(DEEP, index), bounds=((-8.0, 8.0), (-8.0, 8.0)))
    vq, graph = both_distances(partition)
    found = wider_distances(partition, wide)
    assert (found <= graph).all()
    assert (found >= vq).all()


def test_the_same_window_changes_nothing():
    partition = regions(DEEP, 3)
    vq, graph = both_distances(partition)
    found = compare_windows(vq, graph, wider_distances(partition, partition))
    assert (found["shortened"], found["excess"]) == (0, 0)
    assert found["wider strict"] == compare(vq, graph)["strict"]


def test_windows_are_compared_pair_by_pair():
    found = compare_windows(np.array([1, 2, 3, 4]), np.array([1, 4, 5, 4]), np.array([1, 2, 5, 3]))
    assert (found["shortened"], found["excess"]) == (0.5, 0.75)
    assert (found["wider strict"], found["wider violations"]) == (0.25, 1)


def test_a_lot_has_one_row_for_each_network_with_its_shape():
    rows = list(lot_rows(replace(DEEP, count=3)))
    assert [(row["depth"], row["width"], row["activation"]) for row in rows] == [
        (2, 4, "ReLU"), (2, 4, "Abs"), (3, 4, "ReLU"),
    ]  # fmt: skip
    assert all(row["wider"] == 4 and row["violations"] == row["wider violations"] == 0 for row in rows)
    assert "wider" not in next(iter(lot_rows(replace(SHALLOW, count=1, wider=0.0))))


@pytest.mark.parametrize("row", list(tent_rows(TentMaps((1, 2, 3, 5, 8)))), ids=lambda row: f"L={row['layers']}")
def test_the_tent_map_and_its_shallow_twin_are_what_theory_says(row):
    layers = row["layers"]
    assert (row["pieces"], row["pieces as printed"]) == (2**layers, layers + 1)
    assert (row["largest VQ"], row["largest graph"]) == (layers, 2**layers - 1)
    assert (row["twin pieces"], row["twin units"], row["twin differs"]) == (2**layers, 2**layers - 1, 0)
    assert (row["strict"] > 0) == (layers > 1)


def test_the_tent_map_folds_the_interval():
    z = torch.rand(100, 1, generator=stream(0, "z"), dtype=torch.float64)
    assert torch.allclose(Tent(1)(z), 1 - (2 * z - 1).abs())
    assert torch.equal(Tent(1, printed=True)(z), (2 * z).clamp(max=1))
    assert capture(Steps(8).double(), z).width == 7


def test_vq_distances_of_the_tent_map_follow_the_gray_code():
    # The sign of layer l is bit l of the Gray code of a piece, from the highest bit down.
    partition = linear_regions(Tent(4), bounds=(0.0, 1.0))
    order = np.argsort(partition.centers[:, 0])
    gray = np.arange(16) ^ (np.arange(16) >> 1)
    bits = (gray[:, None] >> np.arange(3, -1, -1)) & 1
    assert np.array_equal(partition.patterns[order].signs() > 0, bits.astype(bool))


def test_comparing_counts_what_differs():
    found = compare(np.array([1, 2, 3, 4]), np.array([1, 4, 3, 3]))
    assert (found["pairs"], found["violations"], found["strict"]) == (4, 1, 0.25)
    assert (found["mean gap"], found["largest gap"], found["stretch"]) == (0.25, 2, 1.1)
