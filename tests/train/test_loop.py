from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from metriscope.common.threads import workers_available
from metriscope.nn import stack_state
from metriscope.train import Cohort, Diverged, Protocol, engine_for, fit, recorded_epochs
from train.cases import CASES, COMPILED, cohort, copies, leaves, network, plain_training, problem, same_bits

EPOCHS = 12
every_case = pytest.mark.parametrize("case", CASES)
some_cases = pytest.mark.parametrize("case", ["compiled abs", "compiled wide", "stacked mini-batch"])


@cache
def uninterrupted(case):
    whole = cohort(case, epochs=EPOCHS)
    with whole.engine.session():
        whole.advance(EPOCHS)
    return whole


@every_case
@settings(max_examples=6)
@given(cuts=st.sets(st.integers(1, EPOCHS - 1)))
def test_wherever_training_is_cut_and_taken_up_again_it_ends_in_the_same_bits(case, cuts):
    ends = [0, *sorted(cuts), EPOCHS]
    saved = copies(cohort(case, epochs=EPOCHS).tensors())
    for start, end in pairwise(ends):
        part = cohort(case, epochs=EPOCHS)
        part.restore(saved, start)
        with part.engine.session():
            part.advance(end - start)
        saved = copies(part.tensors())
    assert part.epoch == EPOCHS
    assert same_bits(saved, uninterrupted(case).tensors())


@every_case
def test_any_number_of_workers_gives_the_same_bits(case):
    ends = []
    for workers in (1, 2):
        cohorts = [cohort(case, trials=(trial,), epochs=EPOCHS) for trial in range(3)]
        fit(cohorts, workers=workers, pace=0.0)
        ends.append([copies(c.tensors()) for c in cohorts])
    assert all(same_bits(one, two) for one, two in zip(*ends, strict=True))


def test_cohorts_of_every_compiled_kind_train_side_by_side_as_they_do_alone():
    cohorts = [cohort(case, epochs=EPOCHS) for case in COMPILED]
    fit(cohorts, workers=2)
    assert all(same_bits(c.tensors(), uninterrupted(c.name).tensors()) for c in cohorts)


@pytest.mark.parametrize(("pace", "ticks"), [(0.0, list(range(1, 101))), (1e9, [1, 9, 73, 100])])
def test_the_pace_sets_the_ticks_and_nothing_else(pace, ticks):
    start, seen = cohort("compiled abs", trials=(0,), epochs=100), []
    fit([start], tick=seen.append, pace=pace)
    assert seen == ticks
    other = cohort("compiled abs", trials=(0,), epochs=100)
    fit([other], pace=0.01)
    assert same_bits(start.tensors(), other.tensors())


def test_all_cohorts_stand_at_the_same_epoch_at_every_tick():
    cohorts, seen = [cohort("compiled abs", trials=(trial,)) for trial in range(3)], []
    fit(cohorts, workers=2, tick=lambda epoch: seen.append([epoch, *(c.epoch for c in cohorts)]), pace=0.0)
    assert seen == [[epoch] * 4 for epoch in range(1, EPOCHS + 1)]


def test_a_finished_cohort_is_left_as_it_is():
    done, seen = cohort("compiled abs", trials=(0,)), []
    fit([done])
    before = copies(done.tensors())
    fit([done], tick=seen.append)
    assert same_bits(before, done.tensors())
    assert seen == []


def test_the_history_holds_the_loss_before_each_recorded_epoch():
    x, y = problem(40, 2)
    model, recipe = network(x), Protocol(epochs=400)
    start = Cohort("history", engine_for(model, x, y, recipe, (0,)), stack_state([model]), recipe)
    with start.engine.session():
        every = start.engine.advance(copies(start.parameters), copies(start.moments), 0, 400)
    assert start.history.isnan().all()
    fit([start])
    assert torch.equal(start.history, every[:, recorded_epochs(400)])
    assert start.history[0, 0].item() == pytest.approx((model(x) - y).square().mean().item(), rel=1e-5)


def pool_threads(api):
    return [(pool["filepath"], pool["num_threads"]) for pool in threadpool_info() if pool["user_api"] == api]


def blas_threads():
    return pool_threads("blas")


def threads_of_torch():
    """Return how many threads PyTorch has here, and how many it would give to a new thread."""
    with ThreadPoolExecutor(1) as pool:
        return torch.get_num_threads(), pool.submit(torch.get_num_threads).result()


@pytest.fixture
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    with threadpool_limits(2, user_api="blas"):
        yield
    torch.set_num_threads(threads)


@some_cases
@pytest.mark.usefixtures("undrawn", "two_threads")
def test_threads_and_random_state_are_as_before_after_training(case):
    before = blas_threads()
    fit([cohort(case, trials=(trial,)) for trial in range(2)], workers=2)
    assert threads_of_torch() == (2, 2)
    assert blas_threads() == before


@some_cases
@pytest.mark.usefixtures("undrawn", "two_threads")
def test_threads_and_random_state_are_as_before_after_an_exception(case):
    def stop(epoch):
        raise KeyboardInterrupt

    before = blas_threads()
    with pytest.raises(KeyboardInterrupt):
        fit([cohort(case)], tick=stop)
    broken = cohort(case)
    broken.parameters["missing"] = torch.zeros(3)
    with pytest.raises(Exception, match="missing"):
        fit([broken])
    assert threads_of_torch() == (2, 2)
    assert blas_threads() == before


