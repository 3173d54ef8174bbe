"""Every public function takes odd arrays that hold good numbers and refuses broken ones in one clear sentence."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn

import metriscope as ms
from common.cases import COV, LABELS, MEAN, PATTERNS, POINTS, WEIGHT, linear, network
from common.odd import kinds_of
from common.outcomes import outcomes
from common.public_calls import EVERY_CASE, without_row
from metriscope import data, functional, probes
from metriscope.functional import Moments
from metriscope.rng import stream
from metriscope.vq import check_same_points, pair_counts, pattern_multiplicities


@pytest.mark.parametrize("case", EVERY_CASE, ids=lambda case: case.name)
def test_an_odd_array_gives_the_same_result_or_one_clear_sentence(case):
    assert [one for one in outcomes([case]) if one.fault] == []


def test_there_are_forty_kinds_of_odd_arrays_and_forty_functions():
    assert len(kinds_of(POINTS)) >= 40
    assert len(EVERY_CASE) >= 80


def test_every_public_function_has_a_row_of_example_calls(monkeypatch):
    assert without_row() == []
    monkeypatch.setattr(functional, "__all__", [*functional.__all__, "unheard_of"])
    monkeypatch.setattr(functional, "unheard_of", lambda x: x, raising=False)
    assert without_row() == ["functional.unheard_of"]


WRONG_COUNTS = [0, -1, 1.5, True, "3", None, float("nan"), [2], np.array([2.0]), 2j]
COUNTS = [
    ("n_clusters", lambda n: ms.init_from_clusters_(linear(), POINTS, n)),
    ("n_clusters", lambda n: ms.init_model_(network(), POINTS, n_clusters=n)),
    ("sample", lambda n: ms.init_lsuv_(network(), POINTS, sample=n)),
    ("in_features", lambda n: ms.OffsetL2(n, 3)),
    ("out_features", lambda n: ms.OffsetL2(3, n)),
    ("in_features", lambda n: ms.Mahalanobis(n)),
    ("hidden", lambda n: ms.build("relu", 3, n, 2)),
    ("k", lambda n: ms.novelty(PATTERNS, PATTERNS, k=n)),
    ("block", lambda n: ms.vq_blocks(PATTERNS, block=n)),
    ("batch_size", lambda n: ms.capture(network(), POINTS, batch_size=n)),
    ("every", lambda n: ms.UtilizationTracker(network(), POINTS, every=n)),
    ("count", lambda n: data.two_moons(n, stream(0))),
    ("dim", lambda n: data.random_gaussian(n, stream(0))),
    ("dim", lambda n: data.sphere_moons(np.zeros((2, 2)), stream(0), dim=n)),
    ("n_components", lambda n: ms.VQMDS(0 if n is None else n).fit(PATTERNS)),
    ("lost", lambda n: probes.lost_directions(3, 9 if isinstance(n, int) and n == 0 else n)),
]


@pytest.mark.parametrize("value", WRONG_COUNTS, ids=repr)
@pytest.mark.parametrize(("name", "call"), COUNTS, ids=[f"{name} {i}" for i, (name, _) in enumerate(COUNTS)])
def test_a_count_is_a_whole_number_and_no_boolean(name, call, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .*integer.*, got [^\n]*$"):
        call(value)


SHARES = [
    ("confidence", lambda share: functional.summarize(MEAN, share)),
    ("confidence", lambda share: functional.student_test(Moments(1.0, 1.0, 3), Moments(1.0, 1.0, 3), share)),
    ("threshold", lambda share: functional.mirrored_pairs(torch.tensor(WEIGHT), share)),
    ("threshold", lambda share: probes.mirrored_pairs(WEIGHT, share)),
    ("rare", lambda share: ms.utilization(PATTERNS, rare=share)),
    ("contamination", lambda share: ms.sklearn.MahalanobisNovelty(contamination=share).fit(POINTS)),
]


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan"), float("inf"), True, "0.5", None, [0.5], 0.5j], ids=repr)
@pytest.mark.parametrize(("name", "call"), SHARES, ids=[f"{name} {i}" for i, (name, _) in enumerate(SHARES)])
def test_a_share_is_a_number_of_its_interval(name, call, value):
    with pytest.raises(ValueError, match=rf"^{name} must lie in [^\n]*, got [^\n]*$"):
        call(value)


NO_PATTERNS = [None, "patterns", POINTS, torch.tensor(POINTS), [PATTERNS], {"p": PATTERNS}, network(), 3]
OF_PATTERNS = [
    ("p", ms.vq_kernel),
    ("q", lambda q: ms.vq_kernel(PATTERNS, q) if q is not None else pair_counts(PATTERNS, q)),
    ("p", ms.vq_blocks),
    ("p", ms.utilization),
    ("p", ms.region_count),
    ("p", ms.naswot_score),
    ("p", pattern_multiplicities),
    ("train", lambda p: ms.novelty(p, PATTERNS)),
    ("test", lambda p: ms.novelty(PATTERNS, p)),
    ("p", lambda p: ms.heat_cosine(p, PATTERNS, 1.0)),
    ("q", lambda p: pair_counts(PATTERNS, p)),
    ("q", lambda p: check_same_points(PATTERNS, p)),
]


@pytest.mark.parametrize(("name", "call"), OF_PATTERNS, ids=[f"{name} {i}" for i, (name, _) in enumerate(OF_PATTERNS)])
def test_what_are_no_patterns_is_refused(name, call):
    for thing in NO_PATTERNS:
        with pytest.raises(ValueError, match=rf"^{name} must be a metriscope\.Patterns, got [^\n]*$"):
            call(thing)


OF_MODELS = [
    ("model", lambda model: ms.capture(model, POINTS)),
    ("model", lambda model: ms.describe(model, POINTS)),
    ("model", ms.abs_to_relu),
    ("model", ms.relu_to_abs),
    ("model", ms.linear_regions),
    ("model", lambda model: ms.local_complexity(model, MEAN, 1.0)),
    ("model", lambda model: probes.perturbation(model, POINTS, LABELS)),
    ("linear", lambda model: ms.init_through_points_(model, POINTS)),
    ("model", lambda model: ms.init_model_(model, POINTS)),
]


@pytest.mark.parametrize(
    "thing", [None, "model", nn.Linear, torch.relu, {}, 3], ids=["None", "text", "class", "function", "dict", "number"]
)
@pytest.mark.parametrize(("name", "call"), OF_MODELS, ids=[f"{name} {i}" for i, (name, _) in enumerate(OF_MODELS)])
def test_what_is_no_model_is_refused(name, call, thing):
    with pytest.raises(ValueError, match=rf"^{name} must be a torch\.nn\.\w+, got [^\n]*$"):
        call(thing)


def test_rows_in_reverse_order_are_measured_like_any_others():
    model = network()
    forward, backward = ms.capture(model, POINTS), ms.capture(model, POINTS[::-1])
    np.testing.assert_array_equal(backward.signs(), forward.signs()[::-1])
    np.testing.assert_array_equal(ms.vq_kernel(forward[::-1]), ms.vq_kernel(backward))
    np.testing.assert_array_equal(ms.novelty(forward[::-1], forward), np.zeros(len(POINTS)))
    assert ms.region_count(forward[::-1]) == ms.region_count(forward)
    np.testing.assert_allclose(ms.heat_cosine(forward[::-1], forward[::-1], 2.0), 1)


def test_broken_weights_never_look_good():
    broken = WEIGHT.copy()
    broken[1, 2] = np.nan
    sentence = re.escape("weight must be finite, got 1 NaN or infinite of 12 entries, the first at (1, 2)")
    for probe in (probes.mirrored_pairs, functional.mirrored_pairs):
        with pytest.raises(ValueError, match=sentence):
            probe(torch.tensor(broken))
    for probe in (probes.sphericity, probes.eigen_recovery, probes.metric_error):
        with pytest.raises(ValueError, match=sentence):
            probe(broken, COV)
    with pytest.raises(ValueError, match="cov must be finite, got 9 NaN or infinite of 9 entries"):
        probes.metric_error(WEIGHT, np.full((3, 3), np.inf))


def test_a_float32_covariance_may_miss_symmetry_by_its_own_rounding():
    skew = COV.astype(np.float32)
    skew[0, 1] = np.nextafter(skew[0, 1], np.float32(1))
    for probe in (probes.sphericity, probes.metric_error):
        assert probe(WEIGHT, skew) == pytest.approx(probe(WEIGHT, COV), rel=1e-6)
    assert probes.metric_rank(linear(), MEAN, skew).rank == 3
