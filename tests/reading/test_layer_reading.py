"""A layer read as distances: planted units are found, none is invented, and numbers agree with independent ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from sklearn.datasets import load_digits
from sklearn.mixture import GaussianMixture
from torch import nn
from torch.nn import functional as F

import metriscope as ms
from metriscope.data import load
from metriscope.reading.unit_statistics import gaussian_count, near_share
from metriscope.studies.representation.units import crossings

ACTIVATIONS = {"relu": nn.ReLU, "abs": ms.Abs, "gelu": nn.GELU}
CENTERS = np.array([[0.0, 0.0, 0.0, 0.0], [4.0, 0.0, 5.0, 0.0], [-4.0, 3.0, 0.0, 0.0]])


def clusters(points=600, seed=0):
    y = np.arange(points) % 3
    return CENTERS[y] + 0.4 * np.random.default_rng(seed).normal(size=(points, 4)), y


class Planted(nn.Module):
    """Distance of class 0, intensity of class 1, dead, copy of 0, mirror of 1, not read by the head, intensity of 2."""

    def __init__(self, activation):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 7), activation, nn.Linear(7, 3)
        weight, bias, head = torch.zeros(7, 4), torch.zeros(7), torch.zeros(3, 7)
        weight[0, 0], head[0, 0] = 1, -2
        weight[1, 2], bias[1], head[1, 1] = 1, -1, 2
        weight[2, 1], bias[2] = 0 if isinstance(activation, ms.Abs) else 1, -50
        weight[3], head[0, 3] = 2 * weight[0], -1
        weight[4], bias[4] = -weight[1], -bias[1]
        weight[5, 3], bias[5] = 1, 0.3
        weight[6, 1], bias[6], head[2, 6] = 1, 0.4, 2
        with torch.no_grad():
            for module, values in ((self.first, (weight, bias)), (self.last, (head, torch.tensor([2.0, -4.0, -4.0])))):
                module.weight.copy_(values[0])
                module.bias.copy_(values[1])

    def forward(self, x):
        return self.last(self.act(self.first(x)))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("labeled", [True, False])
def test_planted_units_of_an_mlp_are_found_and_none_is_invented(activation, labeled):
    x, y = clusters()
    table = ms.read_layer(Planted(ACTIVATIONS[activation]()), "first", x, y if labeled else None).to_pandas()
    assert table["kind"].tolist() == ["distance", "intensity", "neither", "distance", "neither", "neither", "intensity"]
    assert table["serves"].dropna().tolist() == [0, 1, 0, 2]
    assert table["status"].tolist() == ["active", "active", "dead", *["active"] * 4]
    assert table["duplicate_of"].dropna().to_dict() == {3: 0}
    assert table["mirrored_with"].dropna().to_dict() == {1: 4, 4: 1}


def test_labels_that_do_not_depend_on_the_points_give_no_unit_a_kind():
    x, y = clusters()
    shuffled = np.random.default_rng(1).permutation(y)
    assert set(ms.read_layer(Planted(nn.ReLU()), "first", x, shuffled).to_pandas()["kind"]) == {"neither"}


def test_columns_agree_with_their_definitions():
    x, y = clusters()
    net = Planted(nn.ReLU())
    found = ms.read_layer(net, "first", x, np.array(["a", "b", "c"])[y], batch_size=64)
    table = found.to_pandas().set_index("unit")
    z = net.first(torch.tensor(x).float()).detach().double().numpy()
    np.testing.assert_allclose(table["offset"], np.abs(z.mean(0)) / z.std(0), rtol=1e-6)
    np.testing.assert_allclose(table["active"], (z >= 0).mean(0))
    for unit in range(7):
        assert list(table.loc[unit, "prototype"]) == np.abs(z[:, unit]).argsort(kind="stable")[:5].tolist()
        above = np.where(z[:, unit] >= 0, z[:, unit], np.inf).argsort(kind="stable")[: min(5, (z[:, unit] >= 0).sum())]
        assert list(table.loc[unit, "above"]) == above.tolist()
    assert table.loc[0, "through"] == ("a",)
    assert table.loc[0, ["nearest_class", "serves"]].tolist() == ["a", "a"]
    assert table.loc[0, "gaussians"] == 2
    assert table.loc[5, "gaussians"] == 1
    classes = found.by_class().set_index(["unit", "class"])
    own = z[y == 1, 4]
    np.testing.assert_allclose(classes.loc[(4, "b"), "mean"], own.mean(), rtol=1e-6)
    np.testing.assert_allclose(classes.loc[(4, "b"), "skewness"], scipy.stats.skew(own), rtol=1e-4)
    cov = np.cov(x[y == 2].astype(np.float32).T.astype(float), ddof=0)
    vectors = np.linalg.eigh(cov)[1][:, ::-1]
    assert classes.loc[(6, "c"), "axis"] == np.abs(vectors[1]).argmax()
    np.testing.assert_allclose(classes.loc[(6, "c"), "axis_cosine"], np.abs(vectors[1]).max(), rtol=1e-4)


def test_the_numbers_do_not_depend_on_the_batches_or_on_how_the_layer_is_named():
    x, y = clusters(200)
    net = Planted(nn.ReLU())
    reference = ms.read_layer(net, "first", x, y).to_pandas()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(x).float()), batch_size=17)
    for layer, data in (("act", x), (net.first, x), (net.act, loader)):
        other = ms.read_layer(net, layer, data, y).to_pandas()
        for column in reference:
            if reference[column].dtype == float:
                np.testing.assert_allclose(other[column], reference[column], rtol=1e-4, atol=1e-7)
            else:
                assert other[column].equals(reference[column]), column


def test_the_metric_of_a_whitening_layer_is_whole_and_a_lost_direction_is_counted():
    gaussian = np.random.default_rng(0).normal(size=(4000, 3)) * [1.0, 2.0, 0.5]
    model = ms.Mahalanobis.from_gaussian(np.zeros(3), np.diag([1.0, 4.0, 0.25]))
    found = ms.read_layer(model, model.linear, gaussian)
    assert (found.rank, found.lost) == (3, 0)
    assert found.sphericity < 0.1
    with torch.no_grad():
        model.linear.weight[1] = 0
    found = ms.read_layer(model, model.linear, gaussian)
    assert (found.rank, found.lost) == (2, 1)
    assert found.units["status"].tolist().count("dead") == 1


def test_a_rank_one_layer_and_one_that_is_dead_are_read():
    x, y = clusters(100)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    with torch.no_grad():
        model[0].weight[:] = model[0].weight[:1] * torch.tensor([[1.0], [2.0], [-1.0], [1.0], [3.0]])
        model[0].bias[:] = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0])
    found = ms.read_layer(model, "0", x, y)
    assert found.rank == 1
    assert found.units["duplicate_of"].isna().all()
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(-1)
    found = ms.read_layer(model, "0", x, y)
    assert set(found.units["status"]) == {"dead"}
    assert found.units["offset"].isna().all()
    assert "offset" in found.reasons
    assert set(found.units["kind"]) == {"neither"}


class SmallCNN(nn.Module):
    """Two layers with batch normalization in between; the activation of the second is written as a function."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu = (
            nn.Conv2d(1, 8, 3, padding=1, stride=2),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
        )
        self.fc, self.head = nn.Linear(128, 24), nn.Linear(24, 10)

    def forward(self, x):
        return self.head(F.relu(self.fc(self.relu(self.norm(self.conv(x))).flatten(1))))


