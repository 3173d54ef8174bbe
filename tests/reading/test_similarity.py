"""Similarities of layers: against independent references, closed forms, nulls, intervals and invariances."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.spatial
import scipy.stats
import torch
from torch import nn
from torch.nn import functional as F

import metriscope as ms
from metriscope.reading.features import layer_features
from metriscope.reading.similarity import _PREPARED, MEASURES, cka_without

VALUES = tuple(name for name in MEASURES if name != "vq")


def pair(points=60, first=5, second=7, noise=1.0, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(points, first))
    return x, x @ draw.normal(size=(first, second)) + noise * draw.normal(size=(points, second))


def measured(name, x, y):
    prepare, compare = _PREPARED[name]
    return compare(prepare(x), prepare(y))


def reference_cka(x, y):
    """Song et al. 2007, by N x N matrices without diagonals."""

    def kernel(z):
        k = z @ z.T
        np.fill_diagonal(k, 0)
        return k

    def hsic(k, m):
        n = len(k)
        one = np.ones(n)
        whole = (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
        return np.trace(k @ m) + whole - 2 / (n - 2) * (one @ k @ m @ one)

    k, m = kernel(x), kernel(y)
    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


@pytest.mark.parametrize("shape", [(60, 5, 7), (12, 30, 3)])
def test_values_agree_with_independent_references(shape):
    x, y = pair(*shape)
    assert measured("cka", x, y) == pytest.approx(reference_cka(x, y), rel=1e-9)
    wide = [np.pad(z, ((0, 0), (0, max(x.shape[1], y.shape[1]) - z.shape[1]))) for z in (x, y)]
    assert 1 - measured("procrustes", x, y) ** 2 == pytest.approx(scipy.spatial.procrustes(*wide)[2], abs=1e-9)
    distances = [scipy.spatial.distance.pdist(z) for z in (x, y)]
    assert measured("rsa", x, y) == pytest.approx(scipy.stats.spearmanr(*distances)[0], rel=1e-9)
    near = [{*np.argsort(((z - z[i]) ** 2).sum(1))[1:11]} for z in (x, y) for i in range(len(x))]
    shared = np.mean([len(near[i] & near[len(x) + i]) for i in range(len(x))]) / 10
    assert measured("mutual-knn", x, y) == pytest.approx(shared)


def test_leaving_out_a_point_is_what_computing_without_it_gives():
    x, y = pair(20)
    prepare = _PREPARED["cka"][0]
    expected = [reference_cka(np.delete(x, i, 0), np.delete(y, i, 0)) for i in range(20)]
    np.testing.assert_allclose(cka_without(prepare(x), prepare(y)), expected, rtol=1e-9)


def test_debiased_cka_of_independent_features_is_zero_on_average_and_is_not_clamped():
    found = [
        measured("cka", np.random.default_rng(i).normal(size=(30, 40)), pair(30, seed=1000 + i)[0]) for i in range(200)
    ]
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(200)
    assert min(found) < 0


def test_cka_of_a_gaussian_and_a_projection_has_its_closed_form():
    # The population value is |C_xy|² / (|C_xx| |C_yy|): with y the first a of b coordinates it is sqrt(a / b).
    x = np.random.default_rng(0).normal(size=(20_000, 8))
    assert measured("cka", x, x[:, :2]) == pytest.approx(np.sqrt(2 / 8), abs=0.01)
    # And the nuclear norm is a / sqrt(a b).
    assert measured("procrustes", x, x[:, :2]) == pytest.approx(np.sqrt(2 / 8), abs=0.01)


ORTHOGONAL = np.linalg.qr(np.random.default_rng(9).normal(size=(7, 7)))[0]
CHANGES = {
    "rotation": lambda z: z @ ORTHOGONAL,
    "order of features": lambda z: z[:, ::-1],
    "common scale": lambda z: 3 * z,
    "shift": lambda z: z + np.arange(7),
    "constant feature": lambda z: np.concatenate([z, np.ones((len(z), 1))], 1),
    "scale of one feature": lambda z: z * ([10.0] + [1.0] * 6),
    "invertible map": lambda z: z @ (ORTHOGONAL * np.geomspace(1, 30, 7)),
}
UNCHANGED = {"rotation", "order of features", "common scale", "shift", "constant feature"}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_law_holds_and_what_is_no_law_does_not(name, change):
    x, y = pair()
    before, after = measured(name, x, y), measured(name, x, CHANGES[change](y))
    assert (abs(before - after) < 1e-9) == (change in UNCHANGED)
    assert measured(name, y, x) == pytest.approx(before, rel=1e-9)
    assert measured(name, x, x) == pytest.approx(1)


class Mixed(nn.Module):
    """A module, a function, and a convolution written in place."""

    def __init__(self):
        super().__init__()
        self.conv, self.act, self.fc = nn.Conv1d(1, 3, 2), nn.ReLU(inplace=True), nn.Linear(3, 4)

    def forward(self, x):
        return self.act(F.gelu(self.fc(self.act(self.conv(x[:, None])).mean(2))))


def test_features_are_outputs_of_activations_with_positions_averaged():
    net, x = Mixed(), torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    found = layer_features(net, x, 4)
    assert list(found) == ["act", "gelu()", "act#2"]
    torch.testing.assert_close(found["act"], net.conv(x[:, None]).relu().mean(2))
    torch.testing.assert_close(found["act#2"], net(x).detach())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def networks(seed):
    generator = torch.Generator().manual_seed(seed)
    return [ms.build("relu", 6, 12, 4, generator=generator) for _ in range(2)]


def test_every_measure_gives_a_table_with_null_and_interval():
    a, b = networks(0)
    x = np.random.default_rng(0).normal(size=(80, 6))
    found = ms.similarity(a, b, x, measures=MEASURES, permutations=19)
    table = found.to_pandas()
    assert table["measure"].tolist() == list(MEASURES)
    assert table.notna().all().all()
    assert (table["low"] < table["value"]).all()
    assert (table["value"] < table["high"]).all()
    assert (table["p_value"] == 1 / 20).all()
    expected = ms.alignment(ms.capture(a, x), ms.capture(b, x), by_layer=True).value
    assert found.matrix("vq").to_numpy() == pytest.approx(np.asarray(expected))
    assert found.matrix("cka").loc["1", "1"] == pytest.approx(
        reference_cka(*(m[:2](torch.tensor(x).float()).detach().double().numpy() for m in (a, b))), rel=1e-5
    )
    default = ms.similarity(a, b, x, permutations=0, interval=None)
    assert list(default.measures) == ["vq", "cka"]
    assert default.to_pandas()[["low", "high", "null", "p_value"]].isna().all().all()


class Half(nn.Module):
    """A network that sees six of twelve features."""

    def __init__(self, start):
        super().__init__()
        self.start, self.net = start, networks(start)[0]

    def forward(self, x):
        return self.net(x[:, self.start : self.start + 6])


def test_p_values_of_networks_with_unrelated_inputs_are_uniform():
    found = []
    for seed in range(20):
        x = np.random.default_rng(seed).normal(size=(40, 12))
        table = ms.similarity(Half(0), Half(6), x, MEASURES, 19, None, seed=seed).to_pandas()
        found.append(table["p_value"].to_numpy())
    # The mean of p-values that are uniform on 1/20, ..., 1 is 0.525, with a deviation of 0.29 over the root of 20.
    np.testing.assert_allclose(np.mean(found, axis=0), 0.525, atol=4 * 0.29 / np.sqrt(20))


def test_the_interval_of_cka_covers_the_population_value_about_as_often_as_it_says():
    rotation = np.random.default_rng(1).normal(size=(4, 3))
    # The population value of two linear maps of a standard Gaussian.
    cross, own, other = (np.square(z).sum() for z in (rotation, np.eye(4), rotation.T @ rotation))
    truth = cross / np.sqrt(own * other)
    from metriscope.reading.similarity import _interval

    hits = 0
    for seed in range(200):
        x = np.random.default_rng(100 + seed).normal(size=(60, 4))
        sides = [_PREPARED["cka"][0](z) for z in (x, x @ rotation)]
        low, high = _interval("cka", *sides, measured("cka", x, x @ rotation), 0.9)
        hits += low <= truth <= high
    assert 0.8 <= hits / 200 <= 0.97


def test_a_constant_layer_has_no_similarity():
    a, b = networks(0)
    with torch.no_grad():
        b[0].weight.zero_()
        b[0].bias.fill_(-1)
    table = ms.similarity(
        a, b, np.random.default_rng(0).normal(size=(20, 6)), ("cka", "procrustes", "rsa"), 3
    ).to_pandas()
    assert table["value"].isna().all()
    assert table["p_value"].isna().all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"measures": ("cca",)}, "a measure must be one of vq, cka, procrustes, rsa, mutual-knn, got 'cca'"),
        ({"measures": ()}, "similarity needs at least one measure, got none"),
        ({"permutations": -1}, "permutations must be an integer of at least 0"),
        ({"interval": 2.0}, "interval must lie in"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_sentence(options, said):
    a, b = networks(0)
    with pytest.raises(ValueError, match=said):
        ms.similarity(a, b, np.zeros((10, 6)), **options)
