"""The explorer's networks: every combination is there, its regions obey the lemmas, and the page holds them all."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from metriscope.report import Companion, Page, write_report
from metriscope.runs import Store
from metriscope.studies.vq import explorer
from metriscope.studies.vq.spec import Recipe, plan

SHORT = replace(plan("quick"), plain=Recipe(epochs=5, loss="bce"))


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    return explorer.collect(SHORT, Store(tmp_path_factory.mktemp("explorer") / "runs"), lambda line: None)


def test_every_combination_of_choices_has_a_network(explored):
    wanted = product(("moons", "turned moons"), ("trained", "initial"), ("deep", "shallow"), ("ReLU", "Abs"))
    assert {tuple(view.choices.values()) for view in explored.views} == set(wanted)


def test_the_first_network_shown_is_deep_and_trained(explored):
    assert tuple(explored.views[0].choices.values()) == ("moons", "trained", "deep", "ReLU")


def test_no_region_breaks_a_lemma(explored):
    rows = explored.rows
    assert (rows["violations"] == 0).all()
    assert (rows[rows["shape"] == "shallow"]["strict"] == 0).all()
    assert (rows[rows["shape"] == "deep"]["strict"] > 0).all()


def test_a_scene_has_the_regions_and_the_points_that_its_network_was_trained_on(explored):
    for view in explored.views[:4]:
        scene = explorer.scene(view)
        assert len(scene.starts) - 1 == len(view.partition) == len(scene.signs)
        assert sum(width for _, width in scene.layers) == scene.signs.shape[1] == 96
    straight, turned = (explorer.scene(view).points for view in (explored.views[0], explored.views[2]))
    angles = [np.arctan2(*points.T[::-1]) for points in (straight, turned)]
    assert np.allclose((angles[1] - angles[0] + 1) % (2 * np.pi) - 1, np.pi / 6, atol=1e-5)


def test_the_explorer_is_written_beside_the_report(explored, tmp_path):
    sections = explorer.sections(explored)
    (companion,) = (block for block in sections[0].blocks if isinstance(block, Companion))
    path = write_report(Page("p", "", sections), tmp_path)
    assert (tmp_path / "explorer.html").read_text("utf-8") == companion.html
    assert 'href="explorer.html"' in path.read_text("utf-8")
    assert "script-src 'sha256-" in companion.html
    assert len(companion.html) < 3_000_000
