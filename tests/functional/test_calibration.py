"""Calibration: classifiers whose answer is known, and scikit-learn as reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve
from sklearn.metrics import roc_curve

from metriscope.functional import best_temperature, expected_calibration_error, false_positive_rate, reliability
from metriscope.rng import stream


def test_a_perfectly_calibrated_classifier_has_no_calibration_error():
    generator = np.random.default_rng(0)
    p = generator.uniform(0.5, 1.0, 200_000)
    labels = (generator.uniform(size=len(p)) > p).astype(int)
    assert expected_calibration_error(np.stack([p, 1 - p], 1), labels) < 0.005


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_the_temperature_undoes_a_scaling_of_the_logits(factor):
    logits = torch.randn(3_000, 4, generator=stream(0, "logits"), dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=stream(1, "labels"))[:, 0]
    assert best_temperature(factor * logits, labels) == pytest.approx(
        factor * best_temperature(logits, labels), rel=1e-2
    )
    assert best_temperature(logits, labels) == pytest.approx(1, rel=0.1)


def test_no_alarm_is_false_where_all_strangers_lie_below():
    assert false_positive_rate(np.arange(10.0), np.array([-1.0, -2.0])) == 0


def test_the_bins_are_scikit_learns():
    generator = np.random.default_rng(2)
    p = generator.uniform(0.5, 1.0, 5_000)
    labels = (generator.uniform(size=len(p)) > p**2).astype(int)
    found = reliability(np.stack([p, 1 - p], 1), labels, bins=10)
    accuracy, confidence = calibration_curve(labels == 0, p, n_bins=10)
    held = found.count > 0
    assert np.allclose(found.accuracy[held], accuracy)
    assert np.allclose(found.confidence[held], confidence)


def test_the_false_positive_rate_is_that_of_the_roc_curve():
    generator = np.random.default_rng(3)
    known, strange = generator.normal(1, 1, 400), generator.normal(0, 1, 300)
    false, true, _ = roc_curve(np.r_[np.ones(400), np.zeros(300)], np.r_[known, strange], drop_intermediate=False)
    assert false_positive_rate(known, strange) == pytest.approx(false[np.argmax(true >= 0.95)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reliability([[1.5, -0.5]], [0]), "probabilities must lie between 0 and 1"),
        (lambda: reliability([[0.5, 0.5]], [0, 1]), "labels"),
        (lambda: best_temperature([[np.nan, 0.0]], [0]), "logits"),
        (lambda: false_positive_rate([], [1.0]), "known"),
        (lambda: false_positive_rate([1.0], [1.0], kept=0.0), "kept must lie in"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
