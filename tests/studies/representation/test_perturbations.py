"""The replayed perturbation experiment: what is measured, what stands beside the printed numbers, and who judges it."""

from dataclasses import dataclass, replace

import pandas as pd
import pytest
import torch
from torch import nn

from metriscope.nn import Abs
from metriscope.probes import DEFINITIONS, perturbation
from metriscope.probes.perturbation_levels import UnitRanges, definition_of, perturb
from metriscope.runs import Driver, Result, Store, once
from metriscope.runs.records import add, read
from metriscope.studies.representation import measure as study
from metriscope.studies.representation import perturbations as measure
from metriscope.studies.representation import perturbations_page as page
from metriscope.studies.representation.accuracy import printed
from metriscope.studies.representation.experiments import (
    ALL,
    NETWORKS,
    PROGRAM,
    PublishedLevels,
    SingleUnits,
    published_runs,
)
from metriscope.studies.representation.judge import STATEMENTS
from metriscope.studies.representation.measure import Measurer
from metriscope.studies.representation.page import sections
from metriscope.studies.representation.perturbations_page import HARMLESS, OFFSETS
from metriscope.studies.representation.plan import PERTURBED, RepresentationPlan
from metriscope.studies.tidy_tables import matching
from metriscope.studies.verdicts import judge
from studies.representation.made import QUICK, dead, history, images, inspected, run, runs

LEVELS = PublishedLevels(run("relu-bias", 0, 0.9).job)


def replayed(accuracies, **more):
    """Return runs that start from the published numbers."""
    return tuple(replace(one, job=replace(one.job, replay=PERTURBED)) for one in runs(accuracies, **more))


@pytest.mark.parametrize("activation", [nn.ReLU(), Abs()], ids=["relu", "abs"])
def test_one_unit_alone_is_perturbed_as_it_is_among_all(activation):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(300, 5, generator=generator), torch.randint(3, (300,), generator=generator)
    model = nn.Sequential(nn.Linear(5, 4), activation, nn.Linear(4, 3))
    asked = SingleUnits(LEVELS.training)
    found = measure.single_units(asked, model, x, y)
    table = found.tables["units"].set_index(["kind", "level", "unit"])["right"]
    whole = perturbation(model, x, y, None, tuple(dict(asked.levels)), dict(asked.levels), asked.definition)
    expected = dict(zip(zip(whole.kinds, whole.levels, strict=True), whole.accuracies, strict=True))
    for unit in range(4):
        # The layer with one unit that is perturbed, and the others beside it as they are.
        alone = perturbed_alone(model, x, y, unit, asked)
        for (kind, level), right in alone.items():
            assert table[kind, level, unit] == right
            assert table[kind, level, ALL] == round(300 * expected[kind, level])
    assert set(table.index.get_level_values("unit")) == {ALL, 0, 1, 2, 3}


def perturbed_alone(model, x, y, unit, asked):
    first, activation, head = model
    with torch.no_grad():
        z = first(x)
        ranges = UnitRanges.of([z], definition_of(asked.definition), activation)
        found = {}
        for kind, levels in asked.levels:
            for level in levels:
                changed = z.clone()
                changed[:, unit] = perturb(z, ranges.reach, **{kind: level}, ends=ranges.ends)[:, unit]
                found[kind, level] = int((head(activation(changed)).argmax(1) == y).sum())
    return found


def changes(network):
    """Return the printed change at every level; scaling to 200 %, which is not printed, changes nothing."""
    base = printed("perturbation_baseline", network=network, quantity="train_accuracy")["mean"].iloc[0]
    table = printed("perturbation_level", network=network)
    found = {(row.kind, row.level): row.mean - base for row in table.itertuples()}
    return found | {("scale", 2.0): 0.0}, base


