"""Classifiers trained by the dozen, beside plain PyTorch: modules, autograd, ``torch.optim.SGD``."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch.nn import functional as F

from metriscope import data
from metriscope.nn import ARCHITECTURES, build, stack_state, unstack
from metriscope.rng import stream
from metriscope.train.classifiers import Classifier, advance, compilable, examples, measure
from metriscope.train.sparse_points import GROUP, background, pack, similar

few = settings(max_examples=25)
names = pytest.mark.parametrize("name", [name for name in ARCHITECTURES if compilable(name)])
# On raw pixels these bounce between far points: PyTorch in float32 and in float64 part within 200 steps.
BOUNCING = {"relu2-neg", "relu2-neg-bias", "silu2-neg", "elu2-neg", "tanh2-neg"}
# Activations that saturate: outputs may be equal but for the rounding of an exponential.
SATURATING = ("gelu2", "silu2", "tanh2", "elu2")


@cache
def digits(form, count=200):
    found = data.load("mnist-5k").train
    rows = np.linspace(0, len(found) - 1, count).astype(int)
    return data.pixels(found.x, form, found.x)[rows], found.y[rows]


@cache
def packed(form, count=200):
    return examples(*digits(form, count))


def random_points(count, features, classes, seed=0):
    g = stream(seed, "points")
    x = torch.randn(count, features, generator=g) * (torch.rand(count, features, generator=g) < 0.4)
    return x.numpy(), torch.randint(classes, (count,), generator=g).numpy()


def start(name, sizes=(784, 128, 10), seed=0):
    return build(name, *sizes, generator=stream(seed, "start"))


def classifier(name, sizes=(784, 128, 10), seed=0):
    return Classifier(name, start(name, sizes, seed).state_dict())


def plain(name, x, y, epochs, lr=1e-3, dtype=torch.float64, sizes=(784, 128, 10)):
    """Return the losses met and the state reached by PyTorch's own way."""
    model, losses = start(name, sizes).to(dtype), []
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    points, labels = torch.from_numpy(x).to(dtype), torch.from_numpy(y)
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(points), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses), model.state_dict()


def bits(network):
    return {name: tensor.numpy().tobytes() for name, tensor in network.state().items()}


def assert_same_step(name, x, y, sizes, lr=1.0):
    """Compare one step from the same start, parameter by parameter, with float64 autograd."""
    network = classifier(name, sizes)
    before = network.state()
    losses, _ = advance([network], examples(x, y), 1, lr)
    expected, after = plain(name, x, y, 1, lr, sizes=sizes)
    # An output of size s is off by a few eps s in float32, and the probabilities by that share.
    size = float(start(name, sizes)(torch.from_numpy(x)).detach().abs().max())
    share = 2e-5 + 8 * size * torch.finfo(torch.float32).eps
    np.testing.assert_allclose(losses[0], expected, rtol=2e-6, atol=1e-7)
    for key, value in network.state().items():
        truth = after[key] - before[key].double()
        error = (value.double() - after[key]).abs().max()
        assert error <= share * truth.abs().max() + 1e-6 * after[key].abs().max(), key


@names
@pytest.mark.parametrize("form", ["raw", "normalized"])
def test_a_step_goes_down_the_gradient_that_autograd_finds(name, form):
    assert_same_step(name, *digits(form), sizes=(784, 128, 10))


@pytest.mark.parametrize("factors", [(0.0, 1.0), (1.0, 0.0), (8.0, 0.25)], ids=str)
def test_a_factor_multiplies_the_step_of_its_part_of_the_head_and_no_other(factors):
    first = start("abs-l2").state_dict()
    plainly, scaled = Classifier("abs-l2", first), Classifier("abs-l2", first, factors)
    advance([plainly, scaled], packed("unit"), 1, lr=1.0)
    for name, value in scaled.state().items():
        factor = {"2.mu": factors[0], "2.alpha": factors[1]}.get(name, 1.0)
        expected = first[name] + factor * (plainly.state()[name] - first[name])
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-6)


@names
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 2), (40, 33, 17)], ids=str)
@pytest.mark.parametrize("count", [1, 9, 600])
def test_any_sizes_will_do(name, sizes, count):
    assert_same_step(name, *random_points(count, sizes[0], sizes[2]), sizes=sizes, lr=0.1)


@names
@pytest.mark.parametrize("form", ["raw", "normalized"])
def test_two_hundred_epochs_end_where_pytorch_ends(name, form):
    if form == "raw" and name in BOUNCING:
        pytest.skip("PyTorch does not agree with itself here")
    x, y = digits(form, 48)
    losses, _ = advance([classifier(name)], packed(form, 48), 200)
    expected, _ = plain(name, x, y, 200)
    assert abs(losses[0, -1] - expected[-1]) < 1e-3


