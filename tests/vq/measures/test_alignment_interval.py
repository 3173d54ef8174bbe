"""The jackknife: its standard errors against points left out one by one, its coverage against known populations."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy import stats

from metriscope.vq.measures import alignment, resampling
from vq.measures.cases import PLAIN, signs
from vq.measures.test_alignment import both, go, pair, ways
from vq.units.cases import patterns

LINK = {
    "debiased": (np.arctanh, np.tanh, lambda x: 1 - x**2),
    "biased": (lambda x: np.log(x / (1 - x)), lambda z: 1 / (1 + np.exp(-z)), lambda x: x * (1 - x)),
}


def expected_interval(a, b, estimator, level):
    """Return the jackknife interval from kernels without each of the points in turn."""
    n, value = len(a), PLAIN[estimator](a, b)
    without = np.array([PLAIN[estimator](np.delete(a, i, 0), np.delete(b, i, 0)) for i in range(n)])
    error = np.sqrt((n - 1) / n * np.square(without - without.mean()).sum())
    there, back, slope = LINK[estimator]
    reach = stats.t.ppf((1 + level) / 2, n - 1) * error / slope(value)
    return back(there(value) + np.array([-reach, reach]))


@both
@ways
@pytest.mark.parametrize(("points", "level"), [(6, 0.5), (40, 0.95)])
def test_the_interval_is_that_of_points_left_out_one_by_one(monkeypatch, way, estimator, points, level):
    go(monkeypatch, way)
    p, q = pair(points)
    found = alignment(p, q, estimator, interval=level)
    np.testing.assert_allclose(found.interval, expected_interval(signs(p), signs(q), estimator, level), atol=1e-9)
    assert found.interval[0] < found.value < found.interval[1]


@both
@ways
def test_intervals_of_layers_are_those_of_each_alone(monkeypatch, way, estimator):
    go(monkeypatch, way)
    p, q = pair()
    found = alignment(p, q, estimator, interval=0.9, by_layer=True)
    for i, one in enumerate(p.layers):
        for j, other in enumerate(q.layers):
            alone = alignment(p.layer(one.name), q.layer(other.name), estimator, interval=0.9)
            np.testing.assert_allclose(found.interval[:, i, j], alone.interval, atol=1e-9)


@both
def test_errors_of_many_points_in_single_precision_are_those_in_double(monkeypatch, estimator):
    p, q = pair(400)
    exact = alignment(p, q, estimator, interval=0.95, by_layer=True)
    monkeypatch.setattr(resampling, "_SINGLE", 100)
    monkeypatch.setattr(resampling, "_BLOCK", 1 << 12)
    found = alignment(p, q, estimator, interval=0.95, by_layer=True)
    width = exact.interval[1] - exact.interval[0]
    # Single precision has 24 bits; a row's product sums some hundred terms.
    np.testing.assert_allclose(found.interval, exact.interval, atol=1e-4 * width.max())
    assert (found.value == exact.value).all()
    assert not np.array_equal(found.interval, exact.interval)


@both
def test_a_network_is_aligned_with_itself_without_doubt(estimator):
    p, _ = pair()
    np.testing.assert_allclose(alignment(p, p, estimator, interval=0.95).interval, [1, 1], rtol=1e-9)


@both
@pytest.mark.parametrize("seed", range(5))
def test_intervals_stay_within_the_range_of_the_value(estimator, seed):
    found = alignment(*pair(7, seed), estimator, interval=0.999)
    least = {"biased": 0, "debiased": -1}[estimator]
    assert least <= found.interval[0] <= found.value <= found.interval[1] <= 1


class Signs:
    """Two networks of one layer without biases, on Gaussian points; shared directions make them alike."""

    def __init__(self, inputs, widths, shared, seed):
        rng = np.random.default_rng(seed)
        one, two = (rng.normal(size=(width, inputs)) for width in widths)
        few = min(widths)
        two[:few] += shared * one[:few]
        self.weights = one, two

    def value(self):
        """Return the population's alignment: E[sign(a·x) sign(b·x)] = 2 / π arcsin(cos(a, b)), with mean zero."""
        one, two = (w / np.linalg.norm(w, axis=1, keepdims=True) for w in self.weights)
        compared = (one, two), (one, one), (two, two)
        energy = [np.square(2 / np.pi * np.arcsin(np.clip(a @ b.T, -1, 1))).sum() for a, b in compared]
        return energy[0] / np.sqrt(energy[1] * energy[2])

    def draw(self, points, rng):
        x = rng.normal(size=(points, self.weights[0].shape[1]))
        return [patterns(x @ w.T >= 0) for w in self.weights]


