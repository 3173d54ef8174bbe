from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.rng import stream
from metriscope.runs.address import address
from metriscope.studies import STUDIES, study
from metriscope.studies.vq.networks import mlp
from metriscope.studies.vq.spec import BUDGET, DEPTHS, GROUP, PROFILES, Shape, matched_width, parameter_count, plan


def test_the_study_is_registered_with_its_options():
    assert "vq" in STUDIES
    assert {"seeds", "seed"} == study("vq").OPTIONS


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"profile": "huge"}, "unknown profile 'huge': there are quick, paper"),
        ({"seeds": 1}, "--seeds must be at least 2, not 1: an interval needs two"),
        ({"seeds": -3}, "--seeds must be at least 2, not -3"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_in_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(**options)


def test_profiles_differ_in_seeds_alone():
    quick, paper = plan("quick"), plan("paper")
    assert (quick.seeds, paper.seeds) == (PROFILES["quick"], PROFILES["paper"]) == (3, 10)
    one, other = (p.groups("mnist", 8_000)[0] for p in (quick, paper))
    assert (one.shape, one.recipe, one.points) == (other.shape, other.recipe, other.points)


@given(st.integers(2, 40))
def test_every_seed_is_in_one_group_and_in_order(seeds):
    blocks = plan(seeds=seeds).blocks()
    assert [s for block in blocks for s in block] == list(range(seeds))
    assert all(len(block) <= GROUP for block in blocks)


def test_no_two_groups_share_an_address():
    groups = plan("paper").groups("mnist", 8_000)
    assert len({address(group) for group in groups}) == len(groups)


def test_the_papers_networks_are_in_the_plan():
    shapes = {(g.task, g.shape.depth, g.shape.width) for g in plan("paper").groups("mnist", 8_000)}
    assert {("moons", 3, 96), ("spheres", 3, 64), ("digits", 4, 16), ("digits", 6, 16)} <= shapes


@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 40))
def test_parameters_are_counted_as_torch_counts_them(inputs, depth, width):
    model = mlp(Shape(inputs, depth, width), stream(0, "any"))
    assert sum(p.numel() for p in model.parameters()) == parameter_count(inputs, depth, width)


def test_depths_are_compared_at_parameters_within_two_per_cent():
    counts = [parameter_count(2, depth, matched_width(2, depth, BUDGET)) for depth in DEPTHS]
    assert max(abs(count / BUDGET - 1) for count in counts) < 0.02


@given(st.integers(1, 10), st.integers(1, 6), st.integers(500, 20_000))
def test_no_other_width_comes_nearer_to_the_budget(inputs, depth, budget):
    width = matched_width(inputs, depth, budget)
    gaps = [abs(parameter_count(inputs, depth, w) - budget) for w in (max(1, width - 1), width, width + 1)]
    assert min(gaps) == gaps[1]


def test_too_few_parameters_are_refused():
    with pytest.raises(ValueError, match="3 parameters are too few for 2 hidden layers on 5 inputs"):
        matched_width(5, 2, 3)


def test_deviations_name_the_digits_that_stand_in_for_mnist():
    quick = plan("quick")
    assert not any("mnist-5k" in sentence for sentence in quick.deviations("mnist", 8_000))
    assert "4,000 and 1,000 images of `mnist-5k`" in " ".join(quick.deviations("mnist-5k", 4_000))
