"""The explorer's networks: every combination is there, its regions obey the lemmas, and the page holds them all."""

from dataclasses import replace
from itertools import product

import numpy as np

from metriscope.report import Companion, Page, write_report
from metriscope.studies.vq import page


def test_every_combination_of_choices_has_a_network(study):
    wanted = product(("moons", "rotated moons"), ("trained", "initial"), ("deep", "shallow"), ("ReLU", "Abs"))
    assert {tuple(view.choices.values()) for view in study.results.explorer.views} == set(wanted)


def test_the_first_network_shown_is_deep_and_trained(study):
    first = study.results.explorer.views[0]
    assert tuple(first.choices.values()) == ("moons", "trained", "deep", "ReLU")


def test_no_region_breaks_a_lemma(study):
    rows = study.results.explorer.rows
    assert (rows["violations"] == 0).all()
    assert (rows[rows["shape"] == "shallow"]["strict"] == 0).all()
    assert (rows[rows["shape"] == "deep"]["strict"] > 0).all()


def test_a_scene_has_the_regions_and_the_points_that_its_network_was_trained_on(study):
    views = study.results.explorer.views
    for view, regions in zip(views[:4], study.results.explorer.rows["regions"], strict=False):
        scene = view.scene
        assert len(scene.starts) - 1 == regions == len(scene.signs) == len(view.distances)
        assert sum(width for _, width in scene.layers) == scene.signs.shape[1] == 96
    straight, rotated = (view.scene.points for view in (views[0], views[2]))
    angles = [np.arctan2(*points.T[::-1]) for points in (straight, rotated)]
    assert np.allclose((angles[1] - angles[0] + 1) % (2 * np.pi) - 1, np.pi / 6, atol=1e-5)


def test_the_sentence_on_the_lemmas_counts_what_breaks_them(study):
    explored = study.results.explorer
    assert "0 of 16 networks have a pair of regions that breaks a lemma" in page._explorer_text(explored)
    wrong = explored.rows.assign(violations=[5, *[0] * 15])
    assert "1 of 16 networks have a pair of regions that breaks a lemma" in page._explorer_text(
        replace(explored, rows=wrong)
    )


def test_the_explorer_is_written_beside_the_report(study, tmp_path):
    sections = (page.explorer(study.results.explorer),)
    (companion,) = (block for block in sections[0].blocks if isinstance(block, Companion))
    path = write_report(Page("p", "", sections), tmp_path)
    assert (tmp_path / "explorer.html").read_text("utf-8") == companion.html
    assert 'href="explorer.html"' in path.read_text("utf-8")
    assert "script-src 'sha256-" in companion.html
    assert len(companion.html) < 3_000_000
