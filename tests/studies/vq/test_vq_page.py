"""The whole study at a tiny size: every part, its page, and a second call that computes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metriscope import data
from metriscope.report import Page, render
from metriscope.runs import Store
from metriscope.studies.vq import beyond, digits, experiment, moons, page, parts, spheres
from metriscope.studies.vq.parts import mean_text
from metriscope.studies.vq.spec import DEPTHS, Recipe, plan

OWN = ("moons", "spheres", "digits", "beyond")
TINY = replace(
    plan("quick", seeds=2),
    moons=Recipe(epochs=6, loss="bce", kept=(2,)),
    plain=Recipe(epochs=3, loss="bce"),
    digits=Recipe(epochs=2, loss="cross-entropy", batch=64, kept=(1,)),
    plain_digits=Recipe(epochs=1, loss="cross-entropy", batch=64),
    grid=24,
    images=160,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The collected parts of a tiny plan on embedded digits, and the store they are in."""
    patch = pytest.MonkeyPatch()
    patch.setattr(data, "available", lambda name, data_dir=None: False)
    patch.setattr(digits, "PERMUTATIONS", 5)
    patch.setattr(page, "PARTS", tuple(part for part in page.PARTS if part.name in OWN))
    store = Store(tmp_path_factory.mktemp("vq"))
    yield store, page.collect(TINY, store, lambda line: None)
    patch.undo()


def test_every_part_fills_its_tables_for_every_seed(study):
    found = {part.name: result for part, result in study[1]}
    assert set(found) == set(OWN)
    assert len(found["moons"].rows) == 2 * len(moons.COMPARISONS)
    assert found["digits"].source == ("mnist-5k", 160)
    assert set(found["digits"].aligned["pair"]) == {digits.name_of(p) for p in (*digits.PAIRS, *digits.TWINS)}
    assert sorted(found["beyond"].depths["depth"].unique()) == list(DEPTHS)
    new = found["spheres"].rows.query("points == 'new'")["distance"]
    assert set(new) == set(spheres.DISTANCES) - {"shuffled"}


def test_cosines_tend_to_one_and_alignments_stay_in_their_range(study):
    found = {part.name: result for part, result in study[1]}["digits"]
    for pair in digits.PAIRS:
        for form in ("distance", "squared"):
            curve = found.curve(pair, form)
            assert curve.shape[0] == 2
            assert (curve <= 1 + 1e-12).all()
            assert curve[:, -1] == pytest.approx(1, abs=0.01)
        assert (np.abs(found.alignments(pair)) <= 1).all()


def test_the_page_renders_with_figures_tables_and_verdicts(study):
    sections = page.sections(TINY, study[1])
    whole = Page("Test", "tiny", sections)
    text = render(whole)
    assert [claim.id for claim in whole.claims] == ["C21", "C22", "C23", "C24", "C25"]
    assert all(claim.reason and claim.evidence for claim in whole.claims[:3])
    assert "160 and 40 images of <code>mnist-5k</code>" in text
    assert "nan" not in " ".join(claim.reason for claim in whole.claims)
    assert len(text) < 6_000_000


def test_a_second_call_computes_nothing(study, monkeypatch):
    store, first = study
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("*") if path.is_file()}
    monkeypatch.setattr(experiment, "_compute", lambda *_: pytest.fail("trained again"))
    for module in (moons, spheres, digits, beyond):
        monkeypatch.setattr(module, "measured", lambda store, spec, rows: parts.measured(store, spec, pytest.fail))
    again = page.collect(TINY, store, lambda line: None)
    assert before == {path: path.stat().st_mtime_ns for path in store.root.rglob("*") if path.is_file()}
    one, other = ({part.name: result for part, result in each} for each in (first, again))
    assert one["moons"].rows.equals(other["moons"].rows)
    assert one["digits"].heat.equals(other["digits"].heat)


def test_a_mean_shows_the_digits_its_interval_allows():
    assert mean_text([0.5, 0.6, 0.7]) == "0.60 [0.35, 0.85]"
    assert mean_text(np.array([1.0, 1.0 + 1e-16])) == "1"
    assert mean_text([0.3]) == "–"