@pytest.mark.usefixtures("two_threads")
def test_compiled_training_holds_blas_to_one_thread():
    seen = []
    fit([cohort("compiled abs")], tick=lambda epoch: seen.append({count for _, count in blas_threads()}))
    assert seen
    assert all(counts <= {1} for counts in seen)


class Witness:
    """An engine that trains nothing and sees how many threads it is given."""

    def __init__(self):
        self.seen = []

    def session(self):
        return nullcontext()

    def moments(self, parameters):
        return {}

    def advance(self, parameters, moments, epoch, epochs):
        # Asking PyTorch would settle the number; asking OpenMP shows what an operation would get.
        self.seen.append(pool_threads("openmp"))
        return torch.zeros(1, epochs, dtype=torch.float64)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.usefixtures("two_threads")
def test_workers_have_the_threads_that_the_caller_has(threads):
    torch.set_num_threads(threads)
    witness = Witness()
    fit([Cohort(str(i), witness, {"w": torch.zeros(1)}, Protocol(epochs=3)) for i in range(3)], workers=2, pace=0.0)
    assert len(witness.seen) == 9
    assert all(seen == pool_threads("openmp") for seen in witness.seen)


@pytest.mark.parametrize("activation", ["abs", "relu", "sigmoid"])
@pytest.mark.parametrize("dim", [2, 70])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_compiled_training_on_what_is_not_finite_diverges(activation, dim, value):
    x, y = problem(20, dim)
    model = network(x, activation)
    x[3] = value
    recipe = Protocol(epochs=9)
    start = Cohort("trial 7", engine_for(model, x, y, recipe, (0,)), stack_state([model]), recipe)
    with pytest.raises(Diverged, match=r"the loss of trial 7 is not finite from epoch [01] on"):
        fit([start])


@pytest.mark.parametrize("pace", [0.0, 1e9])
def test_a_step_too_large_diverges_at_the_epoch_at_which_plain_training_does(pace):
    x, y = problem(20, 2)
    y = y[:, None]
    model, recipe = nn.Linear(2, 1), Protocol(epochs=60, optimizer="sgd", lr=100.0)
    model.load_state_dict({"weight": torch.ones(1, 2), "bias": torch.zeros(1)})
    losses = plain_training(
        leaves(*model.parameters()),
        lambda w, b: (nn.functional.linear(x, w, b) - y).square().mean(),
        [()] * 60,
        recipe,
    )
    first = int(losses.isfinite().logical_not().nonzero()[0])
    assert 3 < first < 50
    start = Cohort("sgd", engine_for(model, x, y, recipe, (0,)), stack_state([model]), recipe)
    with pytest.raises(Diverged, match=f"the loss of sgd is not finite from epoch {first} on"):
        fit([start], pace=pace)


def test_one_trial_that_diverges_is_enough():
    x, y = problem(20, 2)
    models = [network(x, trial=trial) for trial in range(3)]
    state, recipe = stack_state(models), Protocol(epochs=5)
    state["linear.weight"][1] = torch.inf
    with pytest.raises(Diverged, match="from epoch 0 on"):
        fit([Cohort("three", engine_for(models[0], x, y, recipe, (0, 1, 2)), state, recipe)])


def test_cohorts_that_are_behind_catch_up_first_and_end_as_if_alone():
    alone = [cohort("compiled abs", trials=(trial,), epochs=epochs) for trial, epochs in ((0, 5), (1, 7))]
    for one in alone:
        fit([one])
    ahead, behind = (cohort("compiled abs", trials=(trial,), epochs=epochs) for trial, epochs in ((0, 5), (1, 7)))
    ahead.advance(3)
    fit([ahead, behind], pace=0.0)
    assert same_bits(ahead.tensors(), alone[0].tensors())
    assert same_bits(behind.tensors(), alone[1].tensors())


def test_training_no_cohort_is_refused():
    with pytest.raises(ValueError, match="at least one cohort, got none"):
        fit([])


def test_parameters_are_kept_at_the_epochs_asked_for_whatever_the_chunks():
    kept = (2, 5)
    wanted = {}
    for epochs in kept:
        one = cohort("compiled abs", epochs=epochs)
        fit([one])
        wanted |= {f"{epochs}/{name}": value for name, value in one.parameters.items()}
    for pace in (0.0, 1e9):
        whole = replace(cohort("compiled abs", epochs=9), kept=kept)
        fit([whole], pace=pace)
        assert same_bits(whole.snapshots, wanted)


@every_case
def test_a_cohort_restored_is_the_cohort_saved(case):
    saved, fresh = cohort(case, epochs=EPOCHS), cohort(case, epochs=EPOCHS)
    saved.advance(5)
    kept = copies(saved.tensors())
    fresh.restore(kept, 5)
    assert fresh.epoch == saved.epoch == 5
    assert same_bits(fresh.tensors(), saved.tensors())
    fresh.advance(1)
    assert same_bits(kept, saved.tensors())


def test_a_cohort_names_its_tensors_after_itself():
    names = cohort("compiled abs").tensors()
    moments = [f"moments/{order}.linear.{part}" for order in ("first", "second") for part in ("weight", "bias")]
    parts = ["parameters/linear.weight", "parameters/linear.bias", *moments, "history/loss"]
    assert sorted(names) == sorted(f"compiled abs/{part}" for part in parts)


def test_no_epochs_are_trained_at_once():
    start = cohort("compiled abs", epochs=0)
    before = copies(start.tensors())
    fit([start])
    assert same_bits(before, start.tensors())
    assert start.history.shape == (3, 0)


def test_there_is_at_least_one_worker():
    assert workers_available() >= 1
