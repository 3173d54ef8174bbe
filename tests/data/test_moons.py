from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import make_moons

from metriscope.data import rotate, sphere_moons, turn, two_moons
from metriscope.rng import stream

few = settings(max_examples=25)
seeds = st.integers(0, 2**32)
counts = st.integers(2, 200)
angles = st.floats(-10, 10)


def distances(x):
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")


@few
@given(count=counts, seed=seeds)
def test_without_noise_they_are_scikit_learns_moons_up_to_place_and_size(count, seed):
    x, y = two_moons(count, stream(seed), noise=0.0)
    expected, labels = make_moons(count, shuffle=False)
    found, theirs = distances(x).numpy(), distances(torch.from_numpy(expected)).numpy()
    np.testing.assert_allclose(found / found.max(), theirs / theirs.max(), atol=1e-12)
    assert y.tolist() == labels.tolist()
    assert y.dtype == torch.int64
    assert x.dtype == torch.float64


@few
@given(count=counts, seed=seeds, noise=st.floats(0, 5), angle=angles)
def test_they_lie_in_the_square_however_they_are_turned(count, seed, noise, angle):
    x, _ = two_moons(count, stream(seed), noise)
    assert x.norm(dim=-1).max() == pytest.approx(1, abs=1e-12)
    assert rotate(x, angle).abs().max() <= 1 + 1e-12


def test_the_moons_mirror_each_other_about_the_origin():
    x, y = two_moons(80, stream(0), noise=0.0)
    torch.testing.assert_close(x[y == 0], -x[y == 1])
    # (1.5, 0.25) is the farthest point of moons of radius 1, so the scale is its norm.
    assert x[:, 0].min() == pytest.approx(-1.5 / math.hypot(1.5, 0.25))


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_noise_has_the_deviation_asked_for_in_units_of_the_radius(noise):
    plain, _ = two_moons(4_000, stream(0), noise=0.0)
    noisy, _ = two_moons(4_000, stream(1), noise)
    radius = 1 / math.hypot(1.5, 0.25)
    scale = radius * float((noisy * plain).sum() / plain.square().sum())
    residual = (noisy / scale - plain / radius).flatten().numpy()
    # The deviation of 8,000 normal numbers is known to about 0.8 %.
    assert residual.std() == pytest.approx(noise, rel=0.04)
    assert stats.kstest(residual / noise, stats.norm.cdf).pvalue > 0.001


@few
@given(seed=seeds, dim=st.integers(2, 6), first=angles, second=angles)
def test_turns_add_up_keep_distances_and_leave_other_coordinates(seed, dim, first, second):
    x = torch.randn(7, dim, generator=stream(seed), dtype=torch.float64)
    once = rotate(x, first + second)
    torch.testing.assert_close(rotate(rotate(x, first), second), once, atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(distances(once), distances(x), atol=1e-12, rtol=1e-10)
    assert torch.equal(once[:, 2:], x[:, 2:])
    complex_turn = torch.view_as_complex(x[:, :2].contiguous()) * complex(math.cos(first), math.sin(first))
    torch.testing.assert_close(rotate(x, first)[:, :2], torch.view_as_real(complex_turn))


@few
@given(seed=seeds, dim=st.integers(3, 120), scale=st.floats(0, 1))
def test_sphere_moons_lie_on_the_unit_sphere_and_begin_with_the_moons(seed, dim, scale):
    x, _ = two_moons(30, stream(seed))
    # The farthest moon may have a norm a rounding above 1.
    points = sphere_moons(x * (1 - 1e-12), stream(seed, "sphere"), dim, scale)
    assert points.shape == (30, dim)
    torch.testing.assert_close(points.norm(dim=-1), torch.ones(30, dtype=torch.float64), atol=1e-14, rtol=0)
    torch.testing.assert_close(points[:, :2], scale * x)


def test_the_added_coordinates_are_uniform_on_their_sphere():
    x, _ = two_moons(20_000, stream(3))
    rest = sphere_moons(x, stream(4), dim=5)[:, 2:]
    # Archimedes: each coordinate of a uniform point of the sphere in space is uniform.
    height = rest[:, 0] / rest.norm(dim=-1)
    assert stats.kstest(height.numpy(), stats.uniform(-1, 2).cdf).pvalue > 0.01
    assert (rest.mean(0).abs() < 4.5 / math.sqrt(3 * 20_000)).all()


def test_turning_sphere_moons_is_hiding_turned_moons():
    x, _ = two_moons(50, stream(5))
    hidden = sphere_moons(x, stream(6))
    torch.testing.assert_close(rotate(hidden, math.pi / 6), sphere_moons(rotate(x, math.pi / 6), stream(6)))


@pytest.mark.usefixtures("undrawn")
def test_the_same_stream_draws_the_same_moons():
    first, second, other = (two_moons(9, stream(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    one, two, three = (sphere_moons(first, stream(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: two_moons(1, stream(0)), "count must be an integer of at least 2, got 1"),
        (lambda: two_moons(9, stream(0), -0.1), r"noise must lie in \[0, inf\), got -0.1"),
        (lambda: two_moons(9, stream(0), math.nan), r"noise must lie in \[0, inf\), got nan"),
        (lambda: two_moons(9, stream(0), math.inf), r"noise must lie in \[0, inf\), got inf"),
        (
            lambda: rotate(torch.zeros(3, 1), 1.0),
            r"at least two features to be rotated, got the shape \(3, 1\)",
        ),
        (lambda: rotate(torch.zeros(3), 1.0), r"x must have the shape \(points, features\), got \(3,\)"),
        (lambda: rotate(torch.zeros(3, 2), math.nan), "angle must be a finite number, got nan"),
        (lambda: sphere_moons(torch.zeros(3, 3), stream(0)), r"x must have the shape \(points, 2\), got \(3, 3\)"),
        (lambda: sphere_moons(torch.zeros(3, 2), stream(0), 2), "dim must be an integer of at least 3, got 2"),
        (
            lambda: sphere_moons(torch.ones(3, 2), stream(0), 9, 1.0),
            "must have norms of at most 1, got 1.41",
        ),
        (
            lambda: sphere_moons(torch.full((3, 2), math.nan), stream(0)),
            "x must be finite, got 6 NaN or infinite of 6",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_the_old_name_of_rotate_works_and_warns():
    x = torch.eye(2)
    with pytest.warns(DeprecationWarning, match="rotate"):
        torch.testing.assert_close(turn(x, 0.5), rotate(x, 0.5))