class Deep(Signs):
    """Two networks of two layers with biases; their value is that of very many points."""

    def __init__(self, inputs, widths, shared, seed):
        super().__init__(inputs, widths, shared, seed)
        rng = np.random.default_rng(seed + 1)
        self.biases = [0.5 * np.sqrt(inputs) * rng.normal(size=width) for width in widths]
        self.second = [rng.normal(size=(width, width)) for width in widths]

    def value(self):
        return alignment(*self.draw(400_000, np.random.default_rng(5))).value

    def draw(self, points, rng):
        x, found = rng.normal(size=(points, self.weights[0].shape[1])), []
        for w, b, v in zip(self.weights, self.biases, self.second, strict=True):
            first = x @ w.T + b
            second = np.maximum(first, 0) @ v.T
            found.append(patterns(np.hstack([first >= 0, second >= 0]), (len(w), len(v))))
        return found


# Inputs, units of both networks, and how much of their directions they share.
POPULATIONS = {
    "few directions": Signs(3, (16, 24), 0, 0),
    "little in common": Signs(70, (24, 24), 0, 1),
    "half in common": Signs(40, (16, 24), 1, 2),
    "nearly the same": Signs(20, (32, 32), 3, 3),
    "deep, biased": Deep(10, (16, 24), 0, 4),
}


@cache
def population(name):
    return POPULATIONS[name].value()


def intervals(name, points, draws, estimator="debiased"):
    rng = np.random.default_rng(points)
    found = [alignment(*POPULATIONS[name].draw(points, rng), estimator, interval=0.95) for _ in range(draws)]
    return np.array([one.value for one in found]), np.array([one.interval for one in found]).T


def test_the_populations_have_values_that_the_interval_is_promised_for():
    values = {name: population(name) for name in POPULATIONS}
    assert min(values.values()) >= 0.1
    assert min(values.values()) < 0.25
    assert max(values.values()) > 0.8


@pytest.mark.parametrize("points", [100, 300, 1_000])
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_interval_covers_the_value_of_the_population(name, points):
    draws = 60
    values, (low, high) = intervals(name, points, draws)
    covered = (low <= population(name)) & (population(name) <= high)
    assert covered.mean() >= 0.9
    assert values.mean() == pytest.approx(population(name), abs=4 * values.std() / np.sqrt(draws) + 0.002)


@pytest.mark.parametrize("points", [100, 300])
def test_an_interval_around_the_biased_value_does_not_cover_it(points):
    _, (low, _) = intervals("little in common", points, 30, "biased")
    assert (low > population("little in common")).mean() > 0.9


def test_a_jackknife_is_no_judge_of_networks_without_anything_in_common():
    # The statistic is degenerate at zero: its interval is far too wide there, while the permutations' level holds.
    rng = np.random.default_rng(3)
    draws = [[patterns(rng.normal(size=(60, 30)) >= 0) for _ in "ab"] for _ in range(60)]
    found = [alignment(*pair, permutations=19, interval=0.95) for pair in draws]
    values, (low, high) = np.array([one.value for one in found]), np.array([one.interval for one in found]).T
    assert (high - low).mean() > 1.2 * 2 * 1.96 * values.std()
    assert np.mean([one.p_value <= 0.05 for one in found]) < 0.15
