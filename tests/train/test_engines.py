from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from metriscope.nn import Mahalanobis, build, stack_state
from metriscope.rng import stream
from metriscope.train import Cohort, CompiledEngine, Protocol, StackedEngine, engine_for, fit
from train.cases import ACTIVATIONS, CASES, cohort, copies, distances, leaves, network, plain_training, problem

few = settings(max_examples=8)
activations = pytest.mark.parametrize("activation", ACTIVATIONS)
every_case = pytest.mark.parametrize("case", CASES)


def trained(start):
    fit([start], workers=1)
    return start


def orders(seed, points, epochs):
    return [torch.randperm(points, generator=stream(seed, "batches", epoch)) for epoch in range(epochs)]


@activations
@pytest.mark.parametrize("batch_size", [None, 16])
def test_stacked_training_is_plain_autograd_with_torchs_adam(activation, batch_size):
    x, y = problem(50, 3, dtype=torch.float64)
    models = [network(x, activation, trial) for trial in (4, 9)]
    recipe = Protocol(epochs=8, lr=1e-2, betas=(0.9, 0.99), batch_size=batch_size)
    found = trained(Cohort("stack", engine_for(models[0], x, y, recipe, (4, 9)), stack_state(models), recipe))
    for index, (seed, model) in enumerate(zip((4, 9), models, strict=True)):
        parameters = leaves(*model.linear.parameters())
        rows = [torch.arange(50)] * 8 if batch_size is None else orders(seed, 50, 8)
        batches = [(x[part], y[part]) for order in rows for part in order.split(batch_size or 50)]
        losses = plain_training(
            parameters, lambda w, b, x, y: (distances(w, b, x, activation) - y).square().mean(), batches, recipe
        )
        for name, value in zip(("linear.weight", "linear.bias"), parameters, strict=True):
            torch.testing.assert_close(found.parameters[name][index], value.detach(), rtol=1e-11, atol=1e-12)
        sizes = torch.tensor([float(len(batch[0])) for batch in batches], dtype=torch.float64)
        epochs = (losses * sizes).reshape(8, -1).sum(1) / 50
        torch.testing.assert_close(found.history[index], epochs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("name", ["relu2-neg", "abs-l2"])
def test_stacked_classification_is_torchs_cross_entropy(name, optimizer):
    x = torch.randn(30, 4, generator=stream(0, "x"), dtype=torch.float64)
    y = torch.randint(3, (30,), generator=stream(0, "y"))
    models = [build(name, 4, 5, 3, generator=stream(trial)).double() for trial in range(3)]
    recipe = Protocol(epochs=6, lr=0.05, optimizer=optimizer, loss="cross-entropy")
    found = trained(Cohort("stack", engine_for(models[0], x, y, recipe, (0, 1, 2)), stack_state(models), recipe))
    for index, model in enumerate(models):
        names, values = zip(*model.named_parameters(), strict=True)
        parameters = leaves(*values)

        def loss(*arguments, model=model, names=names):
            state = dict(zip(names, arguments, strict=False))
            return F.cross_entropy(functional_call(model, state, (x,)), y)

        losses = plain_training(parameters, loss, [()] * 6, recipe)
        for key, value in zip(names, parameters, strict=True):
            torch.testing.assert_close(found.parameters[key][index], value.detach(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found.history[index], losses, rtol=1e-11, atol=1e-12)


@activations
@pytest.mark.parametrize(("points", "dim", "hidden"), [(1037, 2, None), (1000, 10, None), (300, 70, 20)])
def test_compiled_stacked_and_plain_training_go_the_same_way(activation, points, dim, hidden):
    x, y = problem(points, dim)
    model = network(x, activation, hidden=hidden)
    recipe = Protocol(epochs=200, betas=(0.9, 0.99))
    start = stack_state([model])
    engines = {"compiled": engine_for(model, x, y, recipe, (0,)), "stacked": StackedEngine(model, x, y, recipe, (0,))}
    assert isinstance(engines["compiled"], CompiledEngine)
    ends = {name: trained(Cohort(name, engine, start, recipe)) for name, engine in engines.items()}
    losses = plain_training(
        parameters := leaves(*model.linear.parameters(), dtype=torch.float64),
        lambda w, b: (distances(w, b, x.double(), activation) - y.double()).square().mean(),
        [()] * 200,
        recipe,
    )
    for end in ends.values():
        torch.testing.assert_close(end.history[0], losses, rtol=1e-4, atol=0)
        weight = end.parameters["linear.weight"][0].double()
        torch.testing.assert_close(weight, parameters[0].detach(), rtol=0, atol=1e-3)


@every_case
def test_a_trial_learns_the_same_alone_and_batched(case):
    together = trained(cohort(case, trials=(5, 1, 2)))
    for index, trial in enumerate((5, 1, 2)):
        alone = trained(cohort(case, trials=(trial,)))
        for name, value in together.tensors().items():
            if isinstance(alone.engine, CompiledEngine):
                assert torch.equal(value[index], alone.tensors()[name][0])
            else:
                torch.testing.assert_close(value[index], alone.tensors()[name][0], rtol=1e-4, atol=1e-5)


@every_case
def test_trials_of_different_seeds_end_apart(case):
    # The opposite of learning the same when batched: batching must not make trials equal either.
    found = trained(cohort(case, trials=(5, 1))).history
    assert not torch.allclose(found[0], found[1], rtol=1e-3)


def one_hot_epoch(points, batch_size, seeds, epoch):
    """Return the weights after one epoch of SGD at rate 1/2 on one-hot points with targets one.

    Weight i meets point i alone: used once, in a batch of b, it goes from 0 to 1 / b.
    """
    x, y = torch.eye(points, dtype=torch.float64), torch.ones(points, 1, dtype=torch.float64)
    recipe = Protocol(epochs=9, optimizer="sgd", lr=0.5, batch_size=batch_size)
    engine = engine_for(nn.Linear(points, 1, bias=False).double(), x, y, recipe, seeds)
    state = {"weight": torch.zeros(len(seeds), 1, points, dtype=torch.float64)}
    engine.advance(state, {}, epoch, 1)
    return state["weight"][:, 0]


@few
@given(points=st.integers(1, 40), batch_size=st.integers(1, 45), epoch=st.integers(0, 5))
def test_an_epoch_of_mini_batches_uses_each_point_once(points, batch_size, epoch):
    whole, rest = divmod(points, batch_size)
    sizes = torch.tensor([batch_size] * batch_size * whole + [rest] * rest, dtype=torch.float64)
    for weights in one_hot_epoch(points, batch_size, (3, 8), epoch):
        torch.testing.assert_close(weights.sort().values, (1 / sizes).sort().values)


def test_mini_batches_depend_on_the_seed_and_the_epoch_and_not_on_other_trials():
    first, other = one_hot_epoch(40, 27, (3, 8), epoch=0)
    assert torch.equal(one_hot_epoch(40, 27, (8, 1, 3), epoch=0)[2], first)
    assert not torch.equal(other, first)
    assert not torch.equal(one_hot_epoch(40, 27, (3,), epoch=1)[0], first)


@pytest.mark.parametrize("width", [0, 2, 69])
def test_a_distance_of_zero_leaves_a_network_as_it_was(width):
    x, y = torch.zeros(4, width + 1), torch.ones(4)
    state = {"linear.weight": torch.ones(1, 3, width + 1), "linear.bias": torch.zeros(1, 3)}
    recipe = Protocol(epochs=5)
    template = Mahalanobis(width + 1, hidden=3)
    for engine in (engine_for(template, x, y, recipe, (0,)), StackedEngine(template, x, y, recipe, (0,))):
        found = trained(Cohort("zero", engine, state, recipe))
        assert all(torch.equal(found.parameters[name], state[name]) for name in state)
        assert found.history.tolist() == [[1.0] * 5]


@every_case
@pytest.mark.usefixtures("undrawn")
def test_training_writes_into_nothing_it_was_given(case):
    start = cohort(case)
    engine = start.engine
    given = [engine.x, engine.y, *start.parameters.values(), *start.moments.values(), start.history]
    before = [tensor.clone() for tensor in given]
    fresh = Cohort("fresh", engine, start.parameters, start.protocol, moments=start.moments, history=start.history)
    trained(fresh)
    assert all(torch.equal(now, then) for now, then in zip(given[:-1], before[:-1], strict=True))
    assert start.history.isnan().all()
    if isinstance(engine, StackedEngine):
        assert all(not p.grad_fn and p.grad is None for p in engine.template.parameters())


@pytest.mark.parametrize("case", ["compiled abs", "compiled wide"])
def test_points_changed_between_two_trainings_are_seen_by_the_second(case):
    first = cohort(case)
    trained(cohort_on(first, first.engine.x, first.engine.y))
    first.engine.x.mul_(0.5)
    again = trained(cohort_on(first, first.engine.x, first.engine.y))
    fresh = trained(cohort_on(first, first.engine.x.clone(), first.engine.y.clone()))
    assert torch.equal(again.history, fresh.history)


def cohort_on(start, x, y):
    engine = CompiledEngine(start.engine.activation, x, y, start.protocol)
    return Cohort(start.name, engine, copies(start.parameters), start.protocol)


def chosen(template=None, x=None, y=None, **options):
    x = torch.zeros(5, 3) if x is None else x
    y = torch.zeros(len(x)) if y is None else y
    recipe = Protocol(epochs=1, **options)
    return type(engine_for(template or Mahalanobis(x.shape[1]), x, y, recipe, (0,)))


def test_compiled_code_is_chosen_for_what_it_can_do_and_nothing_else():
    class Scaled(Mahalanobis):
        def forward(self, x):
            return 2 * super().forward(x)

    assert {chosen(Mahalanobis(3, activation=activation)) for activation in ACTIVATIONS} == {CompiledEngine}
    others = [
        chosen(nn.Linear(3, 1)),
        chosen(Scaled(3)),
        chosen(optimizer="sgd"),
        chosen(batch_size=2),
        chosen(loss="cross-entropy"),
        chosen(Mahalanobis(3, dtype=torch.float64)),
        chosen(x=torch.zeros(5, 3, dtype=torch.float64)),
        chosen(y=torch.zeros(5, dtype=torch.float64)),
        chosen(y=torch.zeros(5, 1)),
        chosen(Mahalanobis(2)),
    ]
    assert set(others) == {StackedEngine}


def test_points_and_targets_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="one target per point, got 4 targets and 5 points"):
        chosen(y=torch.zeros(4))
    with pytest.raises(ValueError, match="one target per point, got 0 targets and 0 points"):
        chosen(x=torch.zeros(0, 3))


@pytest.mark.parametrize("template", [nn.Linear(3, 1), nn.Linear(3, 4)])
def test_targets_of_another_shape_than_the_outputs_are_refused(template):
    x, y, recipe = torch.zeros(5, 3), torch.zeros(5), Protocol(epochs=1)
    start = Cohort("shapes", engine_for(template, x, y, recipe, (0,)), stack_state([template]), recipe)
    shapes = rf"outputs have shape \(5, {template.out_features}\), the targets \(5,\)"
    with pytest.raises(ValueError, match=shapes):
        start.advance(1)


def test_points_of_another_width_than_the_network_are_refused():
    model, x, recipe = Mahalanobis(2), torch.zeros(5, 3), Protocol(epochs=1)
    start = Cohort("width", engine_for(model, x, torch.zeros(5), recipe, (0,)), stack_state([model]), recipe)
    with pytest.raises(ValueError, match=r"x must end in the layer's 2 features, got the shape \(5, 3\)"):
        start.advance(1)


def test_targets_of_several_numbers_are_averaged_over_them():
    x, y = torch.eye(2), torch.tensor([[1.0, 3.0], [2.0, 0.0]])
    recipe = Protocol(epochs=1, optimizer="sgd")
    template = nn.Linear(2, 2, bias=False)
    engine = engine_for(template, x, y, recipe, (0,))
    losses = engine.advance({"weight": torch.zeros(1, 2, 2)}, {}, 0, 1)
    np.testing.assert_allclose(losses, [[(1 + 9 + 4) / 4]])
