"""Centers of classes along an output: planted ones, and what the claim says of them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from metriscope.studies.representation.centers import (
    STATEMENT,
    centers,
    correlation,
    gather,
    outputs,
    rank_correlations,
    section,
)
from metriscope.studies.verdicts import judge
from studies.representation.made import inspected, job, runs
from studies.synthetic import check_statement

values = st.lists(st.integers(-20, 20), min_size=2, max_size=12).map(lambda some: np.array(some) / 2)


def ratio(z, own, others):
    """Return the share of the distance to the own class in both distances: as the ratio, but never infinite."""
    inner, outer = np.abs(z - own).mean(), np.abs(z - others).mean()
    return inner / (inner + outer) if inner + outer else 0.5


def test_two_separated_classes_have_the_centers_that_a_grid_finds():
    rng = np.random.default_rng(0)
    own, others = rng.normal(-3, 0.5, 200), rng.normal(4, 1, 300)
    center, anticenter = centers(own, others)
    grid = np.linspace(-8, 10, 20_001)
    found = np.array([ratio(z, own, others) for z in grid])
    assert center == pytest.approx(grid[found.argmin()], abs=0.05)
    assert anticenter == pytest.approx(grid[found.argmax()], abs=0.05)
    # With classes many deviations apart, both are close to the medians.
    assert center == pytest.approx(-3, abs=0.3)
    assert anticenter == pytest.approx(4, abs=0.5)


@given(own=values, others=values, z=st.floats(-20, 20))
def test_no_other_point_has_a_smaller_ratio_or_a_larger_one(own, others, z):
    assume(np.ptp(np.concatenate([own, others])) > 0)
    center, anticenter = centers(own, others)
    assert ratio(center, own, others) <= ratio(z, own, others) + 1e-9
    assert ratio(anticenter, own, others) >= ratio(z, own, others) - 1e-9


@given(own=values, others=values)
def test_with_the_classes_exchanged_the_center_is_the_anticenter(own, others):
    assume(np.ptp(np.concatenate([own, others])) > 0)
    found, back = centers(own, others), centers(others, own)[::-1]
    assert [ratio(z, own, others) for z in back] == pytest.approx([ratio(z, own, others) for z in found])


def planted(own, others, n=300):
    """Return pre-activations of three outputs with the own class and the others around given values."""
    labels = np.arange(n) % 3
    noise = np.random.default_rng(0).normal(size=(n, 3))
    return np.where(labels[:, None] == np.arange(3), own, others) + noise, labels


def test_a_hyperplane_through_its_own_class_is_near_the_center():
    table = outputs(*planted(own=0, others=8))
    assert (table["to center"] < 0.5).all()
    assert (table["to anticenter"] > 5).all()
    assert (table["nearer"] == 1).all()


def test_a_hyperplane_through_the_other_classes_is_near_the_anticenter():
    table = outputs(*planted(own=8, others=0))
    assert (table["to anticenter"] < 0.5).all()
    assert (table["to center"] > 5).all()
    assert (table["nearer"] == 0).all()


@pytest.mark.parametrize("scale", [0.1, 3.0, 100.0])
def test_distances_do_not_depend_on_the_scale_of_an_output(scale):
    z, labels = planted(own=1, others=5)
    columns = ["to center", "to anticenter", "nearer"]
    pd.testing.assert_frame_equal(outputs(scale * z, labels)[columns], outputs(z, labels)[columns])


def test_projections_that_share_a_factor_are_correlated_as_planted():
    rng = np.random.default_rng(0)
    shared, noise = rng.normal(size=(200_000, 1)), rng.normal(size=(200_000, 4))
    assert correlation(shared + noise) == pytest.approx(0.5, abs=0.01)
    assert correlation(noise) < 0.01
    assert np.isnan(correlation(noise[:, :1]))


def test_a_planted_order_of_networks_is_recovered_with_its_interval():
    names = [f"network {i}" for i in range(12)]
    rows = pd.DataFrame({"setting": "one", "network": names, "seed": 0, "hidden": np.arange(12.0), "output": 0.5})
    rows["output"] = np.random.default_rng(3).permutation(12)
    accuracies = pd.DataFrame({"setting": "one", "network": names, "test_accuracy": -np.arange(12.0)})
    found = rank_correlations(rows, accuracies).set_index("projections")
    assert found.loc["hidden", "rank correlation"] == pytest.approx(-1)
    assert found.loc["hidden", ["low", "high"]].tolist() == pytest.approx([-1, -1])
    assert found.loc["output", "low"] < 0 < found.loc["output", "high"]


def test_criteria_decide_and_sentences_state_the_numbers():
    check_statement(STATEMENT)


def distances(own, others, seeds=5):
    """Return the tables of Neg networks with these places of the own and the other classes, and Abs2 the reverse."""
    found = []
    for name in ("relu2-neg", "abs2-neg", "abs2"):
        places = (others, own) if name == "abs2" else (own, others)
        table = outputs(*planted(*places))
        found += [(job(name, seed), {"centers": table, "projections": pd.DataFrame()}) for seed in range(seeds)]
    return gather(found, pd.DataFrame(columns=["setting", "network", "test_accuracy"]))


@pytest.mark.parametrize(("own", "others", "verdict"), [(0, 8, "supported"), (8, 0, "contradicted")])
def test_the_claim_goes_either_way(own, others, verdict):
    assert judge([STATEMENT], distances(own, others))[0].verdict == verdict


def test_real_networks_are_measured_and_shown(tmp_path):
    some = runs({name: [0.9] * 2 for name in ("relu2-neg", "abs2", "abs-l2", "relu", "abs")})
    tables = inspected(some, tmp_path).tables
    assert len(tables["centers"]) == 5 * 2 * 10
    assert set(tables["decorrelation"]["projections"]) == {"hidden", "output"}
    assert [block.name for block in section(tables).blocks[1:]] == ["centers", "decorrelation"]
