from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import distance
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from metriscope.functional import mahalanobis, norm, offset_l2
from metriscope.rng import stream

few = settings(max_examples=25)
seeds = st.integers(0, 2**32)
sizes = st.integers(1, 6)
forms = st.sampled_from(["formula", "squared-weights"])


def draw(seed, *shape, dtype=torch.float64):
    return torch.randn(*shape, generator=stream(seed, *shape), dtype=dtype)


def problem(seed, n=5, d=3, k=4, dtype=torch.float64):
    alpha = 0.5 + torch.rand(k, d, generator=stream(seed, "alpha"), dtype=dtype)
    return draw(seed, n, d, dtype=dtype), draw(seed, k, d, dtype=dtype) / 2, alpha


class LargestTensor(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.entries = max([self.entries, *sizes])
        return out


@few
@given(seed=seeds, n=sizes, d=sizes)
def test_mahalanobis_agrees_with_scipy(seed, n, d):
    x, mean, root = draw(seed, n, d), draw(seed, d), draw(seed, d, d)
    expected = [distance.mahalanobis(point, mean, root.T.numpy() @ root.numpy()) for point in x.numpy()]
    np.testing.assert_allclose(mahalanobis(x, mean, root), expected, rtol=1e-9, atol=1e-12)


@few
@given(seed=seeds, d=sizes)
def test_a_stack_of_metrics_measures_as_each_does_alone(seed, d):
    x, mean, factor = draw(seed, 3, 5, d), draw(seed, 3, d), draw(seed, 3, 4, d)
    alone = torch.stack([mahalanobis(*one) for one in zip(x, mean, factor, strict=True)])
    torch.testing.assert_close(mahalanobis(x, mean, factor), alone)


@few
@given(seed=seeds, d=sizes)
def test_the_mahalanobis_distance_does_not_change_under_an_invertible_map_of_space(seed, d):
    x, mean, factor = draw(seed, 6, d), draw(seed, d), draw(seed, d, d)
    bend = torch.linalg.matrix_exp(draw(seed + 1, d, d))
    mapped = mahalanobis(x @ bend.mT, bend @ mean, factor @ torch.linalg.inv(bend))
    torch.testing.assert_close(mapped, mahalanobis(x, mean, factor), rtol=1e-6, atol=1e-8)


def test_mahalanobis_refuses_features_that_do_not_agree():
    with pytest.raises(ValueError, match=r"mean must have the shape \(\.\.\., 3\), got \(2,\)"):
        mahalanobis(torch.zeros(1, 3), torch.zeros(2), torch.eye(2))


def test_the_norm_of_a_345_triangle_is_five_along_any_axis():
    z = torch.tensor([[3.0, 0.0], [4.0, 0.0]])
    assert norm(z, dim=0).tolist() == [5.0, 0.0]
    assert norm(z).tolist() == [3.0, 4.0]


def test_every_derivative_of_the_norm_is_zero_at_zero():
    z = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(norm(z).sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), z)
    assert not first.any()
    assert not second.any()


def test_the_norm_of_other_vectors_keeps_its_gradient_beside_a_zero_one():
    z = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    norm(z).sum().backward()
    torch.testing.assert_close(z.grad, torch.tensor([[0.0, 0.0], [0.6, 0.8]]))


def test_the_norm_has_the_right_first_and_second_derivatives():
    z = draw(0, 4, 3).requires_grad_()
    assert gradcheck(norm, (z,))
    assert gradgradcheck(norm, (z,))


@few
@given(seed=seeds, n=sizes, d=sizes, k=sizes, form=forms)
def test_offset_l2_agrees_with_scipys_weighted_distance(seed, n, d, k, form):
    x, mu, alpha = problem(seed, n, d, k)
    weights = (alpha.square() if form == "formula" else alpha).numpy()
    columns = [distance.cdist(x, mu[i : i + 1], "minkowski", p=2, w=weights[i]).squeeze(1) for i in range(k)]
    np.testing.assert_allclose(offset_l2(x, mu, alpha, form), np.stack(columns, 1), rtol=1e-9, atol=1e-12)


@few
@given(seed=seeds, d=sizes, k=sizes)
def test_with_weights_of_one_both_forms_are_the_euclidean_distance(seed, d, k):
    x, mu, _ = problem(seed, 7, d, k)
    for form in ("formula", "squared-weights"):
        measured = offset_l2(x, mu, torch.ones_like(mu), form)
        np.testing.assert_allclose(measured, distance.cdist(x, mu), rtol=1e-9, atol=1e-12)


def test_the_two_forms_differ_where_weights_are_not_one():
    x, mu, alpha = torch.tensor([1.0]), torch.zeros(1, 1), torch.tensor([[4.0]])
    assert offset_l2(x, mu, alpha).item() == 4.0
    assert offset_l2(x, mu, alpha, "squared-weights").item() == 2.0


def test_negative_squared_weights_are_undefined_and_not_clamped():
    assert offset_l2(torch.ones(1), torch.zeros(1, 1), -torch.ones(1, 1), "squared-weights").isnan().all()


@pytest.mark.parametrize("lead", [(), (5,), (2, 5), (2, 0), (0,)])
def test_leading_axes_pass_through(lead):
    _, mu, alpha = problem(0)
    assert offset_l2(torch.zeros(*lead, 3, dtype=mu.dtype), mu, alpha).shape == (*lead, 4)


