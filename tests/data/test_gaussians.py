from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import mahalanobis

from metriscope.data import Gaussian, random_gaussian
from metriscope.rng import stream

few = settings(max_examples=15)
seeds = st.integers(0, 2**32)
dims = st.integers(1, 12)


@few
@given(seed=seeds, dim=dims)
def test_a_random_gaussian_has_largest_variance_one_and_a_mean_within_ten(seed, dim):
    gaussian = random_gaussian(dim, stream(seed))
    variances = np.linalg.eigvalsh(gaussian.cov.numpy())
    assert variances[-1] == pytest.approx(1, rel=1e-10)
    assert variances[0] > 0
    assert gaussian.mean.abs().max() <= 10
    assert gaussian.dim == dim
    assert gaussian.mean.dtype == gaussian.cov.dtype == torch.float64
    torch.testing.assert_close(gaussian.cov, gaussian.cov.mT)


@few
@given(seed=seeds, dim=st.integers(2, 12), ridge=st.floats(1e-3, 10), spread=st.floats(0, 100))
def test_ridge_and_spread_do_what_they_say(seed, dim, ridge, spread):
    plain = random_gaussian(dim, stream(seed), ridge=0.0, spread=1.0)
    asked = random_gaussian(dim, stream(seed), ridge=ridge, spread=spread)
    torch.testing.assert_close(asked.mean, plain.mean * spread)
    # One and the same A Aᵀ of largest eigenvalue m: (v m + ridge) / (m + ridge) for each of its v.
    before, after = (np.linalg.eigvalsh(gaussian.cov.numpy()) for gaussian in (plain, asked))
    share = (1 - after[0]) / (1 - before[0])  # m / (m + ridge)
    np.testing.assert_allclose(after, before * share + 1 - share, rtol=1e-8)
    root = random_root(dim, stream(seed))
    assert share == pytest.approx(1 / (1 + ridge / np.linalg.norm(root, 2) ** 2), rel=1e-8)


def random_root(dim, generator):
    """Return the matrix A whose product with itself gives a random Gaussian its shape."""
    torch.rand(dim, generator=generator, dtype=torch.float64)  # the mean is drawn first
    return torch.randn(dim, dim, generator=generator, dtype=torch.float64).numpy()


def test_means_are_uniform():
    means = torch.cat([random_gaussian(5, stream(0, "means", number)).mean for number in range(400)])
    assert stats.kstest(means.numpy(), stats.uniform(-10, 20).cdf).pvalue > 0.01


@pytest.mark.parametrize("dim", [1, 2, 10])
def test_samples_have_the_moments_of_their_gaussian_within_standard_errors(dim):
    gaussian, count = random_gaussian(dim, stream(1, dim)), 40_000
    x = gaussian.sample(count, stream(2, dim)).numpy()
    mean, cov = gaussian.mean.numpy(), gaussian.cov.numpy()
    variances = np.diag(cov)
    assert (np.abs(x.mean(0) - mean) < 4.5 * np.sqrt(variances / count)).all()
    errors = np.sqrt((np.outer(variances, variances) + cov**2) / count)
    assert (np.abs(np.cov(x.T).reshape(dim, dim) - cov) < 4.5 * errors).all()


@pytest.mark.parametrize("dim", [1, 3, 10])
def test_true_distances_of_samples_follow_the_chi_distribution(dim):
    gaussian = random_gaussian(dim, stream(3, dim))
    distances = gaussian.distance(gaussian.sample(5_000, stream(4, dim)))
    assert stats.kstest(distances.numpy(), stats.chi(dim).cdf).pvalue > 0.01


@few
@given(seed=seeds, dim=dims)
def test_the_distance_is_scipys(seed, dim):
    gaussian = random_gaussian(dim, stream(seed))
    x = gaussian.sample(20, stream(seed, "points"))
    inverse = np.linalg.inv(gaussian.cov.numpy())
    expected = [mahalanobis(point, gaussian.mean.numpy(), inverse) for point in x.numpy()]
    np.testing.assert_allclose(gaussian.distance(x), expected, rtol=1e-5)
    assert gaussian.distance(gaussian.mean[None]).tolist() == [0.0]


def test_the_distance_of_float32_points_is_measured_in_float64():
    gaussian = Gaussian(torch.zeros(2).double(), torch.diag(torch.tensor([4.0, 1.0]).double()))
    found = gaussian.distance(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    assert found.dtype == torch.float64
    assert found.tolist() == [1.0, 3.0]


@pytest.mark.usefixtures("undrawn")
def test_the_same_stream_draws_the_same_gaussian_and_the_same_points():
    first, second = (random_gaussian(4, stream(7, "gaussian")) for _ in range(2))
    other = random_gaussian(4, stream(8, "gaussian"))
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.cov, second.cov)
    assert not torch.equal(first.cov, other.cov)
    one, two, three = (first.sample(9, stream(seed, "points")) for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


@given(few=st.integers(0, 5), more=st.integers(5, 9))
def test_more_points_begin_with_the_fewer(few, more):
    gaussian = Gaussian(torch.zeros(16).double(), torch.eye(16).double())
    short, long = (gaussian.sample(count, stream(0, "points")) for count in (few, more))
    assert short.shape == (few, 16)
    assert torch.equal(long[:few], short)


@pytest.mark.parametrize("dim", [0, -3])
def test_a_gaussian_of_no_dimension_is_refused(dim):
    with pytest.raises(ValueError, match=f"dim must be a positive integer, got {dim}"):
        random_gaussian(dim, stream(0))
