"""Pages of networks that tell few points apart, or none: they say what is undefined and why, and show the rest."""

import re

import numpy as np
import pytest

from metriscope.report import Figure, Prose, Table, render
from metriscope.report.network_pages import Subject, compare_page, inspect_page
from metriscope.vq import Patterns
from metriscope.vq.capture.patterns import Layer

OFF, ON = [0] * 5, [1] * 5
THREE_ON = [1, 1, 1, 0, 0]
CASES = {
    "dead": [OFF] * 6,
    "always on": [ON] * 6,
    "the same everywhere": [THREE_ON] * 6,
    "two patterns": [OFF, OFF, THREE_ON, THREE_ON],
    "one point": [THREE_ON],
    "two equal points": [ON, ON],
    "two points": [OFF, THREE_ON],
    "three patterns": [OFF, THREE_ON, ON],
}
SINGULAR = ("dead", "always on", "the same everywhere", "one point", "two equal points")


def subject(bits, labels=None, names=("a", "b")):
    """Return a network of two layers, of three and two units, or of one layer of five."""
    bits = np.array(bits, np.uint8)
    widths = {1: [5], 2: [3, 2]}[len(names)]
    layers = tuple(Layer(name, width, "relu") for name, width in zip(names, widths, strict=True))
    parts = np.split(bits, np.cumsum(widths)[:-1], axis=1)
    packed = np.concatenate([np.packbits(part, axis=1) for part in parts], axis=1)
    return Subject("net", Patterns(layers, packed), labels)


def section(page, title):
    return next(section for section in page.sections if section.title == title).blocks


def texts(blocks):
    return " ".join(block.text if isinstance(block, Prose) else getattr(block, "caption", "") for block in blocks)


@pytest.mark.parametrize("labeled", [False, True])
@pytest.mark.parametrize("names", [("only",), ("a", "b")])
@pytest.mark.parametrize("case", CASES)
def test_every_network_has_a_page_with_its_layers_units_and_distances(case, names, labeled):
    labels = np.arange(len(CASES[case])) % 2 if labeled else None
    page = inspect_page(subject(CASES[case], labels, names), {})
    assert {"layers", "units"} <= {table.name for table in page.tables}
    assert {"kernel", "activity"} <= {block.name for block in page.blocks if isinstance(block, Figure)}
    text = render(page)
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)
    assert ("undefined" in text) == (case in (*SINGULAR, "two patterns", "two points"))


@pytest.mark.parametrize("case", SINGULAR)
def test_where_no_distance_is_left_there_is_no_map_and_the_reason_is_told(case):
    blocks = section(inspect_page(subject(CASES[case]), {}), "Geometry")
    points = len(CASES[case])
    reason = f"all {points} points have the same pattern" if points > 1 else "there is one point only"
    assert f"a map of the points is undefined, because {reason}" in texts(blocks)
    assert not any(isinstance(block, Figure) and block.name == "mds-embedding" for block in blocks)


@pytest.mark.parametrize(("case", "eigenvalue", "mean"), [("two patterns", "3.00", "2"), ("two points", "1.50", "3")])
def test_two_patterns_lie_on_a_line_and_the_second_axis_is_said_to_be_undefined(case, eigenvalue, mean):
    # Patterns three units apart, n and m times, have the eigenvalue 3 n m / (n + m).
    blocks = section(inspect_page(subject(CASES[case]), {}), "Geometry")
    assert f"Eigenvalues: {eigenvalue}. " in texts(blocks)
    assert "so that a second axis is undefined" in texts(blocks)
    # A point and itself are no two points.
    assert f"the mean distance of two points is {mean}.00 of 5." in texts(blocks)
    drawn = next(block for block in blocks if isinstance(block, Figure) and block.name == "mds-embedding")
    assert drawn.svg.count("<title>point ") == len(CASES[case])
    assert "second axis" not in drawn.svg


def test_three_patterns_have_two_axes():
    blocks = section(inspect_page(subject(CASES["three patterns"]), {}), "Geometry")
    assert "undefined" not in texts(blocks)
    assert any("second axis" in block.svg for block in blocks if isinstance(block, Figure))


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("dead", "**No unit of net tells any two points apart**"),
        ("always on", "**No unit of net tells any two points apart**"),
        ("one point", "There is one point only, at which every unit is either off or on"),
        ("two patterns", ""),
    ],
)
def test_units_that_tell_nothing_apart_are_told(case, sentence):
    blocks = section(inspect_page(subject(CASES[case]), {}), "Units")
    assert isinstance(blocks[0], Prose) == bool(sentence)
    assert sentence in texts(blocks)
    assert any(isinstance(block, Table) for block in blocks)


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("one point", "Novelty is undefined: there is one point only"),
        ("dead", "No point is novel: each shares its pattern with another"),
        ("two patterns", "No point is novel: each shares its pattern with another"),
    ],
)
def test_novelty_without_any_distance_is_told(case, sentence):
    assert texts(section(inspect_page(subject(CASES[case]), {}), "Most novel points")).startswith(sentence)


@pytest.mark.parametrize("case", CASES)
def test_any_network_can_be_compared_with_itself_and_with_a_dead_one(case):
    bits = CASES[case]
    for other in (bits, [OFF] * len(bits)):
        page = compare_page(subject(bits), subject(other), {})
        assert {"layers-a", "layers-b", "units-a", "units-b"} <= {table.name for table in page.tables}
        singular = case in SINGULAR or other != bits
        assert not singular or "undefined" in texts(section(page, "Alignment"))
        assert render(page)


def test_heat_kernels_of_dead_networks_are_told_not_drawn():
    page = compare_page(subject([OFF] * 4), subject([ON] * 4), {})
    assert texts(section(page, "Heat kernels")).endswith("says nothing: all distances of 4 points are 0.")


def test_layers_beyond_the_colors_are_said_to_be_left_out():
    layers = tuple(Layer(f"_{i}", 1, "relu") for i in range(8))
    page = inspect_page(Subject("deep", Patterns(layers, np.eye(8, dtype=np.uint8) << 7)), {})
    drawn = next(block for block in page.blocks if isinstance(block, Figure) and block.name == "activity")
    assert "The first 6 of 8 layers are drawn." in drawn.caption
    assert all(f">_{i}<" in drawn.svg for i in range(6))
