"""What is measured on the runs of the MNIST study, against values made by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from metriscope.nn import OffsetL2
from metriscope.studies.contract import published
from metriscope.studies.representation import comparisons, contradictions, inside, measure, perturbed, prototypes
from metriscope.studies.representation.results import Results, title
from metriscope.studies.representation.tables import half_dead
from studies.representation.made_runs import EPOCHS, images, results, run

TWO = {"relu": (0.95, 0.96, 0.97), "abs": (0.94, 0.955, 0.96)}


def test_every_printed_network_is_an_architecture_and_table_5_repeats_table_2():
    from metriscope.nn import architectures

    table = published("representation").query("metric == 'test_accuracy'")
    assert set(table["network"]) == set(architectures())
    wide = table.pivot(index="network", columns="column", values="mean")
    both = wide.dropna(subset=["table 2", "table 5"])
    assert len(both) == 6
    assert (both["table 2"] == both["table 5"]).all()


def test_accuracies_are_per_cent_at_the_last_epoch_in_the_order_of_the_architectures():
    found = measure.accuracies(results({"abs": (0.9,), "relu": (0.95, 0.97)}))
    assert found["network"].tolist() == ["relu", "relu", "abs"]
    assert found["test_accuracy"].tolist() == pytest.approx([95, 97, 90])


def test_a_summary_stands_beside_every_printed_column():
    row = measure.summary(measure.accuracies(results(TWO))).set_index("network").loc["relu"]
    assert row[["count", "mean", "sd", "minimum", "maximum"]].tolist() == pytest.approx([3, 96, 1, 95, 97])
    low, high = stats.t.interval(0.95, 2, 96, 1 / math.sqrt(3))
    assert row[["low", "high"]].tolist() == pytest.approx([low, high])
    assert row["table 2 difference"] == pytest.approx(96 - 96.62)
    assert row["notes difference"] == pytest.approx(96 - 95.64)
    assert math.isnan(row["table 3 mean"])


def test_an_epoch_between_two_records_is_found_on_a_logarithmic_axis():
    epochs, values = np.array([0.0, 9.0, 99.0]), np.array([0.2, 0.4, 0.8])
    # Half way from 0.4 to 0.8 is half way from log 10 to log 100.
    assert measure.epoch_reached(epochs, values, 0.6) == pytest.approx(10**1.5 - 1)
    assert measure.epoch_reached(epochs, values, 0.1) == 0
    assert math.isnan(measure.epoch_reached(epochs, values, 0.9))


def test_printed_means_are_placed_on_our_curves():
    placed = measure.placements(results({"abs2-neg": (0.99, 0.99)})).set_index("column")
    assert placed["our epoch"].between(100, 1000).all()
    assert placed["our epoch"]["section 6"] < placed["our epoch"]["table 2"]


def test_pairs_are_tested_as_scipy_tests_them():
    row = comparisons.compare(measure.accuracies(results(TWO))).iloc[0]
    a, b = (100 * np.array(TWO[name]) for name in ("relu", "abs"))
    assert row["welch p"] == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    assert row["student p"] == pytest.approx(stats.ttest_ind(a, b).pvalue)
    assert row["paired p"] == pytest.approx(stats.ttest_rel(a, b).pvalue)
    # One pair alone has nothing to correct.
    assert row["welch holm"] == pytest.approx(row["welch p"])


def test_seeds_that_only_one_network_has_are_left_out_of_the_pairs():
    some = results({"relu": (0.95, 0.96, 0.97)}).runs + results({"abs": (0.90, 0.92, 0.91, 0.95)}).runs[1:]
    row = comparisons.compare(measure.accuracies(Results(some))).iloc[0]
    assert row["paired df"] == 1
    assert row["paired t"] == pytest.approx(stats.ttest_rel([96, 97], [92, 91]).statistic)


def test_six_of_seven_printed_tests_follow_from_section_6_and_none_from_table_2():
    table = comparisons.recomputed()
    assert contradictions._met(table, "table 2") == 0
    assert contradictions._met(table, "section 6, sd of n") == 6
    # ReLU against Abs in table 2, by the formula: 0.75 over the root of (0.17² + 0.22²) / 20.
    assert table["table 2 t"][0] == pytest.approx(0.75 / math.sqrt((0.17**2 + 0.22**2) / 20))


def test_inactive_units_are_shares_and_the_epoch_of_death_is_the_first_record_with_half_of_them():
    table = measure.dead_units(results({"relu2": (0.5, 0.5)}, never={"relu2": 4}))
    held = table.query("layer == 'output' and part == 'train'")
    assert held.groupby("epoch")["never"].mean().tolist() == [0, 40, 40, 40]
    assert held["under_5"].max() == 50
    assert half_dead(held) == EPOCHS[1]
    assert math.isnan(half_dead(table.query("layer == 'hidden'")))


def test_a_crossed_class_is_at_distance_zero_and_inside_the_band():
    z = np.array([[-0.1, 5.0], [0.1, 5.2], [4.0, -1.0], [4.2, 1.0]])
    found = inside.crossings(z, np.array([0, 0, 1, 1])).set_index(["output", "class"])
    assert found["distance"][0, 0] == pytest.approx(0)
    assert found["inside"][0, 0] == 1
    assert found["inside"][0, 1] == 0
    assert found["distance"][0, 1] == pytest.approx(4.1 / 0.1)
    assert found["distance"][1, 1] == pytest.approx(0)


def test_an_output_whose_own_class_is_the_nearest_is_counted():
    z = np.array([[0.0, 9.0], [1.0, 8.0], [9.0, 7.0], [8.0, 9.0]])
    rows = inside.crossings(z, np.array([0, 0, 1, 1])).assign(network="abs2-neg", seed=0)
    # Output 0 is nearest to class 0, its own; output 1 has its classes at 8.5 / 0.5 and 8 / 1: its own again.
    assert inside.crossed(rows)["nearest own"].tolist() == [1.0]


def test_units_are_chosen_by_their_largest_absolute_weight_and_described_as_scipy_does():
    found = inside.units_shown(results({"abs": (0.9,)}))
    model = found[0].run.model
    assert [unit.unit for unit in found] == model[2].weight.abs().argmax(1)[[0, 3, 8]].tolist()
    row = inside.unit_statistics(found).iloc[0]
    values = found[0].z[found[0].labels == 0]
    assert row["skewness"] == pytest.approx(stats.skew(values))
    assert row["variance"] == pytest.approx(np.var(values, ddof=1))


@given(seed=st.integers(0, 50), likely=st.booleans())
def test_a_preimage_solves_the_layer_and_is_the_nearest_that_does(seed, likely):
    generator = torch.Generator().manual_seed(seed)
    weight, bias, start, goal = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((3, 7), (3,), (7,), (3,))
    )
    root = torch.randn(7, 7, generator=generator, dtype=torch.float64)
    cov = root @ root.mT + 0.1 * torch.eye(7) if likely else None
    found = prototypes.preimage(goal, weight, bias, start, cov)
    assert torch.allclose(weight @ found + bias, goal, atol=1e-6)
    # Nearest: the way from the start is orthogonal, in the metric, to every direction that the layer cannot see.
    blind = torch.linalg.svd(weight).Vh[3:]
    metric = torch.eye(7).double() if cov is None else torch.linalg.inv(cov)
    assert torch.allclose(blind @ metric @ (found - start), torch.zeros(4).double(), atol=1e-5)


def test_prototypes_mapped_back_are_sent_to_themselves_by_the_first_layers_of_abs_networks():
    some = results({"abs-l2-neg": (0.9,)})
    shown = prototypes.seen(some, prototypes.observe(some))[0]
    model, mu = shown.run.model.double(), shown.run.model[2].mu.double()
    for kind in ("nearest", "likeliest"):
        hidden = model[:2](torch.from_numpy(getattr(shown, kind)))
        assert torch.allclose(hidden, mu.abs(), atol=1e-6)
    shown.run.model.float()


def test_prototypes_at_class_means_are_nearest_to_their_own():
    some = results({"abs-l2-neg": (0.9,)})
    model = some.runs[0].model
    x, y = some.images["raw"].sample()
    hidden = model[:2](x)
    model[2].mu.data = torch.stack([hidden[y == c].mean(0) for c in range(10)])
    table = prototypes.places(prototypes.observe(some))
    own = table[table["output"] == table["class"]]
    assert own["distance"].max() < 1e-5
    assert own["weighted"].max() < 1e-5
    assert table[table["output"] != table["class"]]["distance"].min() > 0.1


def test_alpha_that_is_the_inverse_deviation_is_found_out():
    some = results({"abs-l2-neg": (0.9,)})
    model = some.runs[0].model
    x, y = some.images["raw"].sample()
    hidden = model[:2](x)
    model[2].alpha.data = torch.stack([1 / hidden[y == c].std(0) for c in range(10)])
    table = prototypes.weighing(prototypes.observe(some))
    assert table["compact"].min() == pytest.approx(1)
    assert table["negative"].max() == 0


def test_both_forms_are_one_function_once_the_weights_are_squared():
    some = results({"abs-l2": (0.9,), "relu-l2-neg": (0.9,)})
    for each in some.runs:
        each.model[2].alpha.data *= 1.7
    table = prototypes.forms_compared(prototypes.observe(some))
    assert table["rewritten"].max() < 1e-12
    some.runs[0].model[2].alpha.data *= -1
    assert prototypes.forms_compared(prototypes.observe(some)).set_index("network")["undefined"]["abs-l2"] == 1


def test_the_other_form_of_the_distance_layer_is_another_network():
    one = run("abs-l2", 0, 0.9)
    one.model[2] = OffsetL2(8, 10, form="squared-weights", generator=torch.Generator())
    assert one.network == "abs-l2 (squared weights)"
    assert title(one.network) == "Abs-L2 (squared weights)"


def test_perturbed_accuracies_are_per_cent_and_neutral_at_neutral_levels():
    table = perturbed.perturbed(results({"relu": (0.9, 0.9), "abs": (0.9,), "abs2": (0.9,)}))
    assert set(table["network"]) == {"relu", "abs"}
    neutral = table[(table["kind"] == "offset") & (table["level"] == 0)]
    assert neutral["accuracy"].tolist() == pytest.approx(neutral["baseline"].tolist())
    found = perturbed.ranges(table).query("kind == 'scale'")
    # Nothing but a bias behind the layer could make scaling change an answer.
    assert np.isinf(found[["low", "high"]]).all(axis=None)


def test_raw_and_normalised_pixels_are_compared_at_equal_epochs():
    raw, other = results({"relu": (0.9, 0.92)}), results({"relu": (0.5, 0.5)}, pixels=("normalized",))
    table = contradictions.pixels_compared(Results(raw.runs + other.runs))
    assert table[["raw", "other"]].iloc[0].tolist() == pytest.approx([91, 50])
    assert table["difference"].iloc[0].startswith("41 [")
    assert contradictions.pixels_compared(raw).empty


def test_samples_are_spread_over_the_whole_and_never_more_than_there_are():
    some = images(50)
    x, y = some.sample("train", most=10)
    # Ten of fifty, from the first to the last: 49 / 9 apart, rounded.
    rows = [0, 5, 11, 16, 22, 27, 33, 38, 44, 49]
    assert x.equal(some.x_train[rows])
    assert y.tolist() == [row % 10 for row in rows]
    assert len(some.sample("test")[0]) == 25


def test_settings_are_ordered_by_their_nearness_to_the_paper():
    runs = [run("relu", 0, 0.9, pixels="normalized", paper=True), run("relu", 0, 0.9), run("relu", 0, 0.9, paper=True)]
    settings = Results(tuple(runs)).settings
    assert [(s.pixels, s.data) for s in settings] == [("raw", "mnist"), ("raw", "mnist-5k"), ("normalized", "mnist")]
    assert settings[0].paper
    assert not settings[0].shortfall
    assert "Smaller" in settings[1].shortfall
