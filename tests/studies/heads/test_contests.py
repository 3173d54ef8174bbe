"""Contests of classifiers: scores with known answers, fair and repeatable training, verdicts that can go either way."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from metriscope.nn import NearestMean
from metriscope.rng import stream
from metriscope.runs import Driver, Store
from metriscope.studies.heads.figures import reliability_diagram
from metriscope.studies.heads.judge import STATEMENTS
from metriscope.studies.heads.measure import means, measure_contests, standing
from metriscope.studies.heads.page import contest_sections
from metriscope.studies.heads.plan import CONTESTS, SETS, Contestant, HeadContest, HeadContests
from metriscope.studies.heads.train import Scoring, Split, build_classifier, contested, layer_scores, prepared, scores
from studies.synthetic import check_statement

TINY = HeadContest("heads", "wine", (), starts=2, epochs=2, rates=(1e-2,), sizes=(120, 30))


class Known(nn.Module):
    """A network whose logits are its inputs."""

    def forward(self, x):
        return x


def scoring(x, y, strangers):
    tensors = [torch.tensor(part, dtype=torch.float32) for part in (x, strangers)]
    labels = torch.tensor(y)
    return Scoring((tensors[0], labels), (tensors[0], labels), tensors[1], noise=0.0, seed=0)


def test_scores_of_known_logits_are_those_of_the_definitions():
    x, y = [[3.0, 0.0], [0.0, 3.0], [3.0, 0.0], [0.0, 3.0]], [0, 1, 0, 0]
    found = scores(Known(), scoring(x, y, [[1.0, 0.0], [4.0, 0.0]]))
    sure = 1 / (1 + np.exp(-3))
    assert found["accuracy"] == found["noisy_accuracy"] == 75
    assert found["log_loss"] == pytest.approx(-(3 * np.log(sure) + np.log(1 - sure)) / 4)
    assert found["ece"] == pytest.approx(sure - 0.75)
    # The best temperature makes the certainty three quarters, the share of right answers.
    assert found["temperature"] == pytest.approx(3 / np.log(3), rel=1e-3)
    assert found["scaled_ece"] == pytest.approx(0, abs=1e-3)
    # All known points have the largest logit 3; one stranger lies below and one above.
    assert found["auroc"] == 0.5
    assert found["fpr95"] == 0.5


def test_where_a_logit_is_undefined_only_the_accuracy_is_left():
    found = scores(Known(), scoring([[np.nan, 0.0], [1.0, 0.0]], [1, 0], [[1.0, 0.0]]))
    assert found["accuracy"] == 100
    assert all(np.isnan(value) for name, value in found.items() if name != "accuracy")


@pytest.mark.parametrize("name", ["wine", "digits", "letter-unseen"])
def test_a_split_shares_no_point_and_is_standardized_by_its_training_part(name):
    source = SETS[name]
    if name == "letter-unseen":
        pytest.importorskip("metriscope.data")
        from metriscope import data

        if not data.available("letter"):
            pytest.skip("needs the data set letter")
    split = prepared(source, (500, 200), 0)
    rows = [{tuple(x) for x in part[0].numpy().round(5)} for part in (split.train, split.validation)]
    if name != "letter-unseen":
        assert not rows[0] & rows[1]
    spread = split.train[0].std(0) if source.kind == "table" else split.train[0].std()
    assert torch.allclose(spread[spread > 0], torch.ones(()), atol=1e-4)
    classes = {"wine": 3, "digits": 10, "letter-unseen": 20}[name]
    assert split.classes == classes
    assert int(split.test[1].max()) < classes
    assert len(split.strangers)


def test_classifiers_of_one_seed_share_their_encoder_whatever_their_head():
    first, second = (build_classifier(Contestant("", head=head), 5, 3, 7) for head in ("linear", "mahalanobis"))
    assert first[0].weight.equal(second[0].weight)


@pytest.mark.parametrize(("encoder", "features"), [("convolution", 140), ("recurrent", 140), ("recurrent", 576)])
def test_encoders_of_sequences_give_one_vector_per_point(encoder, features):
    model = build_classifier(Contestant("", encoder=encoder, hidden=8), features, 3, 0)
    assert model(torch.zeros(4, features)).shape == (4, 3)


def test_a_contest_is_repeatable_and_its_nearest_means_are_those_of_the_trained_features():
    entries = (
        Contestant("nearest-mean", head="nearest-mean"),
        Contestant("srip", penalty="srip", strengths=(0.1, 1.0)),
    )
    first, second = (contested(replace(TINY, entries=entries)).tables for _ in range(2))
    pd.testing.assert_frame_equal(first["scores"], second["scores"])
    assert len(first["scores"]) == 4
    assert len(first["tuning"]) == 3


def test_rewritten_networks_compute_the_same_as_the_abs_networks_that_they_were():
    from metriscope.nn import abs_to_relu

    model, x = build_classifier(Contestant("", share=1.0), 6, 3, 0), torch.randn(5, 6, generator=stream(0, "x"))
    assert torch.allclose(abs_to_relu(model)(x), model(x), atol=1e-6)
    assert isinstance(build_classifier(Contestant("", head="nearest-mean"), 6, 3, 0)[-1], nn.Linear)
    assert not isinstance(model[-1], NearestMean)


def test_units_along_principal_axes_recover_them_and_copies_lose_directions():
    x = torch.randn(400, 3, generator=stream(0, "x")) * torch.tensor([3.0, 2.0, 1.0])
    split = Split((x, torch.zeros(400, dtype=torch.int64)), (x, x), (x, x), x)
    variances, axes = split.principal
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_((axes / variances.sqrt()).T)
    assert layer_scores(model, split, 1e-3) == pytest.approx({"axes": 1.0, "directions": 1.0}, abs=1e-5)
    with torch.no_grad():
        model[0].weight.copy_(model[0].weight[:1].expand(3, 3).clone())
    assert layer_scores(model, split, 1e-3)["directions"] == pytest.approx(1 / 3)
    assert layer_scores(nn.Sequential(nn.Flatten()), split, 1e-3) == {}


def test_confidence_and_accuracy_are_drawn_only_where_bins_are_recorded():
    assert reliability_diagram(pd.DataFrame()) is None
    rows = [
        {"contest": "heads", "data": "wine", "per_class": 0, "entry": entry.name, "scaled": scaled, "bin": place,
         "count": 100, "confidence": 10.0 * place + 5, "right": 10 * place, "counted": True}
        for entry in CONTESTS["heads"].entries for scaled in (False, True) for place in range(10)
    ]  # fmt: skip
    assert "temperature scaling" in reliability_diagram(pd.DataFrame(rows)).svg


def made_up(gap):
    """Return a table in which every entry but the first of its contest is better by ``gap`` points."""
    rows = [
        {"contest": contest, "data": data, "per_class": 0, "entry": entry.name, "start": start, "counted": True,
         "accuracy": 90 + (gap if place else 0) + number / 10 + start / 100, "protocol": False, "origin": "run"}
        for contest, row in CONTESTS.items() if contest != "few"
        for number, data in enumerate(row.data)
        for place, entry in enumerate(row.entries)
        for start in range(2)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_means_and_ranks_follow_from_the_table():
    table = made_up(2.0)
    assert means(table, "heads", "accuracy")["linear"].iloc[0] == pytest.approx(90.005)
    ranking, names = standing(table, "heads", "accuracy")
    assert names[int(ranking.ranks.argmax())] == "linear"
    assert ranking.ranks.max() == len(names)
    assert standing(table[:0], "heads", "accuracy") is None


@pytest.mark.parametrize("id_", ["C09", "C10", "C11"])
def test_the_claims_can_go_either_way(id_):
    check_statement(next(statement for statement in STATEMENTS if statement.id == id_))


def test_a_tiny_contest_is_recorded_in_tables_and_shown(tmp_path, monkeypatch):
    from metriscope.studies.heads import plan

    entries = {
        name: replace(row, data=("wine", "breast_cancer")) for name, row in CONTESTS.items() if name == "mixtures"
    }
    monkeypatch.setattr(plan, "CONTESTS", entries)
    asked = HeadContests(replace(TINY, contest="", data=""), ("mixtures",))
    found = measure_contests(asked, True, Driver(Store(tmp_path)))
    table, bins = found["contests"], found["reliability"]
    # Every test point of every start lies in one bin, before and after scaling.
    assert bins.groupby(["data", "entry", "scaled"])["count"].sum().eq(60).all()
    assert (bins["right"] <= bins["count"]).all()
    assert len(table) == 2 * 2 * len(CONTESTS["mixtures"].entries)
    (section,) = contest_sections(table, bins)
    names = [getattr(block, "name", "") for block in section.blocks]
    assert names == ["", "contest-mixtures-ranks", "contest-shares", "contest-mixtures", ""]
