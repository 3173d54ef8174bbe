"""A second layer over distances: planted groups of units are found, random ones are not, and the verdict follows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from metriscope.nn import init_from_clusters_
from metriscope.rng import stream
from metriscope.runs import Driver, Store
from metriscope.studies.mahalanobis.experiments import Clusters, SecondLayer, SecondLayers
from metriscope.studies.mahalanobis.second_layer import (
    STATEMENT,
    begun,
    cluster_of_units,
    draw,
    grouped,
    grouping,
    measure_second_layer,
    read,
    section,
    trained,
)
from studies.synthetic import check_statement

TINY = Clusters(count=3, dim=4, units=4, points=60)


def job(first="clusters", **changes):
    return replace(SecondLayer(TINY, first, "abs-bias", starts=2, epochs=200), **changes)


def test_units_set_from_a_cluster_belong_to_it():
    points = draw(TINY, seed=0, number=0)
    layer = init_from_clusters_(nn.Linear(4, 12), points.x, 3, stream(0, "clusters"))
    found = cluster_of_units(layer.weight.detach(), layer.bias.detach(), points.x, points.y).reshape(3, 4)
    assert (found == found[:, :1]).all()
    assert set(found[:, 0].tolist()) == {0, 1, 2}


def test_a_unit_is_measured_in_the_deviations_of_each_cluster():
    # The plane is 3 from the first mean, in deviations of 14, and 2 from the second, in deviations of 0.14.
    spread = torch.tensor([-10.0, 10.0, 4.9, 5.1])[:, None]
    found = cluster_of_units(torch.ones(1, 1), torch.tensor([-3.0]), spread, torch.tensor([0, 0, 1, 1]))
    assert found.tolist() == [0]


def test_weights_are_grouped_whatever_constant_is_added_to_all_outputs_of_a_unit():
    belongs = np.repeat(np.arange(3), 5)
    noise = np.random.default_rng(0).normal(size=(15, 3))
    columns = -4 * np.eye(3)[belongs] + 0.1 * noise + 50 * noise[:, :1]
    groups = grouped(columns, 3, tries=5, seed=0)
    assert {len(set(groups[belongs == c])) for c in range(3)} == {1}
    assert len(set(groups)) == 3


def test_a_first_layer_from_clusters_is_kept_and_one_from_a_random_start_is_trained():
    for first, kept in (("clusters", True), ("random", False)):
        asked = job(first, epochs=3)
        points = [draw(TINY, 0, number) for number in range(2)]
        before = [begun(asked, number, own) for number, own in enumerate(points)]
        after = trained(asked, before, points)
        assert before[0][0].weight.equal(after[0][0].weight) == kept
        assert not before[0][2].weight.equal(after[0][2].weight)


def test_a_start_learns_the_same_alone_and_batched():
    asked = job("random", epochs=5)
    points = [draw(TINY, 0, number) for number in range(3)]
    before = [begun(asked, number, own) for number, own in enumerate(points)]
    together, alone = trained(asked, before, points)[1], trained(asked, before[1:2], points[1:2])[0]
    torch.testing.assert_close(together[2].weight, alone[2].weight, rtol=1e-4, atol=1e-6)


def test_a_second_layer_that_adds_the_distances_of_each_cluster_agrees_with_it_and_a_permuted_one_does_not():
    asked, points = job(), draw(TINY, 0, 0)
    model = begun(asked, 0, points).requires_grad_(False)
    belongs = cluster_of_units(model[0].weight, model[0].bias, points.x, points.y)
    model[2].weight.copy_(-torch.eye(3)[belongs].mT)
    found = grouping(asked, model, points, seed=0)
    assert found["agreement"] == pytest.approx(1)
    assert found["agreement"] > found["high"] > found["chance"]
    assert abs(found["chance"]) < 0.1
    # Each group now holds units of all clusters.
    model[2].weight.copy_(-torch.eye(3)[torch.arange(12) % 3].mT)
    assert grouping(asked, model, points, seed=0)["agreement"] <= found["high"]


def test_without_training_the_second_layer_is_the_untrained_one_and_training_separates_better():
    fresh, found = (read(job(epochs=epochs)).tables["starts"] for epochs in (0, 100))
    assert fresh["second layer"].tolist() == pytest.approx(fresh["untrained"].tolist())
    assert (found["untrained"] == fresh["untrained"]).all()
    assert (found["second layer"] > found["untrained"]).all()
    assert (found["accuracy"] > fresh["accuracy"]).all()


def test_every_start_of_a_mixture_has_points_of_its_own_and_a_data_set_the_same():
    one, other = (draw(TINY, 0, number) for number in range(2))
    assert not one.x.equal(other.x)
    digits = Clusters(10, 64, 6, "digits")
    assert draw(digits, 0, 0).x.equal(draw(digits, 0, 1).x)
    assert float(draw(digits, 0, 0).x.max()) == 1


def test_the_experiment_is_stored_shown_and_looked_up_where_it_is_recorded(tmp_path):
    small = SecondLayers(starts=2, epochs=5, data=(("10-D mixture", (TINY,)),))
    table = measure_second_layer(small, Driver(Store(tmp_path)), recorded=False)
    assert len(table) == 2 * 4
    assert "origin" not in table
    assert len(section(table).blocks) == 3
    empty = measure_second_layer(small, Driver(Store(tmp_path)), recorded=True)
    assert empty.empty
    assert "No run" in section(empty).blocks[0].text
    whole = measure_second_layer(SecondLayers(), Driver(Store(tmp_path)), recorded=True)
    assert set(whole["origin"]) == {"record"}
    assert whole.groupby(["data", "first", "head"])["start"].nunique().eq(10).all()


@pytest.mark.parametrize("data", ["digits", pytest.param("", marks=pytest.mark.slow)])
def test_the_claim_can_go_either_way(data):
    # All criteria take a while; those of one kind of data are of every sort.
    check_statement(replace(STATEMENT, criteria=tuple(c for c in STATEMENT.criteria if c.text.startswith(data))))