@pytest.fixture(scope="module")
def trained():
    digits = load_digits()
    x, y = torch.tensor(digits.images[:, None]).float() / 16, torch.tensor(digits.target)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = SmallCNN()
        optimizer = torch.optim.Adam(net.parameters(), 5e-3)
        for _ in range(60):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    return net.eval(), x, y


def planted_channels(net):
    with torch.no_grad():
        net.norm.bias[2] = -100
        for target, side in ((5, 1.0), (6, -1.0)):
            net.conv.weight[target], net.conv.bias[target] = side * net.conv.weight[1], side * net.conv.bias[1]
            net.norm.running_mean[target], net.norm.running_var[target] = (
                side * net.norm.running_mean[1],
                net.norm.running_var[1],
            )
            net.norm.weight[target], net.norm.bias[target] = net.norm.weight[1], side * net.norm.bias[1]


def test_planted_channels_of_a_trained_cnn_are_found_through_batch_normalization(trained):
    net, x, y = trained
    before = ms.read_layer(net, "conv", x, y, probed=0).to_pandas()
    assert "dead" not in set(before["status"])
    assert before["duplicate_of"].isna().all()
    assert before["mirrored_with"].isna().all()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    planted_channels(net)
    found = ms.read_layer(net, "relu", x, y, probed=100)
    table = found.to_pandas()
    net.load_state_dict(state)
    assert np.flatnonzero(table["status"] == "dead").tolist() == [2]
    assert table["duplicate_of"].dropna().to_dict() == {5: 1}
    assert table["mirrored_with"].dropna().to_dict() == {1: 6, 6: 1}
    assert found.rows == 16 * len(x)
    assert (found.activation, found.rank) == ("relu", 8 - 3)


