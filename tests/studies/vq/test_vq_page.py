"""The whole study at a tiny size: every experiment, its page, and a second call that computes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metriscope.report import Page, mean_text, number, render
from metriscope.runs import Deadline, Driver, Finished, Unfinished
from metriscope.studies.verdicts import finding, judge
from metriscope.studies.vq import page
from metriscope.studies.vq.digits import StartsResults
from metriscope.studies.vq.experiments import COMPARISONS, DISTANCES, FORMS, INITIAL, PAIRS, TRAINED, TWINS, name_of
from metriscope.studies.vq.judge import STATEMENTS
from metriscope.studies.vq.measure import measure
from metriscope.studies.vq.train import WORK
from metriscope.vq.measures.heat import cosine_from_counts


@pytest.fixture(scope="module")
def claims(study):
    return judge(STATEMENTS, study.results.tables)


def test_every_experiment_fills_its_tables_for_every_seed(study):
    results = study.results
    assert len(results.moons.rows) == 3 * len(COMPARISONS)
    assert set(results.digits.aligned["pair"]) == {name_of(p) for p in (*PAIRS, *TWINS)}
    assert sorted(results.beyond.depths["depth"].unique()) == list(study.plan.beyond.depths)
    new = results.spheres.rows.query("points == 'new'")["distance"]
    assert set(new) == set(DISTANCES) - {"shuffled"}
    assert set(results.beyond.course["task"]) == {"moons", "T4", "T6", "both"}


@pytest.mark.parametrize("pair", [TRAINED, INITIAL], ids=name_of)
def test_the_counts_that_the_page_holds_give_the_measured_cosines(study, pair):
    found = study.results.digits
    counts = found.counts(pair)
    assert counts.sum() == found.part.images.test**2
    for form in FORMS:
        np.testing.assert_allclose(
            cosine_from_counts(counts, found.scales[form], form), found.curve(pair, form)[0], rtol=1e-9
        )


def test_cosines_tend_to_one_and_alignments_stay_in_their_range(study):
    found = study.results.digits
    for pair in PAIRS:
        for form in FORMS:
            curve = found.curve(pair, form)
            assert curve.shape[0] == 3
            assert (curve <= 1 + 1e-12).all()
            assert curve[:, -1] == pytest.approx(1, abs=0.01)
        assert (np.abs(found.alignments(pair)) <= 1).all()
        # What the debiased estimator takes away is what any two kernels of few points share.
        assert (found.alignments(pair) < found.alignments(pair, "biased")).all()


def test_the_worst_scale_of_a_band_is_tested_as_the_band_says(study):
    found = study.results.digits
    tables = found.tables
    criteria = {c.values.where: c for c in STATEMENTS[2].criteria if c.values.table == "heat worst"}
    for form in FORMS:
        known = finding(criteria[(("form", form),)], tables)
        scale = tables["heat worst"].query("form == @form")["sigma2"].iloc[0]
        band = tables["heat band"].query("form == @form and sigma2 == @scale").iloc[0]
        assert (known.estimate, known.low, known.high) == pytest.approx((band["change"], band["low"], band["high"]))
        curves = found.curve(TRAINED, form) - found.curve(INITIAL, form)
        assert known.estimate == pytest.approx(curves[:, list(found.scales[form]).index(scale)].mean())


def test_a_record_of_all_starts_is_judged_in_place_of_the_starts_of_this_run(study):
    results = study.results
    assert results.tables["alignment"]["alignment"].to_numpy() == pytest.approx(results.digits.aligned["alignment"])
    assert set(results.starts.tables["heat cosines"]["sigma2"]) == {results.digits.nearest.scale}
    tables = {name: table.assign(origin="record") for name, table in results.starts.tables.items()}
    tables["alignment"]["alignment"] += 1000
    shown = replace(results, starts=StartsResults(study.plan.starts, tables))
    (claim,) = (c for c in judge(STATEMENTS, shown.tables) if c.id == "C23")
    assert claim.origin == "record"
    text = render(Page("Test", "tiny", page.sections(study.plan, shown, (claim,))))
    assert "Networks of 4 and 6 layers on digits: 3 starts" in text
    assert "1000" in text


def test_ranks_are_shares_of_euclids_and_of_the_largest(study):
    spheres = study.results.spheres
    rows = spheres.rows.query("points == 'training' and seed == 0").set_index("distance")["rank"]
    share = spheres.tables["ranks"].query("points == 'training' and seed == 0").iloc[0]
    assert share["of euclid"] == pytest.approx(rows["first"] / rows["euclid"])
    assert share["of largest"] == pytest.approx(rows["first"] / 149)


def test_the_page_renders_with_figures_tables_and_verdicts(study, claims):
    whole = Page("Test", "tiny", page.sections(study.plan, study.results, claims))
    text = render(whole)
    assert [claim.id for claim in whole.claims] == ["C21", "C22", "C23", "C24", "C25", "C30", "C31"]
    assert all(claim.reason and claim.evidence and claim.requirements for claim in whole.claims)
    assert "160 and 40 images of <code>mnist-5k</code>" in text
    assert "nan" not in " ".join(claim.reason for claim in whole.claims)
    assert len(text) < 6_000_000


def test_numbers_of_notes_are_those_of_the_tables(study, claims):
    by_id = {claim.id: claim.reason for claim in claims}
    results = study.results
    before = results.moons.values("start back", "alignment") - results.moons.values("start", "alignment")
    assert f"rotating back changes the alignment by {mean_text(before, 3)}" in by_id["C21"]
    ranks = results.spheres.rows.query("points == 'training' and distance == 'first'")["rank"]
    assert f"Effective rank on training points: VQ {mean_text(ranks, 3)}" in by_id["C22"]
    best = results.digits.nearest
    assert f"σ² = {number(best.scale, 2)}, {number(best.error, 2)} away" in by_id["C23"]
    deep = results.lemmas.networks.query("kind == 'deep'")
    assert f"{len(deep)} random deep networks: VQ is larger for 0 of {deep['pairs'].sum():,} pairs" in by_id["C25"]


def test_networks_that_did_not_converge_are_not_the_papers_protocol(study, claims):
    assert not study.results.moons.tables["turning"]["protocol"].any()
    assert {claim.strength for claim in claims} == {"hint", "exact"}


def test_a_second_call_computes_nothing(study):
    before = {path: path.stat().st_mtime_ns for path in study.store.root.rglob("*.json")}
    lines = []
    driver = Driver(study.store, lines.append)
    again = measure(study.plan, driver.perform(study.plan.jobs(), WORK, "training"), driver)
    assert before == {path: path.stat().st_mtime_ns for path in study.store.root.rglob("*.json")}
    assert all("0 computed" in line for line in lines)
    assert study.results.moons.rows.equals(again.moons.rows)
    assert study.results.digits.heat.equals(again.digits.heat)


def test_a_budget_that_ends_before_the_measurements_says_so(study, tmp_path):
    from metriscope.runs import Store

    over = Driver(Store(tmp_path), deadline=Deadline(0.0))
    with pytest.raises(Unfinished, match="0 of"):
        measure(study.plan, study.runs, over)
    with pytest.raises(Unfinished, match="0 of 16 runs are finished"):
        measure(study.plan, Finished({}, 16), Driver(study.store))