@pytest.mark.parametrize("form", ["formula", "squared-weights"])
def test_offset_l2_has_the_right_first_and_second_derivatives(form):
    inputs = [value.requires_grad_() for value in problem(1)]
    assert gradcheck(lambda *args: offset_l2(*args, form), inputs)
    assert gradgradcheck(lambda *args: offset_l2(*args, form), inputs)


@pytest.mark.parametrize("form", ["formula", "squared-weights"])
def test_a_point_on_a_prototype_has_zero_gradients_of_both_orders(form):
    values = [torch.full((2, 3), 7.0), torch.full((2, 3), 7.0), torch.ones(2, 3)]
    inputs = [value.requires_grad_() for value in values]
    y = offset_l2(*inputs, form)
    first = torch.autograd.grad(y.sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum(g.sum() for g in first), inputs)
    assert not y.any()
    assert not any(gradient.any() for gradient in (*first, *second))


def far_problem():
    """Points and prototypes around 1,000, and among them points within a few thousandths of a prototype."""
    mu = 1000 + draw(2, 20, 16, dtype=torch.float32)
    near = mu + 1e-3 * draw(3, 20, 16, dtype=torch.float32)
    x = torch.cat([1000 + draw(4, 200, 16, dtype=torch.float32), near])
    return x, mu, 0.5 + torch.rand(20, 16, generator=stream(5))


def direct(x, mu, alpha):
    return torch.linalg.vector_norm(alpha * (x[:, None] - mu), dim=-1)


def test_far_from_the_origin_float32_stays_within_a_thousandth_of_float64():
    x, mu, alpha = far_problem()
    expected = direct(x.double(), mu.double(), alpha.double())
    assert ((offset_l2(x, mu, alpha) - expected) / expected).abs().max() < 1e-5
    squares = (x.square() @ alpha.square().mT) - 2 * x @ (alpha.square() * mu).mT
    expanded = (squares + (alpha * mu).square().sum(-1)).clamp(min=0).sqrt()
    assert ((expanded - expected) / expected).abs().max() > 1e-3, "the case is too easy to tell forms apart"


def test_far_from_the_origin_float32_gradients_stay_within_a_thousandth_of_float64():
    inputs = [value.requires_grad_() for value in far_problem()]
    exact = [value.detach().double().requires_grad_() for value in inputs]
    gradients = torch.autograd.grad(offset_l2(*inputs).sum(), inputs)
    expected = torch.autograd.grad(direct(*exact).sum(), exact)
    for gradient, reference in zip(gradients, expected, strict=True):
        assert (gradient - reference).norm() / reference.norm() < 1e-5


def test_no_tensor_of_points_by_prototypes_by_features_is_ever_built():
    n, d, k = 3000, 64, 20
    inputs = [value.requires_grad_() for value in problem(6, n, d, k, dtype=torch.float32)]
    with LargestTensor() as largest:
        offset_l2(*inputs).sum().backward()
    assert n * d <= largest.entries <= 2**18 < n * d * k


def test_nothing_but_the_inputs_and_the_distances_is_kept_for_the_gradient():
    n, d, k = 3000, 64, 20
    inputs = [value.requires_grad_() for value in problem(6, n, d, k, dtype=torch.float32)]
    kept: dict[int, int] = {}
    remember = lambda tensor: (kept.update({tensor.data_ptr(): tensor.numel()}), tensor)[1]  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        offset_l2(*inputs)
    assert sum(kept.values()) <= n * d + 3 * k * d + n * k


@pytest.mark.parametrize("shape", [(5000, 64, 30), (3, 5, 20000), (2, 300_000, 2)])
def test_blocks_of_any_cut_give_the_direct_distance_and_gradient(shape):
    inputs = [value.requires_grad_() for value in problem(7, *shape, dtype=torch.float32)]
    expected, measured = direct(*inputs), offset_l2(*inputs)
    torch.testing.assert_close(measured, expected, rtol=1e-5, atol=1e-5)
    references = torch.autograd.grad(expected.sum(), inputs)
    for gradient, reference in zip(torch.autograd.grad(measured.sum(), inputs), references, strict=True):
        assert (gradient - reference).norm() <= 1e-5 * reference.norm()


@pytest.mark.parametrize("form", ["formula", "squared-weights"])
def test_a_stack_of_prototypes_under_vmap_measures_as_each_does_alone(form):
    x, _, _ = problem(8)
    mu, alpha = draw(8, 6, 4, 3).requires_grad_(), draw(9, 6, 4, 3).abs().requires_grad_()
    stacked = torch.func.vmap(lambda m, a: offset_l2(x, m, a, form))(mu, alpha)
    alone = torch.stack([offset_l2(x, m, a, form) for m, a in zip(mu, alpha, strict=True)])
    torch.testing.assert_close(stacked, alone)
    for one, other in zip(*(torch.autograd.grad(y.sum(), (mu, alpha)) for y in (stacked, alone)), strict=True):
        torch.testing.assert_close(one, other)


def test_offset_l2_says_what_does_not_fit():
    x, mu, alpha = problem(0)
    with pytest.raises(ValueError, match="form must be one of formula, squared-weights, got 'square'"):
        offset_l2(x, mu, alpha, "square")
    with pytest.raises(ValueError, match=r"mu and alpha must have the same shape .*, got \(4, 3\) and \(3, 3\)"):
        offset_l2(x, mu, alpha[:3])
    with pytest.raises(ValueError, match=r"x must end in the 3 features of mu, got the shape \(5, 2\)"):
        offset_l2(x[:, :2], mu, alpha)
