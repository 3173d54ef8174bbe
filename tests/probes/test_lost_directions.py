from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize

from metriscope import functional, probes
from metriscope.rng import stream

BATCHES, POINTS = 20, 20_000


def best_on(squares, lost):
    """Return the loss and the constant of the best distance on drawn points."""
    seen, truth = squares[:, lost:].sum(1), np.sqrt(squares.sum(1))

    def loss(logs):
        scale, square = np.exp(logs)
        return float(np.square(np.sqrt(scale * seen + square) - truth).mean())

    best = minimize(loss, [0.0, np.log(lost)], method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-9})
    return best.fun, np.exp(best.x[1] / 2)


@pytest.mark.parametrize(("dim", "lost"), [(2, 1), (3, 2), (10, 1), (30, 4)])
def test_theory_is_what_drawn_points_give_within_their_error(dim, lost):
    g = stream(0, "lost directions", dim, lost)
    draws = [torch.randn(POINTS, dim, generator=g, dtype=torch.float64).square().numpy() for _ in range(BATCHES)]
    found = np.array([best_on(squares, lost) for squares in draws])
    error = found.std(0, ddof=1) / BATCHES**0.5
    theory = probes.lost_directions(dim, lost)
    margin = stats.t.ppf(1 - 1e-5, BATCHES - 1)
    assert (np.abs(found.mean(0) - (theory.loss, theory.constant)) < margin * error).all()


def trapezoids(degrees, points=2001):
    """Return chi-squared values on a fine grid of their roots, and the probability of each."""
    roots = np.linspace(0, degrees**0.5 + 9, points)
    weights = stats.chi(degrees).pdf(roots)
    weights[[0, -1]] /= 2
    return roots**2, weights / weights.sum()


@pytest.mark.parametrize(("dim", "lost"), [(2, 1), (10, 1), (10, 3), (100, 12)])
def test_theory_is_the_least_loss_on_a_fine_grid(dim, lost):
    (seen, p), (missed, q) = trapezoids(dim - lost), trapezoids(lost)
    truth = np.sqrt(seen[:, None] + missed)
    mean, square = truth @ q, np.square(truth) @ q

    def loss(point):
        guess = np.sqrt(point[0] * seen + point[1] ** 2)
        return float(p @ (guess**2 - 2 * guess * mean + square))

    best = minimize(loss, [1.0, lost**0.5], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-13})
    theory = probes.lost_directions(dim, lost)
    assert theory.loss == pytest.approx(best.fun, rel=1e-5)
    assert theory.constant == pytest.approx(best.x[1], rel=1e-4)


@settings(max_examples=8)
@given(dim=st.integers(2, 100), share=st.floats(0, 1))
def test_lost_directions_cost_more_the_more_there_are_and_never_more_than_a_constant(dim, share):
    lost = 1 + int(share * (dim - 2))
    theory = probes.lost_directions(dim, lost)
    assert probes.lost_directions(dim, lost - 1).loss < theory.loss < stats.chi(dim).var()
    assert 0 < theory.constant < stats.chi(dim).mean()
    assert theory.sphericity == pytest.approx(np.sqrt(lost * dim / (dim - lost)), rel=1e-12)
    assert (theory.dim, theory.lost) == (dim, lost)


@given(dim=st.integers(1, 200))
def test_nothing_lost_costs_nothing(dim):
    theory = probes.lost_directions(dim, 0)
    assert (theory.loss, theory.constant, theory.sphericity) == (0.0, 0.0, 0.0)


def test_the_sphericity_of_theory_is_the_one_a_network_shows():
    weight = torch.diag(torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0]))
    shown = probes.sphericity(weight, torch.eye(5))
    assert shown == pytest.approx(probes.lost_directions(5, 2).sphericity, rel=1e-12)
    assert shown == pytest.approx(functional.expected_sphericity(2, 5), rel=1e-12)


@pytest.mark.parametrize("lost", [-1, 3, 4])
def test_more_directions_than_can_be_lost_are_refused(lost):
    with pytest.raises(ValueError, match=f"lost must be an integer from 0 to 2, got {lost}"):
        probes.lost_directions(3, lost)
