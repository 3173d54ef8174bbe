"""What the page of two networks says about their alignment, also where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from metriscope.report import network_pages
from metriscope.report.document import Figure, Prose
from metriscope.report.network_pages import Subject
from vq.measures.cases import clouds
from vq.units.cases import patterns

NETWORK = clouds(30, (9, 5), 0)
OTHER = clouds(30, (7, 12), 1)
DEAD = patterns(np.zeros((30, 6), np.uint8))
RANK_ONE = patterns(np.repeat(np.arange(30)[:, None] % 2, 6, 1))
HALF_DEAD = patterns(np.hstack([np.zeros((30, 4), np.uint8), NETWORK.signs()[:, :5] > 0]), (4, 5))


def blocks(one, two):
    return network_pages._alignment(Subject("one", one), Subject("two", two))


def prose(found):
    return " ".join(block.text for block in found if isinstance(block, Prose))


def figures(found):
    return {block.name: block for block in found if isinstance(block, Figure)}


def test_two_networks_are_compared_with_an_interval_and_a_null():
    found = blocks(NETWORK, OTHER)
    assert "Centered alignment 0." in prose(found)
    assert "(debiased), 95 % jackknife interval 0." in prose(found)
    assert "undefined" not in prose(found)
    assert set(figures(found)) == {"alignment-null", "alignment-layers"}


@pytest.mark.parametrize("pair", [(NETWORK, DEAD), (DEAD, NETWORK), (DEAD, DEAD)])
def test_a_dead_network_has_an_undefined_alignment_and_a_page(pair):
    found = blocks(*pair)
    assert "The alignment is undefined: the pattern is the same at all 30 points" in prose(found)
    assert not figures(found)


def test_a_network_of_rank_one_has_an_alignment():
    found = blocks(NETWORK, RANK_ONE)
    assert "jackknife interval" in prose(found)
    assert set(figures(found)) == {"alignment-null", "alignment-layers"}


def test_a_dead_layer_is_a_dash_in_the_map_of_layers():
    found = blocks(NETWORK, HALF_DEAD)
    assert "The alignment is undefined" not in prose(found)
    layers = figures(found)["alignment-layers"]
    assert "A dash is an undefined value: the pattern is the same at all 30 points in layer0" in layers.caption


def test_an_undefined_interval_does_not_hide_a_value_that_is_defined():
    two_odd = patterns(np.isin(np.arange(30), [3, 4])[:, None])
    found = blocks(NETWORK, two_odd)
    assert "The alignment is undefined" not in prose(found)
    assert "Centered alignment " in prose(found)
    assert "its interval undefined (2 of 30 points cannot be left out" in prose(found)


@pytest.mark.parametrize(("points", "why"), [(1, "at least two points, got 1"), (3, "at least 4 points, got 3")])
def test_too_few_points_are_said_to_be_too_few(points, why):
    found = blocks(NETWORK[:points], OTHER[:points])
    assert why in prose(found)
    assert not figures(found)
