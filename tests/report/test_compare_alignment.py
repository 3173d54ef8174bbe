"""What the page of two networks says about their alignment, also where there is none."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from metriscope.reading.points import UserPoints
from metriscope.report import render
from metriscope.report.document import Panel, Prose
from metriscope.report.network_comparison import compare_page
from metriscope.report.network_pages import Subject
from metriscope.vq import capture
from report.markup_cases import without_scripts
from vq.measures.cases import clouds
from vq.units.cases import patterns

NETWORK = clouds(30, (9, 5), 0)
OTHER = clouds(30, (7, 12), 1)
DEAD = patterns(np.zeros((30, 6), np.uint8))
RANK_ONE = patterns(np.repeat(np.arange(30)[:, None] % 2, 6, 1))
HALF_DEAD = patterns(np.hstack([np.zeros((30, 4), np.uint8), NETWORK.signs()[:, :5] > 0]), (4, 5))


def page_of(one, two):
    return compare_page(Subject("one", one), Subject("two", two), {})


def blocks(page, title):
    return next(section for section in page.sections if section.title == title).blocks


def words(found):
    parts = [block.text if isinstance(block, Prose) else getattr(block, "html", "") for block in found]
    return re.sub("<[^>]*>", "", " ".join(parts)).replace("\u00a0", " ")


def test_two_networks_are_compared_in_one_sentence_with_a_gauge_and_its_null_band():
    page = page_of(NETWORK, OTHER)
    text = words(blocks(page, "Alignment"))
    assert re.search(r"one and two see these points .*: alignment 0\.\d+, 95 % jackknife interval 0\.", text)
    assert re.search(r"shuffled points give −0\.\d+ to 0\.\d+ \(p = ", text)
    assert "undefined" not in text
    assert blocks(page, "Alignment")[0].html.count('class="gauge"') == 1


def test_the_words_follow_the_value():
    signs = (NETWORK.signs() > 0).astype(np.uint8)
    nearly = signs.copy()
    nearly[:3, 0] ^= 1
    text = words(blocks(page_of(patterns(signs), patterns(nearly)), "Alignment"))
    assert "see these points almost in the same way, more than chance" in text
    random = patterns(np.random.default_rng(0).integers(0, 2, (30, 9)).astype(np.uint8))
    assert "see these points in different ways" in words(blocks(page_of(NETWORK, random), "Alignment"))


def test_a_network_compared_with_itself_has_identical_patterns_and_with_other_units_of_equal_distances_not():
    text = words(blocks(page_of(NETWORK, NETWORK), "Alignment"))
    assert "one and two have identical patterns: at every point, each unit has the same sign in both" in text
    assert "almost" not in text
    signs = (NETWORK.signs() > 0).astype(np.uint8)
    text = words(blocks(page_of(patterns(signs), patterns(1 - signs)), "Alignment"))
    assert "see these points in the same way, up to scale" in text


@pytest.mark.parametrize("pair", [(NETWORK, DEAD), (DEAD, NETWORK), (DEAD, DEAD)])
def test_a_dead_network_has_an_undefined_alignment_and_a_page(pair):
    page = page_of(*pair)
    assert "The alignment is undefined: the pattern is the same at all 30 points" in words(blocks(page, "Alignment"))
    assert "No point has an agreement" in words(blocks(page, "Where they disagree"))
    assert render(page)


def test_a_network_of_rank_one_has_an_alignment():
    page = page_of(NETWORK, RANK_ONE)
    assert "jackknife interval" in words(blocks(page, "Alignment"))
    assert isinstance(blocks(page, "Layer by layer")[0], Panel)


def test_a_dead_layer_is_a_dash_in_the_matrix_of_layers_whose_axes_are_titled():
    panel = blocks(page_of(NETWORK, HALF_DEAD), "Layer by layer")[0]
    assert "A dash is an undefined value: the pattern is the same at all 30 points in layer0" in panel.caption
    assert ">layers of one<" in panel.html
    assert ">layers of two<" in panel.html
    assert panel.html.count(">–</text>") == len(NETWORK.layers)


def test_an_undefined_interval_does_not_hide_a_value_that_is_defined():
    two_odd = patterns(np.isin(np.arange(30), [3, 4])[:, None])
    text = words(blocks(page_of(NETWORK, two_odd), "Alignment"))
    assert "The alignment is undefined" not in text
    assert "its interval undefined (2 of 30 points cannot be left out" in text


@pytest.mark.parametrize(("points", "why"), [(1, "at least two points, got 1"), (3, "at least 4 points, got 3")])
def test_too_few_points_are_said_to_be_too_few(points, why):
    page = page_of(NETWORK[:points], OTHER[:points])
    assert why in words(blocks(page, "Alignment"))
    assert not re.search(r"\bnan\b", without_scripts(render(page)), re.IGNORECASE)


def test_the_point_that_lies_elsewhere_in_the_second_network_is_told_first():
    # Three groups; in the second network, point 4 has the pattern of another group.
    groups = np.repeat(np.arange(3), 10)
    bits = np.repeat(np.eye(3, dtype=np.uint8)[groups], 4, 1)
    bits[:, -1] ^= (np.arange(30) % 2).astype(np.uint8)
    moved = bits.copy()
    moved[4] = bits[25]
    page = page_of(patterns(bits), patterns(moved))
    assert next(t for t in page.tables if t.name == "disagreements").frame["point"].iloc[0] == 4


def test_the_second_map_is_turned_onto_the_first():
    from metriscope.reading.comparison import turned

    rng = np.random.default_rng(0)
    first = rng.normal(size=(20, 2))
    first -= first.mean(0)
    angle = 2.1
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.diag([1, -1])
    np.testing.assert_allclose(turned(3 * first @ rotation, first), first, atol=1e-12)


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("count", [2, 12, 80])
def test_places_have_the_distances_as_their_squared_lengths(count, axes):
    from metriscope.reading.inspection import centered_places

    rng = np.random.default_rng(0)
    points = rng.normal(size=(count, axes))
    squared = ((points[:, None] - points) ** 2).sum(2)
    found = centered_places(squared)
    np.testing.assert_allclose(((found.places[:, None] - found.places) ** 2).sum(2), squared, atol=1e-10)
    assert found.shares.sum() == pytest.approx(1)


def linear_readers(*flips):
    """Return two networks that answer by the sign of the first feature, the second one wrongly at some points."""
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    x[:, 1] = np.where(np.isin(np.arange(40), flips), -1, 1)
    labels = (x[:, 0] > 0).astype(int)

    class Net(torch.nn.Module):
        def __init__(self, flipped):
            super().__init__()
            self.act, self.flipped = torch.nn.ReLU(), flipped

        def forward(self, x):
            score = x[:, 0] * (x[:, 1] if self.flipped else 1)
            return self.act(torch.stack([-score, score], 1))

    nets = [Net(flipped) for flipped in (False, True)]
    return [Subject(name, capture(net, x), labels, net, UserPoints(x)) for name, net in zip("AB", nets, strict=True)]


def test_the_page_counts_where_answers_differ_and_who_is_right():
    text = words(blocks(compare_page(*linear_readers(3, 7, 20), {}), "Alignment"))
    assert "They give different answers at 3 of 40 points (7.5 %); A is right at 3 of these and B at 0." in text
    assert "Of all points, A is right at 40 and B at 37." in text


def test_patterns_without_networks_have_no_answers_to_compare():
    assert "answers" not in words(blocks(page_of(NETWORK, OTHER), "Alignment"))
