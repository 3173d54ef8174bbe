from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metriscope.nn import ARCHITECTURES
from metriscope.runs.address import address
from metriscope.studies.representation.plan import (
    BASE,
    CODED,
    MODELS,
    PAPER,
    PERTURBED,
    TABLES,
    Part,
    RepresentationOptions,
    RepresentationTraining,
    Setting,
    plan,
)


@pytest.fixture
def with_mnist(monkeypatch):
    monkeypatch.setattr("metriscope.data.available", lambda name: True)


def test_the_paper_profile_is_the_papers_protocol(with_mnist):
    paper = plan(RepresentationOptions("paper"))
    assert (paper.data, paper.train_size, paper.epochs, paper.seeds) == ("mnist", 60_000, 5_000, 20)
    assert paper.parts == (Part(MODELS, "raw"),)
    assert len([job for job in paper.asked() if job.replay != PERTURBED]) == 320
    assert paper.asked()[0].lr == 1e-3
    assert paper.deviations() == ()
    assert all(job.setting.protocol for job in paper.asked())


def test_the_paper_profile_starts_six_networks_as_published_and_adds_those_of_the_perturbation_paper(with_mnist):
    jobs = plan(RepresentationOptions("paper", seeds=22)).asked()
    found = {(job.model, job.number): job.replay for job in jobs if job.replay != PERTURBED}
    assert {key for key, replay in found.items() if replay} == set(product(BASE, range(20)))
    assert set(found.values()) == {TABLES, ""}
    perturbed = {(job.model, job.number) for job in jobs if job.replay == PERTURBED}
    assert perturbed == set(product(("relu-bias", "abs-bias"), range(20)))
    # The first runs of every network come first.
    assert [job.number for job in jobs] == sorted(job.number for job in jobs)


def test_starts_of_our_own_are_those_of_the_quick_profile_and_of_whoever_asks(with_mnist):
    own = plan(RepresentationOptions("paper", start="own"))
    assert {job.replay for job in own.asked()} == {job.replay for job in plan(RepresentationOptions()).asked()} == {""}
    assert own.deviations() == ("Starts of our own for the six networks whose published starts can be computed.",)
    assert plan(RepresentationOptions(start="author", models=("relu2",))).asked()[0].replay == TABLES


def test_what_is_recorded_is_trained_only_if_asked(with_mnist, monkeypatch):
    options = RepresentationOptions("paper", models=("abs-l2",), seeds=2)
    first = plan(options).asked()[0]
    monkeypatch.setattr(
        "metriscope.studies.representation.plan.find", lambda study, key: object() if key == address(first) else None
    )
    assert plan(options).jobs() == plan(options).asked()[1:]
    assert plan(replace(options, retrain=True)).jobs() == plan(options).asked()


@pytest.mark.parametrize(("size", "epochs", "width"), [(4_000, 300, 16), (60_000, 5_000, 3), (60_000, 50_000, 1)])
def test_a_pass_has_as_many_networks_as_can_be_trained_in_half_an_hour(size, epochs, width):
    assert RepresentationTraining("abs", 0, "mnist", size, "raw", epochs).width == width


def test_the_study_has_every_network_of_relu_and_abs_there_is():
    assert {*MODELS, *CODED} == {name for name, row in ARCHITECTURES.items() if row.hidden in ("relu", "abs")}
    assert (len(MODELS), len(CODED)) == (16, 4)


def test_networks_in_the_form_of_the_code_are_run_where_they_are_named():
    assert not {job.model for job in plan(RepresentationOptions()).asked()} & set(CODED)
    both = plan(RepresentationOptions(models=("abs-l2-code", "abs-l2")))
    assert both.parts == (Part(("abs-l2", "abs-l2-code"), "raw"),)


def test_quick_needs_no_download_and_says_what_it_shortens(monkeypatch):
    monkeypatch.setenv("METRISCOPE_DATA", "/nowhere")
    quick = plan(RepresentationOptions())
    text = " ".join(quick.deviations())
    assert quick.data == "mnist-5k"
    assert "4,000 training images of `mnist-5k` in place of MNIST's 60,000." in text
    assert f"{quick.epochs:,} epochs in place of 5,000" in text
    assert "3 seeds in place of 20." in text
    assert "Normalized pixels for abs, relu, abs2, relu2, abs2-neg, relu2-neg." in text