@pytest.mark.parametrize("name", sorted(BOUNCING))
def test_a_training_that_bounces_keeps_to_pytorch_while_pytorch_keeps_to_itself(name):
    x, y = digits("raw")
    losses, _ = advance([classifier(name)], packed("raw"), 20)
    single, double = (plain(name, x, y, 20, dtype=dtype)[0] for dtype in (torch.float32, torch.float64))
    steady = np.abs(single / double - 1) < 1e-4
    first = int(np.argmin(steady)) if not steady.all() else 20
    assert first > 3
    np.testing.assert_allclose(losses[0, :first], double[:first], rtol=1e-3)


def test_a_network_is_bit_identical_alone_or_batched_and_on_any_number_of_threads():
    alone = {}
    for name in ("relu", "abs-l2-neg", "relu2-bias"):
        for seed in (0, 1):
            alone[name, seed] = classifier(name, seed=seed)
            advance([alone[name, seed]], packed("raw"), 12, workers=1)
    for workers in (1, 2, 5):
        together = {key: classifier(key[0], seed=key[1]) for key in reversed(alone)}
        advance(list(together.values()), packed("raw"), 12, workers=workers)
        assert all(bits(together[key]) == bits(alone[key]) for key in alone)


def test_a_seed_on_five_thousand_digits_is_in_a_group_what_it_is_alone():
    found = data.load("mnist-5k").train
    points = examples(data.pixels(found.x, "normalized", found.x), found.y)
    group = [classifier("abs", seed=0), classifier("abs", seed=1), classifier("relu-l2", seed=1)]
    losses, _ = advance(group, points, 200)
    alone, _ = advance([classifier("abs", seed=1)], points, 200)
    assert alone[0].tolist() == losses[1].tolist()
    assert (losses[:, -1] < losses[:, 0]).all()


def test_a_training_taken_up_again_from_its_state_ends_in_the_same_bits():
    whole, broken = classifier("abs2-neg-bias"), classifier("abs2-neg-bias")
    losses, accuracies = advance([whole], packed("unit"), 15)
    first = advance([broken], packed("unit"), 6)
    again = Classifier("abs2-neg-bias", broken.state())
    second = advance([again], packed("unit"), 9)
    assert bits(again) == bits(whole)
    assert np.concatenate([first[0], second[0]], axis=1).tolist() == losses.tolist()
    assert np.concatenate([first[1], second[1]], axis=1).tolist() == accuracies.tolist()


@names
def test_the_state_is_that_of_the_plain_network(name):
    network, model = classifier(name), start(name)
    assert {k: v.tolist() for k, v in network.state().items()} == {k: v.tolist() for k, v in model.state_dict().items()}
    advance([network], packed("raw"), 3)
    model.load_state_dict(network.state())
    stack = stack_state([model, start(name)])
    assert unstack(model, stack, 0).state_dict().keys() == network.state().keys()
    scores, (x, y) = measure([network], packed("raw")), digits("raw")
    output = model(torch.from_numpy(x)).detach()
    assert scores.loss[0] == pytest.approx(F.cross_entropy(output, torch.from_numpy(y)).item(), rel=1e-4, abs=1e-6)


@names
def test_scores_and_active_units_are_those_that_pytorch_counts(name):
    x, y = digits("raw", 333)
    network = classifier(name)
    advance([network], packed("raw"), 5)
    model = start(name)
    model.load_state_dict(network.state())
    points = torch.from_numpy(x)
    hidden, output = model[:2](points).detach(), model(points).detach()
    found = measure([network], packed("raw", 333))
    np.testing.assert_allclose(found.hidden[0], (hidden.abs() > 1e-6).double().mean(0), atol=1.1 / len(y))
    np.testing.assert_allclose(found.outputs[0], (output.abs() > 1e-6).double().mean(0), atol=1.1 / len(y))
    # Where the two largest outputs are equal up to rounding, either may be the answer.
    first, second = output.topk(2).values.T
    ties = ((first - second) <= 1e-6 * first.abs()).double().mean() if name.startswith(SATURATING) else 0.0
    right = (output.argmax(1).numpy() == y).mean()
    assert found.accuracy[0] == pytest.approx(right, abs=1.1 / len(y) + float(ties))


def test_of_equal_outputs_the_first_is_the_answer():
    state = {k: torch.zeros_like(v) for k, v in start("relu2", (2, 3, 4)).state_dict().items()}
    x, y = np.zeros((5, 2), np.float32), np.array([0, 1, 0, 3, 2])
    scores = measure([Classifier("relu2", state)], examples(x, y))
    assert (scores.accuracy[0], scores.loss[0]) == (0.4, pytest.approx(np.log(4)))
    assert scores.hidden[0].tolist() == [0, 0, 0]