def test_a_distance_and_an_intensity_planted_in_a_trained_cnn_are_found(trained):
    net, x, y = trained
    state = {name: value.clone() for name, value in net.state_dict().items()}
    hidden = net.relu(net.norm(net.conv(x))).flatten(1).detach().double()
    own, others = hidden[y == 3], hidden[y != 3]
    center = own.mean(0)
    spread = (own - center).T @ (own - center) / len(own) + 0.01 * torch.eye(128).double()
    away = (others - center).T @ (others - center) / len(others)
    # The direction in which the others are farthest from class 3, compared with its own spread.
    direction = torch.tensor(scipy.linalg.eigh(away.numpy(), spread.numpy())[1][:, -1])
    # A ReLU unit measures the distance of the points on one side only: most of the others are put there.
    direction *= ((others - center) @ direction).mean().sign()
    side = torch.linalg.solve(spread, hidden[y == 7].mean(0) - hidden.mean(0))
    with torch.no_grad():
        for unit, (w, through) in {0: (direction, center), 1: (side, hidden.mean(0))}.items():
            w = w / ((hidden - through) @ w).std()
            net.fc.weight[unit], net.fc.bias[unit] = w, -float(w @ through)
        net.head.weight[:, :2] = 0
        net.head.weight[3, 0], net.head.weight[7, 1] = -6, 6
    table = ms.read_layer(net, net.fc, x, y).to_pandas()
    net.load_state_dict(state)
    assert table["kind"].tolist()[:2] == ["distance", "intensity"]
    assert table["serves"].tolist()[:2] == [3, 7]
    assert 3 in table["through"][0]


def test_units_of_a_digit_network_agree_with_the_functions_of_the_studies():
    data = load("mnist-5k").train
    x, y = torch.tensor(data.x.reshape(len(data.x), -1)).float()[::4] / 255, torch.tensor(data.y)[::4]
    net = ms.build("relu", 784, 32, 10, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(40):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y.long()).backward()
        optimizer.step()
    found = ms.read_layer(net, "0", x, y.numpy())
    z = net[0](x).detach().double().numpy()
    theirs = crossings(z, y.numpy(), 0.1).sort_values(["output", "class"])
    np.testing.assert_allclose(found.by_class()["distance"], theirs["distance"], rtol=1e-6)
    cov = torch.cov(x.double().T, correction=0)
    mean = x.double().mean(0)
    assert found.sphericity == pytest.approx(ms.probes.sphericity(net[0].weight, cov), rel=1e-6)
    spread = torch.sqrt(torch.einsum("kd,de,ke->k", net[0].weight.double(), cov, net[0].weight.double()))
    lengths = net[0].weight.double().norm(dim=1)
    expected = ms.probes.centering(net[0], mean) * (lengths / spread).detach().numpy()
    np.testing.assert_allclose(found.units["offset"], expected, rtol=1e-4)
    assert found.units["mirrored_with"].notna().sum() == 2 * len(ms.probes.mirrored_pairs(net[0]))
    # A perturbation of the whole layer at level 1 or 0 changes nothing; ours must leave the network as it was.
    assert ms.probes.perturbation(net, x, y, levels={"scale": (1.0,)}, kinds=("scale",)).baseline > 0.9


