"""Both lemmas over every pair of regions of random networks, the tent map, and verdicts that could go either way."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from metriscope.rng import stream
from metriscope.studies.vq.lemmas import (
    BOUNDS,
    Lemmas,
    Lot,
    Steps,
    Tent,
    both_distances,
    compare,
    judge_lemma1,
    judge_lemma2,
    random_network,
    tent_rows,
)
from metriscope.vq import capture, linear_regions

NETWORKS = range(60)


@pytest.mark.parametrize("index", NETWORKS)
def test_behind_one_hidden_layer_both_distances_are_equal_for_every_pair(index):
    vq, graph = both_distances(linear_regions(random_network(Lot("shallow", 0, seed=7), index), bounds=BOUNDS))
    assert len(vq) >= 1
    assert np.array_equal(vq, graph)


@pytest.mark.parametrize("index", NETWORKS)
def test_in_a_deep_network_the_vq_distance_is_never_the_larger(index):
    vq, graph = both_distances(linear_regions(random_network(Lot("deep", 0, seed=7), index), bounds=BOUNDS))
    assert len(vq) >= 1
    assert (vq <= graph).all()
    # Crossing a unit's border once changes its sign, so there and back adds two.
    assert ((graph - vq) % 2 == 0).all()


def test_deep_networks_are_strict_often_enough_to_tell_the_lemmas_apart():
    found = [both_distances(linear_regions(random_network(Lot("deep", 1), i), bounds=BOUNDS)) for i in range(12)]
    assert sum(bool((vq < graph).any()) for vq, graph in found) >= 6


@pytest.mark.parametrize("row", list(tent_rows((1, 2, 3, 5, 8))), ids=lambda row: f"L={row['layers']}")
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
    order = np.argsort(partition.centres[:, 0])
    gray = np.arange(16) ^ (np.arange(16) >> 1)
    bits = (gray[:, None] >> np.arange(3, -1, -1)) & 1
    assert np.array_equal(partition.patterns[order].signs() > 0, bits.astype(bool))


def test_comparing_counts_what_differs():
    found = compare(np.array([1, 2, 3, 4]), np.array([1, 4, 3, 3]))
    assert (found["pairs"], found["violations"], found["strict"]) == (4, 1, 0.25)
    assert (found["mean gap"], found["largest gap"], found["stretch"]) == (0.25, 2, 1.1)


def lemmas(**changed):
    rows = [
        {"kind": kind, "depth": 1 + (kind == "deep"), "width": 4, "activation": "ReLU", "seed": s, "regions": 5}
        | {"pairs": 10, "violations": 0, "strict": 0.2 * (kind == "deep"), "mean gap": 0.1, "stretch": 1.1}
        for kind in ("shallow", "deep")
        for s in range(2)
    ]
    return Lemmas(pd.DataFrame(rows), pd.DataFrame(list(tent_rows((1, 2)))), 0)


def test_both_lemmas_are_supported_where_no_pair_is_against_them():
    assert judge_lemma1(lemmas()).verdict == "supported"
    assert judge_lemma2(lemmas()).verdict == "supported"


def test_one_pair_against_a_lemma_contradicts_it():
    wrong = lemmas()
    wrong.networks.loc[0, "strict"] = 0.1
    wrong.networks.loc[2, "violations"] = 1
    assert judge_lemma1(wrong).verdict == "contradicted"
    assert "1 of 20 pairs" in judge_lemma1(wrong).reason
    assert judge_lemma2(wrong).verdict == "contradicted"


def test_a_tent_map_that_is_never_strict_contradicts_the_second_lemma():
    good = lemmas()
    assert judge_lemma2(replace(good, tents=good.tents.assign(strict=0.0))).verdict == "contradicted"
