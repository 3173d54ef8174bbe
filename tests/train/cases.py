"""Small problems for the tests of training, and the same trainings by plain PyTorch."""

from __future__ import annotations

from functools import cache

import torch
from torch.nn import functional as F

from metriscope.data import random_gaussian
from metriscope.nn import Mahalanobis, build, init_through_points_, stack_state
from metriscope.rng import stream
from metriscope.train import Cohort, Protocol, engine_for

ACTIVATIONS = {"abs": torch.abs, "relu": torch.relu, "sigmoid": torch.sigmoid}
OPTIMIZERS = {
    "adam": lambda p, r: torch.optim.Adam(p, lr=r.lr, betas=r.betas, eps=r.eps),
    "sgd": lambda p, r: torch.optim.SGD(p, lr=r.lr),
}


@cache
def _drawn(points, dim):
    gaussian = random_gaussian(dim, stream(0, "gaussian"))
    x = gaussian.sample(points, stream(0, "points"))
    return x, gaussian.distance(x)


def problem(points, dim, dtype=torch.float32):
    """Return points of a random Gaussian and their true distances, for the caller to keep."""
    return tuple(tensor.to(dtype, copy=True) for tensor in _drawn(points, dim))


def network(x, activation="abs", trial=0, hidden=None):
    """Return a distance network whose hyperplanes go through the points, in their precision."""
    model = Mahalanobis(x.shape[1], hidden, activation, generator=stream(trial, "weights"), dtype=x.dtype)
    init_through_points_(model.linear, x, generator=stream(trial, "through"))
    return model


def distances(weight, bias, x, activation):
    """Return what a distance network computes, in plain PyTorch."""
    return torch.linalg.vector_norm(ACTIVATIONS[activation](F.linear(x, weight, bias)), dim=-1)


def plain_training(parameters, loss_of, batches, recipe):
    """Train leaf tensors on batches, one step each, and return the losses met."""
    optimizer, losses = OPTIMIZERS[recipe.optimizer](parameters, recipe), []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(*parameters, *batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def leaves(*tensors, dtype=None):
    return [tensor.detach().clone().to(dtype or tensor.dtype).requires_grad_() for tensor in tensors]


def _distance_cohort(name, trials, epochs, shape, activation, dtype=torch.float32, **options):
    points, dim, hidden = shape
    x, y = problem(points, dim, dtype=dtype)
    models = [network(x, activation, trial, hidden) for trial in trials]
    recipe = Protocol(epochs=epochs, lr=1e-2, betas=(0.9, 0.99), **options)
    return Cohort(name, engine_for(models[0], x, y, recipe, tuple(trials)), stack_state(models), recipe)


def _classifier_cohort(name, trials, epochs, **options):
    x = torch.randn(40, 6, generator=stream(0, "points"))
    labels = torch.randint(3, (40,), generator=stream(0, "labels"))
    models = [build("abs2-neg", 6, 5, 3, generator=stream(trial, "init")) for trial in trials]
    recipe = Protocol(epochs=epochs, lr=1e-2, loss="cross-entropy", **options)
    return Cohort(name, engine_for(models[0], x, labels, recipe, tuple(trials)), stack_state(models), recipe)


NARROW, WIDE = (530, 3, None), (150, 70, 20)
COMPILED = {
    "compiled abs": lambda *a: _distance_cohort(*a, NARROW, "abs"),
    "compiled relu": lambda *a: _distance_cohort(*a, NARROW, "relu"),
    "compiled sigmoid": lambda *a: _distance_cohort(*a, NARROW, "sigmoid"),
    "compiled wide": lambda *a: _distance_cohort(*a, WIDE, "relu"),
}
STACKED = {
    "stacked": lambda *a: _distance_cohort(*a, NARROW, "abs", torch.float64),
    "stacked mini-batch": lambda *a: _distance_cohort(*a, (50, 3, None), "relu", batch_size=16),
    "stacked classifier": lambda *a: _classifier_cohort(*a, batch_size=16),
    "stacked sgd": lambda *a: _classifier_cohort(*a, optimizer="sgd"),
}
CASES = COMPILED | STACKED


def cohort(case, trials=(0, 1, 2), epochs=12):
    """Return untrained networks of one of the cases."""
    return CASES[case](case, tuple(trials), epochs)


def copies(tensors):
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same_bits(first, second):
    """Tell whether tensors are the same to the last bit; epochs still to come are NaN and count."""
    one, two = ({name: tensor.numpy().tobytes() for name, tensor in group.items()} for group in (first, second))
    return one == two