def test_a_point_on_its_prototype_pulls_at_nothing():
    state = start("relu-l2", (2, 3, 4)).state_dict()
    state = {k: torch.zeros_like(v) if "alpha" not in k else v for k, v in state.items()}
    network = Classifier("relu-l2", state)
    advance([network], examples(np.zeros((5, 2), np.float32), np.array([0, 1, 0, 3, 2])), 3)
    assert all(tensor.equal(state[name]) for name, tensor in network.state().items())


@pytest.mark.parametrize("name", ["abs2", "abs2-neg", "abs-l2-neg", "relu"])
@pytest.mark.parametrize("scale", [1e3, 1e19, 1e30])
def test_there_is_no_nan_where_autograd_has_none(name, scale):
    x, y = random_points(40, 6, 3)
    x = (x * np.float32(scale)).astype(np.float32)
    network, model = classifier(name, (6, 5, 3)), start(name, (6, 5, 3))
    losses, _ = advance([network], examples(x, y), 1)
    loss = F.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    if loss.isfinite():
        assert np.isfinite(losses).all()
    if all(g.isfinite().all() for g in gradients):
        assert all(t.isfinite().all() for t in network.state().values())
    if loss.isnan():
        assert np.isnan(losses).all()


matrices = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 40), st.integers(1, 30)),
    elements=st.sampled_from([0.0, 0.0, 0.0, 1.0, -2.5]),
)


def dense(side, block, shape):
    """Return a block's matrix from its groups."""
    found = np.zeros(shape, np.float32)
    for group in range(side.bounds[block], side.bounds[block + 1]):
        span = slice(side.starts[group], side.starts[group + 1])
        for lane, row in enumerate(side.rows[group * GROUP : (group + 1) * GROUP]):
            found[row, side.index[span]] += side.values[span, lane]
    return found


@few
@given(matrices, st.sampled_from([8, 16, 512]), st.sampled_from([0.0, -0.42]))
def test_packed_points_are_the_points_in_another_order(x, rows, shift):
    x = x + np.float32(shift)
    found = pack(x, rows=rows)
    assert sorted(found.order.tolist()) == list(range(len(x)))
    assert found.gradient is not None
    for block in range(found.blocks):
        own = found.order[block * found.rows : (block + 1) * found.rows]
        truth = x[own] - found.background
        tall = -(-len(own) // GROUP) * GROUP
        assert (dense(found.forward, block, (tall, x.shape[1]))[: len(own)] == truth).all()
        assert (dense(found.gradient, block, (x.shape[1] + 1, len(own)))[:-1] == truth.T).all()


@few
@given(matrices)
def test_the_background_is_what_most_entries_are(x):
    values, counts = np.unique(x, return_counts=True)
    most = values[np.argmax(counts)] if counts.max() * 2 > x.size else 0
    assert background(x) == most


def test_alike_rows_come_to_stand_together():
    kinds = np.arange(64) % 4
    order = similar(np.eye(4)[kinds])
    assert all(len(set(group)) == 1 for group in kinds[order].reshape(-1, GROUP))


def test_digits_keep_less_than_a_third_of_a_dense_products_work():
    found = data.load("mnist-5k").train
    for form in ("raw", "normalized"):
        assert pack(data.pixels(found.x, form, found.x), gradient=False).density < 1 / 3


def test_what_does_not_fit_is_refused_in_one_sentence():
    x, y = random_points(10, 4, 3)
    points, network = examples(x, y), classifier("relu", (5, 3, 3))
    with pytest.raises(ValueError, match="points have 4 features, a network takes 5"):
        advance([network], points, 1)
    with pytest.raises(ValueError, match="labels go up to 2, a network has 2 outputs"):
        measure([classifier("relu", (4, 3, 2))], points)
    with pytest.raises(ValueError, match="packed for measuring only"):
        advance([classifier("relu", (4, 3, 3))], examples(x, y, gradient=False), 1)
    with pytest.raises(ValueError, match="10 points need one label each, 0 or more"):
        examples(x, y[:-1])
    with pytest.raises(ValueError, match=r"float32 array of shape \(n, d\), not float64 of shape \(10, 4\)"):
        pack(x.astype(np.float64))
    with pytest.raises(ValueError, match=r"architecture must be one of relu, .* got 'mish'"):
        Classifier("mish", {})
    with pytest.raises(
        ValueError, match=r"abs-l2 needs a matrix 2.mu in its state, which has 0.weight, 0.bias, 2.weight"
    ):
        Classifier("abs-l2", start("abs", (4, 3, 2)).state_dict())
    with pytest.raises(ValueError, match=r"abs-bias needs 2.bias of shape \(2,\) in its state, got"):
        Classifier("abs-bias", start("abs", (4, 3, 2)).state_dict())
