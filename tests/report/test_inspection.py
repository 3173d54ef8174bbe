"""Pages of networks that tell few points apart, or none: they say what is undefined and why, and show the rest."""

import base64
import hashlib
import re

import numpy as np
import pytest
import torch
from torch import nn

from metriscope.reading.inspection import inspected
from metriscope.reading.points import UserPoints
from metriscope.report import Prose, render
from metriscope.report.network_comparison import compare_page
from metriscope.report.network_layers import listed_units, unit_importance
from metriscope.report.network_pages import Subject, inspect_page
from metriscope.vq import Patterns, capture
from metriscope.vq.capture.patterns import Layer
from report.markup_cases import without_scripts

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
    parts = [block.text if isinstance(block, Prose) else getattr(block, "html", "") for block in blocks]
    return re.sub("<[^>]*>", "", " ".join(parts))


@pytest.mark.parametrize("labeled", ["no labels", "one class", "two classes"])
@pytest.mark.parametrize("names", [("only",), ("a", "b")])
@pytest.mark.parametrize("case", CASES)
def test_every_network_has_a_page_with_findings_layers_and_units(case, names, labeled):
    count = len(CASES[case])
    labels = {"no labels": None, "one class": np.zeros(count, int), "two classes": np.arange(count) % 2}[labeled]
    page = inspect_page(subject(CASES[case], labels, names), {})
    assert page.sections[0].title == "Findings"
    assert {"layers", "units"} <= {table.name for table in page.tables}
    text = render(page)
    assert not re.search(r"\bnan\b", without_scripts(text), re.IGNORECASE)
    assert '<span class="tag">' in text


@pytest.mark.parametrize("case", SINGULAR)
def test_where_no_distance_is_left_there_is_no_map_and_the_reason_is_told(case):
    blocks = section(inspect_page(subject(CASES[case]), {}), "Map of the points")
    points = len(CASES[case])
    reason = f"all {points} points have the same pattern" if points > 1 else "there is one point only"
    assert f"A map of the points is undefined, because {reason}" in texts(blocks)
    assert all(isinstance(block, Prose) for block in blocks)


@pytest.mark.parametrize(("case", "mean"), [("two patterns", "2"), ("two points", "3")])
def test_two_patterns_lie_on_a_line(case, mean):
    page = inspect_page(subject(CASES[case]), {})
    # A point and itself are no two points.
    assert f"the mean distance of two points is {mean}.00 of 5." in texts(section(page, "Distances"))
    drawn = section(page, "Map of the points")[0].html
    heights = re.findall(r'cy="(\d+)"', drawn)
    assert len(heights) == len(CASES[case])
    assert len(set(heights)) == 1


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("dead", "No unit separates any two of the 6 points"),
        ("always on", "No unit separates any two of the 6 points"),
        ("one point", "There is one point only: no unit can be called dead"),
    ],
)
def test_units_that_tell_nothing_apart_are_told_first(case, sentence):
    found = texts(section(inspect_page(subject(CASES[case]), {}), "Findings"))
    assert found.lstrip().removeprefix("problem").removeprefix("in order").startswith(sentence)


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


def own(x, labels=None, points=None):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(x.shape[1:])), 64), nn.ReLU(), nn.Linear(64, 3))
    return Subject("net", capture(net, x), labels, net, points or UserPoints(x))


def test_pictures_are_embedded_once_and_novel_ones_are_shown_with_label_and_answer():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 1, 12, 12)).astype(np.float32)
    page = inspect_page(own(x, np.arange(30) % 3), {})
    text = render(page)
    assert text.count(".thumb { background-image: url(data:image/png;base64,") == 1
    gallery = texts(section(page, "Most novel points"))
    assert gallery.count("answered ") == gallery.count("label ") == 20
    right = page.tables[[t.name for t in page.tables].index("novel")].frame
    wrong = (right["answered"] != right["label"].astype(str)).sum()
    assert gallery.count("✗ wrong") == wrong > 0


def test_rows_of_a_table_are_shown_with_the_names_of_their_columns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4)).astype(np.float32)
    x[:, 2] *= 10
    points = UserPoints(x, columns=np.array(["age", "<b>", "income", "height"]))
    text = render(inspect_page(own(x, points=points), {}))
    assert "income" in text
    assert "&lt;b&gt;" in text
    assert "<b>" not in re.sub(r"<b>[^<]*</b>|<b [^>]*>[^<]*</b>", "", text).split("<main>")[1].split("<script")[0]


