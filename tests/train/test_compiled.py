from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metriscope.rng import stream
from metriscope.train import compiled
from train.cases import ACTIVATIONS, distances, leaves, network, problem

narrow = SimpleNamespace(trainer=compiled.trainer, ROWS=compiled.ROWS)
wide = SimpleNamespace(trainer=compiled.wide_trainer, ROWS=compiled.WIDE_ROWS)
few = settings(max_examples=6)
trainers = pytest.mark.parametrize("module", [narrow, wide], ids=["narrow", "wide"])
activations = pytest.mark.parametrize("activation", ACTIVATIONS)
widths = pytest.mark.parametrize("dim", [1, 2, 3, 10, 70])


def planes_of(weight, bias):
    planes = np.zeros((len(weight), compiled.padded(weight.shape[1])), np.float32)
    planes[:, : weight.shape[1]], planes[:, weight.shape[1]] = weight.detach(), bias.detach()
    return planes


def data_of(module, x, y):
    points, targets = compiled.blocks(x.numpy(), y.numpy(), module.ROWS)
    if module is wide:
        points, targets = torch.from_numpy(points), torch.from_numpy(targets)
    return points, targets, len(x)


def train(module, activation, x, y, weight, bias, *, epochs, adam):
    """Return planes, both moments and losses after training from zero moments."""
    planes, losses = planes_of(weight, bias), np.empty(epochs)
    state = (planes, np.zeros_like(planes), np.zeros_like(planes))
    module.trainer(activation)(data_of(module, x, y), state, 0, adam, losses)
    return (*state, losses)


def gradient(module, activation, x, y, weight, bias):
    """Return the loss and its gradient: with betas of zero, Adam's first moment is the gradient itself."""
    _, first, _, losses = train(module, activation, x, y, weight, bias, epochs=1, adam=(1e-3, 0.0, 0.0, 1e-8))
    return losses[0], first


def random_case(seed, points, dim, units):
    g = stream(seed, "case")
    x, weight = torch.randn(points, dim, generator=g), torch.randn(units, dim, generator=g)
    return x, 3 * torch.rand(points, generator=g), weight, torch.randn(units, generator=g)


def rounding(x, y, weight, bias, distance):
    """Return how far float32 may take the loss and its gradient from their float64 values."""
    eps, points = torch.finfo(torch.float32).eps, torch.cat([x, torch.ones(len(x), 1)], dim=1)
    planes = torch.cat([weight, bias[:, None]], dim=1)
    # A sum of products is off by a share of its terms, not of itself; so are distance, residual and direction.
    slack = 4 * eps * ((points.abs() @ planes.abs().mT).amax(1) + y)
    residual, relative = (distance - y).abs(), slack / distance.where(distance > 0, torch.inf)
    error = (slack + residual * (32 * eps + relative)) * points.abs().amax(1)
    return float((2 * residual * slack + slack**2).mean()), 2 * float(error.mean())


def true_gradient(activation, x, y, weight, bias):
    """Return distances, loss and gradient by autograd in float64."""
    w, b = leaves(weight, bias, dtype=torch.float64)
    distance = distances(w, b, x.double(), activation)
    loss = (distance - y.double()).square().mean()
    loss.backward()
    return distance.detach(), loss.item(), torch.cat([w.grad, b.grad[:, None]], dim=1).numpy()


@trainers
@activations
@widths
@pytest.mark.parametrize("points", [1, 7, 513, 1037])
def test_the_gradient_is_the_one_autograd_finds(module, activation, dim, points):
    case = random_case(0, points, dim, units=2 * dim + 1)
    loss, found = gradient(module, activation, *case)
    _, expected, truth = true_gradient(activation, *case)
    assert loss == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(found[:, : dim + 1], truth, rtol=0, atol=2e-5 * np.abs(truth).max())
    assert not found[:, dim + 1 :].any()


@trainers
@activations
@widths
@few
@given(seed=st.integers(0, 2**32), points=st.integers(1, 1100), units=st.integers(1, 20))
def test_any_gradient_is_right_to_the_rounding_of_float32(module, activation, dim, seed, points, units):
    case = random_case(seed, points, dim, units)
    loss, found = gradient(module, activation, *case)
    distance, expected, truth = true_gradient(activation, *case)
    loss_error, error = rounding(*case, distance)
    assert loss == pytest.approx(expected, rel=1e-5, abs=loss_error)
    np.testing.assert_allclose(found[:, : dim + 1], truth, rtol=0, atol=error)