def test_paper_says_how_to_get_mnist_where_it_is_missing(monkeypatch):
    monkeypatch.setattr("metriscope.data.available", lambda name: name != "mnist")
    with pytest.raises(
        ValueError, match=r"needs full MNIST: `metriscope data fetch mnist` downloads it, or --data-dir"
    ):
        plan(RepresentationOptions("paper"))


def test_every_job_names_the_study_and_the_data_by_its_hash(with_mnist):
    from metriscope.data import digest

    for profile in ("quick", "paper"):
        found = plan(RepresentationOptions(profile)).asked()
        assert {(job.study, job.sha256) for job in found} == {("representation", digest(found[0].data))}


def test_what_is_left_out_is_said(with_mnist):
    text = plan(RepresentationOptions("paper", models=("abs",), train_size=1_000)).deviations()
    assert text[0] == "1,000 of MNIST's 60,000 training images."
    assert text[1].startswith("On raw pixels, not run: relu, abs2,")
    assert (
        plan(RepresentationOptions("paper", pixels="unit")).deviations()[0] == "Unit pixels for all sixteen networks."
    )


def test_options_scale_every_part():
    asked = plan(RepresentationOptions(models=("relu-l2", "abs"), seeds=2, epochs=7, train_size=50, seed=3))
    assert asked.parts == (Part(("abs", "relu-l2"), "raw"), Part(("abs",), "normalized"))
    jobs = asked.jobs()
    assert [(t.model, t.number) for t in jobs if t.pixels == "raw"] == [
        ("abs", 0), ("relu-l2", 0), ("abs", 1), ("relu-l2", 1),
    ]  # fmt: skip
    assert {(t.epochs, t.train_size, t.seed) for t in jobs} == {(7, 50, 3)}
    assert plan(RepresentationOptions(pixels="normalized", models=("relu-l2",))).parts == (
        Part(("relu-l2",), "normalized"),
    )


@settings(max_examples=20)
@given(st.integers(1, 30), st.integers(1, 30), st.sets(st.sampled_from(MODELS), min_size=1))
def test_a_trainings_address_does_not_depend_on_what_else_is_asked(few, many, models):
    alone, together = (
        plan(RepresentationOptions(seeds=few, models=tuple(models))),
        plan(RepresentationOptions(seeds=many)),
    )
    here, there = ({address(t) for t in p.jobs() if t.pixels == "raw"} for p in (alone, together))
    assert len(here & there) == min(few, many) * len(models)


def test_what_ends_otherwise_has_another_address():
    base = ("abs", 0, "mnist", 60_000, "raw", 5_000)
    others = [("relu", *base[1:]), ("abs", 1, *base[2:]), (*base[:4], "unit", 5_000), (*base[:5], 50_000), (*base, 1)]
    others += [(*base, 0, "another hash")]
    assert len({address(RepresentationTraining(*fields)) for fields in (base, *others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("change", "protocol"),
    [
        ({}, True),
        ({"epochs": 50_000}, True),
        ({"epochs": 4_999}, False),
        ({"pixels": "normalized"}, False),
        ({"pixels": "unit"}, False),
        ({"train_size": 59_999}, False),
        ({"data": "mnist-5k"}, False),
    ],
)
def test_only_raw_pixels_of_all_images_at_full_length_are_the_papers_protocol(change, protocol):
    full = {"pixels": "raw", "epochs": PAPER.epochs, "data": "mnist", "train_size": 60_000}
    setting = Setting(**{**full, **change})
    assert setting.protocol is protocol
    assert bool(setting.shortfall) is not protocol
    assert setting.length == setting.epochs / 5_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"profile": "slow"}, "unknown profile 'slow': there are paper, quick"),
        ({"models": ("tanh",)}, "unknown model 'tanh': there are abs, relu"),
        ({"models": ()}, "--models needs at least one name"),
        ({"start": "random"}, "unknown start 'random': there are author, own"),
        ({"pixels": "gray"}, "unknown form of pixels 'gray': there are raw, normalized, unit"),
        ({"seeds": 0}, "--seeds must be at least 1, not 0"),
        ({"epochs": -1}, "--epochs must be at least 1, not -1"),
        ({"train_size": 1}, "--train-size must be at least 2, not 1"),
        ({"train_size": 4_001}, "--train-size must be at most the 4,000 images of mnist-5k, not 4,001"),
    ],
)
def test_a_bad_request_is_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        plan(RepresentationOptions(**options))
