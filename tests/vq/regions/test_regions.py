"""Linear regions: they tile the domain, agree with the network and with capture, and are found by other means too."""

import runpy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import metriscope as ms
from metriscope.benching import benchmarks
from metriscope.rng import stream
from vq.regions.networks import NETWORKS, Tent, mlp, plane

BOUNDS = ((-2.0, 1.5), (-1.0, 2.0))


def regions_of(name):
    make, inputs = NETWORKS[name]
    return ms.linear_regions(make(), plane(inputs), BOUNDS)


def square(count, seed=0):
    low, high = np.array(BOUNDS).T
    return low + (high - low) * torch.rand(count, 2, generator=stream(seed, "square"), dtype=torch.float64).numpy()


def pairs(partition):
    graph = partition.graph.tocoo()
    return {(int(a), int(b)) for a, b in zip(graph.row, graph.col, strict=True) if a < b}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_partition_stands_its_own_check(name):
    regions_of(name).check()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_polygons_are_convex_and_their_areas_add_up(name):
    partition = regions_of(name)
    for polygon in partition.polygons:
        along = np.roll(polygon, -1, 0) - polygon
        turn = along[:, 0] * np.roll(along[:, 1], -1) - along[:, 1] * np.roll(along[:, 0], -1)
        assert (turn >= -1e-9).all()
    assert partition.areas.sum() == pytest.approx(3.5 * 3.0, rel=1e-12)
    assert (partition.areas > 0).all()


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "affine"])
def test_points_have_the_pattern_that_capture_sees(name):
    make, inputs = NETWORKS[name]
    model, points, slice_ = make(), square(400), plane(inputs)
    x = points if slice_ is None else slice_[0] + points[:, :1] * slice_[1] + points[:, 1:] * slice_[2]
    partition = ms.linear_regions(model, slice_, BOUNDS)
    captured = ms.capture(model, torch.from_numpy(x))
    assert np.array_equal(partition.patterns[partition.locate(points)].signs(), captured.signs())
    assert [layer.name for layer in partition.layers] == [layer.name for layer in captured.layers]


@pytest.mark.parametrize("name", NETWORKS)
def test_two_regions_are_neighbors_where_a_step_across_a_side_leads_from_one_to_the_other(name):
    partition, expected = regions_of(name), set()
    some = torch.randperm(len(partition), generator=stream(0, "some"))[:60].tolist()
    for region in some:
        polygon = partition.polygons[region]
        along = np.roll(polygon, -1, 0) - polygon
        length = np.linalg.norm(along, axis=1)
        out = np.stack([along[:, 1], -along[:, 0]], 1) / length[:, None]
        for side in np.flatnonzero(length > 1e-5):
            shares = np.linspace(0.03, 0.97, 9)[:, None]
            others = partition.locate(polygon[side] + shares * along[side] + 1e-8 * out[side])
            expected |= {(min(region, o), max(region, o)) for o in others.tolist() if o not in (-1, region)}
    ours = {pair for pair in pairs(partition) if set(pair) & set(some)}
    assert expected <= ours
    assert len(ours - expected) <= 0.02 * len(expected)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "affine"])
def test_every_shared_side_names_a_unit_that_changes_sign_there(name):
    partition = regions_of(name)
    edges, signs = partition.edges(), partition.patterns.signs()
    first = dict(
        zip(
            [layer.name for layer in partition.layers],
            np.cumsum([0] + [one.width for one in partition.layers]),
            strict=False,
        )
    )
    column = edges["layer"].map(first) + edges["unit"]
    assert (signs[edges["a"], column] != signs[edges["b"], column]).all()
    assert (edges["units"] == (signs[edges["a"]] != signs[edges["b"]]).sum(1)).all()


@pytest.mark.parametrize("name", ["relu", "residual", "hardtanh", "relu, then max pool"])
def test_maps_are_the_networks_own_jacobians(name):
    partition = regions_of(name)
    model, chosen = NETWORKS[name][0](), np.argsort(partition.areas)[-20:]
    for region in chosen:
        slope = torch.func.jacrev(lambda x: model(x[None])[0])(torch.from_numpy(partition.centers[region]))
        assert np.allclose(partition.maps[region, :, 1:], slope.detach().numpy(), atol=1e-12)