def test_texts_are_shown_and_tokens_where_there_are_none():
    rng = np.random.default_rng(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.fc = nn.Embedding(9, 6), nn.Linear(6, 5)

        def forward(self, input_ids, attention_mask):
            return self.fc(self.words(input_ids)).relu()

    ids, mask = rng.integers(0, 9, (12, 4)), np.tile([1, 1, 1, 0], (12, 1))
    net, data = Net(), {"input_ids": ids, "attention_mask": mask}
    subject = Subject("net", capture(net, data), None, net, UserPoints(data))
    assert f"tokens {ids[0, 0]} {ids[0, 1]} {ids[0, 2]}" in UserPoints(data).words(np.arange(1))[0]
    assert "tokens " in render(inspect_page(subject, {}))
    told = UserPoints(data, texts=np.array([f"sentence {i}" for i in range(12)]))
    subject = Subject("net", subject.patterns, None, net, told)
    assert "sentence 3" in render(inspect_page(subject, {}))


def test_the_page_runs_its_own_script_and_no_other():
    text = render(inspect_page(subject(CASES["three patterns"]), {}))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}
    assert set(re.search(r"script-src (.+?); base-uri 'none'", policy)[1].split()) == {f"'sha256-{h}'" for h in hashes}
    assert scripts
    others = [tag for tag in re.findall(r"<script([^>]*)>", text) if tag]
    assert all('type="application/json"' in tag for tag in others)  # data, which no browser runs
    assert not re.search(r"https?://", text)


def test_layers_beyond_what_a_page_holds_are_said_to_be_left_out():
    layers = tuple(Layer(f"_{i}", 1, "relu") for i in range(24))
    packed = np.tile(np.eye(8, dtype=np.uint8) << 7, (1, 3))
    page = inspect_page(Subject("deep", Patterns(layers, packed)), {})
    panel = next(block for block in section(page, "Layers and units") if getattr(block, "name", "") == "layers")
    assert panel.caption == "16 of 24 layers, evenly chosen."


def layer_text(page):
    panel = next(block for block in section(page, "Layers and units") if getattr(block, "name", "") == "layers")
    return texts([panel])


def test_the_order_of_units_is_named_by_what_was_measured():
    x = np.random.default_rng(0).normal(size=(90, 6)).astype(np.float32)
    unlabeled = own(x)
    answers = unlabeled.model(torch.from_numpy(x)).argmax(1).numpy()
    other = np.array([f"name {i}" for i in np.argsort(x[:, 0]).argsort() // 9])
    for labels, words in (
        (answers, "by how far the log-odds of a class fall if the unit is fixed at its mean"),
        (other, "by how much the unit tells about the class (mutual information)"),
        (None, "by how close to 50 % of the points the unit is on"),
    ):
        text = layer_text(inspect_page(own(x, labels), {}))
        assert words in text
        assert "matter most" not in text


def test_units_are_listed_in_the_order_that_is_named():
    found = inspected(own(np.random.default_rng(0).normal(size=(90, 6)).astype(np.float32)))
    weights = unit_importance(found, 0).weights[listed_units(found, 0)["unit"].to_numpy()]
    alone = (listed_units(found, 0)["partners"] == "").to_numpy()
    assert (np.diff(weights[alone]) <= 0).all()


def test_the_text_of_a_layer_says_dead_and_explains_its_numbers():
    x = np.random.default_rng(0).normal(size=(90, 6)).astype(np.float32)
    subject = own(x, (x[:, 0] > 0).astype(int))
    text = layer_text(inspect_page(subject, {}))
    assert "never on" not in text
    assert re.search(r"Of 64 units, \d+ (is|are) dead and \d+ always on\.", text)
    assert re.search(r"Its inputs vary in 6 directions, and the effective rank of the layer is [1-6](\.\d+)?: ", text)
    assert re.search(r"tell about the class, \d+ % comes from the half of the values closest to zero", text)


def test_the_axes_of_the_map_are_in_root_signs():
    assert "first axis, in √signs" in render(inspect_page(subject(CASES["three patterns"]), {}))