def test_a_layer_inside_a_transformer_has_tokens_as_rows_and_per_point_norms_are_named():
    block = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).eval()
    x = np.random.default_rng(0).normal(size=(30, 5, 8))
    labels = np.arange(30) % 2
    found = ms.read_layer(block, "linear1", x, labels)
    assert (found.rows, len(found.units), found.activation) == (150, 12, "relu")
    normed = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 2))
    reading = ms.read_layer(normed, "0", clusters(90)[0], np.arange(90) % 2)
    assert reading.units["axis"].isna().all()
    assert "LayerNorm" in reading.reasons["axis"]
    z = normed[1](normed[0](torch.tensor(clusters(90)[0]).float())).detach()
    np.testing.assert_allclose(reading.units["active"], (z >= 0).double().mean(0), atol=1e-9)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv1d(2, 3, 3, padding=2, dilation=2, stride=2),
        nn.Conv2d(2, 3, (3, 2), padding="same", padding_mode="circular"),
        nn.Conv2d(2, 4, 3, groups=2),
    ],
)
def test_the_inputs_of_a_convolution_are_what_its_weights_are_applied_to(conv):
    from metriscope.reading.layer_inputs import site_inputs

    x = torch.randn(5, 2, *([7] * (conv.weight.ndim - 2)), generator=torch.Generator().manual_seed(0))
    found = site_inputs(conv, x, 5)
    if conv.groups > 1:
        assert found is None
        reading = ms.read_layer(conv, conv, x)
        assert "grouped" in reading.reasons["axis"]
        return
    expected = conv(x).flatten(2).transpose(1, 2)
    torch.testing.assert_close(found @ conv.weight.flatten(1).T + conv.bias, expected)


@pytest.mark.parametrize("points", [300, 1_000])
def test_a_convolution_is_read_from_tens_of_thousands_of_patches(points):
    # The products of so many rows are not symmetric to the last bit.
    x = torch.tensor(load_digits().images[:points] / 16).float()[:, None]
    for seed in range(3):
        torch.manual_seed(seed)
        conv = nn.Conv2d(1, 8, 3, padding=1)
        reading = ms.read_layer(nn.Sequential(conv, nn.ReLU()), "0", x)
        patches = F.unfold(x.double(), 3, padding=1).transpose(1, 2).flatten(0, 1)
        white = ms.probes.sphericity(conv.weight.detach().flatten(1), torch.cov(patches.T))
        assert reading.sphericity == pytest.approx(float(white), rel=0.05)


def test_a_model_is_given_back_as_it_was(trained):
    net, x, y = trained
    net.train()
    net.conv.eval()
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    ms.read_layer(net, "fc", x[:50], y[:50])
    assert [module.training for module in net.modules()] == [True, False, *[True] * 4]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    assert not any("forward" in module.__dict__ for module in net.modules())
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    net.eval()


@pytest.mark.parametrize(
    ("layer", "labels", "said"),
    [
        ("absent", None, "the model has no module 'absent'; there are 'first', 'last'"),
        ("act#2", None, "no module 'act#2', which names a call of an activation: name the layer before it; there are"),
        (nn.Linear(2, 2), None, "layer must be a layer of the model or its name"),
        ("", None, "layer must be a single layer"),
        ("first", [0, 1], r"labels must have the shape \(30,\), got \(2,\)"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(layer, labels, said):
    with pytest.raises(ValueError, match=said):
        ms.read_layer(Planted(nn.ReLU()), layer, clusters(30)[0], labels)


def test_an_iterator_and_labels_for_too_few_points_are_refused():
    x = torch.tensor(clusters(30)[0]).float()
    with pytest.raises(ValueError, match="data must be readable more than once"):
        ms.read_layer(Planted(nn.ReLU()), "first", iter([x]))
    with pytest.raises(ValueError, match="labels must have one entry per point, got 10"):
        ms.read_layer(Planted(nn.ReLU()), "first", [x], np.arange(10))


def test_gaussians_are_counted_as_scikit_learn_counts_them():
    draw = np.random.default_rng(0)
    near = np.where(draw.random((1500, 4)) < 0.5, 0.0, [0.0, 1.0, 3.0, 6.0])
    z = near + draw.normal(size=(1500, 4))
    theirs = []
    for column in z.T[:, :, None]:
        fits = [GaussianMixture(k, random_state=0, n_init=3).fit(column).bic(column) for k in (1, 2)]
        theirs.append(1 + int(np.argmin(fits)))
    assert gaussian_count(z).tolist() == theirs == [1, 1, 2, 2]


def test_all_information_is_near_where_only_the_side_of_near_points_tells_the_class():
    draw = np.random.default_rng(0)
    z = draw.normal(size=(4000, 2))
    near = np.abs(z[:, 0]) < np.median(np.abs(z[:, 0]))
    codes = np.where(near, z[:, 0] > 0, draw.random(4000) < 0.5).astype(int)
    info, share = near_share(z, codes)
    # Half of the points tell one of two equally frequent classes.
    assert info == pytest.approx([np.log(2) / 2, 0], abs=0.01)
    assert share[0] == pytest.approx(1, abs=0.02)