@given(count=st.integers(1, 14), seed=st.integers(0, 10_000))
@settings(max_examples=40)
def test_lines_make_one_region_more_than_there_are_lines_and_crossings(count, seed):
    model = mlp(2, count, 1, seed=seed)
    weight, bias = model[0].weight.detach().numpy(), model[0].bias.detach().numpy()
    low, high = np.array(BOUNDS).T
    corners = np.array([[x, y] for x in (low[0], high[0]) for y in (low[1], high[1])])
    heights = corners @ weight.T + bias
    lines = int(((heights.min(0) < 0) & (heights.max(0) > 0)).sum())
    crossings = [np.linalg.solve(weight[[i, j]], -bias[[i, j]]) for i in range(count) for j in range(i)]
    inside = sum(bool(((low < one) & (one < high)).all()) for one in crossings)
    assert len(ms.linear_regions(model, bounds=BOUNDS)) == 1 + lines + inside


@pytest.mark.parametrize("widths", [(6,), (12, 12), (9, 9, 9), (5, 5, 5, 5, 5)])
def test_a_loop_over_regions_finds_the_same_polygons(widths):
    by_loop = runpy.run_path(str(benchmarks()["regions"]))["by_loop"]
    model = mlp(2, *widths, 1, seed=3)
    ours, loop = ms.linear_regions(model), by_loop(model)
    assert len(ours) == len(loop)
    centers = np.array([polygon.mean(0) for polygon in loop])
    assert np.array_equal(np.sort(ours.locate(centers)), np.arange(len(ours)))


@pytest.mark.parametrize("layers", range(1, 11))
def test_the_tent_map_cuts_the_interval_into_equal_pieces(layers):
    partition = ms.linear_regions(Tent(layers), bounds=(0.0, 1.0))
    ends = np.sort(np.concatenate(partition.polygons)[:, 0])[::2]
    assert np.allclose(ends, np.arange(2**layers) / 2**layers, atol=1e-12)
    assert np.allclose(partition.areas, 0.5**layers)
    assert partition.graph.nnz == 2 * (2**layers - 1)


def test_the_formula_as_printed_makes_one_piece_more_for_every_layer():
    class Printed(nn.Module):
        def forward(self, z):
            for _ in range(6):
                z = 2 * z - torch.relu(2 * z - 1)
            return z

    assert len(ms.linear_regions(Printed(), bounds=(0.0, 1.0))) == 7


def test_a_line_of_inputs_breaks_where_a_dense_sample_changes_its_pattern():
    model, line = mlp(5, 12, 12, 2), torch.randn(2, 5, generator=stream(0, "line"), dtype=torch.float64)
    partition = ms.linear_regions(model, (line[0].numpy(), line[1].numpy()), (-3.0, 3.0))
    partition.check()
    sample = np.linspace(-3, 3, 20_001)
    signs = ms.capture(model, line[0] + torch.from_numpy(sample)[:, None] * line[1]).signs()
    changes = int((signs[1:] != signs[:-1]).any(1).sum())
    assert len(partition) == changes + 1
    assert partition.polygons[0].shape == (2, 1)
    assert partition.locate(sample).max() < len(partition)


@given(seed=st.integers(0, 1000), inputs=st.integers(2, 6))
@settings(max_examples=15)
def test_a_slice_is_the_network_behind_the_affine_map_that_makes_the_slice(seed, inputs):
    model, (origin, u, v) = mlp(inputs, 8, 8, 2, seed=seed), plane(max(inputs, 3), seed)
    origin, u, v = origin[:inputs], u[:inputs], v[:inputs]
    into = nn.Linear(2, inputs).double()
    into.weight.data, into.bias.data = torch.from_numpy(np.stack([u, v], 1)), torch.from_numpy(origin)
    sliced = ms.linear_regions(model, (origin, u, v), BOUNDS)
    behind = ms.linear_regions(nn.Sequential(into, model), bounds=BOUNDS)
    assert len(sliced) == len(behind)
    assert np.allclose(sliced.areas, behind.areas, atol=1e-9)


