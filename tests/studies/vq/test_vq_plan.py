"""What the VQ study asks for: options, data, addresses, and networks of equal size."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope import data
from metriscope.rng import stream
from metriscope.runs.address import address
from metriscope.studies import STUDIES
from metriscope.studies.vq.networks import GROUP, MLPShape, blocks, matched_width
from metriscope.studies.vq.plan import OPTIONS, VQOptions, plan
from metriscope.studies.vq.train import mlp
from studies.vq.tiny import tiny


@pytest.fixture
def with_mnist(monkeypatch):
    """A machine that has every data set."""
    monkeypatch.setattr(data, "available", lambda name, data_dir=None: True)


@pytest.fixture
def without_mnist(monkeypatch):
    """A machine that has embedded data alone."""
    monkeypatch.setattr(data, "available", lambda name, data_dir=None: name != "mnist")


def test_the_study_is_registered():
    assert STUDIES["vq"] == "metriscope.studies.vq"
    assert OPTIONS is VQOptions


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (VQOptions(profile="huge"), "unknown profile 'huge': there are quick, paper"),
        (VQOptions(seeds=2), "--seeds must be at least 3, not 2: tests over seeds need three"),
        (VQOptions(seeds=-3), "--seeds must be at least 3, not -3"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_in_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(options)


def test_the_quick_profile_takes_embedded_digits_also_where_mnist_lies_on_the_machine(with_mnist):
    images = plan(VQOptions()).digits.images
    assert (images.name, images.train, images.test) == ("mnist-5k", 4_000, 1_000)
    assert images.sha256 == data.digest("mnist-5k")


def test_the_paper_profile_takes_the_papers_digits_with_twenty_starts(with_mnist):
    asked = plan(VQOptions(profile="paper"))
    images = asked.digits.images
    assert (images.name, images.train, images.test, images.sha256) == ("mnist", 8_000, 2_000, data.digest("mnist"))
    assert (asked.moons.seeds, asked.digits.seeds) == (10, 20)
    assert asked.starts.digits == asked.digits == plan(VQOptions()).starts.digits
    assert asked.digits.protocol
    assert not plan(VQOptions()).digits.protocol


def test_the_paper_profile_says_how_to_get_mnist_where_it_is_missing(without_mnist):
    with pytest.raises(ValueError, match="needs full MNIST: `metriscope data fetch mnist` downloads it, or --data-dir"):
        plan(VQOptions(profile="paper"))


def test_profiles_train_the_same_networks_for_the_same_epochs(with_mnist):
    quick, paper = plan(VQOptions()), plan(VQOptions(profile="paper"))
    for one, other in zip(quick.jobs()[:1], paper.jobs()[:1], strict=True):
        assert (one.shape, one.recipe) == (other.shape, other.recipe)


@given(st.integers(3, 40))
def test_every_seed_is_in_one_group_and_in_order(seeds):
    some = blocks(seeds)
    assert [s for block in some for s in block] == list(range(seeds))
    assert all(len(block) <= GROUP for block in some)


def measurements(asked):
    """Return every specification of a measurement."""
    ranks = [spec for depth in asked.beyond.depths for spec in asked.beyond.ranks(depth)]
    digits = (*asked.digits.comparisons(), *asked.beyond.abs_digits.comparisons())
    moons = (*asked.moons.rotations(), *asked.beyond.abs_moons.rotations(), *asked.spheres.separations())
    regions = (*asked.lemmas.lots(), asked.lemmas.tents, *asked.explorer.views())
    added = (*asked.prediction.contests(), *asked.distillation.lessons(), *asked.sample_sizes.crowds(), asked.starts)
    return (*moons, *digits, *asked.beyond.courses(), *ranks, *regions, *added)


def test_no_two_jobs_share_an_address_and_all_name_their_study():
    asked = plan(VQOptions(seeds=7))
    jobs = (*asked.jobs(), *measurements(asked))
    assert len({address(job) for job in jobs}) == len(jobs)
    assert {job.study for job in jobs} == {"vq"}


def changed(value):
    """Return another value of the same type."""
    if is_dataclass(value):
        first = fields(value)[0].name
        return replace(value, **{first: changed(getattr(value, first))})
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value + "x"
    return (*value, *value) if isinstance(value, tuple) else (value or 0) + 1


def test_whatever_decides_a_number_is_in_the_address():
    asked = tiny()
    specs = {type(spec): spec for spec in (*asked.jobs(), *measurements(asked))}
    assert len(specs) == 13
    for spec in (*specs.values(), asked.digits.images, asked.moons.points):
        for field in fields(spec):
            other = replace(spec, **{field.name: changed(getattr(spec, field.name))})
            assert address(other) != address(spec), field.name


def test_the_papers_networks_are_in_the_plan():
    shapes = {(g.task, g.shape.depth, g.shape.width) for g in plan(VQOptions()).jobs()}
    assert {("moons", 3, 96), ("spheres", 3, 64), ("digits", 4, 16), ("digits", 6, 16)} <= shapes


@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 40))
def test_parameters_are_counted_as_torch_counts_them(inputs, depth, width):
    shape = MLPShape(inputs, depth, width)
    assert sum(p.numel() for p in mlp(shape, stream(0, "any")).parameters()) == shape.parameters


def test_depths_are_compared_at_parameters_within_two_per_cent():
    beyond = plan(VQOptions()).beyond
    counts = [beyond.deep(depth).shape.parameters for depth in beyond.depths]
    assert max(abs(count / beyond.budget - 1) for count in counts) < 0.02


@given(st.integers(1, 10), st.integers(1, 6), st.integers(500, 20_000))
def test_no_other_width_comes_nearer_to_the_budget(inputs, depth, budget):
    width = matched_width(inputs, depth, budget)
    gaps = [abs(MLPShape(inputs, depth, w).parameters - budget) for w in (max(1, width - 1), width, width + 1)]
    assert min(gaps) == gaps[1]


def test_too_few_parameters_are_refused():
    with pytest.raises(ValueError, match="3 parameters are too few for 2 hidden layers on 5 inputs"):
        matched_width(5, 2, 3)


def test_deviations_name_the_digits_that_stand_in_for_mnist(with_mnist):
    assert "mnist-5k" not in " ".join(plan(VQOptions(profile="paper")).deviations())
    assert "4,000 and 1,000 images of `mnist-5k`" in " ".join(plan(VQOptions()).deviations())