def made(job, shift=0.0, silent=0):
    """Return what a run would have stored whose accuracies are the printed ones, give or take its own deviation."""
    known, base = changes(job.training.model)
    own = 0.02 * (job.training.number - 4.5) + shift
    keys = [(kind, level) for kind, levels in job.levels for level in levels]
    right = [round(600 * (base + known[key] * (1 + own))) for key in keys]
    frame = pd.DataFrame(keys, columns=["kind", "level"]).assign(**dict.fromkeys(DEFINITIONS, right))
    fine = [(kind, level, 50_000) for kind, levels in job.grid().items() for level in levels]
    ends = {"images": 60_000, "right": round(600 * base), "silent": silent}
    ends |= {"train_accuracy": base / 100, "test_accuracy": 0.95, "train_loss": 0.05}
    tables = {"levels": frame, "grid": pd.DataFrame(fine, columns=["kind", "level", "right"])}
    return Result(tables, record=ends)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a store of ten published runs of each network, whose accuracies are those that are printed."""
    found = Store(tmp_path_factory.mktemp("replays"))
    jobs = [job for job in published_runs(NETWORKS, "0" * 64) if job.training.number < 10]
    Driver(found).perform(jobs, once(made), "made")
    return found


@pytest.fixture(scope="module")
def tables(store):
    return measure.gather([(study._training(one.spec["training"]), one) for one in store.runs()])


@dataclass(frozen=True)
class Recorded(Driver):
    """A driver that finds these records, whatever data they name."""

    found: tuple = ()

    def recorded(self, jobs):
        named = {
            (r.spec["training"]["model"], r.spec["training"]["number"]): r for r in self.found if "levels" in r.tables
        }
        keys = {job: (job.training.model, job.training.number) for job in jobs}
        return {job: named[key] for job, key in keys.items() if key in named}


def test_every_printed_level_is_measured_for_both_networks():
    table = printed("perturbation_level")
    assert len(table) == 60
    for network, part in table.groupby("network"):
        assert network in NETWORKS
        for kind, levels in LEVELS.levels:
            extra = {2.0} if kind == "scale" else set()
            assert set(part[part["kind"] == kind]["level"]) | extra == set(levels)


def test_the_ranges_that_are_judged_are_those_that_are_printed():
    table = printed("perturbation").set_index(["network", "kind"])
    levels = dict(LEVELS.levels)
    for network, ((low, below), (high, above)) in OFFSETS.items():
        row = table.loc[(network.removesuffix("-bias"), "offset")]
        assert (row["low"], row["high"]) == (low, high)
        ordered = sorted(levels["offset"])
        assert ordered[ordered.index(low) - 1] == below
        assert ordered[ordered.index(high) + 1] == above
        scale, clip = (table.loc[(network.removesuffix("-bias"), kind)] for kind in ("scale", "clip"))
        assert [level for _, level, _ in HARMLESS] == [scale["low"], scale["high"], clip["low"]]


def test_counts_are_those_of_the_probe_by_every_definition(tmp_path):
    one, (x, y) = replayed({"abs-bias": (0.9,)})[0], images()
    asked = replace(LEVELS, training=one.job, steps=3, offsets=((-0.2, 0.2, 5),))
    assert set(asked.definitions) == set(DEFINITIONS)
    found = measure.perturbed(asked, one.model, x, y, one.history)
    table = found.tables["levels"]
    for name in DEFINITIONS:
        expected = perturbation(one.model, x, y, levels=dict(asked.levels), definition=name).to_pandas()
        both = table.merge(expected, on=["kind", "level"])
        assert len(both) == len(table)
        assert (both[name] / len(x)).to_numpy() == pytest.approx(both["accuracy"].to_numpy())
    assert found.tables["grid"]["level"].tolist() == [0.01, 0.1, 1.0, 10.0] * 2 + [-0.2, -0.1, 0.0, 0.1, 0.2]
    neutral = matching(found.tables["grid"], kind="offset", level=0.0)["right"].item()
    assert neutral == matching(found.tables["grid"], kind="scale", level=1.0)["right"].item() == found.record["right"]
    assert (found.record["silent"], found.record["train_accuracy"]) == (0, 0.9)


def test_printed_accuracies_are_at_no_distance_from_the_printed(tables):
    # Deviations of the runs cancel in the mean, up to the rounding to whole images.
    assert tables["replayed beside"]["difference"].abs().max() < 0.002
    assert tables["replayed largest"]["largest"].abs().max() < 0.002
    row = matching(tables["replayed beside"], definition=PROGRAM, network="abs-bias", kind="offset", level=-0.05).iloc[
        0
    ]
    assert (row["published"], row["runs"]) == (95.49, 10)
    assert tables["replays"]["protocol"].all()
    ends = tables["replayed baselines"].set_index(["network", "quantity"])
    assert ends.loc[("relu-bias", "train_accuracy"), "published sd"] == 0.15
    assert ends.loc[("relu-bias", "train_accuracy"), "mean"] == pytest.approx(98.33)


def test_the_printed_numbers_support_c17_by_the_papers_protocol(tables):
    (claim,) = [claim for claim in judge(STATEMENTS, tables) if claim.id == "C17"]
    assert (claim.verdict, claim.strength, claim.origin) == ("supported", "protocol", "run")
    assert "start from the random numbers of the published runs" in claim.reason
    assert "(ReLU + bias: 10, Abs + bias: 10)" in claim.reason
    row = next(row for row in claim.evidence if row.label == "Abs + bias: training accuracy, %, offset −2 %")
    assert (row.published, row.source) == ("98.95", "Oursland 2024b")


@pytest.mark.parametrize(("kind", "level", "change"), [("scale", 2.0, -3.0), ("offset", 0.1, -0.1)])
def test_harm_by_scaling_or_none_by_an_offset_is_not_what_the_paper_says(tables, kind, level, change):
    harm = tables["harm"].copy()
    rows = (harm["kind"] == kind) & (harm["level"] == level)
    harm.loc[rows, "change"] = change + 0.01 * harm.loc[rows, "seed"]
    (claim,) = [claim for claim in judge(STATEMENTS, {**tables, "harm": harm}) if claim.id == "C17"]
    assert claim.verdict == "contradicted"


def test_records_give_the_same_tables_and_replayed_trainings_stay_out_of_the_accuracies(store, tables, tmp_path):
    trainings = [job.training for job in published_runs(NETWORKS, "0" * 64)[:2]]
    finished = Result({"history": history(0.9), "dead": dead(output=False)})
    Driver(store).perform(trainings, once(lambda job: finished), "made")
    add(store.runs(), tmp_path, "representation")
    records = read(tmp_path)
    results = study.recorded(records)
    assert results.tables["runs"].empty
    keys = ["network", "seed", "kind", "level", "definition"]
    both = tables["replayed levels"].merge(results.tables["replayed levels"], on=keys)
    assert len(both) == len(tables["replayed levels"]) == 20 * 31 * 4
    assert both["change_x"].to_numpy() == pytest.approx(both["change_y"].to_numpy())
    (claim,) = [claim for claim in judge(STATEMENTS, results.tables) if claim.id == "C17"]
    assert (claim.verdict, claim.origin) == ("supported", "record")
    largest = max(path.stat().st_size for path in tmp_path.glob("publishedlevels*"))
    assert largest < 12_000
    shown = Measurer(QUICK, (), Recorded(store, found=records)).replayed()
    assert len(shown["replays"]) == 20
    assert set(shown["replays"]["origin"]) == {"record"}
    found = sections(None, results, (claim,))
    assert "10 of 20 runs of Abs + bias (20 of them from records)." in found[1].blocks[0].text
    assert [section.title for section in found][1] == "The perturbation experiment, replayed"


@dataclass(frozen=True)
class Chosen(RepresentationPlan):
    """A plan of given trainings."""

    chosen: tuple = ()

    def jobs(self):
        return self.chosen


def test_replayed_runs_are_measured_apart_from_the_others(tmp_path, monkeypatch):
    some = (*replayed({name: (0.9,) for name in NETWORKS}), *runs({"relu-bias": (0.8,)}))
    driver = Driver(Store(tmp_path))
    weights = {one.job: one.run.tensors() for one in some}
    ends = {one.job: {"history": one.history, "dead": one.dead} for one in some}
    finished = driver.perform(weights, once(lambda job: Result(ends[job], weights[job])), "made")
    monkeypatch.setattr(Measurer, "view", lambda self, job, most: images())
    # Records that come with the package would stand beside the runs of this test.
    monkeypatch.setattr("metriscope.runs.records.find", lambda study, address: None)
    plan = Chosen(**{**vars(QUICK), "chosen": tuple(weights)})
    results = study.measure(plan, finished, driver)
    assert results.tables["runs"][["network", "test_accuracy"]].to_numpy().tolist() == [["relu-bias", 80.0]]
    assert set(results.tables["perturbed"]["network"]) == {"relu-bias"}
    assert results.tables["replays"]["network"].tolist() == list(NETWORKS)
    assert set(results.tables["harm"]["network"]) == set(NETWORKS)
    assert set(results.tables["harm"]["origin"]) == {"run"}


def test_units_that_are_never_active_are_said(store):
    jobs = published_runs(("relu-bias",), "1" * 64)[:2]
    found = Driver(store).perform(jobs, once(lambda job: made(job, silent=3)), "made")
    tables = measure.gather([(job.training, one) for job, one in found.items()])
    (section,) = page.sections(tables)
    text = section.blocks[0].text
    assert "2 of 20 runs of ReLU + bias. Units" in text
    assert "the factor is taken as 1: 6 in all runs of ReLU + bias, at most 3 in one." in text


def test_without_replayed_networks_c17_is_judged_on_the_same_networks_from_starts_of_our_own(tmp_path):
    tables = inspected(runs({name: (0.9, 0.9, 0.9) for name in ("relu", *NETWORKS)}), tmp_path).tables
    assert set(tables["harm"]["network"]) == set(NETWORKS)
    (claim,) = [claim for claim in judge(STATEMENTS, tables) if claim.id == "C17"]
    assert claim.strength == "hint"
    assert all(requirement.state != "open" or "not run" not in requirement.text for requirement in claim.requirements)
    assert "No replayed network is available" in claim.reason
    assert {row.source for row in claim.evidence} == {"Oursland 2024b", ""}