def test_scaling_a_relu_layer_moves_no_region():
    model = mlp(2, 10, 10, 1)
    before = ms.linear_regions(model, bounds=BOUNDS)
    model[0].weight.data *= 3.0
    model[0].bias.data *= 3.0
    model[2].weight.data /= 3.0
    after = ms.linear_regions(model, bounds=BOUNDS)
    assert np.allclose(before.areas, after.areas, atol=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_on_the_decision_boundary_the_two_largest_outputs_are_equal(name):
    partition = regions_of(name)
    segments = partition.decision_boundary()
    shares = torch.rand(len(segments), generator=stream(0, "shares"), dtype=torch.float64).numpy()[:, None]
    points = segments[:, 0] + shares * (segments[:, 1] - segments[:, 0])
    outputs = np.sort(partition.evaluate(points), 1)
    scale = np.abs(partition.evaluate(partition.centers)).max()
    lead = outputs[:, -1] - outputs[:, -2] if outputs.shape[1] > 1 else outputs[:, 0]
    assert np.abs(lead).max(initial=0.0) <= 1e-9 * scale


@pytest.mark.parametrize("name", ["relu", "residual", "no bias", "relu, then max pool", "affine"])
def test_the_class_changes_only_across_the_decision_boundary(name):
    partition = regions_of(name)
    segments = partition.decision_boundary()
    a, b = square(300, 1), square(300, 2)
    mids = [a + share * (b - a) for share in np.linspace(0, 1, 400)]
    outputs = np.stack([partition.evaluate(mid) for mid in mids])
    classes = outputs.argmax(-1) if outputs.shape[-1] > 1 else outputs[..., 0] > 0
    changed = (classes[1:] != classes[:-1]).any(0)
    crossed = np.array([crosses(p, q, segments) for p, q in zip(a, b, strict=True)])
    assert (changed <= crossed).all()
    assert (changed == crossed).mean() > 0.97


def crosses(p, q, segments):
    def side(a, b, c):
        return (b[..., 0] - a[..., 0]) * (c[..., 1] - a[..., 1]) - (b[..., 1] - a[..., 1]) * (c[..., 0] - a[..., 0])

    a, b = segments[:, 0], segments[:, 1]
    return bool(((side(p, q, a) * side(p, q, b) <= 0) & (side(a, b, p) * side(a, b, q) <= 0)).any())


def test_the_boundary_of_a_linear_classifier_is_its_line():
    model = nn.Linear(2, 1)
    model.weight.data, model.bias.data = torch.tensor([[1.0, 1.0]]), torch.tensor([0.0])
    segments = ms.linear_regions(model).decision_boundary()
    assert np.allclose(segments.sum(-1), 0)
    assert np.linalg.norm(segments[:, 1] - segments[:, 0], axis=1).sum() == pytest.approx(2 * 2**0.5)


def test_distances_count_sides_on_the_shortest_way():
    partition = ms.linear_regions(Tent(4), bounds=(0.0, 1.0))
    order = np.argsort(partition.centers[:, 0])
    steps = np.arange(16)
    assert np.array_equal(partition.distance(order[:, None], order[None]), np.abs(steps[:, None] - steps))
    assert np.array_equal(partition.distance(order[0])[order], steps)
    assert partition.distance(int(order[2]), int(order[9])) == 7


def test_a_point_outside_has_no_region():
    partition = regions_of("relu")
    assert partition.locate([[5.0, 0.0], [0.0, -9.0]]).tolist() == [-1, -1]
    with pytest.raises(ValueError, match="1 of 2 points lie outside the bounds"):
        partition.evaluate([[5.0, 0.0], [0.0, 0.0]])


def test_the_corners_of_many_regions_have_a_region_all_the_same():
    partition = regions_of("no bias")
    found = partition.locate(np.concatenate([partition.vertices, [[0.0, 0.0]]]))
    assert ((found >= 0) & (found < len(partition))).all()


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), low=st.floats(-9, 8), width=st.floats(0.1, 9))
def test_every_vertex_lies_within_the_bounds_and_in_a_region(seed, low, width):
    model = mlp(2, 9, 7, 2, seed=seed)
    partition = ms.linear_regions(model, bounds=((low, low + width), (-0.7, 0.3)))
    (x0, y0), (x1, y1) = partition.bounds
    x, y = partition.vertices.T
    assert (x0 <= x.min(), x.max() <= x1, y0 <= y.min(), y.max() <= y1) == (True,) * 4
    assert (partition.locate(partition.vertices) >= 0).all()


@pytest.mark.parametrize("name", ["relu", "no bias"])
def test_a_point_within_rounding_of_the_border_lies_on_it_and_one_farther_out_outside(name):
    partition = regions_of(name)
    low, high = np.array(BOUNDS).T
    corners = np.array([low, high])
    ulps = np.array([[-1.0], [1.0]]) * np.spacing(np.abs(corners))
    found = partition.locate(corners + ulps)
    assert found.tolist() == partition.locate(corners).tolist()
    assert (found >= 0).all()
    assert partition.locate(corners + 1e3 * ulps).tolist() == [-1, -1]
    np.testing.assert_allclose(partition.evaluate(corners + ulps), partition.evaluate(corners), rtol=1e-12)


@pytest.mark.parametrize("color", ["random", "area", "output", None, "numbers"])
def test_a_plot_has_every_region(color):
    partition = regions_of("relu")
    axes = partition.plot(color=partition.areas if color == "numbers" else color)
    assert len(axes.collections[0].get_paths()) == len(partition)
    assert axes.get_xlim() == (-2.0, 1.5)
    axes.figure.clear()
