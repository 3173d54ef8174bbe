"""Centers of OffsetL2: what is frozen stays, a planted Mahalanobis distance is recognized, and the verdict follows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from metriscope.cli import main
from metriscope.data import Gaussian
from metriscope.functional import whitening_factor
from metriscope.nn import build
from metriscope.rng import stream
from metriscope.runs import Driver, Store
from metriscope.studies.heads.judge import STATEMENTS
from metriscope.studies.heads.measure import measure
from metriscope.studies.heads.offsets import PrincipalSpace, begun, covered, goes_with, points, targets, trained
from metriscope.studies.heads.page import sections
from metriscope.studies.heads.plan import VARIANTS, HeadContests, HeadsOptions, Offsets, plan
from metriscope.studies.heads.train import WORK
from metriscope.studies.representation.prototypes import Hidden
from metriscope.studies.verdicts import judge
from studies.synthetic import check_statement

RUNS = (*(("abs-l2-neg", variant) for variant in VARIANTS), ("relu-l2", "trained"), ("relu-l2", "frozen"))
TINY = Offsets(seeds=3, epochs=2, train_size=200, runs=RUNS, reading=(2, (2, 3)))


def ends(job):
    """Return centers and weights of the first start, before and after training."""
    model, tensors = begun(job, 0), trained(job).tensors
    return {name: (model.state_dict()[name], tensors[f"0/{name}"]) for name in ("2.mu", "2.alpha", "0.weight")}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_frozen_stays_and_the_rest_moves(name):
    job = next(job for job in TINY.jobs() if job.variant.name == name)
    moves = {"2.mu": job.variant.mu != 0, "2.alpha": job.variant.alpha != 0, "0.weight": True}
    assert {key: not before.equal(after) for key, (before, after) in ends(job).items()} == moves


def test_one_step_at_a_larger_rate_is_as_many_times_longer():
    slow, fast = (replace(TINY, epochs=1, runs=(("abs-l2-neg", name),)).jobs()[0] for name in ("trained", "fast"))
    (start, one), (_, other) = ends(slow)["2.mu"], ends(fast)["2.mu"]
    ratio = (other - start).norm() / (one - start).norm()
    # A step of 1e-5 at a value of 0.1 is known in float32 to a thousandth.
    assert float(ratio) == pytest.approx(fast.variant.mu / slow.variant.mu, rel=0.02)


@pytest.mark.parametrize("negated", [True, False])
def test_a_placed_center_begins_at_the_mean_of_its_class_or_of_the_others(negated):
    network = "abs-l2-neg" if negated else "abs-l2"
    (job,) = replace(TINY, runs=((network, "placed"),)).jobs()
    model, (train, _) = begun(job, 1), points(replace(job.base, model="", number=0))
    with torch.no_grad():
        hidden = model[:2](torch.from_numpy(train.x))
    chosen = (train.y == 4) == negated
    torch.testing.assert_close(model[2].mu[4].detach(), hidden[chosen].mean(0))
    assert targets(hidden, torch.from_numpy(train.y), 10, negated).shape == (10, 128)


def test_the_way_is_zero_for_a_center_that_stays_one_at_the_target_and_negative_away_from_it():
    before, target = torch.zeros(3, 2), torch.tensor([[3.0, 4.0]]).expand(3, 2)
    after = torch.tensor([[0.0, 0.0], [3.0, 4.0], [-3.0, -4.0]])
    torch.testing.assert_close(covered(before, after, target), torch.tensor([0.0, 1.0, -1.0]))


def test_rank_correlations_do_not_change_under_any_increasing_map():
    values = torch.rand(50, 3, generator=stream(0, "values")).numpy()
    same, other = goes_with(values, np.exp(5 * values))
    np.testing.assert_allclose(same, 1)
    assert (np.abs(other) < 0.5).all()


def planted():
    """Return a network that computes the Mahalanobis distance of each of three Gaussians, and their points.

    Every Gaussian has its own units, which whiten it; alpha is one for its own units and zero for the others.
    """
    corners = torch.tensor([[0.0, 0.0], [6.0, 1.0], [2.0, 7.0]])
    covs = torch.tensor([[[1.0, 0.8], [0.8, 1.0]], [[2.0, 0.0], [0.0, 0.1]], [[0.3, -0.2], [-0.2, 1.0]]])
    parts = [
        Gaussian(m, c).sample(400, stream(0, "planted", i)) for i, (m, c) in enumerate(zip(corners, covs, strict=True))
    ]
    x, y = torch.cat(parts), torch.arange(3).repeat_interleave(400)
    model = build("abs-l2-neg", 2, 6, 3)
    factors = [whitening_factor(torch.cov(part.mT)) for part in parts]
    biases = [-factor @ part.mean(0) for factor, part in zip(factors, parts, strict=True)]
    alpha = torch.eye(3).repeat_interleave(2, dim=1)
    state = {"0.weight": torch.cat(factors), "0.bias": torch.cat(biases), "2.mu": torch.zeros(3, 6), "2.alpha": alpha}
    model.load_state_dict(state)
    return model.double().requires_grad_(False), x, y


def test_a_network_that_is_the_mahalanobis_distance_is_recognized():
    model, x, y = planted()
    hidden = Hidden.of(model, x, y)
    found = PrincipalSpace(x.mean(0), torch.eye(2).double(), x, y, 3).read(hidden, hidden, x)
    for name in ("own", "inside", "metric"):
        assert found[name] == pytest.approx(1, abs=1e-6), name
    assert found["other"] < 0.5
    assert found["euclid"] < 0.99
    assert max(found["metric euclid"], found["metric other"]) < 0.9


def test_units_that_whiten_another_class_are_not_taken_for_it():
    model, x, y = planted()
    model[2].alpha.copy_(model[2].alpha.roll(1, dims=0))
    hidden = Hidden.of(model, x, y)
    found = PrincipalSpace(x.mean(0), torch.eye(2).double(), x, y, 3).read(hidden, hidden, x)
    assert found["own"] < 0.5
    assert found["metric"] < 0.95


def test_a_tiny_study_is_measured_judged_and_shown(tmp_path):
    asked = replace(plan(HeadsOptions("paper")), offsets=TINY, contests=HeadContests(names=()))
    driver = Driver(Store(tmp_path))
    results = measure(asked, driver.perform(asked.jobs(), WORK, "training"), driver)
    table = results.tables["offsets"]
    assert len(table) == TINY.seeds * len(RUNS)
    frozen = table[table["variant"] == "frozen"]
    assert (frozen["covered"] == 0).all()
    assert (frozen["moved"] == 0).all()
    assert (table.loc[table["variant"] == "placed", "norm before"] > 100).all()
    assert table.loc[table["variant"] == "flat", "alpha rank"].isna().all()
    claim = judge(STATEMENTS, results.tables)[-1]
    assert claim.origin == "run"
    assert "0 from the store" not in claim.reason
    texts = [section.title for section in sections(asked, results, (claim,))]
    assert texts[-1] == "Verdicts C09 to C11, C28"


def test_the_quick_profile_computes_nothing_and_shows_the_record(tmp_path, capsys):
    assert main(["reproduce", "heads", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "recorded runs of longer experiments that are shown, not computed: " in said
    assert "computed," not in said
    verdicts = pd.read_csv(tmp_path / "tables" / "verdicts.csv").set_index("id")
    assert verdicts.loc["C28", "origin"] == "record"
    assert verdicts.loc["C28", "strength"] == "hint"


def test_without_a_record_the_page_says_so(tmp_path, capsys):
    assert main(["reproduce", "heads", "--seeds", "2", "--out", str(tmp_path)]) == 0
    assert "No run of this experiment is recorded" in (tmp_path / "appendix.html").read_text(encoding="utf-8")
    assert pd.read_csv(tmp_path / "tables" / "verdicts.csv").set_index("id").loc["C28", "strength"] == "not run"


@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_the_claim_can_go_either_way(step):
    # All criteria take a while; every other one of them is of every sort.
    claim = STATEMENTS[-1]
    assert claim.id == "C28"
    check_statement(replace(claim, criteria=claim.criteria[::step]))


@pytest.mark.parametrize("option", ["seeds", "epochs"])
def test_a_bad_number_is_refused(option):
    with pytest.raises(ValueError, match=f"--{option} must be at least 1, not 0"):
        plan(HeadsOptions(**{option: 0}))
