"""Where an alignment, or only its interval, is undefined, and what is refused at the door."""

from __future__ import annotations

import numpy as np
import pytest

from metriscope.vq.measures import alignment
from vq.measures.test_alignment import both, go, pair, ways
from vq.units.cases import patterns


@both
@ways
def test_a_pattern_that_is_the_same_everywhere_has_no_alignment(monkeypatch, way, estimator):
    go(monkeypatch, way)
    p, _ = pair()
    constant = patterns(np.ones((40, 5), np.uint8))
    found = alignment(p, constant, estimator, permutations=3, interval=0.95)
    assert np.isnan([found.value, found.p_value, *found.interval, *found.null]).all()
    assert found.reason == "the pattern is the same at all 40 points in all layers of the second network"
    assert found.interval_reason == ""


@both
def test_a_constant_layer_is_undefined_and_the_others_are_not(estimator):
    p, _ = pair()
    q = patterns(np.hstack([np.ones((40, 4), np.uint8), p.layer("layer0").signs() > 0]), (4, 9))
    found = alignment(p, q, estimator, permutations=5, interval=0.95, by_layer=True)
    assert np.isnan(found.value[:, 0]).all()
    assert np.isnan(found.p_value[:, 0]).all()
    assert np.isnan(found.interval[:, :, 0]).all()
    assert np.isfinite(found.value[:, 1]).all()
    assert np.isfinite(found.p_value[:, 1]).all()
    assert np.isfinite(found.interval[:, :, 1]).all()
    assert found.value[0, 1] == pytest.approx(1)
    assert "layer0 of the second network" in found.reason
    assert found.interval_reason == ""


@ways
@pytest.mark.parametrize("bits", [np.eye(12), np.arange(12)[:, None] == 3])
def test_points_that_are_all_equally_far_have_a_biased_alignment_alone(monkeypatch, way, bits):
    # Every pair of points, or every pair without the odd one, is equally far: without its diagonal the kernel is flat.
    go(monkeypatch, way)
    p = patterns(bits)
    assert alignment(p, p, "biased").value == pytest.approx(1)
    found = alignment(p, p, permutations=3, interval=0.9)
    assert np.isnan([found.value, found.p_value, *found.interval]).all()
    assert found.reason.startswith("no two points are nearer to each other than their distances to all others tell in ")
    assert "all layers of the first network, all layers of the second network" in found.reason


@pytest.mark.parametrize("points", [2, 3])
def test_the_debiased_alignment_of_fewer_than_four_points_is_undefined(points):
    found = alignment(*pair(points), permutations=3, interval=0.9)
    assert np.isnan([found.value, found.p_value, *found.interval, *found.null]).all()
    assert found.reason == f"the debiased alignment needs at least 4 points, got {points}"
    assert np.isfinite(alignment(*pair(points), "biased").value)


@pytest.mark.parametrize(("estimator", "points"), [("debiased", 4), ("biased", 2)])
def test_the_interval_alone_is_undefined_where_a_point_less_is_too_few(estimator, points):
    found = alignment(*pair(points), estimator, interval=0.9)
    assert np.isfinite(found.value)
    assert np.isnan(found.interval).all()
    assert found.reason == ""
    assert found.interval_reason == f"the jackknife needs at least {points + 1} points, got {points}"


@both
@ways
def test_the_interval_alone_is_undefined_where_one_point_makes_all_the_difference(monkeypatch, way, estimator):
    go(monkeypatch, way)
    odd = {"biased": [0], "debiased": [0, 1]}[estimator]
    bits = np.isin(np.arange(30), odd)[:, None]
    p, _ = pair(30)
    found = alignment(p, patterns(bits), estimator, interval=0.9)
    assert np.isfinite(found.value)
    assert np.isnan(found.interval).all()
    assert found.reason == ""
    assert found.interval_reason.startswith(f"{len(odd)} of 30 points cannot be left out by the jackknife")


def test_other_points_are_refused():
    p, q = pair()
    with pytest.raises(ValueError, match="the patterns are of different points: 39 of them against 40"):
        alignment(p[1:], q)
    with pytest.raises(ValueError, match="the patterns are of different points: 39 of 39 ids differ"):
        alignment(p[1:], q[:-1])


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_points_are_refused(count):
    p, q = pair()
    with pytest.raises(ValueError, match=f"an alignment needs at least two points, got {count}"):
        alignment(p[:count], q[:count])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"permutations": -1}, "permutations must not be negative, got -1"),
        ({"interval": 95}, "interval must be a confidence level between 0 and 1, such as 0.95, or None, got 95"),
        ({"interval": float("nan")}, "interval must be a confidence level"),
        ({"estimator": "plain"}, "the estimator must be 'debiased' or 'biased', got 'plain'"),
        ({"weights": "mean"}, "weights must be a pair, those of the first and of the second network, got 'mean'"),
        ({"weights": ([1, 1], None)}, r"weights must have the shape \(3,\), got \(2,\)"),
        ({"weights": (None, None), "by_layer": True}, "weights mix the layers of a network"),
    ],
)
def test_options_without_a_meaning_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        alignment(*pair(), **options)


def test_networks_without_units_are_refused():
    p, _ = pair()
    with pytest.raises(ValueError, match="an alignment needs units on both sides, got 26 and 0"):
        alignment(p, patterns(np.zeros((40, 0), np.uint8)))
