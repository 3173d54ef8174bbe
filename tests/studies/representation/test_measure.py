"""What is measured on the runs of the MNIST study, against values made by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from metriscope.data.registry import row
from metriscope.runs import Driver, Store
from metriscope.studies.representation import accuracy, prototypes, units
from metriscope.studies.representation.experiments import Prototypes
from metriscope.studies.representation.measure import Measurer
from metriscope.studies.representation.plan import MODELS, Inside, RepresentationComparing
from metriscope.studies.tidy_tables import published
from studies.representation.made import EPOCHS, QUICK, Weights, images, inspected, job, network, recorded, run, runs

TWO = {"relu": (0.95, 0.96, 0.97), "abs": (0.94, 0.955, 0.96)}
ASKED, INSIDE = RepresentationComparing(), Inside()


def rows_of(accuracies):
    return accuracy.accuracies(runs(accuracies, model=False))


def test_every_printed_network_is_an_architecture_and_table_5_repeats_table_2():
    table = published("representation").query("metric == 'test_accuracy'")
    assert set(table["network"]) == set(MODELS)
    wide = table.pivot(index="network", columns="column", values="mean")
    both = wide.dropna(subset=["table 2", "table 5"])
    assert len(both) == 6
    assert (both["table 2"] == both["table 5"]).all()


def test_accuracies_are_per_cent_at_the_last_epoch_in_the_order_of_the_architectures():
    found = rows_of({"abs": (0.9,), "relu": (0.95, 0.97)})
    assert found["network"].tolist() == ["relu", "relu", "abs"]
    assert found["test_accuracy"].tolist() == pytest.approx([95, 97, 90])
    assert found["length"].tolist() == [0.2] * 3
    assert not found["protocol"].any()


def test_a_summary_stands_beside_every_printed_column():
    row = accuracy.summary(rows_of(TWO)).set_index("network").loc["relu"]
    assert row[["count", "mean", "sd", "minimum", "maximum"]].tolist() == pytest.approx([3, 96, 1, 95, 97])
    low, high = stats.t.interval(0.95, 2, 96, 1 / math.sqrt(3))
    assert row[["low", "high"]].tolist() == pytest.approx([low, high])
    assert row["table 2 difference"] == pytest.approx(96 - 96.62)
    assert row["notes difference"] == pytest.approx(96 - 95.64)
    assert math.isnan(row["table 3 mean"])


def test_an_epoch_between_two_records_is_found_on_a_logarithmic_axis():
    epochs, values = np.array([0.0, 9.0, 99.0]), np.array([0.2, 0.4, 0.8])
    # Half way from 0.4 to 0.8 is half way from log 10 to log 100.
    assert accuracy.epoch_reached(epochs, values, 0.6) == pytest.approx(10**1.5 - 1)
    assert accuracy.epoch_reached(epochs, values, 0.1) == 0
    assert math.isnan(accuracy.epoch_reached(epochs, values, 0.9))


def test_printed_means_are_placed_on_our_curves():
    placed = recorded(runs({"abs2-neg": (0.99, 0.99)}, model=False)).tables["placed"].set_index("column")
    assert placed["our epoch"].between(100, 1000).all()
    assert placed["our epoch"]["section 6"] < placed["our epoch"]["table 2"]


def test_pairs_are_tested_as_scipy_tests_them():
    row = accuracy.compare(rows_of(TWO)).iloc[0]
    a, b = (100 * np.array(TWO[name]) for name in ("relu", "abs"))
    assert row["welch p"] == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    assert row["student p"] == pytest.approx(stats.ttest_ind(a, b).pvalue)
    assert row["paired p"] == pytest.approx(stats.ttest_rel(a, b).pvalue)
    # One pair alone has nothing to correct.
    assert row["welch holm"] == pytest.approx(row["welch p"])


def test_seeds_that_only_one_network_has_are_left_out_of_the_pairs():
    some = (*runs({"relu": (0.95, 0.96, 0.97)}), *runs({"abs": (0.90, 0.92, 0.91, 0.95)})[1:])
    row = accuracy.compare(accuracy.accuracies(some)).iloc[0]
    assert row["paired df"] == 1
    assert row["paired t"] == pytest.approx(stats.ttest_rel([96, 97], [92, 91]).statistic)


def test_shapes_are_those_of_scipy_and_runs_that_agree_have_none():
    rows = rows_of({"relu": (0.9, 0.91, 0.93, 0.94, 0.95), "abs": (0.9,) * 5, "abs2": (0.9, 0.8, 0.7, 0.6)})
    (((_, network), (x, heights)),) = accuracy.shapes(rows, ASKED).items()
    density = stats.gaussian_kde([90.0, 91.0, 93.0, 94.0, 95.0])(x)
    assert network == "relu"
    assert heights == pytest.approx(density / density.max())


def test_six_of_seven_printed_tests_follow_from_section_6_and_none_from_table_2():
    table = accuracy.recomputed(ASKED)
    follow = accuracy.follow(table, ASKED).set_index("column")["follow"]
    assert follow["table 2"] == 0
    assert follow["section 6, sd of n"] == 6
    # ReLU against Abs in table 2, by the formula: 0.75 over the root of (0.17² + 0.22²) / 20.
    assert table["table 2 t"][0] == pytest.approx(0.75 / math.sqrt((0.17**2 + 0.22**2) / 20))


def test_an_error_of_none_is_drawn_at_one_image_of_its_own_part():
    results = recorded(runs({"relu": (1.0, 1.0)}, model=False))
    for part, size in (("train", 200), ("test", row("mnist-5k").test)):
        _, values = results.curve(results.settings[0], "relu", f"{part}_error")
        assert values[:, -1] == pytest.approx([1 / size] * 2)


def test_inactive_units_are_shares_and_the_epoch_of_death_is_the_first_record_with_half_of_them():
    table = units.dead_units(runs({"relu2": (0.5, 0.5)}, {"relu2": 4}, model=False))
    held = table.query("layer == 'output' and part == 'train'")
    assert held.groupby("epoch")["never"].mean().tolist() == [0, 40, 40, 40]
    assert held["under_5"].max() == 50
    assert units.half_dead(held) == EPOCHS[1]
    assert math.isnan(units.half_dead(table.query("layer == 'hidden'")))


def test_a_crossed_class_is_at_distance_zero_and_inside_the_band():
    z = np.array([[-0.1, 5.0], [0.1, 5.2], [4.0, -1.0], [4.2, 1.0]])
    found = units.crossings(z, np.array([0, 0, 1, 1]), INSIDE.band).set_index(["output", "class"])
    assert found["distance"][0, 0] == pytest.approx(0)
    assert found["inside"][0, 0] == 1
    assert found["inside"][0, 1] == 0
    assert found["distance"][0, 1] == pytest.approx(4.1 / 0.1)
    assert found["distance"][1, 1] == pytest.approx(0)


def test_an_output_whose_own_class_is_the_nearest_is_counted():
    z = np.array([[0.0, 9.0], [1.0, 8.0], [9.0, 7.0], [8.0, 9.0]])
    rows = units.crossings(z, np.array([0, 0, 1, 1]), INSIDE.band).assign(network="abs2-neg", seed=0)
    # Output 0 is nearest to class 0, its own; output 1 has its classes at 8.5 / 0.5 and 8 / 1: its own again.
    assert units.crossed(rows)["nearest own"].tolist() == [1.0]


def test_units_are_chosen_by_their_largest_absolute_weight_and_described_as_scipy_does():
    one, (x, y) = run("abs", 0, 0.9), images()
    found = units.units_shown(one, x, y, INSIDE)
    assert [unit.unit for unit in found] == one.model[2].weight.abs().argmax(1)[[0, 3, 8]].tolist()
    row, values = found[0].statistics.iloc[0], one.model[0](x)[y == 0, found[0].unit].double().numpy()
    assert row["skewness"] == pytest.approx(stats.skew(values))
    assert row["variance"] == pytest.approx(np.var(values, ddof=1))
    assert found[0].densities[0] == pytest.approx(stats.gaussian_kde(values)(found[0].x))


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


def read(model, name="abs-l2-neg", drawn=False):
    return prototypes.read(Prototypes(job(name, 0), drawn), model, *images())


def test_prototypes_mapped_back_are_sent_to_themselves_by_the_first_layers_of_abs_networks():
    model = network("abs-l2-neg", 0)
    found = read(model, drawn=True).tensors
    for kind in ("nearest", "likeliest"):
        assert torch.allclose(model.double()[:2](found[kind]), model[2].mu.double().abs(), atol=1e-6)


def test_prototypes_at_class_means_are_nearest_to_their_own():
    model, (x, y) = network("abs-l2-neg", 0), images()
    hidden = model[:2](x)
    model[2].mu.data = torch.stack([hidden[y == c].mean(0) for c in range(10)])
    table = read(model).tables["places"]
    own = table[table["output"] == table["class"]]
    assert own["distance"].max() < 1e-5
    assert own["weighted"].max() < 1e-5
    assert table[table["output"] != table["class"]]["distance"].min() > 0.1


def test_alpha_that_is_the_inverse_deviation_is_found_out():
    model, (x, y) = network("abs-l2-neg", 0), images()
    hidden = model[:2](x)
    model[2].alpha.data = torch.stack([1 / hidden[y == c].std(0) for c in range(10)])
    tables = read(model).tables
    assert tables["weighing"]["compact"].min() == pytest.approx(1)
    assert tables["weighing"]["negative"].max() == 0
    assert tables["alphas"]["alpha"].to_numpy() == pytest.approx(tables["alphas"]["1 / sd"].to_numpy(), rel=1e-5)


@pytest.mark.parametrize("name", ["abs-l2", "relu-l2-neg"])
def test_both_forms_are_one_function_once_the_weights_are_squared(name):
    model = network(name, 0)
    model[2].alpha.data *= 1.7
    assert read(model, name).tables["forms"]["rewritten"].max() < 1e-12
    model[2].alpha.data *= -1
    assert read(model, name).tables["forms"]["undefined"].item() == 1


def test_a_class_without_an_image_leaves_prototypes_unmeasured():
    x, y = images()
    found = prototypes.read(Prototypes(job("abs-l2", 0)), network("abs-l2", 0), x[y > 0], y[y > 0])
    assert not found.tables
    assert found.record["missing"]


def test_perturbed_accuracies_are_per_cent_and_neutral_at_neutral_levels(tmp_path):
    table = inspected(runs({"relu": (0.9, 0.9), "abs": (0.9,), "abs2": (0.9,)}), tmp_path).tables["perturbed"]
    assert set(table["network"]) == {"relu", "abs"}
    neutral = table[(table["kind"] == "offset") & (table["level"] == 0)]
    assert neutral["accuracy"].tolist() == pytest.approx(neutral["baseline"].tolist())
    assert table["change"].to_numpy() == pytest.approx((table["accuracy"] - table["baseline"]).to_numpy())
    found = units.ranges(table, ASKED).query("kind == 'scale'")
    # Nothing but a bias behind the layer could make scaling change an answer.
    assert np.isinf(found[["low", "high"]]).all(axis=None)


def test_ranges_of_perturbation_come_from_all_training_images(tmp_path):
    x, y = images(2_500)
    # One image, which no sample of 2,000 evenly spaced ones has, widens every unit's range a hundredfold.
    spaced = set(torch.linspace(0, 2_499, 2_000, dtype=torch.float64).round().long().tolist())
    odd = next(i for i in range(2_500) if i not in spaced)
    x[odd] *= 100
    one = runs({"relu": (0.9,)})
    found = Measurer(QUICK, one, Driver(Store(tmp_path)), {"raw": (x, y)}).results(()).tables["perturbed"]
    expected = units.perturbed(units.asking(one[0].job), one[0].model, x, y).tables["levels"]
    assert found["accuracy"].to_numpy() == pytest.approx(100 * expected["accuracy"].to_numpy())


def test_measurements_are_stored_once_under_the_network_that_they_are_of(tmp_path):
    lines, some = [], runs({"relu": (0.9,), "abs-l2": (0.9, 0.9)})
    views = {"raw": images()}
    for _ in range(2):
        Measurer(QUICK, some, Driver(Store(tmp_path), lines.append), views).results(())
    # Perturbations of one network, the layers of two, and the centers of all three.
    counts = (1, 2, 3)
    first = [f"runs: {count} computed, 0 from the store)" for count in counts]
    again = [f"runs: 0 computed, {count} from the store)" for count in counts]
    assert [line.partition("(")[2] for line in lines] == [*first, *again]
    other = replace(some[0], job=replace(some[0].job, sha256="another data set"))
    Measurer(QUICK, (other,), Driver(Store(tmp_path), lines.append), views).results(())
    assert "(runs: 1 computed, 0 from the store)" in lines[2 * len(counts)]


def test_raw_and_normalized_pixels_are_compared_at_equal_epochs():
    raw, other = runs({"relu": (0.9, 0.92)}), runs({"relu": (0.5, 0.5)}, pixels=("normalized",))
    table = recorded((*raw, *other)).tables["pixels"]
    assert table[["raw", "other"]].iloc[0].tolist() == pytest.approx([91, 50])
    assert table["difference"].iloc[0].startswith("41 [")
    assert recorded(raw).tables["pixels"].empty


def test_samples_are_spread_over_the_whole_and_never_more_than_there_are(tmp_path):
    inspection = Measurer(QUICK, (), Driver(Store(tmp_path)), {"raw": images(50)})
    x, y = inspection.view(job("relu", 0), 10)
    # Ten of fifty, from the first to the last: 49 / 9 apart, rounded.
    rows = [0, 5, 11, 16, 22, 27, 33, 38, 44, 49]
    assert x.equal(images(50)[0][rows])
    assert y.tolist() == [row % 10 for row in rows]
    assert len(inspection.view(job("relu", 0), 2_000)[0]) == len(inspection.view(job("relu", 0), None)[0]) == 50


def test_settings_are_ordered_by_their_nearness_to_the_paper():
    many = [run("relu", 0, 0.9, pixels="normalized", paper=True), run("relu", 0, 0.9), run("relu", 0, 0.9, paper=True)]
    from metriscope.studies.representation.measure import ordered

    settings_found = recorded(ordered(many)).settings
    assert [(s.pixels, s.data) for s in settings_found] == [
        ("raw", "mnist"), ("raw", "mnist-5k"), ("normalized", "mnist"),
    ]  # fmt: skip


def test_no_network_is_left_in_results(tmp_path):
    results = inspected(runs({"relu": (0.9,), "abs-l2-neg": (0.9,)}), tmp_path)
    assert not any(isinstance(value, torch.nn.Module | Weights) for value in vars(results).values())
    assert results.units
    assert results.seen
    assert results.alphas
