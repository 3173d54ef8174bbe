"""Classifiers without kernels are trained by autograd, to the same numbers."""

import numpy as np
import pytest
import torch

from metriscope.nn import ARCHITECTURES, Architecture, build
from metriscope.rng import stream
from metriscope.train.classifiers import (
    AutogradClassifier,
    Classifier,
    advance,
    classifier,
    compilable,
    examples,
    measure,
)

x = torch.randn(60, 5, generator=stream(0, "points")).numpy()
y = (np.arange(60) % 3).astype(np.int64)


def state(name):
    return build(name, 5, 4, 3, stream(1, "start")).state_dict()


def test_every_named_network_but_those_with_softplus_is_compiled_today():
    # Units that are padding must give zero, which softplus does not.
    assert {name for name in ARCHITECTURES if not compilable(name)} == {"softplus", "softplus2", "softplus2-neg"}
    assert type(classifier("abs-l2", state("abs-l2"))) is Classifier


@pytest.mark.parametrize(
    "name", ["relu", "abs2-neg", "abs2-bias", "relu-l2-neg", "abs-l2-code", "gelu2", "silu2-neg", "tanh2", "elu"]
)
def test_autograd_and_compiled_passes_train_and_measure_alike(name):
    data = examples(x, y)
    model = build(name, 5, 4, 3, stream(1, "start"))
    pair = [Classifier(name, state(name)), AutogradClassifier(model, 5, 3)]
    losses, accuracies = advance(pair, data, 20, lr=0.05)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    np.testing.assert_allclose(accuracies[0], accuracies[1], atol=1 / 60)
    found = measure(pair, data)
    np.testing.assert_allclose(found.loss[0], found.loss[1], rtol=1e-4)
    np.testing.assert_allclose(found.hidden[0], found.hidden[1], atol=1 / 60)
    np.testing.assert_allclose(found.outputs[0], found.outputs[1], atol=1 / 60)
    for key, value in pair[0].state().items():
        torch.testing.assert_close(value, pair[1].state()[key], rtol=1e-3, atol=1e-4)


def test_a_network_without_kernels_is_trained_by_autograd_beside_the_others(monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "mish", Architecture(hidden="mish"))
    assert not compilable("mish")
    pair = [classifier("mish", state("mish")), classifier("relu", state("relu"))]
    assert [type(one) for one in pair] == [AutogradClassifier, Classifier]
    losses, _ = advance(pair, examples(x, y), 50, lr=0.05)
    assert (losses[:, -1] < losses[:, 0]).all()