@few
@given(seed=st.integers(0, 2**32), step=st.integers(1, 100_000), beta2=st.sampled_from([0.99, 0.999]))
def test_a_step_down_is_the_one_torch_takes(seed, step, beta2):
    g = stream(seed, "step")
    planes, first = (torch.randn(5, 4, generator=g) for _ in range(2))
    second = torch.rand(5, 4, generator=g) + 0.01
    slope = torch.randn(5, 4, generator=g)
    state = tuple(tensor.numpy().copy() for tensor in (planes, first, second))
    compiled.descend(state, slope.numpy(), step, (1e-3, 0.9, beta2, 1e-8))
    (value,) = leaves(planes, dtype=torch.float64)
    optimizer = torch.optim.Adam([value], lr=1e-3, betas=(0.9, beta2), eps=1e-8)
    moments = {"exp_avg": first.double(), "exp_avg_sq": second.double()}
    optimizer.state[value] = {"step": torch.tensor(float(step - 1)), **moments}
    value.grad = slope.double()
    optimizer.step()
    np.testing.assert_allclose(state[0], value.detach(), rtol=1e-6, atol=1e-7)
    for found, expected in zip(state[1:], moments.values(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@trainers
@activations
@widths
def test_the_first_step_is_the_one_autograd_and_torch_take(module, activation, dim):
    x, y = problem(700, dim)
    model = network(x, activation, hidden=2 * dim)
    planes, *_ = train(module, activation, x, y, *model.linear.parameters(), epochs=1, adam=(1e-2, 0.9, 0.99, 1e-8))
    w, b = leaves(*model.linear.parameters(), dtype=torch.float64)
    optimizer = torch.optim.Adam([w, b], lr=1e-2, betas=(0.9, 0.99))
    (distances(w, b, x.double(), activation) - y.double()).square().mean().backward()
    optimizer.step()
    truth = torch.cat([w, b[:, None]], dim=1).detach().numpy()
    # The first step is lr times the sign of the gradient, but for a gradient as small as rounding.
    step = np.abs(planes[:, : dim + 1] - truth)
    assert np.quantile(step, 0.98) < 1e-5
    assert step.max() <= 2e-2 * (1 + 1e-4)


def sigmoid_parts(z):
    """Return the compiled sigmoid, from the squares it adds, and the product it leaves behind."""
    left, squares = z.copy(), np.zeros_like(z)
    compiled.ACTIVATIONS["sigmoid"](left, squares, len(z))
    return np.sqrt(squares.astype(np.float64)), left


def sigmoid_rounding(z):
    """Return the relative error that float32 allows a sigmoid.

    Without fused products, whole multiples of ln 2 are taken off ``z`` with the rounding of ``z`` itself, half an ulp,
    which is absolute in the exponent and so relative in its exponential. Four eps are left for a polynomial that is
    right to 2e-7, a sum, a quotient, a square and the sum of squares.
    """
    return torch.finfo(torch.float32).eps * (4 + np.abs(z) / 2)


def test_the_compiled_sigmoid_is_scipys():
    z = np.linspace(-200, 200, 400_001).astype(np.float32)
    truth = scipy.special.expit(z.astype(np.float64))
    found, product = sigmoid_parts(z)
    # Squares of values below 1e-17 leave the range of float32.
    held = z > -39
    assert (np.abs(found / truth - 1) <= sigmoid_rounding(z))[held].all()
    np.testing.assert_allclose(found[~held], 0, atol=2e-17)
    expected = truth**2 * (1 - truth)
    assert (np.abs(product - expected) <= 2 * sigmoid_rounding(z) * expected + 1e-7).all()
    assert np.isfinite(product).all()


def test_the_compiled_sigmoid_keeps_what_is_not_a_number():
    found, product = sigmoid_parts(np.array([np.nan, np.inf, -np.inf], np.float32))
    assert np.isnan([found[0], product[0]]).all()
    np.testing.assert_allclose(found[1:], [1, 0], atol=1e-18)
    np.testing.assert_allclose(product[1:], 0, atol=1e-18)


@trainers
@pytest.mark.parametrize("activation", ["abs", "relu"])
def test_a_distance_of_zero_has_a_gradient_of_zero(module, activation):
    x, y = torch.tensor([[3.0, 4.0], [6.0, 8.0]]), torch.tensor([1.0, 2.0])
    weight, bias = torch.tensor([[4.0, -3.0], [-8.0, 6.0]]), torch.zeros(2)
    loss, found = gradient(module, activation, x, y, weight, bias)
    assert loss == 2.5  # (1 + 4) / 2: the mean of the squared targets
    assert not found.any()
    planes, *_ = train(module, activation, x, y, weight, bias, epochs=3, adam=(1e-2, 0.9, 0.99, 1e-8))
    np.testing.assert_array_equal(planes, planes_of(weight, bias))


@trainers
def test_a_point_at_distance_zero_leaves_the_others_their_gradient(module):
    x, y = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([1.0, 1.0])
    _, found = gradient(module, "abs", x, y, torch.eye(2), torch.zeros(2))
    # Point two alone: residual 4, times unit vector (0.6, 0.8), times x, times 2 / 2 points.
    expected = 4 * np.outer([0.6, 0.8], [3, 4, 1])
    np.testing.assert_allclose(found[:, :3], expected, rtol=1e-6)


@activations
@pytest.mark.parametrize("dim", [2, 70])
def test_the_wide_path_is_the_narrow_path_to_rounding(activation, dim):
    x, y = problem(1100, dim)
    parameters = list(network(x, activation).linear.parameters())
    adam = (1e-3, 0.9, 0.99, 1e-8)
    thin, broad = (train(m, activation, x, y, *parameters, epochs=30, adam=adam) for m in (narrow, wide))
    np.testing.assert_allclose(broad[-1], thin[-1], rtol=1e-4)
    np.testing.assert_allclose(broad[0], thin[0], atol=1e-3)


def placed(array, offset):
    """Return a copy whose memory begins ``offset`` bytes behind a cache line."""
    room = np.empty(array.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


@activations
@pytest.mark.parametrize("dim", [1, 2, 10])
def test_where_in_memory_things_lie_does_not_change_a_bit(activation, dim):
    x, y = problem(600, dim)
    planes = planes_of(*network(x, activation).linear.parameters())
    points, targets, count = data_of(narrow, x, y)
    ends = set()
    for offset in (0, 4, 16, 20, 32):
        state = tuple(placed(array, offset) for array in (planes, np.zeros_like(planes), np.zeros_like(planes)))
        data, losses = (placed(points, 32 - offset), placed(targets, 32 - offset), count), np.empty(10)
        compiled.trainer(activation)(data, state, 0, (1e-2, 0.9, 0.99, 1e-8), losses)
        ends.add(b"".join(array.tobytes() for array in (*state, losses)))
    assert len(ends) == 1


@trainers
def test_training_reads_its_data_and_no_more(module):
    x, y = problem(600, 3)
    weight, bias = network(x).linear.parameters()
    data = data_of(module, x, y)
    before = [np.asarray(part).copy() for part in data[:2]]
    planes = planes_of(weight, bias)
    state = (planes, np.zeros_like(planes), np.zeros_like(planes))
    module.trainer("abs")(data, state, 0, (1e-2, 0.9, 0.99, 1e-8), np.empty(3))
    for now, then in zip(data[:2], before, strict=True):
        np.testing.assert_array_equal(np.asarray(now), then)


@given(points=st.integers(1, 3000), dim=st.integers(1, 70), rows=st.sampled_from([8, 64, 512, 1024]))
@settings(max_examples=30)
def test_blocks_hold_every_point_once_with_a_one_behind_it(points, dim, rows):
    g = stream(0, "blocks", points, dim)
    x, y = torch.randn(points, dim, generator=g).numpy(), torch.rand(points, generator=g).numpy()
    blocked, targets = compiled.blocks(x, y, rows)
    count, width, height = blocked.shape
    flat = blocked.transpose(1, 0, 2).reshape(width, count * height)
    np.testing.assert_array_equal(flat[:dim, :points].T, x)
    np.testing.assert_array_equal(flat[dim, :points], 1)
    np.testing.assert_array_equal(targets.ravel()[:points], y)
    assert not flat[dim + 1 :].any()
    assert not flat[:, points:].any()
    assert not targets.ravel()[points:].any()
    assert (count - 1) * height < points <= count * height
    assert height <= rows
    assert height % 8 == 0
